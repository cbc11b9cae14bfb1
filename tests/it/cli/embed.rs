//! `llava-cli embed`.

use llava::TokenCount;
use llava::gguf::TensorType;
use llava::llama::CancelToken;
use llava::session::Picture;

use super::{SAMPLES, World, demo, text};
use crate::models::{Family, Options, pair_with};
use crate::world::{demo_files, open};

/// Header text and floats of a NumPy file of version 1.0.
fn read_npy(bytes: &[u8]) -> (String, Vec<f32>) {
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8(bytes[10..10 + length].to_vec()).unwrap();
    let (floats, rest) = bytes[10 + length..].as_chunks::<4>();
    assert!(rest.is_empty());
    (header, floats.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

#[test]
fn rows_are_what_the_projector_gives() {
    let world = World::new();
    let (a, b) = (demo("sign.png"), demo("shapes.png"));
    let (out_a, out_b) = (world.path("a.npy"), world.path("b.npy"));
    let args = ["embed", "-t", "2", "--image", text(&a), "-o", text(&out_a), "--image", text(&b), "-o", text(&out_b)];
    let outcome = world.run(&args).ok();
    assert_eq!(outcome.stdout, "");

    let (_model, projector) = open(&demo_files());
    for (picture, out) in [(&a, &out_a), (&b, &out_b)] {
        let (header, values) = read_npy(&std::fs::read(out).unwrap());
        assert!(header.contains("'shape': (196, 160)") && header.contains("'<f4'"), "{header}");
        let picture = Picture::from_file(picture).unwrap();
        let prepared = projector.prepare(picture.image(), TokenCount::ZERO, 0).unwrap();
        let rows = projector.encode(&[(&prepared, 0)], &CancelToken::new()).unwrap();
        let bits = |v: &[f32]| v.iter().map(|f| f.to_bits()).collect::<Vec<_>>();
        assert!(bits(&values) == bits(rows[0].0.as_slice()), "{}", out.display());
    }
    let leftovers = std::fs::read_dir(out_a.parent().unwrap()).unwrap().map(|e| e.unwrap().path());
    assert_eq!(leftovers.filter(|p| p.extension().is_some_and(|e| e == "tmp")).count(), 0);
}

#[test]
fn kernels_are_close_to_ggmls_own_arithmetic() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { matrices: TensorType::Q8_0, ..Options::new(Family::Llava15, 5) };
    let files = pair_with(dir.path(), &options).unwrap();
    let world = World::new();
    let picture = demo("sign.png");
    let rows = |kernel: &str| {
        let out = world.path(kernel);
        let (model, projector) = (text(&files.text), text(&files.projector));
        let args = ["embed", "-m", model, "--mmproj", projector, "--format", "npy", "--image", text(&picture), "-o"];
        let mut command = world.command(&args);
        super::finish(command.arg(&out).env("LLAVA_GEMM", kernel).spawn().unwrap()).ok();
        read_npy(&std::fs::read(out).unwrap()).1
    };
    let (ours, own) = (rows("scalar"), rows("off"));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let cosine = dot(&ours, &own) / (dot(&ours, &ours) * dot(&own, &own)).sqrt();
    assert!(cosine > 0.999, "{cosine}");
    assert!(ours != own, "the hook was not asked");
}

#[test]
fn each_picture_needs_a_file_and_a_projector() {
    let world = World::new();
    let (picture, model) = (demo("sign.png"), demo("demo-lm-f16.gguf"));
    let image = ["embed", "--image", text(&picture), "--image", text(&picture), "-o", "a.npy"];
    world.run(&image).failed(2, "usage").says("2 pictures and 1 -o");
    world.run(&["embed", "-o", "a.npy"]).failed(2, "usage");
    let outcome = world.run(&["embed", "-m", text(&model), "--image", text(&picture), "-o", "a.npy"]);
    outcome.failed(3, "no-vision").says("--mmproj");
    assert!(!world.path("a.npy").exists());
    world.run(&["embed", "--image", text(&picture), "-o", "none/a.npy"]).failed(1, "io").says("none/a.npy");
}

#[test]
fn an_encoded_picture_is_answered_without_the_projector() {
    let world = World::new();
    let sample = &SAMPLES[0];
    let (model, picture) = (demo("demo-lm-f16.gguf"), demo(sample.picture));
    let encoded = world.path("sign.llavapic");
    let out = world.run(&["embed", "--format", "encoded", "--image", text(&picture), "-o", text(&encoded)]).ok();
    assert_eq!(out.stdout, "");
    let flags = ["-m", text(&model), "--image", text(&encoded), "-p", sample.question];
    let usage = world.usage(&flags);
    assert_eq!((usage["images"][0]["source"].as_str(), &usage["projector"]), (Some("file"), &serde_json::Value::Null));
    assert_eq!(world.ask(&flags).ok().stdout.trim(), sample.answer);
    // in a chat too
    let input = format!("/image {}\n{}\n", encoded.display(), sample.question);
    assert_eq!(world.chat(&["-m", text(&model)], &input).ok().stdout.trim(), sample.answer);

    let bytes = std::fs::read(&encoded).unwrap();
    let cut = world.write("cut.llavapic", &bytes[..bytes.len() - 1]);
    world.ask(&["-m", text(&model), "--image", text(&cut), "-p", "x"]).failed(4, "state").says("damaged");
    world.run(&["embed", "--image", text(&encoded), "-o", "x.npy"]).failed(4, "picture-format");
    world.run(&["embed", "--image", "a", "-o", "x.npy", "--image", "b", "-o", "x.npy"]).failed(2, "usage");
}
