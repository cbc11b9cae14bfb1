//! Thousands of seeded mutations of small whole files: a typed error or an answer, never a panic.

use super::{built, projector, text_model};
use crate::error::Error;
use crate::gguf::{Array, GgufFile, TensorType, Value, check_projector, check_text_model};

/// xorshift64*, enough for choosing places.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

/// Numbers at the edges of what counts, lengths and offsets can be.
const EDGES: [u64; 14] =
    [0, 1, 2, 31, 33, 255, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, 1 << 60, i64::MAX as u64, 1 << 63, u64::MAX];

fn mutate(bytes: &mut Vec<u8>, header: usize, random: &mut Random) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            return;
        }
        // Mostly the header: zeros of the data section can be anything anyway.
        let area = if random.below(8) == 0 { bytes.len() } else { header.min(bytes.len()) };
        let at = random.below(area);
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes.truncate(at),
            3 => {
                let edge = EDGES[random.below(EDGES.len())].to_le_bytes();
                let width = [4, 8][random.below(2)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&edge[..width]);
            }
            4 => {
                let n = random.below(40).min(bytes.len() - at);
                bytes.drain(at..at + n);
            }
            5 => {
                let n = random.below(40).min(bytes.len() - at);
                let piece = bytes[at..at + n].to_vec();
                let to = random.below(area);
                bytes.splice(to..to, piece);
            }
            // Types of keys and tensors are small numbers at 4-byte fields.
            _ => bytes[at] = [0, 4, 5, 6, 8, 9, 12, 13][random.below(8)],
        }
    }
}

#[test]
fn mutated_files_are_refused_or_read() {
    let dir = tempfile::tempdir().unwrap();
    let everything = vec![
        ("a", Value::U8(1)),
        ("b", Value::I64(-5)),
        ("c", Value::F64(0.5)),
        ("d", Array::from(vec![true, false]).into()),
        ("e", Array::from(vec![b"x".to_vec(), vec![], b"yz".to_vec()]).into()),
        ("f", Array::from(vec![1u16, 2, 3]).into()),
        ("general.alignment", 64u32.into()),
    ];
    let everything =
        (everything, vec![("t".to_owned(), vec![32, 2], TensorType::Q8_0), ("s".to_owned(), vec![], TensorType::I16)]);
    let bases = [everything, projector(), text_model()].map(|(keys, tensors)| {
        let file = built(dir.path(), &keys, &tensors);
        (std::fs::read(file.path()).unwrap(), file.data_offset() as usize)
    });
    let path = dir.path().join("mutated.gguf");
    let (mut refused, mut opened, mut accepted) = (0, 0, 0);
    for seed in 0..2400u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (bytes, header) = &bases[random.below(bases.len())];
        let mut bytes = bytes.clone();
        mutate(&mut bytes, *header, &mut random);
        std::fs::write(&path, &bytes).unwrap();
        match GgufFile::open_split(&path) {
            Ok(file) => {
                opened += 1;
                assert!(file.metadata().len() <= bytes.len() && file.tensors().len() <= bytes.len(), "seed {seed}");
                for t in file.tensors() {
                    assert!(t.byte_len <= bytes.len() as u64, "seed {seed}");
                    assert_eq!(file.read_tensor(&t.name).unwrap().len() as u64, t.byte_len, "seed {seed}");
                }
                for outcome in [check_projector(&file).map(drop), check_text_model(&file).map(drop)] {
                    match outcome {
                        Ok(()) => accepted += 1,
                        Err(Error::BadMetadata { .. } | Error::BadTensor { .. }) => {}
                        Err(other) => panic!("seed {seed}: {other:?}"),
                    }
                }
            }
            Err(
                Error::NotGguf { path: p, .. }
                | Error::UnsupportedGguf { path: p, .. }
                | Error::DamagedGguf { path: p, .. }
                | Error::BadMetadata { path: p, .. },
            ) => {
                refused += 1;
                assert_eq!(p, path, "seed {seed}");
            }
            // A mutated `split.count` cannot appear out of nothing, so no other file is ever looked for.
            Err(other) => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(refused > 800 && opened > 150 && accepted > 80, "{refused} refused, {opened} opened, {accepted} accepted");
}
