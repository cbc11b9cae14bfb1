//! Compiles C++ object by object, and only the objects whose inputs changed. The `cc` crate alone compiles everything each
//! time the build script runs, and libmtmd is fifty files of templates.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// One object to be.
pub struct Unit {
    /// The file to compile.
    pub source: PathBuf,
    /// Source files that it includes.
    pub includes: Vec<PathBuf>,
    /// What this unit needs and the others do not.
    pub extra: Extra,
}

/// A flag for single units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extra {
    Nothing,
    /// A macro and its value.
    Define(&'static str, &'static str),
    /// Compile a `.c` file as C++, as upstream does with one of its own.
    AsCpp,
}

impl Unit {
    pub fn new(source: PathBuf) -> Self {
        Self { source, includes: Vec::new(), extra: Extra::Nothing }
    }
}

/// Makes the static library `name` in `dir` and returns how many objects had to be compiled.
///
/// `shared` are the headers that every unit may include.
pub fn archive(name: &str, build: &cc::Build, units: &[Unit], shared: &[PathBuf], dir: &Path) -> Result<usize, String> {
    fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let stamp = dir.join(format!("{name}.stamp"));
    let known = read_stamp(&stamp);
    let base = base_key(build, shared)?;

    let mut stale: BTreeMap<Extra, Vec<&Unit>> = BTreeMap::new();
    let mut objects = BTreeMap::new();
    for unit in units {
        let key = unit_key(base, unit)?;
        match known.get(&unit.source) {
            Some((old, object)) if *old == key && object.is_file() => {
                objects.insert(unit.source.clone(), (key, object.clone()));
            }
            _ => stale.entry(unit.extra).or_default().push(unit),
        }
    }
    let mut compiled = 0;
    for (extra, group) in stale {
        let mut build = build.clone();
        build.out_dir(dir).files(group.iter().map(|unit| &unit.source));
        match extra {
            Extra::Nothing => &mut build,
            Extra::Define(name, value) => build.define(name, value),
            Extra::AsCpp => build.flag("-xc++"),
        };
        let made = build.try_compile_intermediates().map_err(|error| format!("{name}: {error}"))?;
        compiled += made.len();
        for (unit, object) in group.iter().zip(made) {
            objects.insert(unit.source.clone(), (unit_key(base, unit)?, object));
        }
    }
    let text = write_stamp(&objects);
    let library =
        dir.join(if build.get_compiler().is_like_msvc() { format!("{name}.lib") } else { format!("lib{name}.a") });
    if compiled == 0 && library.is_file() && fs::read_to_string(&stamp).is_ok_and(|old| old == text) {
        return Ok(0);
    }
    // Before the stamp is renewed: an archive that fails half way must not look finished.
    let _ = fs::remove_file(&library);
    let mut build = build.clone();
    build.out_dir(dir).objects(objects.values().map(|(_, object)| object));
    build.try_compile(name).map_err(|error| format!("{name}: {error}"))?;
    fs::write(&stamp, text).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(compiled)
}

/// Compiler, flags, and headers.
fn base_key(build: &cc::Build, shared: &[PathBuf]) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    let tool = build.try_get_compiler().map_err(|error| error.to_string())?;
    (tool.path(), tool.args()).hash(&mut hasher);
    for file in shared {
        state(file, &mut hasher)?;
    }
    Ok(hasher.finish())
}

fn unit_key(base: u64, unit: &Unit) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    (base, unit.extra).hash(&mut hasher);
    for file in unit.includes.iter().chain([&unit.source]) {
        state(file, &mut hasher)?;
    }
    Ok(hasher.finish())
}

/// Path, length and time of a file, as make would judge it.
fn state(file: &Path, hasher: &mut DefaultHasher) -> Result<(), String> {
    let describe = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let metadata = fs::metadata(file).map_err(|error| describe(&error))?;
    let modified = metadata.modified().map_err(|error| describe(&error))?;
    let nanoseconds = modified.duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
    (file, metadata.len(), nanoseconds).hash(hasher);
    Ok(())
}

/// Lines of `key<TAB>object<TAB>source`. Anything unreadable means compiling again.
fn read_stamp(stamp: &Path) -> BTreeMap<PathBuf, (u64, PathBuf)> {
    let text = fs::read_to_string(stamp).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let key = u64::from_str_radix(fields.next()?, 16).ok()?;
            let object = PathBuf::from(fields.next()?);
            Some((PathBuf::from(fields.next()?), (key, object)))
        })
        .collect()
}

fn write_stamp(objects: &BTreeMap<PathBuf, (u64, PathBuf)>) -> String {
    let line = |(source, (key, object)): (&PathBuf, &(u64, PathBuf))| {
        format!("{key:016x}\t{}\t{}\n", object.display(), source.display())
    };
    objects.iter().map(line).collect()
}
