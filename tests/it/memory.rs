//! Memory over many pictures: no slope (llama.cpp#13958, #28008).
//!
//! Measured in a process of its own, because the other tests of this one allocate too.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::models::Family;
use crate::world::{files, picture};

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A thousand different pictures through one session, then another half a thousand: the second stretch adds nothing.
#[test]
fn a_thousand_pictures_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let pair = files(Family::Llava15);
    let mut child = Command::new(env!("CARGO_BIN_EXE_llava-cli"))
        // a cache that is full long before the end: evicting leaves nothing behind either
        .args(["-t", "1", "-c", "512", "-n", "1", "--temp", "0", "--no-warmup", "--cache-mb", "1", "-m"])
        .arg(&pair.text)
        .arg("--mmproj")
        .arg(&pair.projector)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut ask = |seed: u32| {
        let path = dir.path().join("picture.ppm");
        let image = picture(30, 30, seed);
        let mut bytes = b"P6 30 30 255\n".to_vec();
        bytes.extend_from_slice(image.pixels());
        // no two are alike
        let at = bytes.len() - 3;
        bytes[at..].copy_from_slice(&[(seed % 251) as u8, (seed / 251) as u8, 7]);
        std::fs::write(&path, bytes).unwrap();
        writeln!(input, "/clear\n/image {}\nx", path.display()).unwrap();
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended at picture {seed}");
    };
    (0..1000).for_each(&mut ask);
    let warm = resident(child.id());
    (1000..1500).for_each(&mut ask);
    let later = resident(child.id());
    drop(input);
    assert!(child.wait().unwrap().success());
    assert!(later < warm + 1024, "{warm} KiB after 1000 pictures, {later} KiB after 1500");
}
