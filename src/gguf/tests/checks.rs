//! The checks before native code: one test per route that ends a process in b11434.

use super::{Keys, Tensors, built, projector, text_model};
use crate::error::Error;
use crate::gguf::{Array, TensorType, Value, check_pair, check_projector, check_text_model};

/// What the check says about the tiny projector after an edit: `Ok`, or the key or tensor it blames.
fn projector_verdict(edit: impl FnOnce(&mut Keys, &mut Tensors)) -> Result<crate::gguf::ProjectorFacts, String> {
    let dir = tempfile::tempdir().unwrap();
    let (mut keys, mut tensors) = projector();
    edit(&mut keys, &mut tensors);
    blame(check_projector(&built(dir.path(), &keys, &tensors)))
}

fn text_verdict(edit: impl FnOnce(&mut Keys, &mut Tensors)) -> Result<crate::gguf::TextFacts, String> {
    let dir = tempfile::tempdir().unwrap();
    let (mut keys, mut tensors) = text_model();
    edit(&mut keys, &mut tensors);
    blame(check_text_model(&built(dir.path(), &keys, &tensors)))
}

fn blame<T>(outcome: crate::error::Result<T>) -> Result<T, String> {
    outcome.map_err(|e| match e {
        Error::BadMetadata { key, .. } => key,
        Error::BadTensor { tensor, .. } => tensor,
        other => panic!("{other:?}"),
    })
}

fn set(keys: &mut Keys, key: &'static str, value: impl Into<Value>) {
    keys.retain(|(k, _)| *k != key);
    keys.push((key, value.into()));
}

fn drop_key(keys: &mut Keys, key: &str) {
    keys.retain(|(k, _)| *k != key);
}

fn tensor<'a>(tensors: &'a mut Tensors, name: &str) -> &'a mut (String, Vec<u64>, TensorType) {
    tensors.iter_mut().find(|t| t.0 == name).unwrap()
}

#[test]
fn the_facts_of_a_projector() {
    let facts = projector_verdict(|_, _| ()).unwrap();
    assert_eq!(facts.projector_type, "mlp");
    assert!(facts.has_vision && !facts.has_audio);
    assert_eq!((facts.image_size_px, facts.patch_size_px, facts.embedding_length, facts.head_count), (28, 14, 8, 2));
    assert_eq!((facts.block_count, facts.stored_layers, facts.projection_width), (2, 2, Some(12)));
    assert!(facts.has_class_embedding && facts.has_pre_norm && !facts.has_post_norm);
    assert!(facts.feature_layers.is_empty());
}

#[test]
fn the_facts_of_a_text_model() {
    let facts = text_verdict(|_, _| ()).unwrap();
    assert_eq!((facts.architecture.as_str(), facts.tokenizer_model.as_str()), ("llama", "llama"));
    assert_eq!((facts.block_count, facts.embedding_length, facts.input_width, facts.context_length), (2, 8, 8, 128));
    // two layers of one head of keys and values, 4 floats each
    assert_eq!(facts.kv_floats, Some((8, 8)));
    assert_eq!((facts.vocab_size, facts.deepstack_layers, facts.byte_tokens_complete), (259, 0, true));
    assert_eq!(facts.chat_template.as_deref(), Some("{{ messages }}"));
    assert_eq!(text_verdict(|k, _| drop_key(k, "tokenizer.chat_template")).unwrap().chat_template, None);
}

