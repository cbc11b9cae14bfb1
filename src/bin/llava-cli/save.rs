//! Writing result files whole or not at all.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
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
    let file = File::open(path).map_err(|source| Error::Io { action: "read", path: path.to_owned(), source })?;
    read_open(&file, path, limit)
}

/// As [`read_whole`], of a file that is open already.
pub fn read_open(file: &File, path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let failed = |source| Error::Io { action: "read", path: path.to_owned(), source };
    let too_large = |bytes: u64| {
        Problem::failed("file-too-large", format!("{}: {bytes} bytes or more, the limit is {limit}", path.display()))
    };
    let size = file.metadata().map_err(failed)?.len();
    if size > limit {
        return Err(too_large(size).into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // one byte more, to see that it is longer: a pipe has no size
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64).into());
    }
    Ok(bytes)
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
    let (temporary, mut file) = make_temporary(&target, private).map_err(failed)?;
    let written = (|| {
        if private {
            // nobody else knows the name, so this does not wait; where there are no locks, two writers are the user's affair
            let _ = file.try_lock();
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &target)
    })();
    match written {
        Ok(()) => Ok(file),
        Err(error) => {
            // it is ours, and of no use to anybody
            let _ = fs::remove_file(&temporary);
            Err(failed(error))
        }
    }
}

/// Makes and removes a file beside `path`, as a later [`save_private`] will: whether that can work shows beforehand. What writers
/// that died have left of this file goes; call it while no other process writes it.
pub fn rehearse(path: &Path) -> io::Result<()> {
    let target = fs::canonicalize(path)?;
    if let (Some(folder), Some(name)) = (target.parent(), target.file_name().and_then(|n| n.to_str())) {
        let stem = format!("{}.", shorten(name));
        for entry in fs::read_dir(folder)?.flatten() {
            let left = entry.file_name();
            let middle = left.to_str().and_then(|n| n.strip_prefix(&stem)?.strip_suffix(".tmp"));
            let ours = middle.is_some_and(|m| !m.is_empty() && m.bytes().all(|b| b.is_ascii_digit() || b == b'-'));
            if ours && entry.file_type().is_ok_and(|t| t.is_file()) {
                // somebody else's in a shared folder stays
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    let (temporary, _) = make_temporary(&target, true)?;
    fs::remove_file(temporary)
}

/// A new file beside `target`. Names that are taken are passed by: process numbers come again.
fn make_temporary(target: &Path, private: bool) -> io::Result<(PathBuf, File)> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    if private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    for n in 0_u16.. {
        let temporary = target.with_file_name(format!("{}.{}-{n}.tmp", shorten(&name), std::process::id()));
        match options.open(&temporary) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && n < u16::MAX => {}
            made => return made.map(|file| (temporary, file)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// The beginning of a name that leaves room for more.
fn shorten(name: &str) -> &str {
    const MOST_BYTES: usize = 180;
    &name[..name.floor_char_boundary(MOST_BYTES)]
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
