//! Questions of the command line.

use std::path::Path;
use std::sync::Arc;

use llava::llama::{Model, ModelParams};
use llava::mtmd::Projector;
use llava::session::{Part, Picture, Session};

use super::{ENDLESS, SAMPLES, World, demo, text};
use crate::world::{demo_files, open, projector_params, session_params};

#[test]
fn right_answers_about_the_bundled_pictures() {
    let world = World::new();
    for sample in &SAMPLES {
        let outcome = world.ask(&["--image", text(&demo(sample.picture)), "-p", sample.question]).ok();
        assert_eq!(outcome.stdout, format!(" {}\n", sample.answer));
        assert!(outcome.stderr.contains("demo model"), "{}", outcome.stderr);
    }
}

#[test]
fn stdout_holds_the_answer_and_nothing_else() {
    let world = World::new();
    let sample = &SAMPLES[0];
    let outcome = world.ask(&["-vvv", "--image", text(&demo(sample.picture)), "-p", sample.question]).ok();
    assert_eq!(outcome.stdout, format!(" {}\n", sample.answer));
    assert!(outcome.stderr.contains("first token") && outcome.stderr.contains("llama_cpp"), "{}", outcome.stderr);
    // and without -v stderr has only the note about the demo model
    let quiet = world.ask(&["--image", text(&demo(sample.picture)), "-p", sample.question]).ok();
    assert_eq!(quiet.stderr.lines().count(), 1, "{}", quiet.stderr);
}

#[test]
fn a_question_without_a_picture_is_one_turn() {
    let world = World::new();
    let outcome = world.ask(&["-n", "3", "--grammar", ENDLESS, "-p", "What shape is red?"]).ok();
    assert_eq!(outcome.stdout, "aaa\n");
}

#[test]
fn files_are_named_or_found_in_a_folder() {
    let world = World::new();
    let sample = &SAMPLES[2];
    let picture = demo(sample.picture);
    let model = world.copy("demo-lm-f16.gguf", "pair/model.gguf");
    let projector = world.copy("demo-mmproj-f16.gguf", "pair/mmproj.gguf");
    world.write("pair/notes.txt", "no model");
    let question = ["--image", text(&picture), "-p", sample.question];
    for named in [vec!["-m", text(&model), "--mmproj", text(&projector)], vec!["-m", text(model.parent().unwrap())]] {
        let outcome = world.ask(&[&named[..], &question[..]].concat()).ok();
        assert_eq!(outcome.stdout, format!(" {}\n", sample.answer));
        assert_eq!(outcome.stderr, "");
    }
    assert!(!world.path("cache").exists(), "the demo model was unpacked without need");
}

#[test]
fn usage_has_exactly_its_fields_and_the_right_numbers() {
    let world = World::new();
    let sample = &SAMPLES[0];
    let usage = world.usage(&["--image", text(&demo(sample.picture)), "-p", sample.question]);
    let mut keys: Vec<&str> = usage.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let wanted = [
        "decode_tokens",
        "decode_tps",
        "finish",
        "images",
        "load_ms",
        "model",
        "prefill_ms",
        "projector",
        "reused_tokens",
        "text_tokens",
        "ttft_ms",
        "visual_tokens",
    ];
    assert_eq!(keys, wanted);
    // "<s>USER: ", the question, "\nASSISTANT:", a token for each character
    assert_eq!(usage["text_tokens"], 7 + sample.question.len() + 11);
    assert_eq!(usage["visual_tokens"], 196);
    assert_eq!(usage["reused_tokens"], 0);
    // the answer and the space before it; the end token is no text
    assert_eq!(usage["decode_tokens"], 1 + sample.answer.len());
    assert_eq!((&usage["finish"], &usage["model"]), (&"end".into(), &"demo-lm-f16.gguf".into()));
    assert_eq!(usage["projector"], "demo-mmproj-f16.gguf");
    let image = usage["images"][0].as_object().unwrap();
    assert_eq!(usage["images"].as_array().unwrap().len(), 1);
    assert_eq!(
        (image["source"].as_str(), &image["rows"], &image["tokens"]),
        (Some("encoded"), &196.into(), &196.into())
    );
    let ms = |key: &str| usage[key].as_f64().unwrap();
    let encode = image["encode_ms"].as_f64().unwrap();
    assert!(encode > 0.0 && ms("prefill_ms") > 0.0 && ms("load_ms") > 0.0 && ms("decode_tps") > 0.0);
    assert!(ms("ttft_ms") >= encode + ms("prefill_ms"), "{usage}");
}