/// `gguf_get_val_u32` and its kin abort on a key of another type.
#[test]
fn projector_keys_of_the_wrong_type() {
    for key in ["clip.vision.patch_size", "clip.vision.block_count", "clip.vision.attention.head_count"] {
        for value in
            [Value::U64(14), Value::I32(14), Value::F32(14.0), Value::from("14"), Array::from(vec![14u32]).into()]
        {
            assert_eq!(projector_verdict(|k, _| set(k, key, value)).unwrap_err(), key);
        }
    }
    for (key, value) in [
        ("clip.has_vision_encoder", Value::U32(1)),
        ("clip.use_gelu", Value::U8(1)),
        ("clip.vision.attention.layer_norm_epsilon", Value::F64(1e-5)),
        ("clip.projector_type", Value::U32(0)),
        ("clip.projector_type", Value::from("mlp\0x")),
        ("clip.vision.mm_patch_merge_type", Value::U32(0)),
        ("clip.vision.spatial_merge_size", Value::I32(2)),
        ("clip.audio.num_mel_bins", Value::I32(2)),
        ("general.name", Value::U32(0)),
        ("general.description", Array::from(vec![1u8]).into()),
        ("clip.vision.feature_layer", Array::from(vec![1u32]).into()),
        ("clip.vision.image_mean", Array::from(vec![0.5f64; 3]).into()),
        ("clip.vision.projection_dim", Value::U32(1 << 31)),
    ] {
        assert_eq!(projector_verdict(|k, _| set(k, key, value)).unwrap_err(), key);
    }
}

#[test]
fn projector_numbers_out_of_range() {
    let three = |v: [f32; 3]| Value::from(Array::from(v.to_vec()));
    for (key, value) in [
        ("clip.vision.patch_size", 0u32.into()),
        ("clip.vision.patch_size", 1025u32.into()),
        ("clip.vision.image_size", 0u32.into()),
        ("clip.vision.image_size", 13u32.into()),
        ("clip.vision.image_size", 8193u32.into()),
        ("clip.vision.embedding_length", 0u32.into()),
        ("clip.vision.block_count", 0u32.into()),
        ("clip.vision.block_count", 3u32.into()),
        ("clip.vision.block_count", 513u32.into()),
        ("clip.vision.attention.head_count", 0u32.into()),
        ("clip.vision.attention.head_count", 3u32.into()),
        ("clip.vision.attention.head_count_kv", 1u32.into()),
        ("clip.vision.attention.layer_norm_epsilon", 0f32.into()),
        ("clip.vision.attention.layer_norm_epsilon", f32::NAN.into()),
        ("clip.vision.image_mean", three([0.0, f32::INFINITY, 0.0])),
        ("clip.vision.image_std", three([0.5, 0.0, 0.5])),
        ("clip.vision.image_std", Array::from(vec![0.5f32; 2]).into()),
        ("clip.vision.image_grid_pinpoints", Array::from(vec![28i32, 56, 28]).into()),
        ("clip.vision.image_grid_pinpoints", Array::from(vec![28i32, -56]).into()),
        ("clip.vision.image_grid_pinpoints", Array::from(vec![28i32, 27]).into()),
        ("clip.vision.image_grid_pinpoints", Array::from(vec![28 * 17i32, 28 * 16]).into()),
        ("clip.vision.feature_layer", Array::from(vec![3i32]).into()),
        ("clip.vision.image_min_pixels", 0u32.into()),
        ("clip.vision.preproc_image_size", (1u32 << 30).into()),
        ("clip.vision.preproc_max_tiles", 257u32.into()),
        ("clip.vision.window_size", 5000u32.into()),
    ] {
        let shown = format!("{key} = {value}");
        assert_eq!(projector_verdict(|k, _| set(k, key, value)).unwrap_err(), key, "{shown}");
    }
    for (key, value) in [
        ("clip.vision.feature_layer", Value::from(Array::from(vec![-2i32, 2]))),
        ("clip.vision.image_grid_pinpoints", Array::from(vec![28i32, 56, 56, 28]).into()),
        ("clip.vision.feed_forward_length", 0u32.into()),
        ("clip.vision.block_count", 1u32.into()),
    ] {
        let shown = format!("{key} = {value}");
        projector_verdict(|k, _| set(k, key, value)).expect(&shown);
    }
    assert_eq!(
        projector_verdict(|k, _| set(k, "clip.vision.feature_layer", Array::from(vec![-1i32, 2])))
            .unwrap()
            .feature_layers,
        [2]
    );
}

