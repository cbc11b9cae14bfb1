//! The caches as flags: across processes, under kill and damage, and the commands that look after the folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{SAMPLES, World, demo, text};

fn ask_sample(world: &World, flags: &[&str]) -> Value {
    let sample = &SAMPLES[0];
    let picture = demo(sample.picture);
    let usage = world.usage(&[flags, &["--image", text(&picture), "-p", sample.question]].concat());
    assert_eq!(usage["decode_tokens"], 1 + sample.answer.len(), "the answer is the same wherever rows come from");
    usage
}

fn source(usage: &Value) -> &str {
    usage["images"][0]["source"].as_str().unwrap()
}

fn entries(dir: &Path, room: &str) -> Vec<PathBuf> {
    let Ok(folders) = std::fs::read_dir(dir.join(room)) else { return Vec::new() };
    let folders = folders.map(|f| f.unwrap().path()).filter(|f| f.is_dir());
    folders.flat_map(|f| std::fs::read_dir(f).unwrap().map(|e| e.unwrap().path())).collect()
}

#[test]
fn the_next_process_does_not_encode_again() {
    let world = World::new();
    let dir = world.path("pictures");
    let flags = ["--cache", "disk", "--cache-dir", text(&dir)];
    assert_eq!(source(&ask_sample(&world, &flags)), "encoded");
    let warm = ask_sample(&world, &flags);
    assert_eq!(source(&warm), "disk");
    assert_eq!(warm["images"][0]["encode_ms"], 0.0);
    assert_eq!(entries(&dir, "embeddings").len(), 1);
    assert!(entries(&dir, "kv").is_empty());

    let flags = [&flags[..], &["--prompt-cache"]].concat();
    assert_eq!(source(&ask_sample(&world, &flags)), "disk", "the state is saved now");
    let state = ask_sample(&world, &flags);
    assert_eq!(source(&state), "snapshot");
    assert!(state["reused_tokens"].as_u64().unwrap() >= 196);
    // what is not asked for is not used, and nothing is kept by default
    assert_eq!(source(&ask_sample(&world, &["--cache", "off"])), "encoded");
    assert_eq!(source(&ask_sample(&world, &[])), "encoded");
    assert!(!world.path("cache/llava/embeddings").exists());
    // half floats are another folder's choice, not another key
    assert_eq!(
        source(&ask_sample(&world, &["--cache", "disk", "--cache-dir", text(&dir), "--cache-dtype", "f16"])),
        "disk"
    );
}

