//! Who decides: the user first, then the question, then the model, then the picture.

use super::super::tests::{noise, rows_of};
use super::super::{CompressorSpec, Rows, Tile};
use super::*;
use crate::embedding::{Embedding, Grid};
use crate::error::Error;
use crate::units::TokenCount;

const COARSE: &str = "What colour is the car?";
const DESCRIBE: &str = "Describe the image.";
const COUNT: &str = "How many circles are there?";
const READ: &str = "What does the sign say?";

fn built(spec: &str) -> std::sync::Arc<dyn Compressor> {
    spec.parse::<CompressorSpec>().unwrap().build(None).unwrap()
}

fn policy(setting: &str) -> Policy {
    Policy::new(setting.parse().unwrap())
}

fn outlook(policy: &Policy, question: &str, costs: Option<Costs>, layout: &Layout) -> Outlook {
    let compressor = built("div-c");
    policy.outlook(&Gate::of(question), costs, Ok(std::slice::from_ref(layout)), compressor.as_ref()).unwrap()
}

/// 14 x 14 cells that one direction explains, or that nothing but all of them explains.
fn picture(rich: bool) -> (Embedding, Layout) {
    rows_of(14, 14, 256, move |i| if rich { noise(3, i) } else { ((i / 256) as f32 * 0.1).sin() * (i % 256) as f32 })
}

fn decide(policy: &Policy, question: &str, costs: Option<Costs>, picture: &(Embedding, Layout)) -> Decision {
    let rows = Rows::new(&picture.0, picture.1, picture.0.width()).unwrap();
    outlook(policy, question, costs, &picture.1).settle(&[Tile { rows, overview: false }])
}

fn names(decision: &Decision) -> Vec<&'static str> {
    decision.reasons.iter().map(Reason::name).collect()
}

#[test]
fn settings_are_read_and_written() {
    for text in ["full", "auto", "64", "33%", "12.5%", "0.01%", "100%"] {
        assert_eq!(text.parse::<VisualTokenSetting>().unwrap().to_string(), text);
    }
    assert_eq!("33%".parse::<VisualTokenSetting>().unwrap().share(), 0.33);
    for bad in ["", "0", "-1", "0%", "101%", "1e9", "half", "64 ", "nan%", "%"] {
        assert_eq!(bad.parse::<VisualTokenSetting>().unwrap_err().code(), "bad-parameter", "{bad:?}");
    }
}

#[test]
fn what_the_user_asks_for_wins() {
    let plain = picture(false);
    let costs = Some(Costs { encode: 100.0, prefill: 1.0 });
    for question in [COARSE, COUNT, READ] {
        let full = decide(&policy("full"), question, costs, &plain);
        assert!(full.is_full() && full.kept() == 196 && names(&full) == ["asked"]);
        let some = decide(&policy("64"), question, costs, &picture(true));
        assert_eq!((some.kept(), names(&some)), (64, vec!["asked"]));
        assert_eq!(decide(&policy("25%"), question, costs, &plain).kept(), 49);
    }
    let all = decide(&policy("500"), COARSE, None, &plain);
    assert!(all.is_full() && names(&all) == ["enough"]);
}

#[test]
fn auto_looks_at_the_question() {
    let plain = picture(false);
    let auto = policy("auto");
    let coarse = decide(&auto, COARSE, None, &plain);
    assert_eq!((coarse.kept(), coarse.question_needs_all(), names(&coarse)), (64, false, vec!["question"]));
    assert_eq!(decide(&auto, COUNT, None, &plain).kept(), 88);
    let describe = decide(&auto, DESCRIBE, None, &plain);
    assert_eq!(describe.to_string(), "88 of 196: the question asks to describe (`describe*`)");
    let read = decide(&auto, READ, None, &plain);
    assert!(read.is_full() && read.question_needs_all());
    assert_eq!(read.to_string(), "196 of 196: the question asks to read (`sign say*`)");
    assert_eq!(coarse.to_string(), "64 of 196: the question asks for no detail");
}