#[test]
fn projector_keys_that_are_missing() {
    for (key, _) in projector().0.iter().filter(|(k, _)| *k != "general.architecture") {
        assert_eq!(projector_verdict(|k, _| drop_key(k, key)).unwrap_err(), *key);
    }
    assert_eq!(projector_verdict(|k, _| set(k, "general.architecture", "llama")).unwrap_err(), "general.architecture");
    let both = projector_verdict(|k, _| {
        set(k, "clip.use_gelu", true);
        set(k, "clip.use_silu", true);
    });
    assert_eq!(both.unwrap_err(), "clip.use_silu");
}

/// A tensor the graph takes without asking is a null pointer when it is missing, an assertion when its shape is wrong.
#[test]
fn projector_tensors_missing_or_misshapen() {
    let optional = ["v.class_embd", "v.pre_ln.", "ln1.", "attn_q.bias"];
    for (name, dims, _) in projector().1 {
        if !optional.iter().any(|o| name.contains(o)) {
            assert_eq!(projector_verdict(|_, t| t.retain(|x| x.0 != name)).unwrap_err(), name);
        }
        // The position table may be longer; widths of the projector's middle follow from its first tensor.
        for i in 0..dims.len() {
            let wrong = projector_verdict(|_, t| tensor(t, &name).1[i] += 32);
            let free = i == 1 && matches!(name.as_str(), "v.position_embd.weight" | "mm.2.weight");
            assert!(wrong.is_err() || free, "{name} {i}");
        }
        let wrong = projector_verdict(|_, t| tensor(t, &name).2 = TensorType::I32).unwrap_err();
        assert_eq!(wrong, name);
    }
    assert_eq!(
        projector_verdict(|_, t| tensor(t, "v.pre_ln.weight").2 = TensorType::F16).unwrap_err(),
        "v.pre_ln.weight"
    );
    assert_eq!(
        projector_verdict(|_, t| tensor(t, "v.position_embd.weight").1 = vec![8, 4]).unwrap_err(),
        "v.position_embd.weight"
    );
    projector_verdict(|_, t| {
        tensor(t, "v.position_embd.weight").1 = vec![8, 4];
        t.retain(|x| x.0 != "v.class_embd");
    })
    .expect("four patches without class token");
}

/// Old converters called `ffn_up` down; libmtmd swaps them back.
#[test]
fn projector_with_swapped_feed_forward_names() {
    let swapped = projector_verdict(|_, t| {
        for layer in 0..2 {
            tensor(t, &format!("v.blk.{layer}.ffn_up.weight")).1 = vec![16, 8];
            tensor(t, &format!("v.blk.{layer}.ffn_down.weight")).1 = vec![8, 16];
        }
    });
    assert_eq!(swapped.unwrap().projection_width, Some(12));
}

/// With another merge factor than 2 the position list of Qwen-VL is written beyond its end.
#[test]
fn qwen_merges_two_by_two() {
    for n in [0u32, 1, 3, 4] {
        let verdict = projector_verdict(|k, _| {
            set(k, "clip.projector_type", "qwen2vl_merger");
            set(k, "clip.vision.spatial_merge_size", n);
        });
        assert_eq!(verdict.unwrap_err(), "clip.vision.spatial_merge_size");
    }
}

#[test]
fn unknown_projectors_pass_with_their_name() {
    let facts = projector_verdict(|k, t| {
        set(k, "clip.projector_type", "brand_new");
        t.clear();
    });
    let facts = facts.unwrap();
    assert_eq!((facts.projector_type.as_str(), facts.projection_width), ("brand_new", None));
}

#[test]
fn projectors_with_ears() {
    let hear = |k: &mut Keys, _: &mut Tensors| {
        set(k, "clip.has_vision_encoder", false);
        set(k, "clip.has_audio_encoder", true);
        set(k, "clip.projector_type", "ultravox");
        for (key, value) in [
            ("clip.audio.embedding_length", 8u32),
            ("clip.audio.feed_forward_length", 16),
            ("clip.audio.block_count", 1),
            ("clip.audio.attention.head_count", 2),
            ("clip.audio.projection_dim", 8),
            ("clip.audio.num_mel_bins", 80),
        ] {
            set(k, key, value);
        }
        set(k, "clip.audio.attention.layer_norm_epsilon", 1e-5f32);
    };
    let facts = projector_verdict(hear).unwrap();
    assert!(facts.has_audio && !facts.has_vision && facts.image_size_px == 0);
    let deaf = projector_verdict(|k, t| {
        hear(k, t);
        set(k, "clip.audio.num_mel_bins", 300u32);
    });
    assert_eq!(deaf.unwrap_err(), "clip.audio.num_mel_bins");
}

