//! Writing and reading are inverse, byte for byte; a writer leaves either the whole file or nothing.

use std::collections::HashMap;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::error::{Error, Result};
use crate::gguf::{Array, GgufFile, GgufWriter, TensorType, Value};

fn value() -> impl Strategy<Value = Value> {
    fn list<T: std::fmt::Debug + Clone + 'static>(one: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Value>
    where
        Array: From<Vec<T>>,
    {
        prop::collection::vec(one, 0..9).prop_map(|v| Value::Array(Array::from(v))).boxed()
    }
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    // Floats by their bits: NaN payloads and negative zeros too.
    let f32s = || any::<u32>().prop_map(f32::from_bits);
    let f64s = || any::<u64>().prop_map(f64::from_bits);
    prop_oneof![
        prop_oneof![
            any::<u8>().prop_map(Value::U8),
            any::<i8>().prop_map(Value::I8),
            any::<u16>().prop_map(Value::U16),
            any::<i16>().prop_map(Value::I16),
            any::<u32>().prop_map(Value::U32),
            any::<i32>().prop_map(Value::I32),
            any::<u64>().prop_map(Value::U64),
            any::<i64>().prop_map(Value::I64),
            any::<bool>().prop_map(Value::Bool),
        ],
        prop_oneof![f32s().prop_map(Value::F32), f64s().prop_map(Value::F64), bytes().prop_map(Value::String)],
        prop_oneof![
            list(any::<u8>()),
            list(any::<i8>()),
            list(any::<u16>()),
            list(any::<i16>()),
            list(any::<u32>()),
            list(any::<i32>()),
        ],
        prop_oneof![
            list(any::<u64>()),
            list(any::<i64>()),
            list(any::<bool>()),
            list(f32s()),
            list(f64s()),
            list(bytes())
        ],
    ]
}

fn tensor() -> impl Strategy<Value = (Vec<u64>, TensorType)> {
    (prop::collection::vec(0u64..4, 0..=4), prop::sample::select(TensorType::ALL)).prop_map(|(mut dims, kind)| {
        if let Some(row) = dims.first_mut() {
            *row *= kind.block_len();
        }
        // A scalar of a blocked type has no whole block.
        if dims.is_empty() && kind.block_len() > 1 { (dims, TensorType::F32) } else { (dims, kind) }
    })
}

type Content = (Vec<(String, Value)>, Vec<(String, Vec<u64>, TensorType)>);

fn content() -> impl Strategy<Value = Content> {
    let name = "[a-zé.0-9_]{1,20}";
    (
        prop::collection::hash_map(name, value(), 0..12),
        prop::collection::hash_map(name, tensor(), 0..8),
        prop::option::of(0u32..10),
    )
        .prop_map(|(keys, tensors, alignment): (HashMap<_, _>, HashMap<_, _>, _)| {
            let mut keys: Vec<_> = keys.into_iter().collect();
            keys.retain(|(k, _)| k != "general.alignment");
            keys.extend(alignment.map(|a| ("general.alignment".to_owned(), Value::U32(1 << a))));
            (keys, tensors.into_iter().map(|(n, (d, t))| (n, d, t)).collect())
        })
}

fn tensor_bytes(index: usize, len: u64) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ index as u8).collect()
}

fn write(path: &Path, (keys, tensors): &Content) -> Result<()> {
    let mut writer = GgufWriter::new();
    for (key, value) in keys {
        writer.set(key, value.clone())?;
    }
    for (name, dims, kind) in tensors {
        writer.declare(name, dims, *kind)?;
    }
    let mut sink = writer.begin(path)?;
    for i in 0..tensors.len() {
        sink.tensor(|out| tensor_bytes(i, out.left()).chunks(7).try_for_each(|piece| out.put(piece)))?;
    }
    sink.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), ..ProptestConfig::with_cases(192) })]

    #[test]
    fn every_type_survives_byte_for_byte(content in content()) {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a.gguf"), dir.path().join("b.gguf"));
        write(&first, &content).unwrap();
        let file = GgufFile::open(&first).unwrap();

        let keys: Vec<_> = file.metadata().map(|(k, v)| (k.to_owned(), v.clone())).collect();
        prop_assert_eq!(keys.iter().map(|k| &k.0).collect::<Vec<_>>(), content.0.iter().map(|k| &k.0).collect::<Vec<_>>());
        let tensors: Vec<_> = file.tensors().iter().map(|t| (t.name.clone(), t.dims.clone(), t.ggml_type)).collect();
        prop_assert_eq!(&tensors, &content.1);
        for (i, t) in file.tensors().iter().enumerate() {
            prop_assert_eq!(t.offset % file.alignment(), 0);
            prop_assert_eq!(file.read_tensor(&t.name).unwrap(), tensor_bytes(i, t.byte_len));
        }
        // NaN is not equal to itself, so values are compared through their bytes.
        write(&second, &(keys, tensors)).unwrap();
        prop_assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
    }
}

