//! Damaged, truncated and hostile files through the whole quantiser: a typed error or a right result, and never a trace at the
//! output's path. A failing seed is all that is needed to repeat a case.

use super::{Random, numbers, projector_file};
use crate::error::Error;
use crate::gguf::{GgufFile, TensorType, check_projector};
use crate::quantize::{QuantizeParams, Summary, quantize};

const CASES: u64 = 2_100;

/// One or two injuries: bits, bytes, extreme numbers in the header, cuts, repeated and removed stretches.
fn mutate(bytes: &mut Vec<u8>, header: usize, random: &mut Random) {
    for _ in 0..=random.below(2) {
        if bytes.len() < 64 {
            return;
        }
        let in_header = random.below(2) > 0;
        let at = random.below(if in_header { header.min(bytes.len() - 8) } else { bytes.len() - 8 });
        match random.below(8) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.draw() as u8,
            2 => {
                let numbers = [0, 1, u64::MAX, 1 << 31, 1 << 63, u64::from(u32::MAX), 0x7fff_ffff_ffff_ffff, 33];
                bytes[at..at + 8].copy_from_slice(&numbers[random.below(numbers.len())].to_le_bytes());
            }
            3 => {
                let kinds = [0_u32, 1, 2, 8, 12, 24, 28, 30, 4, 99];
                bytes[at..at + 4].copy_from_slice(&kinds[random.below(kinds.len())].to_le_bytes());
            }
            4 => bytes.truncate(at),
            5 => {
                let end = (at + 1 + random.below(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                let end = (at + 1 + random.below(64)).min(bytes.len());
                let stretch = bytes[at..end].to_vec();
                bytes.splice(at..at, stretch);
            }
            _ => bytes[at..at + 2].copy_from_slice(&[0x00, 0x7c]),
        }
    }
}

/// What a result that was accepted has to be, whatever the source looked like.
fn check(seed: u64, source: &GgufFile, result: &GgufFile, summary: &Summary) {
    check_projector(result).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert_eq!(source.tensors().len(), result.tensors().len(), "seed {seed}");
    for (planned, after) in summary.plan.tensors().iter().zip(result.tensors()) {
        assert_eq!((&planned.name, &planned.dims, planned.target), (&after.name, &after.dims, after.ggml_type));
        let (a, b) = (source.read_tensor(&planned.name).unwrap(), result.read_tensor(&planned.name).unwrap());
        if !planned.changes() {
            assert!(a == b, "seed {seed}: {}", planned.name);
            continue;
        }
        let (a, b) = (numbers(&a, planned.source), numbers(&b, planned.target));
        for (a, b) in a.chunks(32).zip(b.chunks(32)) {
            let largest = a.iter().fold(0_f32, |m, v| m.max(v.abs()));
            // half a step of the block, the scale's own rounding, and F16's smallest step
            let most = largest / 127.0 * 0.57 + 127.0 * 3e-8;
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= most), "seed {seed}: {} {a:?} {b:?}", planned.name);
        }
    }
    for (key, value) in source.metadata() {
        let own = key.starts_with("llava.quantize.") || key.starts_with("split.");
        if !own && key != "general.file_type" && key != "general.quantization_version" {
            // NaN is not equal to itself
            assert_eq!(format!("{:?}", result.value(key)), format!("{:?}", Some(value)), "seed {seed}: {key}");
        }
    }
}

#[test]
fn mutated_files_are_refused_or_right() {
    let dir = tempfile::tempdir().unwrap();
    let bases = [TensorType::F32, TensorType::F16, TensorType::Bf16].map(|kind| {
        let path = projector_file(dir.path(), kind);
        let header = GgufFile::open(&path).unwrap().data_offset() as usize;
        (std::fs::read(path).unwrap(), header)
    });
    let home = tempfile::tempdir().unwrap();
    let (path, out) = (home.path().join("mutated.gguf"), home.path().join("out.gguf"));
    let (mut refused, mut accepted) = (0, 0);
    for seed in 0..CASES {
        let mut random = Random(seed);
        let (bytes, header) = &bases[random.below(bases.len())];
        let mut bytes = bytes.clone();
        mutate(&mut bytes, *header, &mut random);
        std::fs::write(&path, &bytes).unwrap();
        std::fs::write(&out, "old").unwrap();
        let params = QuantizeParams { threads: Some(1), overwrite: true, ..QuantizeParams::default() };
        match quantize(&path, &out, &params) {
            Ok(summary) => {
                accepted += 1;
                let result = GgufFile::open(&out).unwrap();
                // BF16 tables grow to F32, and the plan is written down
                assert!(summary.target_bytes <= 2 * bytes.len() as u64 + 8192, "seed {seed}");
                check(seed, &GgufFile::open(&path).unwrap(), &result, &summary);
            }
            Err(
                Error::NotGguf { .. }
                | Error::UnsupportedGguf { .. }
                | Error::DamagedGguf { .. }
                | Error::BadMetadata { .. }
                | Error::BadTensor { .. },
            ) => {
                refused += 1;
                assert_eq!(std::fs::read(&out).unwrap(), b"old", "seed {seed}");
            }
            Err(other) => panic!("seed {seed}: {other:?}"),
        }
        assert_eq!(super::names(home.path()), ["mutated.gguf", "out.gguf"], "seed {seed}");
    }
    assert!(refused > 900 && accepted > 200, "{refused} refused, {accepted} accepted");
}
