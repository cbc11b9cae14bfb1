//! Ctrl-C, and readers that go away.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::{ENDLESS, World, demo, finish, text, wait};

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// An answer about a picture that does not end by itself for minutes.
fn endless(world: &World, more: &[&str]) -> Child {
    let picture = demo("sign.png");
    let args = ["-t", "1", "--grammar", ENDLESS, "--image", text(&picture), "-p", "What word is written?"];
    world.command(&[&args[..], more].concat()).spawn().unwrap()
}

#[test]
fn an_interrupted_answer_ends_with_130() {
    let world = World::new();
    let mut child = endless(&world, &[]);
    let mut first = [0_u8; 1];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    let pressed = Instant::now();
    interrupt(&child);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let outcome = finish(child);
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert!(pressed.elapsed().as_secs() < 20, "{:?}", pressed.elapsed());
    assert!(rest.trim_end().bytes().all(|b| b == b'a') && rest.ends_with('\n'), "{rest:?}");
    assert!(outcome.stderr.contains("interrupted") && !outcome.stderr.contains("error["), "{}", outcome.stderr);
}

/// Wherever it is: loading the projector, encoding, prefill or answering.
#[test]
fn an_interrupt_soon_after_the_start_ends_with_130() {
    let world = World::new();
    for line in ["read", "loaded model", "loaded projector"] {
        let mut child = endless(&world, &["-v"]);
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        while !seen.contains(line) {
            assert!(stderr.read_line(&mut seen).unwrap() > 0, "{seen}");
        }
        interrupt(&child);
        stderr.read_to_string(&mut seen).unwrap();
        assert_eq!(finish(child).code, Some(130), "{line}: {seen}");
    }
}

#[test]
fn an_interrupted_chat_that_nobody_types_ends_with_130() {
    let world = World::new();
    let mut command = world.command(&["-t", "1", "--grammar", ENDLESS]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"x\nnever asked\n").unwrap();
    let mut first = [0_u8; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    interrupt(&child);
    let outcome = finish(child);
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert_eq!(outcome.stdout.lines().count(), 1, "{outcome:?}");
    drop(stdin);

    // waiting for a line there is nothing to stop but the program
    let mut command = world.command(&["-v", "--no-warmup", "--image", text(&demo("sign.png"))]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"/help\n").unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("begins with a slash") {
        assert!(stderr.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    interrupt(&child);
    assert_eq!(wait(&mut child).code(), Some(130));
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let world = World::new();
    let mut child = endless(&world, &[]);
    let mut first = [0_u8; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let outcome = finish(child).ok();
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

#[test]
fn a_closed_stderr_is_no_reason_to_panic() {
    let world = World::new();
    let mut child = endless(&world, &["-n", "3", "-vvv"]);
    drop(child.stderr.take());
    assert_eq!(finish(child).ok().stdout, "aaa\n");
}
