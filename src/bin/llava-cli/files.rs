//! Which files `-m` and `--mmproj` mean. A folder is only taken where it leaves no choice.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use llava::Error;
use llava::gguf::GgufFile;

use crate::args::ModelArgs;
use crate::exit::{self, Problem, Stage};

/// The files to load.
#[derive(Debug)]
pub struct Files {
    pub model: PathBuf,
    pub projector: Option<PathBuf>,
    /// Keeps the demo model's files in place while they are loaded.
    #[cfg(feature = "demo")]
    _demo: Option<llava::demo::DemoModel>,
}

impl Files {
    /// Finds the files. Nothing is loaded, but the headers of a folder's files are read.
    pub fn find(args: &ModelArgs) -> Result<Self> {
        let Some(model) = &args.model else {
            if args.mmproj.is_some() {
                return Err(Problem::usage("--mmproj needs the text model it belongs to: -m FILE").into());
            }
            return Self::demo(args.no_mmproj);
        };
        let folder = if model.is_dir() { Some(scan(model).context(Stage::Model)?) } else { None };
        let text = match &folder {
            Some(found) => found.only_model(model)?,
            None => model.clone(),
        };
        let projector = match (&args.mmproj, &folder) {
            _ if args.no_mmproj => None,
            (Some(path), _) if path.is_dir() => {
                Some(scan(path).context(Stage::Model)?.only_projector(path)?.ok_or_else(|| {
                    Problem::new(exit::MODEL, "no-projector", format!("{} holds no projector", path.display()))
                })?)
            }
            (Some(path), _) => {
                // without a picture nobody would open it, and a misspelt name would go unnoticed
                let file = GgufFile::open(path).context(Stage::Model)?;
                if file.get::<&str>("general.architecture").context(Stage::Model)? != Some("clip") {
                    let message = format!("{} is no projector", path.display());
                    return Err(Problem::new(exit::MODEL, "gguf-metadata", message)
                        .hint("--mmproj takes the mmproj file of the model given with -m")
                        .into());
                }
                Some(path.clone())
            }
            (None, Some(found)) => found.only_projector(model)?,
            (None, None) => None,
        };
        Ok(Self::new(text, projector))
    }

    #[cfg(feature = "demo")]
    fn new(model: PathBuf, projector: Option<PathBuf>) -> Self {
        Self { model, projector, _demo: None }
    }

    #[cfg(not(feature = "demo"))]
    fn new(model: PathBuf, projector: Option<PathBuf>) -> Self {
        Self { model, projector }
    }

    #[cfg(feature = "demo")]
    fn demo(text_only: bool) -> Result<Self> {
        let demo = llava::demo::DemoModel::unpack()?;
        crate::console::note(
            "no -m given: the built-in demo model answers (shapes, colours and words in synthetic pictures)",
        );
        let projector = (!text_only).then(|| demo.projector().to_owned());
        Ok(Self { model: demo.model().to_owned(), projector, _demo: Some(demo) })
    }

    #[cfg(not(feature = "demo"))]
    fn demo(_: bool) -> Result<Self> {
        Err(Problem::usage("-m FILE is needed").hint("this program was built without the demo model").into())
    }

    /// Refuses pictures where nothing can see them, before anything is loaded.
    pub fn need_vision(&self) -> llava::Result<&Path> {
        self.projector.as_deref().ok_or_else(|| Error::NoVision {
            reason: format!("there is a picture, but no projector for {}", self.model.display()),
        })
    }
}

/// GGUF files of a folder by what they are.
#[derive(Debug, Default)]
struct Found {
    models: Vec<PathBuf>,
    projectors: Vec<PathBuf>,
}

impl Found {
    fn only_model(&self, folder: &Path) -> Result<PathBuf> {
        match self.models.as_slice() {
            [one] => Ok(one.clone()),
            [] => {
                let message = format!("{} holds no GGUF text model", folder.display());
                Err(Problem::new(exit::MODEL, "no-model", message).into())
            }
            many => Err(ambiguous(folder, many).into()),
        }
    }

    fn only_projector(&self, folder: &Path) -> Result<Option<PathBuf>> {
        match self.projectors.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            many => Err(ambiguous(folder, many).into()),
        }
    }
}

fn ambiguous(folder: &Path, files: &[PathBuf]) -> Error {
    let name = |p: &PathBuf| p.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Error::Ambiguous { path: folder.to_owned(), candidates: files.iter().map(name).collect() }
}

fn scan(folder: &Path) -> llava::Result<Found> {
    let io = |source| Error::Io { action: "read", path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let mut found = Found::default();
    for path in paths {
        let file = GgufFile::open(&path)?;
        // only the first part of a split model is named to the loader
        if file.get::<u16>("split.no")?.unwrap_or(0) > 0 {
            continue;
        }
        let architecture = file.get::<&str>("general.architecture")?;
        if architecture == Some("clip") {
            found.projectors.push(path);
        } else if architecture.is_some() && file.value("tokenizer.ggml.model").is_some() {
            // adapters, compressors and importance matrices have no tokenizer
            found.models.push(path);
        }
    }
    Ok(found)
}
