//! `llava-cli eval`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Outcome, World, demo, finish, text};

/// One thread and no warm-up, as in the other tests.
pub fn eval(world: &World, args: &[&str]) -> Outcome {
    world.run(&[&["eval", "-t", "1", "--no-warmup"], args].concat())
}

/// The answers of a run by variant and question.
pub fn answers(folder: &Path) -> BTreeMap<(String, String), Value> {
    let lines = fs::read_to_string(folder.join("answers.jsonl")).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|value| value["item"].is_string())
        .map(|value| {
            let key = |name: &str| value[name].as_str().unwrap().to_owned();
            ((key("variant"), key("item")), value)
        })
        .collect()
}

/// What does not depend on the clock.
fn lasting(folder: &Path) -> Vec<String> {
    let keep = |mut value: Value| {
        value.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_ms"));
        value.to_string()
    };
    answers(folder).into_values().map(keep).collect()
}

#[test]
fn two_variants_one_table_and_three_reports() {
    let world = World::new();
    let out = world.path("run");
    let args = ["--tasks", "ocr,attr", "--n", "4", "--variant", "seen:", "--variant", "unseen: --blind"];
    let outcome = eval(&world, &[&args[..], &["--out", text(&out)]].concat()).ok();
    let lines: Vec<Vec<&str>> = outcome.stdout.lines().map(|l| l.split_whitespace().collect()).collect();
    let names: Vec<[&str; 2]> = lines[1..].iter().map(|l| [l[0], l[1]]).collect();
    assert_eq!(
        names,
        [["ocr", "seen"], ["ocr", "unseen"], ["attr", "seen"], ["attr", "unseen"], ["all", "seen"], ["all", "unseen"]]
    );

    let report: Value = serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    let answers = answers(&out);
    assert_eq!(answers.len(), 16);
    for variant in report["variants"].as_array().unwrap() {
        let own = || answers.iter().filter(|(key, _)| variant["name"] == key.0.as_str()).map(|(_, value)| value);
        let right = own().filter(|value| value["score"] == 1.0).count();
        assert_eq!((&variant["all"]["n"], &variant["all"]["right"]), (&8.into(), &right.into()));
        let tokens = if variant["name"] == "seen" { 196.0 } else { 0.0 };
        assert_eq!(variant["all"]["visual_tokens"], tokens);
    }
    let (seen, unseen) = (&report["variants"][0]["all"], &report["variants"][1]["all"]);
    assert!(seen["accuracy"].as_f64() > unseen["accuracy"].as_f64(), "{report:#}");
    assert_eq!((&seen["mcnemar_p"], &seen["kl_mean"]), (&Value::Null, &Value::Null));
    assert!(unseen["kl_mean"].as_f64().unwrap() > 0.1 && unseen["mcnemar_p"].as_f64().unwrap() < 1.0);

    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert_eq!(
        page.matches("http").count(),
        page.matches("xmlns=\"http").count(),
        "the page needs nothing from elsewhere"
    );
    let markdown = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(markdown.contains("| ocr | unseen |") && markdown.contains("demo-lm-f16.gguf"), "{markdown}");
}

