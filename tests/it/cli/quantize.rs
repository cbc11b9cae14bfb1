//! `llava-cli quantize` and `--vision` from outside.

use std::path::Path;

use llava::gguf::{GgufFile, TensorType};
use serde_json::Value;

use super::{SAMPLES, World, demo, finish, text};

fn source() -> std::path::PathBuf {
    demo("demo-mmproj-f16.gguf")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).map(|d| d.map(|e| e.unwrap().file_name().into_string().unwrap()).collect());
    let mut names: Vec<String> = entries.unwrap_or_default();
    names.sort();
    names
}

#[test]
fn a_plan_is_printed_and_nothing_written() {
    let world = World::new();
    let before = names(&world.path(""));
    let outcome = world.run(&["quantize", text(&source()), "--dry-run", "--keep", r"^v\.blk\.0\."]).ok();
    let line = |name: &str| outcome.stdout.lines().find(|l| l.starts_with(name)).unwrap().to_owned();
    assert!(line("v.blk.1.attn_q.weight").contains("q8_0") && line("v.blk.1.attn_q.weight").contains("tower matrix"));
    assert!(line("v.blk.0.attn_q.weight").contains("kept by"));
    assert!(line("v.patch_embd.weight").contains("patches, as it is"));
    assert!(outcome.stdout.lines().last().unwrap().contains(" %)"));
    assert_eq!(names(&world.path("")), before);
}

#[test]
fn a_checked_file_answers_as_the_original() {
    let world = World::new();
    let out = world.path("small.gguf");
    let (source, model) = (source(), demo("demo-lm-f16.gguf"));
    let (pictures, json) = (world.path("pictures"), world.path("report.json"));
    std::fs::create_dir(&pictures).unwrap();
    for sample in &SAMPLES {
        world.copy(sample.picture, &format!("pictures/{}", sample.picture));
    }
    world.write("pictures/readme.txt", "no picture");
    let check = ["--check", text(&pictures), "-m", text(&model), "--report", text(&json), "-t", "1"];
    let args = [&["quantize", text(&source), text(&out)], &check[..]].concat();
    let outcome = world.run(&args).ok().says("cosine of the projector's rows over 4 pictures").says("KL");
    assert_eq!(outcome.stdout, "");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((report["passed"].as_bool(), report["top1"].as_f64()), (Some(true), Some(1.0)));
    assert!(report["rows"]["mean_cosine"].as_f64().unwrap() > 0.999);
    assert_eq!(report["pictures"].as_array().unwrap().len(), 4);
    assert!(!report["layers"].as_array().unwrap().is_empty());
    let markdown = std::fs::read_to_string(world.path("report.md")).unwrap();
    assert!(markdown.contains("Passed") && markdown.contains("| sign.png |"), "{markdown}");
    let file = GgufFile::open(&out).unwrap();
    assert!(file.require::<bool>("llava.quantize.checked").unwrap());
    assert_eq!(file.tensor("v.blk.0.attn_q.weight").unwrap().ggml_type, TensorType::Q8_0);
    for sample in &SAMPLES {
        let picture = demo(sample.picture);
        let files = ["-m", text(&model), "--mmproj", text(&out), "--image", text(&picture), "-p", sample.question];
        assert_eq!(world.ask(&files).ok().stdout.trim(), sample.answer);
    }

    // below any floor
    let strict = ["--overwrite", "--check", "builtin", "--min-cosine", "1", "-t", "1"];
    let before = std::fs::read(&out).unwrap();
    let args = [&["quantize", text(&source), text(&out)], &strict[..]].concat();
    world.run(&args).failed(1, "below-floor").says("floor 1").says("--force");
    assert!(std::fs::read(&out).unwrap() == before);
    world.run(&[&args[..], &["--force"]].concat()).ok().says("marked");
    assert!(GgufFile::open(&out).unwrap().require::<bool>("llava.quantize.below_floor").unwrap());
    // nobody gets rid of the mark by starting from the file that has it
    world.run(&["quantize", text(&out), "clean.gguf"]).failed(2, "bad-parameter").says("nothing to do");
    let again = ["quantize", text(&out), "clean.gguf", "--projector", "f32", "--check", "builtin"];
    world.run(&again).failed(2, "usage").says("compare with the original");
    assert!(!world.path("clean.gguf").exists());
}

