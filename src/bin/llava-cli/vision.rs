//! `--vision`: which projector file is loaded.

use std::path::{Path, PathBuf};

use anyhow::Result;
use llava::Error;
use llava::quantize::{VisionFolder, VisionPrecision};

use crate::args::ModelArgs;
use crate::cache;
use crate::exit::{Problem, Stage};
use crate::progress;
use crate::signals::Interrupt;

/// The file to load for the projector at `path`: itself, or its quantised twin in the cache folder.
pub fn file(args: &ModelArgs, path: &Path, cache_dir: Option<&Path>, interrupt: &Interrupt) -> Result<PathBuf> {
    let precision = VisionPrecision::from(args.vision);
    if precision == VisionPrecision::AsIs {
        return Ok(path.to_owned());
    }
    // commands without cache flags of their own
    let from_environment = std::env::var_os("LLAVA_CACHE_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let folder = VisionFolder::new(cache::folder(cache_dir.or(from_environment.as_deref()))?);
    let bar = progress::working("quantising the vision tower", interrupt);
    folder.projector(path, precision, Some(&bar)).map_err(|error| match &error {
        // the cache folder's fault, not the model's
        Error::Io { action: "create" | "write" | "lock", .. } => {
            let hint = "name another cache folder (--cache-dir), or load the file as it is (--vision as-is)";
            Problem::failed(error.code(), error.to_string()).hint(hint).into()
        }
        _ => anyhow::Error::new(error).context(Stage::Model),
    })
}
