//! Compressors by name: `NAME[:key=value,...]`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use super::Compressor;
use super::merge::MergeTail;
use super::pool::{Full, Pool};
use super::resampler::Resampler;
use super::select::{Choice, Selector};
use super::tome::TomeLocal;
use crate::error::{Error, Result};

/// The methods by which rows become fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Method {
    /// All rows.
    Full,
    /// Means over a smaller grid.
    Pool,
    /// The most typical cell of each bin of a smaller grid.
    Stratified,
    /// Any cells.
    Random,
    /// Cells far from each other.
    Div,
    /// Cells far from each other and from the mean, weighed by how much they stand out.
    #[default]
    DivC,
    /// Cells that explain the others.
    Energy,
    /// Cells that represent the others.
    Cover,
    /// Like neighbours merged.
    TomeLocal,
    /// Learned queries.
    Resampler,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Full,
        Self::Pool,
        Self::Stratified,
        Self::Random,
        Self::Div,
        Self::DivC,
        Self::Energy,
        Self::Cover,
        Self::TomeLocal,
        Self::Resampler,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Pool => "pool",
            Self::Stratified => "stratified",
            Self::Random => "random",
            Self::Div => "div",
            Self::DivC => "div-c",
            Self::Energy => "energy",
            Self::Cover => "cover",
            Self::TomeLocal => "tome-local",
            Self::Resampler => "resampler",
        }
    }

    /// The options it takes.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Full | Self::TomeLocal => &[],
            Self::Pool => &["grid", "norm"],
            Self::Stratified => &["merge"],
            Self::Random => &["seed"],
            Self::Div | Self::DivC => &["quota", "merge"],
            Self::Energy => &["weight", "quota", "merge"],
            Self::Cover => &["tau", "weight", "quota", "merge"],
            Self::Resampler => &["file"],
        }
    }
}

/// A method with its options, as given by a user.
///
/// | option | methods | meaning | default |
/// |---|---|---|---|
/// | `quota` | `div`, `div-c`, `energy`, `cover` | share of the budget spread over a coarse grid first, 0 to 1 | 0 |
/// | `merge` | those and `stratified` | how strongly dropped cells are drawn into like neighbours, 0 to 1 | 0 |
/// | `weight` | `energy`, `cover` | 1: cells count as much as they stand out | 0 |
/// | `tau` | `cover` | temperature of the similarities, 0.01 to 10 | 0.2 |
/// | `seed` | `random` | which cells | 0 |
/// | `grid` | `pool` | columns x rows, for example `8x8` | from the budget |
/// | `norm` | `pool` | 1: means get the mean length of their members | 0 |
/// | `file` | `resampler` | GGUF file with the weights; takes the rest of the text | needed |
#[derive(Debug, Clone, PartialEq)]
pub struct CompressorSpec {
    method: Method,
    quota: f32,
    merge: f32,
    weight: bool,
    tau: f32,
    seed: u64,
    grid: Option<(usize, usize)>,
    norm: bool,
    file: Option<PathBuf>,
}

const TAU: f32 = 0.2;

impl Default for CompressorSpec {
    fn default() -> Self {
        Self::new(Method::default())
    }
}

