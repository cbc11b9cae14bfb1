//! Plans from headers alone.

use crate::error::Error;
use crate::gguf::{GgufFile, TensorType};
use crate::quantize::{Plan, ProjectorPrecision, Role, Rules, TowerPrecision};

use TensorType::{Bf16, F16, F32, Q8_0};

/// A header with these tensors and no data: planning needs none.
fn header(tensors: &[(&str, &[u64], TensorType)]) -> GgufFile {
    let mut image = b"GGUF".to_vec();
    image.extend(3_u32.to_le_bytes());
    image.extend((tensors.len() as u64).to_le_bytes());
    image.extend(0_u64.to_le_bytes());
    let mut offset = 0_u64;
    for (name, dims, kind) in tensors {
        image.extend((name.len() as u64).to_le_bytes());
        image.extend(name.as_bytes());
        image.extend((dims.len() as u32).to_le_bytes());
        image.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
        image.extend(kind.id().to_le_bytes());
        image.extend(offset.to_le_bytes());
        offset += kind.byte_len(dims).unwrap().next_multiple_of(32);
    }
    let len = image.len().next_multiple_of(32) as u64 + offset;
    GgufFile::read(image.as_slice(), len, "header.gguf").unwrap()
}

fn plan(tensors: &[(&str, &[u64], TensorType)], rules: &Rules) -> Plan {
    Plan::new(&header(tensors), rules).unwrap()
}

fn target(name: &str, dims: &[u64], source: TensorType) -> (Role, TensorType) {
    let plan = plan(&[(name, dims, source)], &Rules::default());
    let t = &plan.tensors()[0];
    assert_eq!(t.target_bytes, t.target.byte_len(dims).unwrap());
    assert!(!t.reason.is_empty());
    (t.role, t.target)
}

#[test]
fn tower_matrices_become_q8_0_and_long_rows_f16() {
    for part in ["attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_gate", "ffn_down", "ffn_up_1"] {
        for tower in ["v", "a"] {
            for source in [F32, F16, Bf16] {
                let name = format!("{tower}.blk.11.{part}.weight");
                assert_eq!(target(&name, &[1024, 1024], source), (Role::TowerMatrix, Q8_0), "{name}");
            }
        }
    }
    // SigLIP so400m: 27 layers of width 1152, hidden rows of 4304
    assert_eq!(target("v.blk.0.ffn_up.weight", &[1152, 4304], F16), (Role::TowerMatrix, Q8_0));
    assert_eq!(target("v.blk.0.ffn_down.weight", &[4304, 1152], F32), (Role::TowerMatrix, F16));
    assert_eq!(target("v.blk.0.ffn_down.weight", &[4304, 1152], F16), (Role::TowerMatrix, F16));
    // fused q, k and v, and one matrix per expert
    assert_eq!(target("v.blk.3.attn_qkv.weight", &[1152, 3456], F16), (Role::TowerMatrix, Q8_0));
    assert_eq!(target("v.blk.3.ffn_up_exps.weight", &[1024, 512, 8], F16), (Role::TowerMatrix, Q8_0));
    assert_eq!(target("v.sam.blk.3.attn.qkv.weight", &[768, 2304], F16), (Role::TowerMatrix, Q8_0));
}

#[test]
fn what_is_no_matrix_of_the_tower_stays() {
    for (name, dims, role) in [
        ("v.patch_embd.weight", &[14, 14, 3, 1152][..], Role::PatchConvolution),
        ("v.patch_embd.weight.1", &[14, 14, 3, 1152], Role::PatchConvolution),
        ("v.patch_embd.weight", &[588, 1408], Role::PatchConvolution),
        ("v.sam.patch_embd.weight", &[16, 16, 3, 768], Role::PatchConvolution),
        ("v.position_embd.weight", &[1152, 729], Role::PositionTable),
        ("v.sam.pos_embd.weight", &[768, 64, 64], Role::PositionTable),
        ("v.sam.blk.0.attn.pos_h.weight", &[64, 27], Role::PositionTable),
        ("a.blk.0.attn_rel_pos_emb", &[64, 401], Role::PositionTable),
        ("resampler.pos_embed_k", &[2560, 4900], Role::PositionTable),
        ("v.class_embd", &[1024, 8], Role::Embedding),
        ("v.class_embd", &[1024], Role::NormOrBias),
        ("v.token_embd.img_break", &[1024, 1], Role::NormOrBias),
        ("resampler.query", &[2560, 64], Role::Embedding),
        ("v.resample_query_768.weight", &[896, 144], Role::Embedding),
        ("mm.a.code_embd.weight", &[1024, 4096], Role::Embedding),
        ("v.image_newline", &[4096], Role::NormOrBias),
        ("v.blk.0.ln1.weight", &[1024], Role::NormOrBias),
        ("v.blk.0.ls1.weight", &[1024], Role::NormOrBias),
        ("v.blk.0.attn_q.bias", &[1024], Role::NormOrBias),
        ("v.blk.0.attn_q.input_max", &[], Role::NormOrBias),
        ("mm.model.peg.0.weight", &[3, 3, 1, 2048], Role::Convolution),
        ("mm.patch_merger.weight", &[2, 2, 1536, 4096], Role::Convolution),
        ("a.conv1d.1.weight", &[3, 128, 1280], Role::Convolution),
        ("a.blk.0.conv_pw1.weight", &[512, 1024], Role::Convolution),
        ("v.blk.0.1.attn.query.proj.weight", &[1, 1, 640, 640], Role::Convolution),
        ("v.blk.0.ffn_gate_inp.weight", &[1024, 8], Role::Unknown),
        ("v.blk.x.attn_q.weight", &[1024, 1024], Role::Unknown),
        ("a.gen.code.head.weight", &[1024, 2048], Role::Unknown),
        ("v.blk.0.attn_q", &[1024, 1024], Role::Unknown),
    ] {
        for source in [F32, F16] {
            assert_eq!(target(name, dims, source), (role, source), "{name}");
        }
        let kept = if matches!(role, Role::PatchConvolution | Role::PositionTable) { F32 } else { Bf16 };
        assert_eq!(target(name, dims, Bf16), (role, kept), "{name}");
    }
}