#[test]
fn text_keys_out_of_range() {
    for (key, value) in [
        ("general.architecture", Value::from("clip")),
        ("general.alignment", 8u32.into()),
        ("llama.block_count", 0u32.into()),
        ("llama.block_count", 513u32.into()),
        ("llama.block_count", 2u64.into()),
        ("llama.embedding_length", 0u32.into()),
        ("llama.context_length", 0u32.into()),
        ("llama.nextn_predict_layers", 3u32.into()),
        ("llama.attention.head_count", 16u32.into()),
        ("llama.attention.head_count", Array::from(vec![2u32]).into()),
        ("llama.attention.head_count", Array::from(vec![2i32, -2]).into()),
        ("llama.attention.head_count_kv", 0u32.into()),
        ("llama.attention.head_count_kv", 3u32.into()),
        ("llama.attention.key_length", 0u32.into()),
        ("llama.attention.layer_norm_rms_epsilon", f32::NAN.into()),
        ("llama.rope.freq_base", 0f32.into()),
        ("llama.rope.dimension_count", 3u32.into()),
        ("llama.rope.dimension_count", 2u32.into()),
        ("llama.rope.dimension_count", 0u32.into()),
        ("llama.rope.scaling.type", "spiral".into()),
        ("llama.attention.sliding_window", (i32::MAX as u32).into()),
        ("llama.rope.dimension_sections", Array::from(vec![0i32, 0, 0, 1]).into()),
        ("llama.rope.dimension_sections", Array::from(vec![2i32, 2, 2, 0]).into()),
        ("llama.rope.dimension_sections", Array::from(vec![1i32, 1, 1]).into()),
        ("llama.expert_count", 1025u32.into()),
        ("llama.expert_used_count", 1u32.into()),
        ("llama.expert_group_count", 1u32.into()),
        ("tokenizer.ggml.model", "none".into()),
        ("tokenizer.chat_template", 1u32.into()),
        ("tokenizer.chat_template", Value::String(vec![0xff])),
    ] {
        let shown = format!("{key} = {value}");
        assert_eq!(text_verdict(|k, _| set(k, key, value)).unwrap_err(), key, "{shown}");
    }
    for pattern in [Value::U32(1), Array::from(vec![0i32, 0]).into(), Array::from(vec![false, false]).into()] {
        let verdict = text_verdict(|k, _| {
            set(k, "llama.attention.sliding_window", 64u32);
            set(k, "llama.attention.sliding_window_pattern", pattern);
        });
        assert_eq!(verdict.unwrap_err(), "llama.attention.sliding_window_pattern");
    }
    let per_layer = Array::from(vec![2i32, 2]);
    text_verdict(|k, _| set(k, "llama.attention.head_count", per_layer)).expect("one number per layer");
}