impl CompressorSpec {
    /// A method with default options.
    #[must_use]
    pub fn new(method: Method) -> Self {
        Self { method, quota: 0.0, merge: 0.0, weight: false, tau: TAU, seed: 0, grid: None, norm: false, file: None }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// The file of weights, where the method has one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Makes the compressor. `projector`: content hash of the projector's file, for methods that are trained.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a `resampler` without weights or projector; those of [`Resampler::open`].
    pub fn build(&self, projector: Option<u128>) -> Result<Arc<dyn Compressor>> {
        let merge = MergeTail { beta: self.merge };
        let select = |choice| -> Arc<dyn Compressor> { Arc::new(Selector { choice, quota: self.quota, merge }) };
        Ok(match self.method {
            Method::Full => Arc::new(Full),
            Method::Pool => Arc::new(Pool { grid: self.grid, keep_length: self.norm }),
            Method::Stratified => select(Choice::Stratified),
            Method::Random => select(Choice::Random { seed: self.seed }),
            Method::Div => select(Choice::Div),
            Method::DivC => select(Choice::DivCentred),
            Method::Energy => select(Choice::Energy { weighed: self.weight }),
            Method::Cover => select(Choice::Cover { tau: self.tau, weighed: self.weight }),
            Method::TomeLocal => Arc::new(TomeLocal),
            Method::Resampler => {
                let file = self.file.as_ref().ok_or_else(|| bad("resampler", "file=PATH is needed".into()))?;
                let reason = "needs a loaded projector: its weights are trained for one";
                Arc::new(Resampler::open(file, projector.ok_or_else(|| bad("resampler", reason.into()))?)?)
            }
        })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let wrong = |rule: &str| bad(&format!("{key}={value}"), rule.to_owned());
        let number = |low: f32, high: f32| -> Result<f32> {
            let n = value.parse::<f32>().ok().filter(|n| (low..=high).contains(n));
            // -0 is 0: the canonical form has one of them
            n.map(|n| n + 0.0).ok_or_else(|| wrong(&format!("{low} to {high}")))
        };
        let switch = || match value {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(wrong("0 or 1")),
        };
        match key {
            "quota" => self.quota = number(0.0, 1.0)?,
            "merge" => self.merge = number(0.0, 1.0)?,
            "tau" => self.tau = number(0.01, 10.0)?,
            "weight" => self.weight = switch()?,
            "norm" => self.norm = switch()?,
            "seed" => self.seed = value.parse().map_err(|_| wrong("a whole number"))?,
            "grid" => {
                let side = |s: &str| s.parse::<usize>().ok().filter(|n| (1..=4096).contains(n));
                let sides = value.split_once('x').and_then(|(w, h)| side(w).zip(side(h)));
                self.grid = Some(sides.ok_or_else(|| wrong("COLUMNSxROWS, for example 8x8"))?);
            }
            _ => self.file = Some(PathBuf::from(value)),
        }
        Ok(())
    }
}

fn bad(value: &str, reason: String) -> Error {
    Error::BadParameter { name: "compressor", value: value.to_owned(), reason }
}

impl FromStr for CompressorSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, mut rest) = text.split_once(':').unwrap_or((text, ""));
        let method = Method::ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| {
            let known: Vec<_> = Method::ALL.iter().map(|m| m.name()).collect();
            bad(name, format!("known: {}", known.join(", ")))
        })?;
        let mut spec = Self::new(method);
        let mut seen: Vec<&str> = Vec::new();
        while !rest.is_empty() {
            let (option, next) = match rest.split_once(',') {
                // a path may hold commas
                Some(split) if !rest.starts_with("file=") => split,
                _ => (rest, ""),
            };
            rest = next;
            let (key, value) = option.split_once('=').ok_or_else(|| bad(option, "key=value".into()))?;
            if !method.options().contains(&key) {
                let known = if method.options().is_empty() { "none".into() } else { method.options().join(", ") };
                return Err(bad(option, format!("options of {name}: {known}")));
            }
            if seen.contains(&key) {
                return Err(bad(option, "is given twice".into()));
            }
            seen.push(key);
            spec.set(key, value)?;
        }
        Ok(spec)
    }
}

impl fmt::Display for CompressorSpec {
    /// What [`FromStr`] reads; options that have their default are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::new(self.method);
        let mut options = Vec::new();
        let mut put = |differs: bool, text: String| {
            if differs {
                options.push(text);
            }
        };
        put(self.grid.is_some(), self.grid.map_or(String::new(), |(w, h)| format!("grid={w}x{h}")));
        put(self.norm, "norm=1".into());
        put(self.seed != default.seed, format!("seed={}", self.seed));
        put(self.tau != default.tau, format!("tau={}", self.tau));
        put(self.weight, "weight=1".into());
        put(self.quota != default.quota, format!("quota={}", self.quota));
        put(self.merge != default.merge, format!("merge={}", self.merge));
        if let Some(file) = &self.file {
            put(true, format!("file={}", file.display()));
        }
        f.write_str(self.method.name())?;
        if options.is_empty() { Ok(()) } else { write!(f, ":{}", options.join(",")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_and_written() {
        for text in [
            "full",
            "pool",
            "pool:grid=7x7,norm=1",
            "stratified:merge=0.5",
            "random:seed=9",
            "div",
            "div-c",
            "div-c:quota=0.25,merge=0.5",
            "energy:weight=1",
            "cover:tau=0.02,weight=1,quota=0.25",
            "tome-local",
            "resampler:file=a,b:c.gguf",
        ] {
            let spec: CompressorSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
        assert_eq!("div-c:quota=0,merge=-0".parse::<CompressorSpec>().unwrap(), CompressorSpec::default());
        let id = |text: &str| text.parse::<CompressorSpec>().unwrap().build(None).unwrap().id();
        assert_eq!(id("div-c"), "div-c:quota=0,merge=0");
        assert_eq!(id("cover:weight=1"), "cover:tau=0.2,weight=1,quota=0,merge=0");
        assert_eq!(id("pool:grid=7x7"), "pool:grid=7x7,norm=0");
        assert_ne!(id("random:seed=1"), id("random:seed=2"));
    }

    #[test]
    fn wrong_specs_say_what_is_right() {
        for (text, says) in [
            ("divc", "known: full"),
            ("", "known: full"),
            ("div:tau=1", "options of div: quota, merge"),
            ("full:x=1", "options of full: none"),
            ("div-c:quota=2", "0 to 1"),
            ("div-c:quota=nan", "0 to 1"),
            ("div-c:quota", "key=value"),
            ("div-c:quota=0.1,quota=0.2", "twice"),
            ("pool:grid=8", "8x8"),
            ("pool:grid=0x8", "8x8"),
            ("random:seed=-1", "whole number"),
            ("energy:weight=2", "0 or 1"),
        ] {
            let error = text.parse::<CompressorSpec>().unwrap_err();
            assert!(error.code() == "bad-parameter" && error.to_string().contains(says), "{text}: {error}");
        }
        let build = |text: &str| text.parse::<CompressorSpec>().unwrap().build(None).unwrap_err().to_string();
        assert!(build("resampler").contains("file=PATH"));
        assert!(build("resampler:file=a.gguf").contains("projector"));
    }
}
