//! What a run will do, and what identifies it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result};
use llava::Error;
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::items::Items;
use super::variants::Variant;
use crate::exit::Stage;
use crate::files::Files;
use crate::params;

/// Files up to twice this size are hashed whole, of larger ones this much at both ends.
const HASHED_BYTES: u64 = 32 << 20;

/// Questions and variants, with everything that can be checked before models are loaded.
#[derive(Debug)]
pub struct Plan<'a> {
    pub items: &'a Items,
    pub variants: &'a [Variant],
    /// For each variant, shared where the model flags are equal.
    pub files: Vec<Rc<Files>>,
    /// What makes two runs comparable: a line for the run and one for each variant.
    pub run: Value,
    pub settings: Vec<Value>,
}

impl<'a> Plan<'a> {
    pub fn new(items: &'a Items, scorers: &str, variants: &'a [Variant]) -> Result<Self> {
        let mut files: Vec<Rc<Files>> = Vec::new();
        let mut settings = Vec::new();
        for (i, variant) in variants.iter().enumerate() {
            let setup = &variant.setup;
            params::session(&setup.prompt, &setup.model, &setup.context, &setup.sampling)?;
            let known = variants[..i].iter().position(|v| v.setup.model == setup.model);
            let found = match known {
                Some(known) => Rc::clone(&files[known]),
                None => Rc::new(Files::find(&setup.model)?),
            };
            if !setup.blind {
                found.need_vision()?;
            }
            settings.push(json!({
                "variant": variant.name,
                "model": identity(&found.model)?,
                "projector": found.projector.as_deref().map(identity).transpose()?,
                "compressor": setup.compress.compressor.file().map(identity).transpose()?,
                "settings": format!("{setup:?}"),
            }));
            files.push(found);
        }
        let run = json!({
            "llava_eval": 1,
            "program": env!("CARGO_PKG_VERSION"),
            "questions": items.origin,
            "scorers": scorers,
            "reference": variants.first().map(|v| v.name.as_str()),
        });
        Ok(Self { items, variants, files, run, settings })
    }

    /// Answers that the run needs.
    pub fn total(&self) -> usize {
        self.items.list.len() * self.variants.len()
    }
}

/// Name, length and hash of a file.
fn identity(path: &Path) -> Result<String> {
    let io = |source| Error::Io { action: "read", path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io).context(Stage::Model)?;
    let length = file.metadata().map_err(io)?.len();
    let mut hash = Xxh3::new();
    let mut feed = |from: u64, bytes: u64| -> std::io::Result<()> {
        file.seek(SeekFrom::Start(from))?;
        std::io::copy(&mut (&mut file).take(bytes), &mut Feed(&mut hash)).map(drop)
    };
    if length <= 2 * HASHED_BYTES {
        feed(0, length).map_err(io)?;
    } else {
        feed(0, HASHED_BYTES).map_err(io)?;
        feed(length - HASHED_BYTES, HASHED_BYTES).map_err(io)?;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(format!("{name}, {length} bytes, {:016x}", hash.digest()))
}

struct Feed<'a>(&'a mut Xxh3);

impl std::io::Write for Feed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