#[test]
fn flags_that_contradict_each_other() {
    let world = World::new();
    world.run(&["--cache", "off", "--prompt-cache", "-p", "x"]).failed(2, "usage").says("--prompt-cache");
    let outcome = world.run(&["--cache", "floppy", "-p", "x"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("redis://"), "{outcome:?}");
    for url in ["rediss://me:SECRET@host", "http://me:SECRET@host", "REDIS:/me:SECRET"] {
        let outcome = world.run(&["--cache", url, "-p", "x"]);
        assert!(outcome.code != Some(0) && !outcome.stderr.contains("SECRET"), "{outcome:?}");
    }
}

#[test]
fn the_environment_says_where() {
    let world = World::new();
    let sample = &SAMPLES[0];
    let picture = demo(sample.picture);
    let dir = world.path("from-env");
    let mut command = world.command(&["--temp", "0", "-t", "1", "--image", text(&picture), "-p", sample.question]);
    let output = command.env("LLAVA_CACHE", "disk").env("LLAVA_CACHE_DIR", &dir).output().unwrap();
    assert!(output.status.success());
    assert_eq!(entries(&dir, "embeddings").len(), 1);
}

#[test]
fn damage_and_foreign_files_cost_an_encoding_and_no_answer() {
    let world = World::new();
    let dir = world.path("c");
    let flags = ["--cache", "disk", "--cache-dir", text(&dir), "--prompt-cache"];
    ask_sample(&world, &flags);
    for (room, expected) in [("embeddings", "encoded"), ("kv", "disk")] {
        let path = entries(&dir, room).remove(0);
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let verify = world.run(&["cache", "verify", "--cache-dir", text(&dir)]);
        assert_eq!(verify.code, Some(1), "{verify:?}");
        assert!(verify.stdout.contains(room) && verify.stderr.contains("1 damaged"), "{verify:?}");
        if room == "embeddings" {
            // the state would answer first
            entries(&dir, "kv").iter().for_each(|p| std::fs::remove_file(p).unwrap());
        }
        assert_eq!(source(&ask_sample(&world, &flags)), expected);
        world.run(&["cache", "verify", "--cache-dir", text(&dir)]).ok();
    }
    #[cfg(unix)]
    {
        // a pipe under an entry's name must not be waited for
        let path = entries(&dir, "embeddings").remove(0);
        entries(&dir, "kv").iter().for_each(|p| std::fs::remove_file(p).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(source(&ask_sample(&world, &flags)), "encoded");
    }
    let file = world.write("file", "x");
    assert_eq!(source(&ask_sample(&world, &["--cache", "disk", "--cache-dir", text(&file)])), "encoded");
    world.run(&["cache", "clear", "--cache-dir", text(&file)]).failed(1, "io");
}

/// A lock or a sum that is a pipe would be waited for without end.
#[cfg(unix)]
#[test]
fn pipes_in_the_folder_are_not_waited_for() {
    for name in ["lock", "total"] {
        let world = World::new();
        let dir = world.path("c");
        std::fs::create_dir_all(dir.join("embeddings")).unwrap();
        let pipe = dir.join("embeddings").join(name);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let sample = &SAMPLES[0];
        let picture = demo(sample.picture);
        let flags = ["--cache", "disk", "--cache-dir", text(&dir), "--image", text(&picture), "-p", sample.question];
        let outcome = world.ask(&flags).ok().says("nothing new is kept");
        assert_eq!(outcome.stdout.trim(), sample.answer);
        world.run(&["cache", "clear", "--cache-dir", text(&dir)]).failed(1, "io");
    }
}

/// Weights that differ in one byte are another model: nothing that one computed is taken by the other.
#[test]
fn states_belong_to_one_model() {
    let world = World::new();
    let (dir, talk) = (world.path("c"), world.path("talk"));
    let model = world.copy("demo-lm-f16.gguf", "lm.gguf");
    let projector = world.copy("demo-mmproj-f16.gguf", "mmproj.gguf");
    let files = ["-m", text(&model), "--mmproj", text(&projector)];
    let flags = [&files[..], &["--cache", "disk", "--cache-dir", text(&dir), "--prompt-cache"]].concat();
    ask_sample(&world, &flags);
    assert_eq!(source(&ask_sample(&world, &flags)), "snapshot");
    assert_eq!(std::fs::read_dir(dir.join("fingerprints")).unwrap().count(), 2);
    world.ask(&[&files[..], &["--session", text(&talk), "-p", "Describe the image."]].concat()).ok();

    let header = llava::gguf::GgufFile::open(&model).unwrap();
    let tensor = header.tensors().iter().max_by_key(|t| t.byte_len).unwrap();
    let at = header.data_offset() + tensor.offset + tensor.byte_len / 4;
    let mut bytes = std::fs::read(&model).unwrap();
    // the lowest bit of a number's fraction
    bytes[usize::try_from(at).unwrap() & !1] ^= 1;
    std::fs::write(&model, bytes).unwrap();
    assert_eq!(source(&ask_sample(&world, &flags)), "disk", "rows do not depend on the text model, states do");
    let other = [&files[..], &["--session", text(&talk), "-p", "Describe the image."]].concat();
    world.ask(&other).ok().says("only the messages");
}

/// Processes that write and read one small folder while some of them are killed: answers stay right, the budget holds.
#[test]
fn many_processes_share_one_folder() {
    let world = World::new();
    let dir = world.path("shared");
    let flags = ["--cache", "disk", "--cache-dir", text(&dir), "--cache-mb", "1", "--prompt-cache"];
    let flags = [&["--temp", "0", "-t", "1", "--no-warmup"], &flags[..]].concat();
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..4_u64 {
        let ask = |n: usize| {
            let sample = &SAMPLES[(n + round as usize) % SAMPLES.len()];
            let picture = demo(sample.picture);
            let args = [&flags[..], &["--image", text(&picture), "-p", sample.question]].concat();
            (sample, world.command(&args).spawn().unwrap())
        };
        let mut children: Vec<_> = (0..4).map(ask).collect();
        std::thread::sleep(Duration::from_millis(60 + 90 * round));
        children[0].1.kill().unwrap();
        for (i, (sample, child)) in children.into_iter().enumerate() {
            let output = child.wait_with_output().unwrap();
            if i > 0 {
                assert!(output.status.success(), "{output:?}");
                assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), sample.answer);
            }
        }
        for room in ["embeddings", "kv"] {
            let there = entries(&dir, room);
            let total: u64 = there.iter().map(|p| std::fs::metadata(p).unwrap().len()).sum();
            assert!(total <= 1 << 20, "{room}: {total}");
            seen.extend(there);
        }
    }
    let left = entries(&dir, "kv").len();
    let states = seen.iter().filter(|p| p.extension().is_some_and(|e| e == "kv")).count();
    assert!(states > left, "a MiB does not hold the states of all pictures: {states} were seen, {left} are left");
    world.run(&["cache", "verify", "--cache-dir", text(&dir)]).ok();
}