#[test]
fn a_marker_is_text_unless_there_are_as_many_as_pictures() {
    let world = World::new();
    let picture = demo("sign.png");
    let tokens = |args: &[&str]| {
        let usage = world.usage(&[&["-n", "1"], args].concat());
        (usage["text_tokens"].as_u64().unwrap(), usage["visual_tokens"].as_u64().unwrap())
    };
    let marker = "<__media__>".len() as u64;
    let (plain, _) = tokens(&["-p", "ab"]);
    assert_eq!(tokens(&["-p", "a<__media__>b"]), (plain + marker, 0));
    let one = ["--image", text(&picture)];
    assert_eq!(tokens(&[&one[..], &["-p", "a<__media__>b"]].concat()), (plain, 196));
    assert_eq!(tokens(&[&one[..], &["-p", "a<__media__>b<__media__>"]].concat()), (plain + 2 * marker, 196));
}

#[test]
fn several_pictures_keep_their_order() {
    let world = World::new();
    let (first, second) = (demo("sign.png"), demo("shapes.png"));
    let question = "Describe the image.";
    let (model, projector) = open(&demo_files());
    let expect = |order: [&Path; 2]| {
        let mut params = session_params();
        params.max_tokens = Some(60);
        params.context.threads = Some(1);
        let mut session = Session::new(&model, Some(Arc::clone(&projector)), params).unwrap();
        let mut parts: Vec<Part> = order.iter().map(|p| Picture::from_file(p).unwrap().into()).collect();
        parts.push(question.into());
        session.ask(parts).unwrap().finish().unwrap().0
    };
    let (forward, backward) = (expect([&first, &second]), expect([&second, &first]));
    assert_ne!(forward, backward, "the order does not show in the answer: this test proves nothing");
    let ask = |images: &[&str]| world.ask(&[&["-p", question], images].concat()).ok().stdout;
    assert_eq!(ask(&["--image", text(&first), "--image", text(&second)]), format!("{forward}\n"));
    assert_eq!(ask(&["--image", text(&second), "--image", text(&first)]), format!("{backward}\n"));
    assert_eq!(ask(&["--image", &format!("{},{}", text(&first), text(&second))]), format!("{forward}\n"));
}

#[test]
fn prompts_come_from_files_and_escapes_are_resolved() {
    let world = World::new();
    let sample = &SAMPLES[3];
    let question = world.write("question.txt", format!("{}\n", sample.question));
    let image = demo(sample.picture);
    let outcome = world.ask(&["--image", text(&image), "-f", text(&question)]).ok();
    assert_eq!(outcome.stdout, format!(" {}\n", sample.answer));

    let count = |args: &[&str]| world.usage(&[&["-n", "1"], args].concat())["text_tokens"].as_u64().unwrap();
    let plain = count(&["-p", "ab"]);
    assert_eq!(count(&["-p", r"a\nb"]), plain + 1);
    assert_eq!(count(&["--no-escape", "-p", r"a\nb"]), plain + 2);
    assert_eq!(count(&["-p", "ab", "-sys", "c"]), count(&["-p", "ab", "--system-prompt", "c"]));
    assert!(count(&["-p", "ab", "-sys", "c"]) > plain, "-sys has no effect");
}

#[test]
fn answers_end_where_they_are_told_to() {
    let world = World::new();
    let sample = &SAMPLES[1];
    let image = demo(sample.picture);
    let question = ["--image", text(&image), "-p", sample.question];
    assert_eq!(
        world.ask(&[&question[..], &["-r", " and"]].concat()).ok().stdout,
        " a black square, a white triangle\n"
    );
    assert_eq!(world.ask(&[&question[..], &["-n", "5"]].concat()).ok().stdout, " a bl\n");
    assert_eq!(world.ask(&[&question[..], &["-n", "0"]].concat()).ok().stdout, "\n");
    let full = world.ask(&["-c", "256", "-n", "-1", "--grammar", ENDLESS, "-p", "x"]).ok().says("the answer was cut");
    assert!(full.stdout.len() > 100, "{full:?}");
}

