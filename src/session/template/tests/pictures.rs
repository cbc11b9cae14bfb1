//! Places of pictures: kept by every template, forged by none.

use proptest::prelude::*;

use super::*;

const TYPED_ONLY: &str = include_str!("../goldens/typed_only.jinja");
const SYSTEM_PREFIX: &str = include_str!("../goldens/system_prefix.jinja");
const REFUSES_SYSTEM: &str = include_str!("../goldens/refuses_system.jinja");

fn part(text: &str) -> ContentPart {
    ContentPart::Text(text.into())
}

fn user(content: Vec<ContentPart>) -> ChatMessage {
    ChatMessage { role: Role::User, content }
}

/// A rendering with `<0>` for picture 0.
fn shown(segments: &[Segment]) -> String {
    segments
        .iter()
        .map(|segment| match segment {
            Segment::Text(text) => text.clone(),
            Segment::Picture(index) => format!("<{index}>"),
        })
        .collect()
}

#[test]
fn a_media_marker_in_the_text_is_text() {
    let question = user(vec![part("What does <__media__> or <image> mean?"), ContentPart::Picture]);
    for template in [ChatTemplate::builtin("chatml").expect("known"), jinja(SYSTEM_PREFIX)] {
        let segments = template.render(std::slice::from_ref(&question), true).expect("it renders");
        assert!(shown(&segments).contains("What does <__media__> or <image> mean?<0>"), "{segments:?}");
        assert_eq!(segments.len(), 3);
    }
}

#[test]
fn pictures_in_any_turn_keep_their_order() {
    let conversation = [
        says(Role::System, "Look."),
        user(vec![ContentPart::Picture, part("and"), ContentPart::Picture, part(" same?")]),
        says(Role::Assistant, "No."),
        user(vec![part("This? "), ContentPart::Picture]),
    ];
    let rendered = |template: &ChatTemplate| shown(&template.render(&conversation, true).expect("it renders"));
    assert_eq!(
        rendered(&ChatTemplate::builtin("vicuna").expect("known")),
        "Look.\n\nUSER: <0>and<1> same?\nASSISTANT: No.</s>\nUSER: This? <2>\nASSISTANT:"
    );
    assert_eq!(
        rendered(&jinja(TYPED_ONLY)),
        "<|start|>System: Look.<end_of_turn>\nUser: <0>and<1> same?<end_of_turn>\nAssistant: No.<end_of_turn>\nUser: This? <2><end_of_turn>\nAssistant:"
    );
    assert_eq!(rendered(&jinja(REFUSES_SYSTEM)), "<s>[ASK] Look.\n<0>and<1> same? [/ASK]No.</s>[ASK] This? <2> [/ASK]");
}

#[test]
fn what_is_added_counts_pictures_from_the_past() {
    let past = [user(vec![ContentPart::Picture, part("a")]), says(Role::Assistant, "b")];
    let new = user(vec![part("c"), ContentPart::Picture]);
    let template = ChatTemplate::builtin("chatml").expect("known");
    let added = template.render_next(&past, &new, true).expect("it renders").expect("past is a prefix");
    assert_eq!(shown(&added), "\n<|im_start|>user\nc<1><|im_end|>\n<|im_start|>assistant\n");
    let first = template.render_next(&[], &past[0], true).expect("it renders").expect("nothing is a prefix");
    assert_eq!(shown(&first), "<|im_start|>user\n<0>a<|im_end|>\n<|im_start|>assistant\n");
}

#[test]
fn a_template_that_loses_or_doubles_a_picture_fails() {
    let two = [user(vec![ContentPart::Picture]), user(vec![ContentPart::Picture])];
    let words = |source| reason(jinja(source).render(&two, true));
    assert!(words("{{ messages[0].content }}").contains("left out picture 2 of 2"));
    assert!(words("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}").contains("picture 1 twice"));
    assert!(words("{{ messages[1].content }}{{ messages[0].content }}").contains("left out picture 1 of 2"));
    assert!(words("hello").contains("`jinja` left out picture 1 of 2"));
    assert!(words("{% for m in messages %}{{ m.content[:-1] }}{% endfor %}").contains("cuts picture 1 apart"));
}

#[test]
fn string_methods_and_filters_leave_pictures_alone() {
    for way in ["trim", "upper", "lower", "capitalize", "title", "e", "tojson", "tojson(ensure_ascii=true)", "string"] {
        let template = jinja(&format!("{{% for m in messages %}}{{{{ m.content | {way} }}}}{{% endfor %}}"));
        let segments = template.render(&[user(vec![part(" é "), ContentPart::Picture])], true).expect("it renders");
        assert!(segments.contains(&Segment::Picture(0)), "{way}: {segments:?}");
    }
}

fn any_part() -> impl Strategy<Value = ContentPart> {
    prop_oneof![
        "[ -~\n]{0,12}".prop_map(ContentPart::Text),
        r"(\[#[0-9]{20}:0#\]|<__media__>|\{\{ bos_token \}\}|#\])".prop_map(ContentPart::Text),
        Just(ContentPart::Picture),
    ]
}

proptest! {
    /// The bare format prints messages as they are, so what comes out must be what went in.
    #[test]
    fn what_goes_in_comes_out(parts in proptest::collection::vec(any_part(), 0..12)) {
        let mut expected: Vec<Segment> = Vec::new();
        let mut pictures = 0;
        for part in &parts {
            match part {
                ContentPart::Picture => {
                    expected.push(Segment::Picture(pictures));
                    pictures += 1;
                }
                ContentPart::Text(text) if text.is_empty() => {}
                ContentPart::Text(text) => match expected.last_mut() {
                    Some(Segment::Text(last)) => last.push_str(text),
                    _ => expected.push(Segment::Text(text.clone())),
                },
            }
        }
        let messages = [user(parts)];
        let builtin = ChatTemplate::builtin("deepseek-ocr").expect("known");
        prop_assert_eq!(&builtin.render(&messages, true).expect("it renders"), &expected);
        let source = jinja("{% for m in messages %}{{ m.content }}{% endfor %}");
        prop_assert_eq!(&source.render(&messages, true).expect("it renders"), &expected);
    }
}