#[test]
fn version_2_reads_as_version_3_does() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v.gguf");
    let content = (vec![("k".to_owned(), Value::from(7u32))], vec![("t".to_owned(), vec![5], TensorType::F32)]);
    write(&path, &content).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[4], 3);
    bytes[4] = 2;
    std::fs::write(&path, &bytes).unwrap();
    let file = GgufFile::open(&path).unwrap();
    assert_eq!((file.version(), file.get::<u32>("k").unwrap()), (2, Some(7)));
    assert_eq!(file.read_tensor("t").unwrap(), tensor_bytes(0, 20));
}

#[test]
fn parts_and_copies_of_a_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.gguf");
    let content =
        (vec![], vec![("a".to_owned(), vec![3], TensorType::I8), ("t".to_owned(), vec![700_000], TensorType::F32)]);
    write(&path, &content).unwrap();
    let file = GgufFile::open(&path).unwrap();
    let info = file.tensor("t").unwrap().clone();
    let whole = tensor_bytes(1, 2_800_000);
    let mut piece = [0; 10];
    file.read_part(&info, 1_999_995, &mut piece).unwrap();
    assert_eq!(piece, whole[1_999_995..2_000_005]);
    let mut copy = Vec::new();
    file.copy_tensor(&info, &mut copy, Path::new("memory")).unwrap();
    assert!(copy == whole);
    for at in [2_799_991, u64::MAX] {
        assert!(matches!(file.read_part(&info, at, &mut piece), Err(Error::BadTensor { .. })));
    }
    assert!(matches!(file.read_tensor("none"), Err(Error::BadTensor { tensor, .. }) if tensor == "none"));

    // Cut short behind our back.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1000).unwrap();
    assert!(matches!(file.read_tensor("t"), Err(Error::DamagedGguf { .. })));
}

#[test]
fn an_unfinished_file_never_appears() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    std::fs::write(&path, "old").unwrap();
    let start = || {
        let mut writer = GgufWriter::new();
        writer.declare("t", &[4], TensorType::F32).unwrap();
        writer.begin(&path).unwrap()
    };
    let names = || std::fs::read_dir(dir.path()).unwrap().count();

    let sink = start();
    assert_eq!(names(), 2, "the temporary file lies beside its goal");
    assert!(matches!(sink.finish(), Err(Error::BadParameter { .. })), "a tensor is missing");
    let mut sink = start();
    assert!(matches!(sink.tensor(|out| out.put(&[0; 15])), Err(Error::BadParameter { .. })), "too few bytes");
    drop(sink);
    let mut sink = start();
    assert!(matches!(sink.tensor(|out| out.put(&[0; 17])), Err(Error::BadParameter { .. })), "too many bytes");
    drop(sink);
    let mut sink = start();
    let failed = sink.tensor(|out| {
        std::io::Write::write_all(out, &[0; 99]).map_err(|source| Error::Io {
            action: "write",
            path: out.path().to_path_buf(),
            source,
        })
    });
    assert!(matches!(failed, Err(Error::Io { .. })));
    drop(sink);
    assert_eq!((names(), std::fs::read(&path).unwrap()), (1, b"old".to_vec()));

    let mut sink = start();
    sink.tensor(|out| out.put(&[1; 16])).unwrap();
    assert!(matches!(sink.tensor(|out| out.put(&[])), Err(Error::BadParameter { .. })), "none is due");
    sink.finish().unwrap();
    assert_eq!(names(), 1);
    assert_eq!(GgufFile::open(&path).unwrap().read_tensor("t").unwrap(), [1; 16]);
}

