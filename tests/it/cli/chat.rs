//! Conversations through a pipe.

use super::{SAMPLES, World, demo, finish, text};

fn image(name: &str) -> String {
    format!("/image {}\n", demo(name).display())
}

#[test]
fn two_pictures_two_right_answers() {
    let world = World::new();
    let input: String = SAMPLES[..2].iter().map(|s| format!("{}{}\n/clear\n", image(s.picture), s.question)).collect();
    let outcome = world.chat(&[], &input).ok();
    assert_eq!(outcome.stdout, format!(" {}\n {}\n", SAMPLES[0].answer, SAMPLES[1].answer));
    assert!(!outcome.stderr.contains("> "), "a prompt that nobody sees: {}", outcome.stderr);
}

#[test]
fn regen_answers_again_and_quit_ends() {
    let world = World::new();
    let sample = &SAMPLES[2];
    let input = format!("{}{}\n/regen\n\n/quit\nnever asked\n", image(sample.picture), sample.question);
    let outcome = world.chat(&[], &input).ok();
    assert_eq!(outcome.stdout, format!(" {0}\n {0}\n", sample.answer));
}

#[test]
fn pictures_of_the_command_line_go_with_the_first_message() {
    let world = World::new();
    let sample = &SAMPLES[3];
    let path = demo(sample.picture);
    // the last line has no end
    let outcome = world.chat(&["--image", text(&path)], sample.question).ok();
    assert_eq!(outcome.stdout, format!(" {}\n", sample.answer));
}

#[test]
fn an_unreadable_picture_is_reported_and_the_chat_goes_on() {
    let world = World::new();
    let sample = &SAMPLES[0];
    let input = format!("/image missing.png\n/imgae x\n{}{}\n", image(sample.picture), sample.question);
    let outcome = world.chat(&[], &input);
    // the first failure decides, since nobody was there to read it
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
    assert_eq!(outcome.stdout, format!(" {}\n", sample.answer));
    outcome.says("missing.png").says("error[io]").says("no command /imgae");
}

#[test]
fn a_message_that_does_not_fit_is_taken_back_with_its_pictures() {
    let world = World::new();
    let sample = &SAMPLES[0];
    let long = "x".repeat(300);
    let input = format!("{}{long}\n{}\n", image(sample.picture), sample.question);
    let outcome = world.chat(&["-c", "256"], &input);
    assert_eq!(outcome.code, Some(5), "{outcome:?}");
    assert_eq!(outcome.stdout, format!(" {}\n", sample.answer));
    outcome.says("error[context-full]").says("go with the next one");
}

#[test]
fn a_chat_without_a_projector_says_so() {
    let world = World::new();
    let model = demo("demo-lm-f16.gguf");
    let outcome = world.chat(&["-m", text(&model)], &image("sign.png"));
    outcome.failed(3, "no-vision").says("--mmproj");
}

#[test]
fn a_chat_reports_the_last_answer() {
    let world = World::new();
    let sample = &SAMPLES[0];
    let path = world.path("usage.json");
    let input = format!("{}{}\n{}\n", image(sample.picture), sample.question, sample.question);
    world.chat(&["--usage-json", text(&path)], &input).ok();
    let usage: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(usage["images"][0]["source"], "kv");
    assert_eq!(usage["images"][0]["rows"], 196);
    assert!(usage["reused_tokens"].as_u64().unwrap() >= 196, "{usage}");
}

#[test]
fn an_empty_or_closed_stdin_ends_the_chat() {
    let world = World::new();
    assert_eq!(world.chat(&[], "").ok().stdout, "");
    assert_eq!(world.run(&["--no-warmup"]).ok().stdout, "");
    // closed altogether
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "exec \"$0\" --no-warmup <&-", env!("CARGO_BIN_EXE_llava-cli")]);
    command.env("XDG_CACHE_HOME", world.path("cache"));
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    assert_eq!(finish(child).ok().stdout, "");
}

#[test]
fn the_number_of_visual_tokens_can_change_on_the_way() {
    let world = World::new();
    let sample = &SAMPLES[3];
    let input =
        format!("/tokens\n/tokens 64\n/tokens\n{}{}\n/tokens full\n/regen\n", image(sample.picture), sample.question);
    let outcome = world.chat(&["-v"], &input).ok();
    assert_eq!(outcome.stdout, format!(" {0}\n {0}\n", sample.answer));
    outcome.says("visual tokens: full").says("visual tokens: 64").says("64 visual tokens in").says("196 rows\n");
    let outcome = world.chat(&[], "/tokens half\n");
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    outcome.says("/tokens `half`").says("33%");
}
