//! The regression gate: 30 questions of each of the demo model's tasks are answered as they were answered before, word for word.
//!
//! A change of weights changes answers. `LLAVA_RECORD_ANSWERS=1 cargo test --test it gate` writes the file anew (`make eval-record`);
//! its first lines say how many answers were right, which is to be looked at before it is committed.

use std::path::PathBuf;

use super::eval::{answers, eval};
use super::{World, finish};

fn recorded() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli/gate.tsv")
}

/// A line for each task and then for each question: question, right answer, answer.
fn run() -> Vec<String> {
    let world = World::new();
    let tasks = ["attr", "count", "spatial", "grid", "ocr", "caption"];
    eval(&world, &["--tasks", &tasks.join(","), "--n", "30", "--seed", "1", "--out", "run"]).ok();
    let answers = answers(&world.path("run"));
    let (mut heads, mut lines) = (Vec::new(), Vec::new());
    for task in tasks {
        let mut right = 0;
        for i in 0..30 {
            let id = format!("{task}-{i}");
            let value = &answers[&("default".to_owned(), id.clone())];
            let field = |name: &str| value[name].as_str().unwrap().trim().replace(['\t', '\n'], " ");
            right += usize::from(value["score"] == 1.0);
            lines.push(format!(
                "{id}\t{}\t{}\t{}",
                field("question"),
                value["right"][0].as_str().unwrap(),
                field("answer")
            ));
        }
        heads.push(format!("# {task}: {right} of 30 right"));
    }
    heads.append(&mut lines);
    heads
}

#[test]
fn gate() {
    let now = run();
    if std::env::var_os("LLAVA_RECORD_ANSWERS").is_some() {
        std::fs::write(recorded(), now.join("\n") + "\n").unwrap();
    }
    let then = std::fs::read_to_string(recorded()).unwrap();
    let changed: Vec<String> = then
        .lines()
        .zip(&now)
        .filter(|(then, now)| then != now)
        .map(|(then, now)| format!("- {then}\n+ {now}"))
        .collect();
    assert!(changed.is_empty(), "{} lines have changed:\n{}", changed.len(), changed.join("\n"));
    assert_eq!(then.lines().count(), now.len());
}

/// Ten questions of each task with a quantised tower, by the kernels and by ggml's own arithmetic: answers may tip where two words
/// are as good as equally likely, which is one in some hundreds, and as often to the better.
#[test]
fn a_quantised_tower_answers_with_kernels_as_with_ggmls_own_arithmetic() {
    let world = World::new();
    let run = |kernels: &str| {
        let tasks = ["--tasks", "attr,count,spatial,grid,ocr,caption", "--n", "10", "--seed", "1", "--vision", "q8_0"];
        let args = [&["eval", "-t", "1", "--no-warmup", "--out", kernels], &tasks[..]].concat();
        finish(world.command(&args).env("LLAVA_GEMM", kernels).spawn().unwrap()).ok();
        answers(&world.path(kernels))
    };
    let (ours, own) = (run("auto"), run("off"));
    assert_eq!((ours.len(), own.len()), (60, 60));
    let tipped: Vec<_> = ours.iter().filter(|(key, ours)| ours["answer"] != own[*key]["answer"]).collect();
    assert!(tipped.len() <= 2, "{tipped:?}");
    let right = |all: &std::collections::BTreeMap<_, serde_json::Value>| {
        all.values().filter_map(|value| value["score"].as_f64()).sum::<f64>()
    };
    assert!((right(&ours) - right(&own)).abs() <= 1.0, "{} and {} right", right(&ours), right(&own));
}