#[test]
fn budgets_and_compressors_are_compared_with_all_tokens() {
    let world = World::new();
    let out = world.path("run");
    let args = ["--tasks", "attr,spatial", "--n", "3", "--visual-tokens", "64,32", "--compressor", "div-c,pool"];
    let outcome = eval(&world, &[&args[..], &["--out", text(&out)]].concat()).ok();
    assert!(outcome.stdout.contains("kept %") && outcome.stdout.contains("KV KiB"), "{}", outcome.stdout);
    let report: Value = serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    let variants = report["variants"].as_array().unwrap();
    let names: Vec<&str> = variants.iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["full", "div-c 64", "div-c 32", "pool 64", "pool 32"]);
    // pool gives a grid: 8 x 8 and 6 x 5 or the like
    for (variant, tokens) in variants.iter().zip([196.0, 64.0, 32.0, 64.0, 30.0]) {
        let all = &variant["all"];
        let number = |key: &str| all[key].as_f64().unwrap();
        assert!((number("visual_tokens") - tokens).abs() <= 2.0, "{variant:#}");
        assert!((number("kept_ratio") - number("visual_tokens") / 196.0).abs() < 1e-9, "{variant:#}");
        let held = number("visual_tokens") + number("text_tokens") + number("decode_tokens");
        let bytes = variants[0]["all"]["kv_bytes"].as_f64().unwrap()
            / ["visual_tokens", "text_tokens", "decode_tokens"]
                .map(|k| variants[0]["all"][k].as_f64().unwrap())
                .iter()
                .sum::<f64>();
        assert!((number("kv_bytes") - held * bytes).abs() < 1.0, "{variant:#}");
    }
    for figure in ["budget-accuracy", "budget-prefill", "budget-first-token"] {
        let svg = fs::read_to_string(out.join(format!("{figure}.svg"))).unwrap();
        assert!(svg.contains("div-c") && svg.contains("spatial"), "{figure}");
        assert!(fs::read(out.join(format!("{figure}.png"))).unwrap().starts_with(b"\x89PNG"), "{figure}");
    }
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 6);
    assert!(fs::read_to_string(out.join("report.md")).unwrap().contains("(budget-accuracy.png)"));

    // full through the lists is what it is without them, bit for bit
    let plain = world.path("plain");
    eval(
        &world,
        &[&args[..4], &["--variant", "a:", "--variant", "full: --visual-tokens 196", "--out", text(&plain)]].concat(),
    )
    .ok();
    for ((variant, item), value) in answers(&plain) {
        if variant == "full" {
            assert_eq!((&value["kl_mean"], &value["visual_tokens"]), (&0.0.into(), &196.into()), "{item}");
        }
    }
}

#[test]
fn equal_settings_have_no_distance_and_other_ones_little() {
    let world = World::new();
    let out = world.path("run");
    let variants = ["--variant", "a:", "--variant", "same: -ub 512", "--variant", "q8: -ctk q8_0 -ctv q8_0"];
    eval(&world, &[&["--tasks", "ocr", "--n", "3", "--out", text(&out)], &variants[..]].concat()).ok();
    for ((variant, item), value) in answers(&out) {
        let (first, mean) = (value["kl_first"].as_f64(), value["kl_mean"].as_f64());
        match variant.as_str() {
            "a" => assert_eq!((first, mean), (None, None)),
            "same" => assert_eq!((first, mean, &value["same_first"]), (Some(0.0), Some(0.0), &true.into()), "{item}"),
            _ => assert!(mean.is_some_and(|kl| kl > 0.0 && kl < 0.1), "{item}: {value}"),
        }
    }
}

#[test]
fn questions_of_your_own_with_every_scorer() {
    let world = World::new();
    world.copy("sign.png", "set/sign.png");
    world.copy("above.png", "set/above.png");
    let data = world.write(
        "set/data.jsonl",
        r#"{"image": "sign.png", "question": "What word is written?", "answer": "exit."}
{"image": "sign.png", "question": "Read the word.", "answers": ["EXIS", "LAMP"], "scorer": "anls", "task": "near"}

{"image": "above.png", "question": "What is above the star?", "answer": "circle", "scorer": "contains", "task": "part"}
{"image": "sign.png", "question": "What word is written?", "answer": "EXIT", "choices": ["LAMP", "EXIT", "EX", "EXITS"], "task": "choose"}
{"image": "sign.png", "question": "What word is written?", "answer": 3, "scorer": "numeric", "task": "number"}
"#,
    );
    let out = world.path("out");
    eval(&world, &["--data", text(&data), "--out", text(&out)]).ok();
    let score = |item: &str| answers(&out)[&("default".to_owned(), item.to_owned())]["score"].as_f64().unwrap();
    assert_eq!(["line-1", "line-2", "line-4", "line-5", "line-6"].map(score), [1.0, 0.75, 1.0, 1.0, 0.0]);
    // the first two only, judged otherwise
    let outcome = eval(&world, &["--data", text(&data), "--n", "2", "--scorer", "exact"]).ok();
    let all = outcome.stdout.lines().last().unwrap();
    assert!(all.starts_with("all   2     50.0"), "{}", outcome.stdout);
}

