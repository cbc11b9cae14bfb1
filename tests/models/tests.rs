//! The generated files are what they say, and the same every time.

use llava::Error;
use llava::gguf::{GgufFile, TensorType, check_pair, check_projector, check_text_model};

use super::weights::{Random, half};
use super::{Family, Options, pair, pair_with};

#[test]
fn every_family_passes_the_checks_and_fits() {
    let dir = tempfile::tempdir().unwrap();
    for family in Family::ALL {
        let made = pair(dir.path(), family, 1).unwrap();
        let (text_file, projector_file) =
            (GgufFile::open_split(&made.text).unwrap(), GgufFile::open(&made.projector).unwrap());
        let projector = check_projector(&projector_file).unwrap();
        let text = check_text_model(&text_file).unwrap();
        assert_eq!(projector.projector_type, family.projector_type());
        assert_eq!(text.architecture, family.architecture());
        check_pair(&text_file, &text, &projector_file, &projector).unwrap();
        assert!(text.byte_tokens_complete && text.chat_template.is_some());
        for path in [made.text, made.projector] {
            assert!(std::fs::metadata(path).unwrap().len() < 1 << 20);
        }
    }
}

#[test]
fn every_option_shows_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let make = |change: fn(&mut Options)| {
        let mut options = Options::new(Family::Llava15, 7);
        change(&mut options);
        let made = pair_with(dir.path(), &options).unwrap();
        let file = GgufFile::open(&made.projector).unwrap();
        (check_projector(&file).map(Box::new), file, made)
    };
    let facts = make(|_| ()).0.unwrap();
    assert!(facts.has_class_embedding && facts.has_pre_norm && !facts.has_post_norm);
    let facts = make(|o| (o.class_token, o.pre_norm, o.post_norm) = (false, false, true)).0.unwrap();
    assert!(!facts.has_class_embedding && !facts.has_pre_norm && facts.has_post_norm);
    let facts = make(|o| (o.stored_layers, o.feature_layers) = (12, Some(vec![3, 11]))).0.unwrap();
    assert_eq!((facts.stored_layers, facts.block_count, facts.feature_layers), (12, 12, vec![3, 11]));
    assert_eq!(make(|o| o.image_size_px = 224).0.unwrap().image_size_px, 224);
    assert_eq!(make(|o| o.projector_width = 96).0.unwrap().projection_width, Some(96));
    assert!(make(|o| o.biases = false).1.tensor("v.blk.0.attn_q.bias").is_none());
    for stored in [TensorType::F32, TensorType::F16, TensorType::Q8_0] {
        let mut options = Options::new(Family::Llava15, 7);
        options.matrices = stored;
        let made = pair_with(dir.path(), &options).unwrap();
        for (path, name) in [(&made.projector, "v.blk.0.ffn_up.weight"), (&made.text, "blk.0.ffn_up.weight")] {
            assert_eq!(GgufFile::open(path).unwrap().tensor(name).unwrap().ggml_type, stored);
        }
    }
    // One layer more than there are.
    assert!(
        matches!(make(|o| o.block_count = Some(4)).0, Err(Error::BadMetadata { key, .. }) if key == "clip.vision.block_count")
    );
    let silent = make(|o| o.chat_template = false).2;
    assert_eq!(check_text_model(&GgufFile::open(silent.text).unwrap()).unwrap().chat_template, None);
}

#[test]
fn a_seed_means_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |seed, printable| {
        let mut options = Options::new(Family::Gemma3, seed);
        options.printable = printable;
        let made = pair_with(dir.path(), &options).unwrap();
        (std::fs::read(made.text).unwrap(), std::fs::read(made.projector).unwrap())
    };
    let (text, projector) = bytes(3, true);
    assert!((text.clone(), projector.clone()) == bytes(3, true));
    let other = bytes(4, true);
    assert!(other.0 != text && other.1 != projector);
    let free = bytes(3, false);
    assert!(free.0 != text && free.1 == projector);
    // The stream itself, so that another platform or a later change cannot shift it unseen.
    let mut random = Random::of(1, "token_embd.weight");
    let drawn: Vec<u32> = (0..3).map(|_| random.normal().to_bits()).collect();
    assert_eq!(drawn, [3_200_933_888u32, 1_064_437_328, 3_213_790_172]);
}

#[test]
fn random_numbers_are_about_normal() {
    let mut random = Random::of(5, "x");
    let list: Vec<f32> = (0..20_000).map(|_| random.normal()).collect();
    let mean = list.iter().sum::<f32>() / list.len() as f32;
    let variance = list.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / list.len() as f32;
    assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    assert!(list.iter().all(|x| x.abs() < 6.0));
}

#[test]
fn half_precision() {
    for (value, bits) in [
        (0.0, 0),
        (-0.0, 0x8000),
        (1.0, 0x3c00),
        (-2.5, 0xc100),
        (65504.0, 0x7bff),
        (65519.996, 0x7bff),
        (65520.0, 0x7c00),
        (1e9, 0x7c00),
        (f32::NEG_INFINITY, 0xfc00),
        (6.103_515_6e-5, 0x0400),
        (6.097_555e-5, 0x03ff),
        (5.960_464_5e-8, 0x0001),
        (2.980_232_2e-8, 0x0000),
        (2.980_232_6e-8, 0x0001),
        (1.000_488_3, 0x3c00),
        (1.000_488_4, 0x3c01),
        (1.001_464_8, 0x3c02),
    ] {
        assert_eq!(half(value), bits, "{value}");
    }
    assert!(half(f32::NAN) & 0x7fff > 0x7c00);
}
