//! The files in `goldens/`: our conversations, rendered by the originals.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::*;

const BUILTIN: &str = include_str!("../goldens/builtin.txt");
const JINJA: &str = include_str!("../goldens/jinja.txt");

const SOURCES: [(&str, &str); 8] = [
    ("demo", include_str!("../goldens/demo.jinja")),
    ("header_tags", include_str!("../goldens/header_tags.jinja")),
    ("helpers", include_str!("../goldens/helpers.jinja")),
    ("reasoning", include_str!("../goldens/reasoning.jinja")),
    ("refuses_system", include_str!("../goldens/refuses_system.jinja")),
    ("string_or_typed", include_str!("../goldens/string_or_typed.jinja")),
    ("system_prefix", include_str!("../goldens/system_prefix.jinja")),
    ("typed_only", include_str!("../goldens/typed_only.jinja")),
];

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some('\\') => '\\',
                other => panic!("bad escape {other:?}"),
            },
            c => c,
        });
    }
    out
}

struct Goldens {
    conversations: BTreeMap<String, Vec<ChatMessage>>,
    /// The other lines, by their first field.
    rows: BTreeMap<String, Vec<Vec<String>>>,
}

fn read(file: &str) -> Goldens {
    let mut goldens = Goldens { conversations: BTreeMap::new(), rows: BTreeMap::new() };
    goldens.conversations.insert("empty".into(), Vec::new());
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split('\t').map(unescape);
        let kind = fields.next().expect("a kind");
        let fields: Vec<String> = fields.collect();
        if kind == "say" {
            let role = match fields[1].as_str() {
                "system" => Role::System,
                "user" => Role::User,
                "assistant" => Role::Assistant,
                "tool" => Role::Tool,
                other => panic!("unknown role {other}"),
            };
            goldens.conversations.entry(fields[0].clone()).or_default().push(says(role, &fields[2]));
        } else {
            goldens.rows.entry(kind).or_default().push(fields);
        }
    }
    goldens
}

fn check_next(template: &ChatTemplate, conversation: &[ChatMessage], expected: &str) {
    let (new, past) = conversation.split_last().expect("a message");
    let added = template.render_next(past, new, true).expect("it renders").expect("past is a prefix");
    assert_eq!(text(added), expected, "what {template:?} adds");
}

#[test]
fn every_builtin_renders_as_llama_cpp_does() {
    let goldens = read(BUILTIN);
    let mut seen = std::collections::BTreeSet::new();
    for row in &goldens.rows["builtin"] {
        let [name, conversation, generate, expected] = &row[..] else { panic!("bad row {row:?}") };
        let template = ChatTemplate::builtin(name).expect("a known name");
        let rendered = template.render(&goldens.conversations[conversation], generate == "1").expect("it renders");
        assert_eq!(&text(rendered), expected, "{name}, {conversation}, {generate}");
        seen.insert(name.as_str());
    }
    assert!(seen.iter().eq(builtin_names()), "every name has goldens, and no other");
    assert_eq!(builtin_names().len(), 54);
    for row in &goldens.rows["next"] {
        check_next(&ChatTemplate::builtin(&row[0]).expect("a known name"), &goldens.conversations[&row[1]], &row[2]);
    }
}

#[test]
fn detection_finds_what_llama_cpp_finds() {
    let goldens = read(BUILTIN);
    for row in &goldens.rows["detect"] {
        let [source, expected] = &row[..] else { panic!("bad row {row:?}") };
        match ChatTemplate::detected(source) {
            Ok(template) => {
                let rendered = template.render(&goldens.conversations["turns"], true).expect("it renders");
                assert_eq!(&text(rendered), expected, "{source}: {template:?}");
                assert_eq!(template.antiprompt(), None);
            }
            Err(_) => assert_eq!(expected, "!", "{source}"),
        }
    }
    assert!(goldens.rows["detect"].len() > 100);
}

/// Noon of the goldens' day in the zone the test runs in, so that the date is the same everywhere.
fn goldens_time() -> SystemTime {
    let day = jiff::civil::date(2026, 2, 3).at(12, 0, 0, 0);
    day.to_zoned(jiff::tz::TimeZone::system()).expect("a time that exists").into()
}

#[test]
fn jinja_renders_as_python_does() {
    let goldens = read(JINJA);
    let sources = BTreeMap::from(SOURCES);
    let template = |name: &str| jinja(sources[name]).at(goldens_time()).expect("a time in range");
    let mut seen = std::collections::BTreeSet::new();
    for row in &goldens.rows["jinja"] {
        let [name, conversation, generate, expected] = &row[..] else { panic!("bad row {row:?}") };
        let rendered = template(name).render(&goldens.conversations[conversation], generate == "1");
        match expected.strip_prefix('!') {
            Some(words) => assert!(reason(rendered).contains(words), "{name}, {conversation}"),
            None => assert_eq!(&text(rendered.expect("it renders")), expected, "{name}, {conversation}, {generate}"),
        }
        seen.insert(name.as_str());
    }
    assert_eq!(seen.len(), SOURCES.len(), "every template has goldens");
    for row in &goldens.rows["next"] {
        check_next(&template(&row[0]), &goldens.conversations[&row[1]], &row[2]);
    }
}

#[test]
fn a_template_that_rewrites_the_past_has_no_next() {
    let goldens = read(JINJA);
    let (new, past) = goldens.conversations["turns"].split_last().expect("a message");
    let template = jinja(BTreeMap::from(SOURCES)["reasoning"]);
    assert_eq!(template.render_next(past, new, true).expect("it renders"), None);
}

#[test]
fn time_stands_still_unless_set() {
    let template = jinja("{{ strftime_now('%s') }}");
    let first = template.render(&[], false).expect("it renders");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(template.render(&[], false).expect("it renders"), first);
    let set = template.at(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)).expect("a time in range");
    assert_eq!(text(set.render(&[], false).expect("it renders")), "86400");
}
