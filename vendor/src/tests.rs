//! Tests of the look-up: the pin through cargo, both overrides, and what is said when nothing fits.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A request as the build script makes it.
fn request(dir: &Path) -> Request {
    let mut request = Request::new(dir);
    request.cargo = PathBuf::from(std::env::var_os("CARGO").unwrap());
    request
}

/// A tree that has the look of llama.cpp, with the given versions.
fn tree(root: &Path, llama: &str, ggml: &str) {
    for file in ["LICENSE", "include/llama.h", "include/llama-cpp.h", "src/llama-ext.h"] {
        write(&root.join(file), "");
    }
    for file in ["ggml.h", "ggml-cpu.h", "gguf.h"] {
        write(&root.join("ggml/include").join(file), "");
    }
    for file in ["CMakeLists.txt", "clip.cpp", "mtmd.cpp", "mtmd.h", "models/llava.cpp"] {
        write(&root.join("tools/mtmd").join(file), "");
    }
    write(&root.join("CMakeLists.txt"), &cmake("LLAMA_VERSION", llama));
    write(&root.join("ggml/CMakeLists.txt"), &cmake("GGML_VERSION", ggml));
}

fn cmake(name: &str, version: &str) -> String {
    let parts: Vec<&str> = version.split('.').collect();
    format!(
        "project(x)\nset({name}_MAJOR {})\nset({name}_MINOR {})\n  set({name}_PATCH  {} )\n",
        parts[0], parts[1], parts[2]
    )
}

#[test]
fn the_pin_is_found_and_holds_the_pinned_versions() {
    let dir = tempfile::tempdir().unwrap();
    let source = locate(&request(dir.path())).unwrap();
    assert_eq!(source.origin(), Origin::Pin);
    assert_eq!(source.llama_version(), LLAMA_VERSION);
    assert_eq!(source.ggml_version(), GGML_VERSION);
    assert_eq!(source.build(), "b11434");
    assert!(source.root().join("tools/mtmd/mtmd.cpp").is_file());
    assert!(source.include_dirs().iter().all(|dir| dir.is_dir()));
    assert_eq!(fs::read_to_string(source.root().join("LICENSE")).unwrap(), LLAMA_LICENSE, "the licence note is stale");
}

#[test]
fn the_lock_names_one_version_and_its_checksum() {
    let manifest = include_str!("../llama.cpp/pin.toml");
    let lock = include_str!("../llama.cpp/pin.lock");
    let entry = lock.split("[[package]]").find(|text| text.contains(&format!("name = \"{}\"", pin::PACKAGE))).unwrap();
    let version = entry.lines().find_map(|line| line.strip_prefix("version = ")).unwrap().trim_matches('"');
    assert!(
        manifest.contains(&format!("{} = {{ version = \"={version}\"", pin::PACKAGE)),
        "pin.toml and pin.lock differ"
    );
    let checksum = entry.lines().find_map(|line| line.strip_prefix("checksum = ")).unwrap().trim_matches('"');
    assert_eq!(checksum.len(), 64);
}

#[test]
fn an_empty_cargo_home_without_a_network_names_both_remedies() {
    let dir = tempfile::tempdir().unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut request = request(dir.path());
    request.cargo_env = vec![("CARGO_HOME".into(), home.path().into()), ("CARGO_NET_OFFLINE".into(), "true".into())];
    let error = locate(&request).unwrap_err();
    assert!(matches!(error, Error::Cargo { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("LLAMA_CPP_DIR"), "{text}");
    assert!(text.contains("cargo fetch --locked --manifest-path"), "{text}");
    // The manifest named by the message is really there and cargo can read it.
    let Error::Cargo { manifest, .. } = error else { unreachable!() };
    assert!(manifest.is_file());
}

#[test]
fn a_missing_cargo_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let mut request = Request::new(dir.path());
    request.cargo = dir.path().join("no-such-cargo");
    let text = locate(&request).unwrap_err().to_string();
    assert!(text.contains("no-such-cargo") && text.contains("LLAMA_CPP_DIR"), "{text}");
}

#[test]
fn a_checkout_given_by_hand_wins_over_the_pin() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("checkout");
    tree(&root, LLAMA_VERSION, GGML_VERSION);
    let mut request = request(dir.path());
    request.llama_cpp_dir = Some(root.clone());
    // Proof that cargo is not asked.
    request.cargo = dir.path().join("no-such-cargo");
    let source = locate(&request).unwrap();
    assert_eq!(source.origin(), Origin::Dir);
    assert_eq!(source.root(), root);
    assert_eq!(source.build(), "local");
}