/// The columns of a table that do not depend on the clock.
fn quality(table: &str) -> Vec<Vec<&str>> {
    table.lines().skip(1).map(|line| line.split_whitespace().take(12).collect()).collect()
}

#[test]
fn a_stopped_run_goes_on_and_ends_as_if_it_had_not_stopped() {
    let world = World::new();
    let (whole, parts) = (world.path("whole"), world.path("parts"));
    let args = |out: &'static str| {
        ["--tasks", "attr,count", "--n", "3", "--variant", "a:", "--variant", "b: --blind", "--out", out]
    };
    eval(&world, &args("whole")).ok();
    // the file as a power failure would leave it: the eighth line is cut, so one of two answers to a question is there
    fs::create_dir(&parts).unwrap();
    let written = fs::read_to_string(whole.join("answers.jsonl")).unwrap();
    let kept: String = written.split_inclusive('\n').take(8).collect();
    fs::write(parts.join("answers.jsonl"), &kept[..kept.len() - 20]).unwrap();
    let outcome = eval(&world, &args("parts")).ok().says("4 of 12 answers are there already");
    assert_eq!(lasting(&parts), lasting(&whole));
    assert_eq!(fs::read_to_string(parts.join("answers.jsonl")).unwrap().lines().count(), written.lines().count());
    let again = eval(&world, &args("whole")).ok().says("12 of 12 answers");
    assert_eq!(quality(&again.stdout).len(), 6);
    assert_eq!(quality(&again.stdout), quality(&outcome.stdout));

    // other settings would mix two runs; more questions do not
    let other =
        eval(&world, &["--tasks", "attr", "--variant", "a: -ctk q8_0", "--variant", "b: --blind", "--out", "whole"]);
    other.failed(2, "usage").says("variant `a`: settings: cache_type_k: F16 is now cache_type_k: Q8_0");
    eval(&world, &[&args("whole")[..], &["--seed", "2"]].concat())
        .failed(2, "usage")
        .says("questions: seed 1 is now seed 2");
    eval(&world, &[&args("whole")[..], &["--n", "4"]].concat()).ok().says("12 of 16 answers");
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_was_answered() {
    let world = World::new();
    let out = world.path("run");
    let args = ["eval", "-t", "1", "--no-warmup", "--tasks", "caption", "--n", "100000", "--out", "run"];
    let child = world.command(&args).spawn().unwrap();
    let lines = || fs::read_to_string(out.join("answers.jsonl")).map_or(0, |t| t.lines().count());
    let started = std::time::Instant::now();
    while lines() < 4 {
        assert!(started.elapsed().as_secs() < 200, "nothing is answered");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let outcome = finish(child);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(130), ""), "{outcome:?}");
    assert!(
        outcome.stderr.contains("the same command goes on") && !outcome.stderr.contains("at question"),
        "{outcome:?}"
    );
    let done = answers(&out).len().to_string();
    let outcome = eval(&world, &["--tasks", "caption", "--n", &done, "--out", "run"]).ok();
    assert!(outcome.stdout.starts_with("task") && outcome.stderr.contains("answers are there already"), "{outcome:?}");
}

