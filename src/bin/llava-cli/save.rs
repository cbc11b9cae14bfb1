//! Writing result files whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use llava::{Error, Result};

/// Writes a file under a temporary name beside it and renames it. Devices and pipes are written directly.
pub fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, false)
}

/// As [`save`], readable for its owner only: conversations and what can be told from a picture.
pub fn save_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, true)
}

fn write(path: &Path, bytes: &[u8], private: bool) -> Result<()> {
    let failed = |source| Error::Io { action: "write", path: path.to_owned(), source };
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return File::options().write(true).open(path).and_then(|mut f| f.write_all(bytes)).map_err(failed);
    }
    // a link stays a link: its target is replaced
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let temporary = temporary_name(&target);
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    let result = options
        .open(&temporary)
        .and_then(|mut f| f.write_all(bytes).and_then(|()| f.sync_all()))
        .and_then(|()| fs::rename(&temporary, &target));
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