#[test]
fn a_checkout_of_another_version_is_refused_unless_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    for (llama, ggml, file) in
        [("0.7.0", GGML_VERSION, "CMakeLists.txt"), (LLAMA_VERSION, "0.27.1", "ggml/CMakeLists.txt")]
    {
        let root = dir.path().join(format!("{llama}-{ggml}"));
        tree(&root, llama, ggml);
        let mut request = request(dir.path());
        request.llama_cpp_dir = Some(root.clone());
        let error = locate(&request).unwrap_err();
        let Error::Version { file: found, .. } = &error else { panic!("{error:?}") };
        assert_eq!(found, &root.join(file));
        assert!(error.to_string().contains("bindgen"), "{error}");
        request.any_version = true;
        assert_eq!(locate(&request).unwrap().ggml_version(), ggml);
    }
}

#[test]
fn a_folder_that_is_no_llama_cpp_is_refused_with_the_missing_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut request = request(dir.path());
    request.llama_cpp_dir = Some(dir.path().join("nothing"));
    assert!(matches!(locate(&request), Err(Error::Missing { file, .. }) if file == "CMakeLists.txt"));

    let root = dir.path().join("no-mtmd");
    tree(&root, LLAMA_VERSION, GGML_VERSION);
    fs::remove_file(root.join("tools/mtmd/mtmd.cpp")).unwrap();
    request.llama_cpp_dir = Some(root.clone());
    assert!(matches!(locate(&request), Err(Error::Missing { file, .. }) if file == "tools/mtmd/mtmd.cpp"));

    let root = dir.path().join("no-version");
    tree(&root, LLAMA_VERSION, GGML_VERSION);
    fs::write(root.join("CMakeLists.txt"), "project(other)\n").unwrap();
    request.llama_cpp_dir = Some(root);
    assert!(matches!(locate(&request), Err(Error::Version { found: None, .. })));
}

const LIBRARIES: &[&str] = &["llama", "ggml", "ggml-cpu", "ggml-base"];

/// An installation with headers in two folders, as a source tree has them.
fn install(root: &Path) -> (PathBuf, Vec<PathBuf>) {
    let lib = root.join("lib");
    for name in LIBRARIES {
        write(&lib.join(format!("lib{name}.a")), &format!("!<arch>\nrubbish {GGML_VERSION}\0rest"));
    }
    let includes = vec![root.join("include"), root.join("ggml/include")];
    for header in ["llama.h", "llama-cpp.h"] {
        write(&includes[0].join(header), "");
    }
    for header in ["ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h", "gguf.h"] {
        write(&includes[1].join(header), "");
    }
    (lib, includes)
}

#[test]
fn prebuilt_libraries_are_accepted_when_whole_and_of_the_pinned_version() {
    let dir = tempfile::tempdir().unwrap();
    let (lib, includes) = install(dir.path());
    let found = prebuilt(&lib, &includes, LIBRARIES, false).unwrap();
    assert_eq!(found.lib_dir(), lib);
    assert_eq!(found.include_dirs(), includes);
}

#[test]
fn prebuilt_libraries_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (lib, includes) = install(dir.path());

    let missing = |result: Result<Prebuilt, Error>| match result {
        Err(Error::Missing { file, .. }) => file,
        other => panic!("{other:?}"),
    };
    assert_eq!(missing(prebuilt(&lib, &includes, &["llama", "ggml-cuda"], false)), "libggml-cuda.a");
    assert_eq!(missing(prebuilt(&lib, &includes, LIBRARIES, true)), "libllama.so");
    assert_eq!(missing(prebuilt(&lib, &includes[..1], LIBRARIES, false)), "ggml.h");
    assert_eq!(missing(prebuilt(&lib, &[], LIBRARIES, false)), "llama.h");

    fs::write(lib.join("libggml-base.a"), format!("!<arch>\n{GGML_VERSION}1\0")).unwrap();
    assert!(matches!(prebuilt(&lib, &includes, LIBRARIES, false), Err(Error::Version { .. })));
}

#[test]
fn metadata_without_the_package_is_no_answer() {
    let answer = serde_json::json!({ "packages": [{ "name": "other", "manifest_path": "/a/Cargo.toml" }] });
    assert_eq!(pin::package_dir(&answer), None);
    assert_eq!(pin::package_dir(&serde_json::json!({})), None);
    let answer = serde_json::json!({ "packages": [{ "name": pin::PACKAGE, "manifest_path": "/a/b/Cargo.toml" }] });
    assert_eq!(pin::package_dir(&answer), Some(PathBuf::from("/a/b")));
}