/// `llama_vocab::impl::load` asserts that all tokens differ; the tokenizer asserts that a begin token exists.
#[test]
fn vocabularies() {
    let tokens = |edit: fn(&mut Vec<Vec<u8>>)| {
        text_verdict(|k, _| {
            let Some((_, Value::Array(Array::String(list)))) =
                k.iter_mut().find(|(k, _)| *k == "tokenizer.ggml.tokens")
            else {
                panic!("no tokens")
            };
            edit(list);
        })
    };
    for edit in [
        (|t| t[9] = t[10].clone()) as fn(&mut Vec<Vec<u8>>),
        |t| t[9] = [t[10].as_slice(), b"\0tail"].concat(),
        |t| (t[9], t[10]) = (vec![], b"[EMPTY_9]".to_vec()),
        |t| (t[9], t[10]) = (b"\0a".to_vec(), b"[EMPTY_9]".to_vec()),
        Vec::clear,
    ] {
        assert_eq!(tokens(edit).unwrap_err(), "tokenizer.ggml.tokens");
    }
    assert!(!tokens(|t| t[258] = b"q".to_vec()).unwrap().byte_tokens_complete);
    assert!(tokens(|t| (t[9], t[10]) = (vec![], b"[EMPTY_8]".to_vec())).is_ok());

    for (key, value) in [
        ("tokenizer.ggml.scores", Value::from(Array::from(vec![0f32; 258]))),
        ("tokenizer.ggml.scores", Array::from(vec![0f64; 259]).into()),
        ("tokenizer.ggml.token_type", Array::from(vec![0f32; 259]).into()),
        ("tokenizer.ggml.token_type", Array::from(vec![6i32; 259]).into()),
        ("tokenizer.ggml.tokens", Array::from(vec![1i32; 259]).into()),
    ] {
        assert_eq!(text_verdict(|k, _| set(k, key, value)).unwrap_err(), key);
    }
    let tiny = |k: &mut Keys, t: &mut Tensors| {
        set(k, "tokenizer.ggml.tokens", Array::from(vec![b"a".to_vec()]));
        tensor(t, "token_embd.weight").1[1] = 1;
    };
    assert_eq!(text_verdict(tiny).unwrap_err(), "tokenizer.ggml.bos_token_id");
    let quiet = text_verdict(|k, t| {
        tiny(k, t);
        set(k, "tokenizer.ggml.add_bos_token", false);
    });
    assert!(quiet.is_ok());
}

#[test]
fn text_tensors() {
    assert_eq!(text_verdict(|_, t| t.retain(|t| t.0 != "token_embd.weight")).unwrap_err(), "token_embd.weight");
    assert_eq!(text_verdict(|_, t| tensor(t, "token_embd.weight").1[1] -= 1).unwrap_err(), "token_embd.weight");
    for (name, kind) in [
        ("token_embd.weight", TensorType::I32),
        ("blk.0.attn_q.weight", TensorType::F64),
        ("blk.0.attn_norm.weight", TensorType::F16),
    ] {
        assert_eq!(text_verdict(|_, t| tensor(t, name).2 = kind).unwrap_err(), name);
    }
}

#[test]
fn deepstack_models_take_wider_rows() {
    let facts = text_verdict(|k, _| {
        let named: Keys =
            k.drain(..).map(|(key, v)| (key.replace("llama.", "qwen3vl.").leak() as &'static str, v)).collect();
        *k = named;
        set(k, "general.architecture", "qwen3vl");
        set(k, "qwen3vl.n_deepstack_layers", 3u32);
    });
    let facts = facts.unwrap();
    assert_eq!((facts.deepstack_layers, facts.input_width), (3, 32));
}

/// lmstudio-bug-tracker#1665: both widths, both architectures, both files.
#[test]
fn pairs_that_do_not_fit() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (keys, tensors) = text_model();
    let text = built(one.path(), &keys, &tensors);
    let text_facts = check_text_model(&text).unwrap();
    let (keys, tensors) = projector();
    let file = built(two.path(), &keys, &tensors);
    let mut facts = check_projector(&file).unwrap();
    match check_pair(&text, &text_facts, &file, &facts) {
        Err(Error::Mismatch {
            model_path,
            architecture,
            model_width: 8,
            projector_path,
            projector_type,
            projector_width: 12,
        }) => {
            assert_eq!((model_path.as_path(), projector_path.as_path()), (text.path(), file.path()));
            assert_eq!((architecture.as_str(), projector_type.as_str()), ("llama", "mlp"));
        }
        other => panic!("{other:?}"),
    }
    facts.projection_width = Some(8);
    check_pair(&text, &text_facts, &file, &facts).expect("same width");
    facts.projection_width = None;
    facts.projector_type = "idefics3".to_owned();
    match check_pair(&text, &text_facts, &file, &facts) {
        Err(Error::BadMetadata { path, reason, .. }) => {
            assert!(path == text.path() && reason.contains("<fake_token_around_image>"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}
