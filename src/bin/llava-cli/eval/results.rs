//! All answers of a run, in memory and, with `--out`, in a file that every answer is appended to at once.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use llava::Error;
use serde_json::{Map, Value};

use super::plan::Plan;
use super::record::Record;
use crate::exit::Problem;

const NAME: &str = "answers.jsonl";

/// What the file begins with, and then the lines of each variant and each answer.
#[derive(Debug, Default)]
pub struct Results {
    file: Option<(PathBuf, File)>,
    /// By variant and question.
    records: HashMap<(String, String), Record>,
    /// Settings of the variants that have answered.
    variants: HashMap<String, Value>,
    has_run: bool,
}

impl Results {
    /// Begins, or goes on with what the folder holds.
    pub fn open(folder: Option<&Path>, plan: &Plan<'_>) -> Result<Self> {
        let Some(folder) = folder else { return Ok(Self::default()) };
        let io = |action: &'static str, path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { action, path, source }
        };
        fs::create_dir_all(folder).map_err(io("create", folder))?;
        let path = folder.join(NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io("read", &path)(error).into()),
        };
        // a line without an end was being written when the run was stopped
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let mut results = Self::default();
        results.read(&bytes[..whole], &path, plan)?;
        let file = File::options().create(true).append(true).open(&path).map_err(io("open", &path))?;
        file.set_len(whole as u64).map_err(io("write", &path))?;
        results.file = Some((path, file));
        if !results.has_run {
            results.append(&plan.run)?;
        }
        for (variant, settings) in plan.variants.iter().zip(&plan.settings) {
            if !results.variants.contains_key(&variant.name) {
                results.append(settings)?;
            }
        }
        Ok(results)
    }

    fn read(&mut self, bytes: &[u8], path: &Path, plan: &Plan<'_>) -> Result<()> {
        for (line, number) in bytes.split_inclusive(|b| *b == b'\n').zip(1_usize..) {
            let damaged = |what: String| {
                let problem = Problem::usage(format!("{}, line {number}: {what}", path.display()));
                problem.hint("take another folder for --out, or remove this line")
            };
            let value = serde_json::from_slice(line).map_err(|e| damaged(format!("not JSON: {e}")))?;
            let Value::Object(object) = &value else { return Err(damaged("not a JSON object".into()).into()) };
            let text = |key: &str| object.get(key).and_then(Value::as_str);
            if object.contains_key("llava_eval") {
                check(&plan.run, object, "the run", path)?;
                self.has_run = true;
            } else if !self.has_run {
                return Err(damaged("this is no file of llava-cli eval".into()).into());
            } else if let (Some(item), Some(variant)) = (text("item"), text("variant")) {
                let record = Record::from_json(object).map_err(damaged)?;
                self.records.insert((variant.to_owned(), item.to_owned()), record);
            } else if let Some(variant) = text("variant") {
                if let Some(known) = plan.settings.iter().find(|s| s["variant"] == variant) {
                    check(known, object, &format!("variant `{variant}`"), path)?;
                }
                self.variants.insert(variant.to_owned(), value);
            } else {
                return Err(damaged("neither settings nor an answer".into()).into());
            }
        }
        Ok(())
    }

    fn append(&mut self, line: &Value) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        // one write for the whole line, so that a stop leaves whole lines and at most one part
        let written = file.write_all(format!("{line}\n").as_bytes()).and_then(|()| file.flush());
        Ok(written.map_err(|source| Error::Io { action: "write", path: path.clone(), source })?)
    }

    pub fn get(&self, variant: &str, item: &str) -> Option<&Record> {
        self.records.get(&(variant.to_owned(), item.to_owned()))
    }

    /// Keeps an answer.
    pub fn add(&mut self, plan: &Plan<'_>, variant: usize, item: usize, record: Record) -> Result<()> {
        let (name, item) = (&plan.variants[variant].name, &plan.items.list[item]);
        self.append(&record.to_json(item, name))?;
        self.records.insert((name.clone(), item.id.clone()), record);
        Ok(())
    }
}