#[test]
fn flags_without_effect_are_reported() {
    let world = World::new();
    let image = demo("sign.png");
    let args = ["--image", text(&image), "-p", "x", "-n", "1", "--image-max-tokens", "64", "--simple-io"];
    world.ask(&args).ok().says("--image-max-tokens has no effect").says("--simple-io has no effect");
}

#[test]
fn the_cache_folder_is_shared_by_processes_that_start_together() {
    let world = World::new();
    let sample = &SAMPLES[0];
    let picture = demo(sample.picture);
    let args = ["--temp", "0", "-t", "1", "--image", text(&picture), "-p", sample.question];
    let children: Vec<_> = (0..4).map(|_| world.command(&args).spawn().unwrap()).collect();
    for child in children {
        assert_eq!(super::finish(child).ok().stdout, format!(" {}\n", sample.answer));
    }
    let folders: Vec<_> = std::fs::read_dir(world.path("cache/llava")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(folders.len(), 1);
    let mut names: Vec<_> = std::fs::read_dir(&folders[0]).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["demo-lm-f16.gguf", "demo-mmproj-f16.gguf"]);

    // a file that was cut short since is put right
    std::fs::write(folders[0].join("demo-lm-f16.gguf"), "GGUF").unwrap();
    assert_eq!(world.run(&args).ok().stdout, format!(" {}\n", sample.answer));
}

#[test]
fn without_a_cache_folder_a_temporary_one_is_used_and_removed() {
    let world = World::new();
    let sample = &SAMPLES[0];
    let file = world.write("file", "");
    let picture = demo(sample.picture);
    let mut command = world.command(&["--temp", "0", "--image", text(&picture), "-p", sample.question]);
    let outcome = super::finish(command.env("XDG_CACHE_HOME", file.join("below")).spawn().unwrap()).ok();
    assert_eq!(outcome.stdout, format!(" {}\n", sample.answer));
    assert!(outcome.stderr.contains("temporary"), "{}", outcome.stderr);
    assert_eq!(std::fs::read_dir(world.path("tmp")).unwrap().count(), 0);
}

#[test]
fn version_and_help_tell_what_there_is() {
    let world = World::new();
    let version = world.run(&["--version"]).ok().stdout;
    for fact in ["llava-cli ", "llama.cpp: ", "back-ends: ", "CPU baseline: ", "kernels: "] {
        assert!(version.contains(fact), "{version}");
    }
    let help = world.run(&["--help"]).ok().stdout;
    for section in ["Question:", "Model:", "Pictures:", "Context:", "Sampling:", "Output:", "Examples:", "Exit status:"]
    {
        assert!(help.contains(section), "{help}");
    }
    assert!(world.run(&["embed", "--help"]).ok().stdout.contains("[rows, width]"));
}

#[test]
fn doctor_names_the_kernels_in_use() {
    let world = World::new();
    let with = |value: &str| {
        let mut command = world.command(&["doctor"]);
        super::finish(command.env("LLAVA_GEMM", value).spawn().unwrap()).ok()
    };
    let off = with("off").stdout;
    assert!(off.contains("kernels in use: ggml's own (LLAVA_GEMM=off)") && off.contains("kernels: ggml"), "{off}");
    let scalar = with("scalar").stdout;
    assert!(scalar.contains("kernels in use: scalar") && scalar.contains("kernels: scalar"), "{scalar}");
    // a word that means nothing is told, and the safe way taken
    let wrong = with("avx1024").stdout;
    assert!(wrong.contains("LLAVA_GEMM=avx1024") && wrong.contains("kernels in use: ggml's own"), "{wrong}");
    for fact in ["CPU features: ", "device: CPU", "llama.cpp: ", "cache folder: ", "demo model: "] {
        assert!(off.contains(fact), "{off}");
    }
}

/// What the command line builds is what the library gives.
#[test]
fn the_demo_model_is_the_one_in_the_tree() {
    let model = Model::load(demo_files().text, &ModelParams::default()).unwrap();
    Projector::load(demo_files().projector, &model, &projector_params()).unwrap();
    let demo = llava::demo::DemoModel::unpack_into(World::new().path("x").as_path());
    let demo = demo.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(demo.model().file_name(), demo_files().text.file_name());
}