#[test]
fn the_folder_is_looked_after() {
    let world = World::new();
    let (dir, other) = (world.path("one"), world.path("two"));
    let cache = |args: &[&str], dir: &Path| world.run(&[&["cache"], args, &["--cache-dir", text(dir)]].concat());
    let empty = cache(&["stats"], &dir).ok();
    assert!(empty.stdout.contains("embeddings  0 entries, 0 bytes"), "{empty:?}");
    ask_sample(&world, &["--cache", "disk", "--cache-dir", text(&dir)]);
    let listed = cache(&["list"], &dir).ok().stdout;
    let fields: Vec<&str> = listed.trim().split('\t').collect();
    assert_eq!((fields[0], fields.len()), ("embeddings", 4), "{listed}");
    let bytes = std::fs::metadata(entries(&dir, "embeddings").remove(0)).unwrap().len();
    assert_eq!(fields[2].parse::<u64>().unwrap(), bytes);

    let out = world.path("picture.emb");
    cache(&["export", fields[1], "-o", text(&out)], &dir).ok();
    cache(&["export", &"0".repeat(32), "-o", text(&out)], &dir).failed(1, "no-entry");
    assert_eq!(cache(&["export", "xyz", "-o", text(&out)], &dir).code, Some(2));
    cache(&["import", text(&out)], &other).ok().says("196 rows of 160");
    assert_eq!(source(&ask_sample(&world, &["--cache", "disk", "--cache-dir", text(&other)])), "disk");
    cache(&["import", text(&demo("sign.png"))], &other).failed(1, "state");
    cache(&["import", "missing.emb"], &other).failed(1, "io");

    cache(&["clear"], &dir).ok().says("embeddings: 1 entries removed");
    assert!(entries(&dir, "embeddings").is_empty());
}

/// What can be told from pictures and conversations is for their owner's eyes.
#[cfg(unix)]
#[test]
fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let (dir, talk) = (world.path("c"), world.path("talk"));
    let flags = ["--cache", "disk", "--cache-dir", text(&dir), "--prompt-cache", "--session", text(&talk)];
    ask_sample(&world, &flags);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&talk), 0o600);
    for room in ["embeddings", "kv"] {
        let entry = entries(&dir, room).remove(0);
        assert_eq!((mode(&entry), mode(entry.parent().unwrap())), (0o600, 0o700), "{room}");
    }
}

#[test]
fn a_folder_that_takes_nothing_is_said() {
    let world = World::new();
    let file = world.write("file", "x");
    let sample = &SAMPLES[0];
    let picture = demo(sample.picture);
    let flags = ["--cache", "disk", "--cache-dir", text(&file), "--image", text(&picture), "-p", sample.question];
    let outcome = world.ask(&flags).ok().says("nothing new is kept");
    assert_eq!(outcome.stdout.trim(), sample.answer);
}

