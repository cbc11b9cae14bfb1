//! The pin: writes the manifest and lock file out as a package and lets cargo say where the source lies.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Request;
use crate::error::{Error, io};

const MANIFEST: &str = include_str!("../llama.cpp/pin.toml");
const LOCK: &str = include_str!("../llama.cpp/pin.lock");

/// The one package named by the pin, and the folder of llama.cpp inside it.
pub(crate) const PACKAGE: &str = "llama-cpp-sys-2";
const FOLDER: &str = "llama.cpp";

/// Asks cargo for the pinned package, first without the network, and returns the folder of llama.cpp.
pub(crate) fn locate(request: &Request) -> Result<PathBuf, Error> {
    let manifest = write_out(&request.work_dir.join("pin"))?;
    let answer = match metadata(request, &manifest, true) {
        Ok(answer) => answer,
        // Not in the local registry yet. CARGO_NET_OFFLINE and cargo's own configuration still hold in this second call.
        Err(_) => metadata(request, &manifest, false)?,
    };
    let dir = package_dir(&answer).ok_or_else(|| Error::Cargo {
        message: format!("`cargo metadata` does not list the package {PACKAGE}"),
        manifest: manifest.clone(),
    })?;
    Ok(dir.join(FOLDER))
}

/// Writes the package into `dir` and returns its manifest. Files that are right already are left untouched.
fn write_out(dir: &Path) -> Result<PathBuf, Error> {
    let manifest = dir.join("Cargo.toml");
    let files = [(manifest.clone(), MANIFEST), (dir.join("Cargo.lock"), LOCK), (dir.join("src/lib.rs"), "")];
    let sources = dir.join("src");
    std::fs::create_dir_all(&sources).map_err(io(&sources))?;
    for (file, text) in files {
        if std::fs::read_to_string(&file).is_ok_and(|old| old == text) {
            continue;
        }
        std::fs::write(&file, text).map_err(io(&file))?;
    }
    Ok(manifest)
}

fn metadata(request: &Request, manifest: &Path, offline: bool) -> Result<serde_json::Value, Error> {
    let failed = |message: String| Error::Cargo { message, manifest: manifest.to_owned() };
    let mut command = Command::new(&request.cargo);
    command.args(["metadata", "--locked", "--format-version", "1"]).arg("--manifest-path").arg(manifest);
    if let Some(host) = &request.host {
        command.arg("--filter-platform").arg(host);
    }
    if offline {
        command.arg("--offline");
    }
    // Cargo looks for `.cargo/config.toml` (mirrors, vendored sources) from its working folder upwards.
    command.current_dir(&request.work_dir);
    command.envs(request.cargo_env.iter().map(|(name, value)| (name, value)));
    let output = command.output().map_err(|error| failed(format!("{}: {error}", request.cargo.display())))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(format!("unreadable metadata: {error}")))
}

/// Folder of the pinned package in an answer of `cargo metadata`.
pub(crate) fn package_dir(answer: &serde_json::Value) -> Option<PathBuf> {
    let packages = answer.get("packages")?.as_array()?;
    let package =
        packages.iter().find(|package| package.get("name").and_then(|name| name.as_str()) == Some(PACKAGE))?;
    Some(Path::new(package.get("manifest_path")?.as_str()?).parent()?.to_owned())
}