/// Refuses to go on with results of other settings.
fn check(now: &Value, then: &Map<String, Value>, what: &str, path: &Path) -> Result<()> {
    let mut differences = Vec::new();
    for (key, value) in now.as_object().into_iter().flatten() {
        let before = then.get(key).unwrap_or(&Value::Null);
        if before != value {
            differences.push(difference(key, before, value));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let message = format!("{} holds results of other settings: {what}: {}", path.display(), differences.join("; "));
    Err(Problem::usage(message).hint("take another folder for --out, or the settings of before").into())
}

/// The parts of two values that differ: settings are long.
fn difference(key: &str, before: &Value, now: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (before, now) = (text(before), text(now));
    let parts: Vec<String> = before
        .split(", ")
        .zip(now.split(", "))
        .filter(|(a, b)| a != b)
        .take(3)
        .map(|(a, b)| format!("{a} is now {b}"))
        .collect();
    if parts.is_empty() { format!("{key}: {before} is now {now}") } else { format!("{key}: {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::items::Items;
    use crate::eval::record::tests::{item, record};
    use crate::eval::variants::Variant;
    use serde_json::json;

    fn items() -> Items {
        Items { list: vec![item("a-0", "a"), item("a-1", "a")], tasks: vec!["a".into()], origin: "test".into() }
    }

    fn variants() -> Vec<Variant> {
        use clap::Parser;
        let cli = crate::args::Cli::parse_from(["llava-cli", "eval"]);
        let Some(crate::args::Command::Eval(args)) = cli.command else { panic!("no eval") };
        let named = |name: &str| Variant { name: name.into(), setup: args.setup.clone() };
        vec![named("one"), named("two")]
    }

    fn plan<'a>(items: &'a Items, variants: &'a [Variant], seed: u32, threads: u32) -> Plan<'a> {
        let settings = variants
            .iter()
            .map(|v| json!({"variant": v.name, "settings": format!("A {{ threads: {threads}, temp: 0.0 }}")}))
            .collect();
        Plan { items, variants, files: Vec::new(), run: json!({"llava_eval": 1, "questions": seed}), settings }
    }

    #[test]
    fn a_stopped_run_goes_on() {
        let home = tempfile::tempdir().unwrap();
        let (items, variants) = (items(), variants());
        let plan = plan(&items, &variants, 1, 2);
        let path = home.path().join("out").join(NAME);
        let folder = path.parent();
        {
            let mut results = Results::open(folder, &plan).unwrap();
            results.add(&plan, 0, 0, record(1.0)).unwrap();
            results.add(&plan, 1, 0, record(0.0)).unwrap();
        }
        // as if the power had failed in the middle of a line
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let mut results = Results::open(folder, &plan).unwrap();
        assert_eq!(results.get("one", "a-0"), Some(&record(1.0)));
        assert_eq!(results.get("two", "a-0"), None);
        results.add(&plan, 1, 0, record(0.0)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn other_settings_are_refused_and_new_variants_are_not() {
        let home = tempfile::tempdir().unwrap();
        let (items, variants) = (items(), variants());
        drop(Results::open(Some(home.path()), &plan(&items, &variants[..1], 1, 2)).unwrap());
        let refused = |plan: &Plan<'_>| Results::open(Some(home.path()), plan).unwrap_err().to_string();
        let said = refused(&plan(&items, &variants, 2, 2));
        assert!(said.contains("questions: 1 is now 2"), "{said}");
        let said = refused(&plan(&items, &variants, 1, 4));
        assert!(said.contains("variant `one`") && said.contains("threads: 2 is now A { threads: 4"), "{said}");
        Results::open(Some(home.path()), &plan(&items, &variants, 1, 2)).unwrap();
    }

    #[test]
    fn damage_is_said_with_its_line() {
        let home = tempfile::tempdir().unwrap();
        let (items, variants) = (items(), variants());
        let plan = plan(&items, &variants, 1, 2);
        let run = plan.run.to_string();
        for (content, words) in [
            ("notes\n".to_owned(), "line 1: not JSON"),
            ("{\"item\": \"a-0\", \"variant\": \"one\"}\n".into(), "line 1: this is no file"),
            (format!("{run}\n{{\"item\": \"a-0\", \"variant\": \"one\"}}\n"), "line 2: `answer` is no text"),
            (format!("{run}\n[]\n"), "line 2: not a JSON object"),
            (format!("{run}\n{{}}\n"), "line 2: neither"),
        ] {
            fs::write(home.path().join(NAME), content).unwrap();
            let said = Results::open(Some(home.path()), &plan).unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}