#[test]
fn a_conversation_has_one_owner_and_a_place_from_the_start() {
    let world = World::new();
    // before any model is loaded: nothing that was computed is lost
    world.ask(&["-m", "missing.gguf", "--session", "no/folder/talk", "-p", "x"]).failed(2, "io").says("no/folder/talk");
    let file = world.path("talk");
    let mut first = world.command(&["--session", text(&file), "--temp", "0", "-t", "1"]);
    let mut child = first.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let start = std::time::Instant::now();
    while !file.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "the chat never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    // the file is made and locked in two steps
    std::thread::sleep(Duration::from_millis(200));
    world.ask(&["--session", text(&file), "-p", "x"]).failed(1, "session-in-use").says("another process");
    drop(child.stdin.take());
    super::finish(child).ok();
    assert!(!file.exists(), "nothing was said, nothing is left");
    // a name that leaves no room for a temporary one beside it, and what a writer that was killed has left
    let long = world.path(&"n".repeat(250));
    world.ask(&["--session", text(&long), "-p", "Describe the image."]).ok();
    let leftover = world.write("talk.1-0.tmp", "x");
    let foreign = world.write("talk.notes.tmp", "x");
    world.ask(&["--session", text(&file), "-p", "Describe the image."]).ok();
    assert!(!leftover.exists() && foreign.exists());
    std::fs::remove_file(&file).unwrap();

    // one that was killed before it said anything leaves an empty file: a new conversation
    std::fs::write(&file, "").unwrap();
    world.ask(&["--session", text(&file), "-p", "Describe the image."]).ok();
    assert!(std::fs::metadata(&file).unwrap().len() > 0);
}

/// Whoever reads the answer may go; the conversation stays.
#[test]
fn an_answer_that_nobody_reads_is_kept() {
    let world = World::new();
    let file = world.path("talk");
    let mut child =
        world.command(&["--session", text(&file), "--temp", "0", "-p", "Describe the image."]).spawn().unwrap();
    drop(child.stdout.take());
    child.wait().unwrap();
    let usage = world.usage(&["--session", text(&file), "-p", "And now?"]);
    assert!(usage["reused_tokens"].as_u64().unwrap() > 0, "{usage}");
}

#[test]
fn a_cleared_conversation_is_saved_as_cleared() {
    let world = World::new();
    let file = world.path("talk");
    let sign = demo("sign.png");
    let input = format!("/image {}\n{}\n/clear\n", sign.display(), SAMPLES[0].question);
    world.chat(&["--session", text(&file)], &input).ok();
    let usage = world.usage(&["--session", text(&file), "-p", "Describe the image."]);
    assert_eq!(usage["visual_tokens"], 0, "{usage}");
}

#[test]
fn a_conversation_goes_on_in_the_next_process() {
    let world = World::new();
    let file = world.path("talk.session");
    let (sign, question) = (demo("sign.png"), SAMPLES[0].question);
    let first = world.ask(&["--session", text(&file), "--image", text(&sign), "-p", question]).ok();
    assert_eq!(first.stdout.trim(), SAMPLES[0].answer);
    let usage = world.usage(&["--session", text(&file), "-p", question]);
    assert_eq!(source(&usage), "kv");
    assert!(usage["reused_tokens"].as_u64().unwrap() > 196);
    // the same in one process
    let input = format!("/image {}\n{question}\n{question}\n{question}\n", sign.display());
    let chat = world.chat(&[], &input).ok();
    let third = world.ask(&["--session", text(&file), "-p", question]).ok();
    assert_eq!(chat.stdout.lines().nth(2).unwrap(), third.stdout.trim_end_matches('\n'));

    let bytes = std::fs::read(&file).unwrap();
    let cut = world.write("cut.session", &bytes[..bytes.len() / 2]);
    world.ask(&["--session", text(&cut), "-p", "x"]).failed(1, "state");
    assert_eq!(std::fs::read(&cut).unwrap().len(), bytes.len() / 2, "it is left as it was");
    let huge = world.path("huge.session");
    let sparse = std::fs::File::create(&huge).unwrap();
    // a file with a hole: it takes no room on the disk
    sparse.set_len(65 << 30).unwrap();
    world.ask(&["--session", text(&huge), "-p", "x"]).failed(1, "file-too-large");
    // another context: the messages are taken up
    let outcome = world.ask(&["--session", text(&file), "-ctk", "f32", "-p", question]).ok();
    outcome.says("only the messages");
}