#[test]
fn written_questions_are_the_built_in_ones() {
    let world = World::new();
    let outcome = eval(&world, &["--tasks", "grid,second", "--n", "2", "--write-data", "set"]).ok().says("4 questions");
    assert_eq!(outcome.stdout, "");
    assert!(!world.path("cache").exists(), "a model was touched without need");
    eval(&world, &["--tasks", "grid,second", "--n", "2", "--out", "direct"]).ok();
    eval(&world, &["--data", "set/data.jsonl", "--out", "read"]).ok();
    let short = |folder: &str| {
        let mut list: Vec<_> = answers(&world.path(folder))
            .into_values()
            .map(|v| {
                (v["question"].to_string(), v["right"].to_string(), v["answer"].to_string(), v["text_tokens"].as_u64())
            })
            .collect();
        list.sort();
        list
    };
    assert_eq!(short("direct"), short("read"));
}

#[test]
fn what_is_wrong_is_said_before_a_model_is_loaded() {
    let world = World::new();
    world.copy("sign.png", "sign.png");
    let good = r#"{"image": "sign.png", "question": "?", "answer": "x"}"#;
    for (name, content, words) in [
        ("a.jsonl", format!("{good}\n{{oops\n"), "a.jsonl, line 2: not JSON"),
        ("b.jsonl", format!("{good}\n\n{}\n", good.replace("sign", "none")), "b.jsonl, line 3: cannot read none.png"),
        ("c.jsonl", good.replace("answer", "reply"), "c.jsonl, line 1: `answer` is missing"),
        ("d.jsonl", "\n \n".to_owned(), "d.jsonl holds no question"),
    ] {
        world.write(name, content);
        eval(&world, &["--data", name]).failed(2, "usage").says(words);
    }
    let latin = world.write("latin.jsonl", b"{\"image\": \"gr\xfcn.png\"}");
    eval(&world, &["--data", text(&latin)]).failed(2, "usage").says("line 1: not UTF-8");
    eval(&world, &["--data", "missing.jsonl"]).failed(2, "io").says("missing.jsonl");
    eval(&world, &["--tasks", "attr,sudoku"]).failed(2, "usage").says("no task `sudoku`");
    eval(&world, &["-p", "hello"]).failed(2, "usage").says("no meaning here");
    eval(&world, &["--variant", "a: --tasks ocr"]).failed(2, "usage").says("--tasks");
    eval(&world, &["--scorer", "ocr=vqa"]).says("no scorer");
    eval(&world, &["--top-p", "2"]).failed(2, "bad-parameter");
    eval(&world, &["--no-mmproj", "--n", "1"]).failed(3, "no-vision");
    let cut = world.write("cut.png", &fs::read(demo("sign.png")).unwrap()[..5000]);
    world.write("e.jsonl", good.replace("sign.png", text(&cut)));
    eval(&world, &["--data", "e.jsonl"]).failed(4, "picture-damaged").says("cut.png");
    let long = "x".repeat(100);
    eval(&world, &["--tasks", "attr", "--n", "1", "-c", "256", "-sys", &long])
        .failed(5, "context-full")
        .says("at question attr-0");
}

/// Answers under weights that have changed meanwhile are not mixed with those before.
#[test]
fn other_weights_of_a_compressor_are_other_settings() {
    let world = World::new();
    let weights = world.path("compressor.gguf");
    let mut bytes = fs::read(demo("demo-compressor-f32.gguf")).unwrap();
    fs::write(&weights, &bytes).unwrap();
    let compressor = format!("resampler:file={}", weights.display());
    let out = world.path("run");
    let args =
        ["--tasks", "attr", "--n", "2", "--visual-tokens", "64", "--compressor", &compressor, "--out", text(&out)];
    eval(&world, &args).ok();
    eval(&world, &args).ok();
    // the last bytes belong to a bias or norm: another value, and no NaN
    let end = bytes.len() - 4;
    bytes[end..].copy_from_slice(&0.5_f32.to_le_bytes());
    fs::write(&weights, &bytes).unwrap();
    let outcome = eval(&world, &args);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    outcome.says("other settings").says("compressor");
}