#[test]
fn bytes_can_come_in_pieces_that_know_no_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    let start = || {
        let mut writer = GgufWriter::new();
        for (name, dims) in [("empty", &[0][..]), ("a", &[5]), ("none", &[2, 0]), ("b", &[3]), ("last", &[0])] {
            writer.declare(name, dims, TensorType::I8).unwrap();
        }
        writer.begin(&path).unwrap()
    };
    let mut sink = start();
    sink.put(&[1, 2]).unwrap();
    assert!(matches!(sink.tensor(|out| out.put(&[3; 5])), Err(Error::BadParameter { .. })), "a part is written");
    assert!(matches!(sink.put(&[3; 4]), Err(Error::BadParameter { .. })), "the tensor has room for three");
    sink.put(&[3, 4, 5]).unwrap();
    assert_eq!(sink.due().unwrap().name, "none");
    sink.put(&[6, 7, 8]).unwrap();
    let sealed = sink.seal().unwrap();
    let hash = sealed.data_hash();
    assert!(!path.exists());
    assert_eq!(GgufFile::open(sealed.path()).unwrap().data_hash().unwrap(), hash, "readable before it has its name");
    sealed.publish().unwrap();
    let file = GgufFile::open(&path).unwrap();
    assert_eq!((file.read_tensor("a").unwrap(), file.read_tensor("b").unwrap()), (vec![1, 2, 3, 4, 5], vec![6, 7, 8]));
    assert_eq!((file.data_hash().unwrap(), hash), (xxhash_rust::xxh3::xxh3_128(&[1, 2, 3, 4, 5, 6, 7, 8]), hash));

    let mut sink = start();
    sink.put(&[1; 5]).unwrap();
    assert!(matches!(sink.seal(), Err(Error::BadParameter { .. })), "`b` is missing");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_sealed_file_takes_a_last_word() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    let mut writer = GgufWriter::new();
    writer.set("a", "before").unwrap().set("flag", false).unwrap().set("z", 7u32).unwrap();
    let mut sealed = writer.begin(&path).unwrap().seal().unwrap();
    for (key, value) in [("b", Value::from("before")), ("a", "longer than before".into()), ("flag", 1u32.into())] {
        assert!(matches!(sealed.replace(key, value), Err(Error::BadParameter { .. })), "{key}");
    }
    sealed.replace("a", "after!").unwrap();
    sealed.replace("flag", true).unwrap();
    sealed.publish().unwrap();
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.require::<&str>("a").unwrap(), "after!");
    assert_eq!((file.require::<bool>("flag").unwrap(), file.require::<u32>("z").unwrap()), (true, 7));

    // nobody published it
    let mut writer = GgufWriter::new();
    writer.set("a", 1u32).unwrap();
    drop(writer.begin(&path).unwrap().seal().unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(GgufFile::open(&path).unwrap().value("z").is_some());
}

#[test]
fn the_writer_refuses_what_the_reader_refuses() {
    let mut w = GgufWriter::new();
    w.set("k", 1u32).unwrap();
    w.declare("t", &[32], TensorType::Q8_0).unwrap();
    for key in ["", "a\0b", "k", &"x".repeat(65_536)] {
        assert!(matches!(w.set(key, 1u32), Err(Error::BadParameter { .. })), "{key:.5}");
    }
    assert!(matches!(w.set("general.alignment", 48u32), Err(Error::BadParameter { .. })));
    assert!(matches!(w.set("general.alignment", 32u64), Err(Error::BadParameter { .. })));
    let long = "x".repeat(64);
    for (name, dims, kind) in [
        ("", &[1][..], TensorType::F32),
        ("t", &[1], TensorType::F32),
        (&long, &[1], TensorType::F32),
        ("a\0", &[1], TensorType::F32),
        ("n", &[1, 1, 1, 1, 1], TensorType::F32),
        ("n", &[33], TensorType::Q8_0),
        ("n", &[1 << 33, 1 << 33], TensorType::F32),
    ] {
        assert!(matches!(w.declare(name, dims, kind), Err(Error::BadParameter { .. })), "{name:.5}");
    }
}
