//! Split models: `NAME-00001-of-0000N.gguf` and its sisters, seen as one file.

use std::path::{Path, PathBuf};

use super::file::GgufFile;
use crate::error::{Error, Result};

impl GgufFile {
    /// Opens a model that may be split: given its first part (`NAME-00001-of-0000N.gguf`), all parts are opened and
    /// their tensors are one list. A file without `split.count`, or with a count of 1, is opened as it is.
    ///
    /// # Errors
    /// As [`GgufFile::open`]; [`Error::BadMetadata`] if this is not the first part, the parts disagree about their
    /// number or order, or the file name does not follow the pattern; [`Error::DamagedGguf`] if the parts hold a
    /// tensor twice or not the promised number of tensors.
    pub fn open_split(path: impl AsRef<Path>) -> Result<GgufFile> {
        let path = path.as_ref();
        let mut model = GgufFile::open(path)?;
        let count = model.get::<u16>("split.count")?.unwrap_or(1);
        if count <= 1 {
            return Ok(model);
        }
        let number = model.get::<u16>("split.no")?.unwrap_or(0);
        if number != 0 {
            return Err(model
                .bad_key("split.no", format!("is {number}; open the first part (number 0), it leads to the others")));
        }
        let Some(sisters) = part_paths(path, count) else {
            let wanted = format!("-00001-of-{count:05}.gguf");
            return Err(model.bad_key("split.count", format!("is {count}, so the file name has to end in `{wanted}`")));
        };
        for (i, sister) in (1..count).zip(sisters) {
            let part = GgufFile::open(&sister)?;
            let number = part.require::<u16>("split.no")?;
            if number != i {
                return Err(part.bad_key("split.no", format!("is {number}, by its name it must be {i}")));
            }
            if let Some(n) = part.get::<u16>("split.count")?.filter(|&n| n != count) {
                return Err(part.bad_key("split.count", format!("is {n}, the first part says {count}")));
            }
            model.append(part).map_err(|name| Error::DamagedGguf {
                path: sister,
                offset: 0,
                reason: format!("tensor `{name}` is in an earlier part too"),
            })?;
        }
        let promised = model.require::<i32>("split.tensors.count")?;
        if usize::try_from(promised).ok() != Some(model.tensors().len()) {
            let found = model.tensors().len();
            return Err(model.bad_key("split.tensors.count", format!("is {promised}, the {count} parts hold {found}")));
        }
        Ok(model)
    }
}

/// Paths of the parts after the first; `None` if the name does not end in `-00001-of-<count>.gguf`.
fn part_paths(first: &Path, count: u16) -> Option<impl Iterator<Item = PathBuf>> {
    let name = first.file_name()?.to_str()?;
    let stem = name.strip_suffix(&format!("-00001-of-{count:05}.gguf"))?.to_owned();
    let folder = first.to_path_buf();
    Some((2..=count).map(move |i| folder.with_file_name(format!("{stem}-{i:05}-of-{count:05}.gguf"))))
}
