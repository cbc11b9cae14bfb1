//! What goes wrong, and with which exit code.

use std::process::{Command, Stdio};

use super::{World, demo, text};

#[test]
fn unknown_flags_and_bad_values() {
    let world = World::new();
    for args in [
        &["--no-such-flag"][..],
        &["--temp", "warm"],
        &["-ctk", "q9_9", "-p", "x"],
        &["stray"],
        &["-hf", "user/repo", "-p", "x"],
        &["--mmproj", "x.gguf", "-p", "x"],
        &["-p", ""],
        &["--top-p", "2", "-p", "x"],
        &["-ub", "0", "-p", "x"],
        &["--grammar", "root ::= (", "-p", "x"],
        &["--chat-template", "no-such-template", "-p", "x"],
    ] {
        let outcome = world.run(args);
        assert_eq!(outcome.code, Some(2), "{args:?}: {outcome:?}");
        assert_eq!(outcome.stdout, "");
        assert!(outcome.stderr.contains("error"), "{args:?}: {outcome:?}");
    }
    world.run(&["-hf", "user/repo"]).says("downloads nothing");
}

#[test]
fn models_that_are_none() {
    let world = World::new();
    let picture = demo("sign.png");
    let (model, projector) = (demo("demo-lm-f16.gguf"), demo("demo-mmproj-f16.gguf"));
    let cut = &std::fs::read(&model).unwrap()[..100_000];
    let cut = world.write("cut.gguf", cut);
    let not = world.write("not.gguf", "<html>404</html>");
    let empty = world.write("empty.gguf", "");
    let ask = |m: &str, p: &str| world.ask(&["-m", m, "--mmproj", p, "--image", text(&picture), "-p", "x"]);

    ask("missing.gguf", text(&projector)).failed(3, "io").says("missing.gguf");
    ask(text(&model), "missing.gguf").failed(3, "io").says("missing.gguf");
    ask(text(&cut), text(&projector)).failed(3, "gguf-damaged").says("cut.gguf");
    ask(text(&not), text(&projector)).failed(3, "gguf-not").says("not.gguf");
    ask(text(&empty), text(&projector)).failed(3, "gguf-not").says("empty.gguf");
    ask(text(&model), text(&model)).failed(3, "gguf-metadata").says("demo-lm-f16.gguf");
    // nobody would open it without a picture
    let missing = world.path("no-such-mmproj.gguf");
    let outcome = world.ask(&["-m", text(&model), "--mmproj", text(&missing), "-p", "x"]);
    outcome.failed(3, "io").says("no-such-mmproj.gguf");
    ask(text(&projector), text(&model)).failed(3, "gguf-metadata").says("--mmproj");
}

#[test]
fn a_picture_without_a_projector_is_no_vision() {
    let world = World::new();
    let (picture, model) = (demo("sign.png"), demo("demo-lm-f16.gguf"));
    let outcome = world.ask(&["-m", text(&model), "--image", text(&picture), "-p", "x"]);
    outcome.failed(3, "no-vision").says("--mmproj");
    let outcome = world.ask(&["--no-mmproj", "--image", text(&picture), "-p", "x"]);
    outcome.failed(3, "no-vision");
}

#[test]
fn folders_that_leave_a_choice_are_refused() {
    let world = World::new();
    let picture = demo("sign.png");
    let model = world.copy("demo-lm-f16.gguf", "two/model.gguf");
    world.copy("demo-mmproj-f16.gguf", "two/mmproj-a.gguf");
    let b = world.copy("demo-mmproj-f16.gguf", "two/mmproj-b.gguf");
    let folder = model.parent().unwrap();
    let question = ["--image", text(&picture), "-p", "What word is written?"];
    let outcome = world.ask(&[&["-m", text(folder)], &question[..]].concat());
    outcome.failed(3, "ambiguous").says("mmproj-a.gguf, mmproj-b.gguf").says("--mmproj");
    // naming one is the way out
    let outcome = world.ask(&[&["-m", text(folder), "-mm", text(&b)], &question[..]].concat()).ok();
    assert_eq!(outcome.stdout, " EXIT\n");

    world.copy("demo-lm-f16.gguf", "two/other.gguf");
    let outcome = world.ask(&[&["-m", text(folder), "--mmproj", text(&b)], &question[..]].concat());
    outcome.failed(3, "ambiguous").says("model.gguf, other.gguf");
    std::fs::create_dir(world.path("none")).unwrap();
    world.ask(&["-m", text(&world.path("none")), "-p", "x"]).failed(3, "no-model");
}

#[test]
fn pictures_that_are_none() {
    let world = World::new();
    let picture = demo("sign.png");
    let cut = world.write("cut.png", &std::fs::read(&picture).unwrap()[..5000]);
    let not = world.write("page.png", "<!doctype html><title>404</title>");
    let ask = |image: &str| world.ask(&["--image", text(&picture), "--image", image, "-p", "x"]);
    ask("missing.png").failed(4, "io").says("missing.png");
    ask(text(&cut)).failed(4, "picture-damaged").says("cut.png");
    ask(text(&not)).failed(4, "picture-format").says("page.png");
    ask(text(&world.path("tmp"))).failed(4, "io");
    assert!(!world.path("cache").exists(), "models were touched before the pictures were read");
}

#[test]
fn requests_that_do_not_fit() {
    let world = World::new();
    let picture = demo("sign.png");
    let image = text(&picture);
    let args = ["-c", "256", "--image", image, "--image", image, "-p", "What word is written?"];
    world.ask(&args).failed(5, "context-full").says("use -c 768 or more").says("picture 2");
}

#[test]
fn files_named_by_flags() {
    let world = World::new();
    let latin = world.write("latin1.txt", b"gr\xfcn");
    world.ask(&["-f", text(&latin)]).failed(2, "usage").says("latin1.txt is not UTF-8 (at byte 2)");
    world.ask(&["-f", "missing.txt"]).failed(2, "io").says("missing.txt");
    world.ask(&["-p", "x", "--grammar-file", "missing.gbnf"]).failed(2, "io").says("missing.gbnf");
    let outcome = world.ask(&["-p", "x", "-n", "1", "--usage-json", "none/usage.json"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    outcome.says("none/usage.json");
}

/// ggml's own search for back-ends looks into the current folder: a library that lies there must not run.
#[cfg(target_os = "linux")]
#[test]
fn a_library_in_the_current_folder_is_left_alone() {
    let world = World::new();
    let folder = world.path("downloads");
    std::fs::create_dir(&folder).unwrap();
    let source = folder.join("planted.c");
    let mark = folder.join("it-ran");
    let code = format!(
        "#include <stdio.h>\n__attribute__((constructor)) static void run(void) {{ fclose(fopen(\"{}\", \"w\")); }}\n",
        text(&mark)
    );
    std::fs::write(&source, code).unwrap();
    let library = folder.join("libggml-cpu-planted.so");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(built.success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_llava-cli"));
    command.current_dir(&folder).env("XDG_CACHE_HOME", world.path("cache"));
    command.args(["-t", "1", "-n", "1", "--no-warmup", "-p", "x"]).stdin(Stdio::null());
    assert!(command.output().unwrap().status.success());
    assert!(!mark.exists(), "the planted library was loaded");
}

/// A pipe where a model is expected would wait for a writer that never comes.
#[cfg(unix)]
#[test]
fn a_pipe_is_no_model() {
    let world = World::new();
    let pipe = world.path("pipe.gguf");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    world.ask(&["-m", text(&pipe), "-p", "x"]).failed(3, "io").says("not a regular file");
}
