//! `llava-cli bench` on the demo model: that it measures what it says. How fast anything is, is no test.

use serde_json::Value;

use super::{World, demo, text};

/// The smallest benchmark that still has several turns.
const SMALL: [&str; 10] = ["bench", "--runs", "1", "--turns", "3", "-n", "4", "-t", "1", "--no-warmup"];

fn scenario<'v>(report: &'v Value, name: &str) -> &'v Value {
    let all = report["scenarios"].as_array().unwrap();
    all.iter().find(|s| s["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

fn finite(value: &Value) {
    for name in ["median", "min", "max"] {
        assert!(value[name].as_f64().is_some_and(|v| v.is_finite() && v > 0.0), "{value}");
    }
}

/// Encoder calls and visual tokens prefilled, ours and the other side's.
fn work(scenario: &Value) -> [[u64; 2]; 2] {
    ["ours", "other"]
        .map(|side| ["encoder_calls", "visual_tokens_prefilled"].map(|name| scenario[side][name].as_u64().unwrap()))
}

#[test]
fn every_scenario_is_measured_and_reuse_is_real() {
    let world = World::new();
    let (picture, file) = (demo("sign.png"), world.path("bench.json"));
    let outcome = world.run(&[&SMALL[..], &["--image", text(&picture), "--json", text(&file)]].concat()).ok();
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();

    let expected: [(&str, [[u64; 2]; 2]); 12] = [
        ("cold", [[1, 196], [1, 196]]),
        ("cost-memory", [[1, 196], [1, 196]]),
        ("cost-disk", [[1, 196], [1, 196]]),
        ("cost-states", [[1, 196], [1, 196]]),
        ("second", [[0, 0], [1, 196]]),
        ("session-memory", [[0, 196], [1, 196]]),
        ("session-states", [[0, 0], [1, 196]]),
        ("process-empty", [[1, 196], [1, 196]]),
        ("process-disk", [[0, 196], [1, 196]]),
        ("process-states", [[0, 0], [1, 196]]),
        ("chat", [[1, 196], [3, 3 * 196]]),
        ("text", [[0, 0], [0, 0]]),
    ];
    assert_eq!(report["scenarios"].as_array().unwrap().len(), expected.len());
    for (name, numbers) in expected {
        let scenario = scenario(&report, name);
        assert_eq!(work(scenario), numbers, "{name}");
        finite(&scenario["first_token_ratio"]);
        finite(&scenario["whole_ratio"]);
        let process = name.starts_with("process");
        for side in ["ours", "other"] {
            finite(&scenario[side]["first_token_ms"]);
            assert_eq!(scenario[side]["load_ms"].is_object(), process, "{name}");
        }
        assert!(scenario["answers_have_to_be_equal"] == false || scenario["answers_equal"] == 1, "{name}");
    }
    for part in report["parts"].as_array().unwrap() {
        finite(&part["value"]);
    }
    assert_eq!(report["plain"]["name"], if cfg!(feature = "parity") { "upstream" } else { "off" });
    assert_eq!(report["picture"]["visual_tokens"], 196);
    assert!(report["model"]["bytes"].as_u64().is_some_and(|b| b > 0) && report["build"]["llama.cpp"].is_string());

    for words in
        ["first answer", "second question", "new process", "3 turns", "text only", "share of encoding", "Loading"]
    {
        assert!(outcome.stdout.contains(words), "{words}: {}", outcome.stdout);
    }
    // nothing of the user's was used, and nothing is left behind
    let left: Vec<_> = std::fs::read_dir(world.path("tmp")).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    let cache = std::fs::read_dir(world.path("cache/llava")).unwrap().map(|e| e.unwrap().file_name());
    assert!(cache.into_iter().all(|name| name.to_string_lossy().starts_with("demo-")));
}

#[test]
fn what_was_not_asked_for_is_not_measured() {
    let world = World::new();
    let file = world.path("bench.json");
    let outcome = world.run(&[&SMALL[..], &["--scenario", "text", "--json", text(&file)]].concat()).ok();
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let names: Vec<&str> =
        report["scenarios"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!((names, report["parts"].as_array().unwrap().len()), (vec!["text"], 0));
    assert!(outcome.stdout.contains("text only") && !outcome.stdout.contains("share of encoding"));
}

#[test]
fn a_benchmark_needs_one_picture_and_a_projector() {
    let world = World::new();
    let (picture, model) = (demo("sign.png"), demo("demo-lm-f16.gguf"));
    let two = ["bench", "--image", text(&picture), "--image", text(&picture)];
    world.run(&two).failed(2, "usage").says("one picture");
    world.run(&["bench", "-m", text(&model)]).failed(3, "no-vision");
    world.run(&["bench", "--image", "none.png"]).failed(4, "io");
    world.run(&["bench", "--child", "disk"]).failed(2, "usage");
    assert_eq!(world.run(&["bench", "--scenario", "warm"]).code, Some(2));
}