#[test]
fn auto_looks_at_the_picture() {
    let rich = picture(true);
    let decision = decide(&policy("auto"), COARSE, None, &rich);
    let rows = Rows::new(&rich.0, rich.1, 256).unwrap();
    let k90 = super::super::energy_curve(&rows, 0.9, usize::MAX).cells_for(0.9);
    assert!(k90 > 64, "{k90}");
    assert_eq!((decision.kept(), names(&decision)), (k90, vec!["question", "picture"]));
    let blind = Policy { energy: 0.0, ..policy("auto") };
    assert_eq!(decide(&blind, COARSE, None, &rich).kept(), 64);
}

#[test]
fn auto_looks_at_the_model() {
    let plain = picture(false);
    // SmolVLM-256M and LLaVA-1.5-7B, operations per row
    let small = Costs { encode: 2.98e9, prefill: 0.21e9 };
    let large = Costs { encode: 0.61e9, prefill: 13.2e9 };
    let decision = decide(&policy("auto"), COARSE, Some(small), &plain);
    assert!(decision.is_full() && names(&decision) == ["no-gain"], "{decision}");
    assert!(decision.to_string().contains("factor of 1.05"), "{decision}");
    assert_eq!(decide(&policy("auto"), COARSE, Some(large), &plain).kept(), 64);
    assert!((large.gain(1.0 / 3.0) - 2.76).abs() < 0.02 && (small.gain(1.0 / 9.0) - 1.06).abs() < 0.01);
    // the model does not overrule the user
    assert_eq!(decide(&policy("64"), COARSE, Some(small), &plain).kept(), 64);
}

#[test]
fn an_unknown_layout_is_an_error_only_where_a_number_was_asked_for() {
    let unknown = || Layout::of(Grid::default(), TokenCount(64)).map(|_| &[][..]);
    let compressor = built("div-c");
    let ask = |setting: &str| policy(setting).outlook(&Gate::of(COARSE), None, unknown(), compressor.as_ref());
    assert!(ask("full").unwrap().is_full());
    let auto = ask("auto").unwrap();
    assert!(auto.is_full() && matches!(auto.reasons(), [Reason::UnknownLayout { .. }]));
    for setting in ["64", "50%"] {
        assert!(matches!(ask(setting).unwrap_err(), Error::UnknownLayout { rows: 64, .. }));
    }
    // a method that cannot take this picture
    let (_, large) = rows_of(40, 40, 1, |_| 0.0);
    let ask = |setting: &str| policy(setting).outlook(&Gate::of(COARSE), None, Ok(&[large]), built("cover").as_ref());
    assert_eq!(ask("64").unwrap_err().code(), "bad-parameter");
    assert!(ask("auto").unwrap().is_full());
}

#[test]
fn recipes_name_what_decides_and_nothing_else() {
    let (_, layout) = picture(false);
    let recipe = |setting: &str, question: &str| outlook(&policy(setting), question, None, &layout).recipe();
    assert_eq!(recipe("auto", COARSE), "64,energy=0.9");
    assert_eq!(recipe("auto", "Ist das ein Hund?"), recipe("auto", COARSE), "two coarse questions share a state");
    assert_eq!(recipe("auto", COUNT), "88,energy=0.9");
    assert_eq!((recipe("auto", READ), recipe("full", COARSE)), ("full".into(), "full".into()));
    assert_eq!((recipe("64", READ), recipe("33%", READ)), ("64".into(), "65".into()));
    assert_eq!(outlook(&policy("auto"), COARSE, None, &layout).range(), Some((64, 196)));
    assert_eq!(outlook(&policy("64"), COARSE, None, &layout).range(), Some((64, 64)));
    assert_eq!(outlook(&policy("auto"), READ, None, &layout).range(), None);
}
