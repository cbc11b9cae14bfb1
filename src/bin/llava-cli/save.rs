//! Writing result files whole or not at all.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use llava::{Error, Result};

use crate::exit::Problem;

/// Writes a file under a temporary name beside it and renames it. Devices and pipes are written directly.
pub fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, false).map(drop)
}

/// As [`save`], readable for its owner only: conversations and what can be told from a picture.
pub fn save_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, true).map(drop)
}

/// As [`save_private`]; the file is locked before it appears under its name, for as long as the handle lives.
pub fn save_locked(path: &Path, bytes: &[u8]) -> Result<File> {
    write(path, bytes, true)
}

/// The whole content of a file of at most `limit` bytes.
pub fn read_whole(path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let failed = |source| Error::Io { action: "read", path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(limit)).unwrap_or(0));
    // one byte more, to see that it is longer: a pipe has no size
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    let value = size.max(bytes.len() as u64);
    if value > limit {
        return Err(too_large(path, value, limit).into());
    }
    Ok(bytes)
}

/// What is said of a file that is larger than anything this program writes.
pub fn too_large(path: &Path, bytes: u64, limit: u64) -> Problem {
    Problem::failed("file-too-large", format!("{}: {bytes} bytes or more, the limit is {limit}", path.display()))
}

fn write(path: &Path, bytes: &[u8], private: bool) -> Result<File> {
    let failed = |source| Error::Io { action: "write", path: path.to_owned(), source };
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        let mut file = File::options().write(true).open(path).map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        return Ok(file);
    }
    // a link stays a link: its target is replaced
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let temporary = temporary_name(&target);
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    if private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    let result = options.open(&temporary).and_then(|mut file| {
        if private {
            // nobody else knows the name yet, so this does not wait
            file.lock()?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &target)?;
        Ok(file)
    });
    result.map_err(|error| {
        // it may never have been made
        let _ = fs::remove_file(&temporary);
        failed(error)
    })
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_links_followed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.json");
        save(&path, b"first, longer").unwrap();
        save(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        #[cfg(unix)]
        {
            let link = home.path().join("link");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            save(&link, b"third").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"third");
            assert!(link.is_symlink());
            fs::remove_file(&link).unwrap();
            save(Path::new("/dev/null"), b"x").unwrap();
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        let error = save(&home.path().join("none/a.json"), b"x").unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }
}