#[test]
fn matrices_behind_the_tower_become_f16() {
    for name in [
        "mm.0.weight",
        "mm.model.fc.weight",
        "mm.model.mb_block.1.block.1.fc1.weight",
        "mm.merger.fc1.weight",
        "mm.input_projection.weight",
        "mm.a.mlp.1.weight",
        "resampler.attn.q.weight",
        "resampler.kv.weight",
        "adapter.linear.dense_h_to_4h.weight",
        "v.vit_merger.attn_q.weight",
        "v.deepstack.5.fc1.weight",
        "v.proj_blk.0.cross_attn_q.weight",
    ] {
        for source in [F32, F16, Bf16] {
            assert_eq!(target(name, &[1024, 4096], source), (Role::ProjectorMatrix, F16), "{name}");
        }
    }
}

#[test]
fn what_is_quantised_or_no_number_is_never_touched() {
    for source in [Q8_0, TensorType::Q4K, TensorType::I32, TensorType::F64] {
        assert_eq!(target("v.blk.0.attn_q.weight", &[256, 256], source).1, source);
        assert_eq!(target("mm.0.weight", &[256, 256], source).1, source);
    }
    assert_eq!(target("v.blk.0.attn_q.weight", &[64, 0], F32).1, F32);
}

#[test]
fn rules_change_the_plan() {
    let tensors: &[(&str, &[u64], TensorType)] = &[
        ("v.blk.0.attn_q.weight", &[64, 64], F32),
        ("v.blk.1.attn_q.weight", &[64, 64], F32),
        ("mm.0.weight", &[64, 96], Bf16),
        ("mm.2.weight", &[80, 96], F16),
        ("mm.input_projection.weight", &[64, 64], F32),
    ];
    let targets = |rules: &Rules| plan(tensors, rules).tensors().iter().map(|t| t.target).collect::<Vec<_>>();
    let mut rules = Rules::default();
    assert_eq!(targets(&rules), [Q8_0, Q8_0, F16, F16, F16]);
    rules.projector = ProjectorPrecision::Q8_0;
    assert_eq!(targets(&rules), [Q8_0, Q8_0, Q8_0, F16, F16]);
    rules.projector = ProjectorPrecision::F32;
    rules.tower = TowerPrecision::F16;
    assert_eq!(targets(&rules), [F16, F16, F32, F32, F32]);
    rules.keep(r"^v\.blk\.1\.").unwrap().keep("mm").unwrap();
    assert_eq!(targets(&rules), [F16, F32, Bf16, F16, F32]);
    assert_eq!(rules.to_string(), r"tower f16, projector f32, keep `^v\.blk\.1\.`, keep `mm`");
    assert!(matches!(rules.keep("("), Err(Error::BadParameter { name: "keep", .. })));
}

/// Tensors of CLIP ViT-L/14-336 with LLaVA-1.5's projector for a 7B model, as the usual converter stores them.
fn vit_l() -> Vec<(String, Vec<u64>, TensorType)> {
    let mut list = vec![
        ("v.patch_embd.weight".to_owned(), vec![14, 14, 3, 1024], F16),
        ("v.class_embd".to_owned(), vec![1024], F32),
        ("v.position_embd.weight".to_owned(), vec![1024, 577], F16),
    ];
    for layer in 0..23 {
        for (part, dims) in [
            ("attn_q", [1024, 1024]),
            ("attn_k", [1024, 1024]),
            ("attn_v", [1024, 1024]),
            ("attn_out", [1024, 1024]),
            ("ffn_up", [1024, 4096]),
            ("ffn_down", [4096, 1024]),
        ] {
            list.push((format!("v.blk.{layer}.{part}.weight"), dims.to_vec(), F16));
            list.push((format!("v.blk.{layer}.{part}.bias"), vec![dims[1]], F32));
        }
    }
    list.push(("mm.0.weight".to_owned(), vec![1024, 4096], F16));
    list.push(("mm.2.weight".to_owned(), vec![4096, 4096], F16));
    list
}

#[test]
fn a_vit_l_becomes_43_to_47_percent_smaller() {
    let list = vit_l();
    let borrowed: Vec<_> = list.iter().map(|(n, d, t)| (n.as_str(), d.as_slice(), *t)).collect();
    let plan = plan(&borrowed, &Rules::default());
    let saved = 1.0 - plan.target_bytes() as f64 / plan.source_bytes() as f64;
    assert!((0.43..0.47).contains(&saved), "{saved}");
    assert_eq!(plan.file_type(), Some(7));
    let table = plan.to_string();
    assert!(table.lines().count() > list.len() && table.contains("tower matrix"), "{table}");
    let f16 = Rules::new(TowerPrecision::F16, ProjectorPrecision::F16);
    let plan = Plan::new(&header(&borrowed), &f16).unwrap();
    assert_eq!((plan.file_type(), plan.changes()), (Some(1), false));
}