#[test]
fn a_report_replaces_nobodys_file() {
    let world = World::new();
    let input = world.copy("demo-mmproj-f16.gguf", "in.json");
    let old = world.write("old.md", "old");
    let run = |out: &str, more: &[&str]| {
        world.run(&[&["quantize", text(&input), out, "--check", "builtin", "-t", "1"], more].concat())
    };
    run("x.gguf", &["--report", "in"]).failed(2, "usage").says("another file");
    run("x.gguf", &["--report", "in", "--overwrite"]).failed(2, "usage").says("another file");
    run("x.json", &["--report", "x.md", "--overwrite"]).failed(2, "usage").says("another file");
    let model = world.copy("demo-lm-f16.gguf", "model.md");
    run("x.gguf", &["--report", "model", "-m", text(&model), "--overwrite"]).failed(2, "usage").says("another file");
    run("x.gguf", &["--report", "old"]).failed(2, "usage").says("exists already").says("--overwrite");
    run("x.gguf", &["--report", "none/report"]).failed(2, "usage").says("no such folder");
    assert_eq!(std::fs::read(&old).unwrap(), b"old");
    assert!(std::fs::read(&input).unwrap() == std::fs::read(source()).unwrap());
    assert!(!world.path("x.gguf").exists() && !world.path("old.json").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_report_of_a_file_whose_name_is_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let name = std::ffi::OsStr::from_bytes(b"in-\xff.gguf");
    std::fs::copy(source(), world.path("").join(name)).unwrap();
    let args = ["--check", "builtin", "--report", "report", "-t", "1"];
    let mut command = world.command(&["quantize"]);
    command.arg(name).arg("out.gguf").args(args);
    finish(command.spawn().unwrap()).ok();
    let report: Value = serde_json::from_slice(&std::fs::read(world.path("report.json")).unwrap()).unwrap();
    assert!(report["source"].as_str().unwrap().starts_with("in-"));
}

#[test]
fn what_quantize_refuses() {
    let world = World::new();
    let input = world.copy("demo-mmproj-f16.gguf", "in.gguf");
    let old = world.write("old.gguf", "old");
    let run = |args: &[&str]| world.run(&[&["quantize", text(&input)], args].concat());
    assert_eq!(run(&[]).code, Some(2), "OUT is missing");
    run(&[text(&old)]).failed(2, "bad-parameter").says("exists already").says("--overwrite");
    run(&[text(&input), "--overwrite"]).failed(2, "bad-parameter").says("source itself");
    run(&["x.gguf", "--keep", "("]).failed(2, "bad-parameter").says("regular expression");
    assert_eq!(run(&["x.gguf", "--force"]).code, Some(2), "nothing to force without --check");
    run(&["x.gguf", "--check", "nowhere"]).failed(4, "io");
    std::fs::create_dir(world.path("empty")).unwrap();
    run(&["x.gguf", "--check", "empty"]).failed(2, "usage").says("no picture");
    run(&["x.gguf", "--check", "builtin", "--min-cosine", "2"]).failed(2, "usage");
    run(&["none/x.gguf"]).failed(1, "io");
    world.run(&["quantize", "missing.gguf", "x.gguf"]).failed(3, "io");
    world.run(&["quantize", text(&demo("demo-lm-f16.gguf")), "x.gguf"]).failed(3, "gguf-metadata");
    let mut cut = std::fs::read(&input).unwrap();
    cut.truncate(cut.len() / 2);
    world.write("cut.gguf", cut);
    world.run(&["quantize", "cut.gguf", "x.gguf"]).failed(3, "gguf-damaged");
    assert_eq!(std::fs::read(&old).unwrap(), b"old");
    assert!(!world.path("x.gguf").exists());
}

#[test]
fn the_switch_quantises_once_however_many_ask() {
    let world = World::new();
    let sample = &SAMPLES[0];
    let picture = demo(sample.picture);
    let ask = ["--vision", "q8_0", "--image", text(&picture), "-p", sample.question];
    let args = [&["--temp", "0", "-n", "60", "-t", "1", "--no-warmup"][..], &ask].concat();
    let running: Vec<_> = (0..4).map(|_| world.command(&args).spawn().unwrap()).collect();
    for child in running {
        assert_eq!(finish(child).ok().stdout.trim(), sample.answer);
    }
    let folder = world.path("cache/llava/vision");
    let kept = |end: &str| names(&folder).into_iter().filter(|n| n.ends_with(end)).collect::<Vec<_>>();
    assert_eq!((kept(".gguf").len(), names(&folder).len()), (1, 3), "a file, lock, checksum: {:?}", names(&folder));
    let small = folder.join(&kept(".gguf")[0]);
    let made = || std::fs::metadata(&small).unwrap().modified().unwrap();
    let first = made();
    world.run(&args).ok();
    assert_eq!(made(), first, "found, not made");
    assert!(GgufFile::open(&small).unwrap().tensors().iter().any(|t| t.ggml_type == TensorType::Q8_0));
    let list = world.run(&["cache", "list"]).ok().stdout;
    assert!(list.contains(&format!("vision\t{}", &kept(".gguf")[0][..32])), "{list}");
    world.run(&["cache", "verify"]).ok();

    // the original, and never anything else under that name
    let original = [&args[..2], &["--vision", "f16", "--image", text(&picture), "-p", sample.question]].concat();
    world.run(&original).ok();
    let model = demo("demo-lm-f16.gguf");
    let files = ["-m", text(&model), "--mmproj", text(&small)];
    world.run(&[&original[..], &files].concat()).failed(2, "bad-parameter").says("give the original file");

    // damage is noticed and mended
    let mut bytes = std::fs::read(&small).unwrap();
    let at = bytes.len() - 1000;
    bytes[at] ^= 4;
    std::fs::write(&small, bytes).unwrap();
    let outcome = world.run(&["cache", "verify"]);
    assert!(outcome.code == Some(1) && outcome.stdout.contains("damaged"), "{outcome:?}");
    assert_eq!(world.run(&args).ok().stdout.trim(), sample.answer);
    world.run(&["cache", "verify"]).ok();
    // another folder
    let dir = world.path("elsewhere");
    world.run(&[&args[..], &["--cache-dir", text(&dir)]].concat()).ok();
    assert_eq!(names(&dir.join("vision")).len(), 3);
    // a cache that cannot be written is not the model's fault
    let no_folder = world.write("no folder", "");
    let outcome = world.run(&[&args[..], &["--cache-dir", text(&no_folder)]].concat());
    outcome.failed(1, "io").says("--cache-dir");
    let outcome = finish(world.command(&["cache", "clear"]).spawn().unwrap()).ok();
    assert!(outcome.stderr.contains("vision: 1 entries removed") && !small.exists());
}
