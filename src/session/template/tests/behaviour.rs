//! Errors, bounds, tokens, and the choice between templates.

use std::path::Path;

use super::*;

const USER: &str = "question";

fn ask() -> [ChatMessage; 1] {
    [says(Role::User, USER)]
}

#[test]
fn a_template_is_send_sync_and_static() {
    fn check<T: Send + Sync + 'static>() {}
    check::<ChatTemplate>();
}

#[test]
fn errors_carry_the_templates_words_and_the_line() {
    let words = reason(ChatTemplate::from_jinja("a\n{% if x %}\nb", tokens()));
    assert!(words.contains("does not compile") && words.contains("line 3"), "{words}");
    let words = reason(jinja("a\n{{ raise_exception('never ' ~ 1) }}").render(&ask(), true));
    assert_eq!(words, "the template refuses the conversation: never 1 (line 2)");
    let words =
        reason(jinja("{% macro m() %}{{ raise_exception('inside') }}{% endmacro %}{{ m() }}").render(&ask(), true));
    assert!(words.contains("refuses the conversation: inside"), "{words}");
    let words = reason(jinja("\n{{ messages[7].content.missing }}").render(&ask(), true));
    assert!(words.contains("undefined") && words.contains("line 2"), "{words}");
    assert!(reason(jinja("{{ 'a' | no_such_filter }}").render(&ask(), true)).contains("no_such_filter"));
}

#[test]
fn endless_and_huge_renderings_stop() {
    let run = |source: &str| reason(jinja(source).render(&ask(), true));
    let spin = "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = 1 %}{% endfor %}{% endfor %}";
    assert!(run(spin).contains("runs on and on"));
    let long = "{% for a in range(9999) %}{{ 'abcdefghij' * 1000 }}{% endfor %}";
    assert!(run(long).contains("bytes of output"), "{}", run(long));
    let hidden = "{% set ns = namespace(x='0123456789') %}{% for i in range(60) %}{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}{% endfor %}";
    assert!(run(hidden).contains("bytes printed"), "{}", run(hidden));
    for wide in ["{{ '{:>99999999999}'.format(1) }}", "{{ 'a'|indent(4000000000) }}", "{{ [1]*1000000000 }}"] {
        assert!(reason(ChatTemplate::from_jinja(wide, tokens())).contains("digits"), "{wide}");
    }
    let deep = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert!(run(deep).contains("recursion"), "{}", run(deep));
    assert!(reason(ChatTemplate::from_jinja(&" ".repeat(1 << 21), tokens())).contains("2097152 bytes"));
}

/// Each of these overflowed a 2 MiB stack, and so ended the process, before there were bounds.
#[test]
fn deep_nesting_in_source_or_values_is_no_crash() {
    let refused =
        |source: &str| reason(ChatTemplate::from_jinja(source, tokens()).and_then(|t| t.render(&ask(), true)));
    assert!(refused(&format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000))).contains("does not compile"));
    assert!(
        refused(&format!("{}1{}", "{% if 1 %}".repeat(2000), "{% endif %}".repeat(2000))).contains("does not compile")
    );
    let chains =
        [("{{ ", "-", "1 }}"), ("{{ ", "not ", "1 }}"), ("{{ ", "1 if 1 else ", "1 }}"), ("{{ 1", "+1", " }}")];
    let more = [("{{ 1", "|e", " }}"), ("{{ a", ".a", " }}"), ("{% if 0 %}", "{% elif 0 %}", "{% endif %}")];
    for (before, link, after) in chains.into_iter().chain(more) {
        let source = |bytes: usize| format!("{before}{}{after}", link.repeat(bytes / link.len()));
        // Whether it compiles, or gives anything, is not the point: the test goes on.
        let ends = ChatTemplate::from_jinja(&source(250_000), tokens()).map(|template| template.render(&ask(), true));
        assert!(matches!(ends, Ok(_) | Err(Error::TemplateFailed { .. })), "{link}: {ends:?}");
        assert!(refused(&source(300_000)).contains("the limit is 262144"), "{link}");
    }

    let forever = |step: &str, end: &str| {
        format!(
            "{{% set ns = namespace(x=[1], y=[1]) %}}{{% for i in range(99999) %}}{{% for j in range(99999) %}}{step}{{% endfor %}}{{% endfor %}}{end}"
        )
    };
    let steps = ["[ns.x]", "{'a': ns.x}", "ns.x | map('string')", "namespace(a=ns.x)"];
    for step in steps {
        let words = refused(&forever(&format!("{{% set ns.x = {step} %}}"), ""));
        assert!(words.contains("runs on and on"), "{step}: {words}");
    }
    let nested = |levels: usize, end: &str| {
        format!(
            "{{% set ns = namespace(x=[1], y=[1]) %}}{{% for i in range({levels}) %}}{{% set ns.x = [ns.x] %}}{{% set ns.y = [ns.y] %}}{{% endfor %}}{end}"
        )
    };
    let sliced = nested(0, "{% for i in range(500) %}{% set ns.x = ns.x[0:] + [1] %}{% endfor %}{{ ns.x | length }}");
    assert_eq!(text(jinja(&sliced).render(&ask(), true).expect("it renders")), "501");
    assert_eq!(text(jinja(&nested(5_000, "{{ ns.x == ns.y }}")).render(&ask(), true).expect("it renders")), "True");
    assert!(refused(&nested(5_000, "{{ ns.x }}")).contains("nests deeper"));
    assert!(refused(&nested(5_000, "{{ ns.x | tojson }}")).contains("nests deeper"));
    let joined = jinja(&nested(5_000, "{{ (ns.x ~ '') | length }}")).render(&ask(), true).expect("it renders");
    assert_eq!(text(joined), "10003");
}

#[test]
fn tokens_that_the_tokenizer_adds_are_taken_off_once() {
    let source = "{{ bos_token }}{{ bos_token }}{{ messages[0].content }}{{ eos_token }}";
    let with = |add_bos, add_eos| {
        let template = ChatTemplate::from_jinja(source, TemplateTokens { add_bos, add_eos, ..tokens() });
        text(template.expect("it compiles").render(&ask(), false).expect("it renders"))
    };
    assert_eq!(with(false, false), "<s><s>question</s>");
    assert_eq!(with(true, false), "<s>question</s>");
    assert_eq!(with(false, true), "<s><s>question");
    let none = TemplateTokens { add_bos: true, add_eos: true, ..TemplateTokens::default() };
    let template = ChatTemplate::from_jinja(source, none).expect("it compiles");
    assert_eq!(text(template.render(&ask(), false).expect("it renders")), USER);
}

#[test]
fn variables_reach_the_template_and_cannot_replace_the_conversation() {
    let template = jinja("{{ enable_thinking }} {{ depth }} {{ name }} {{ ratio }}");
    assert_eq!(text(template.render(&ask(), true).expect("it renders")), "True   ");
    let template = [
        ("enable_thinking", TemplateValue::Bool(false)),
        ("depth", TemplateValue::Int(3)),
        ("name", TemplateValue::Text("x".into())),
        ("ratio", TemplateValue::Float(0.5)),
    ]
    .into_iter()
    .try_fold(template, |template, (name, value)| template.with_variable(name, value))
    .expect("free names");
    assert_eq!(text(template.render(&ask(), true).expect("it renders")), "False 3 x 0.5");
    let refused = template.with_variable("messages", TemplateValue::Int(1));
    assert!(matches!(refused, Err(Error::BadParameter { value, .. }) if value == "messages"));
}

#[test]
fn a_system_message_the_template_cannot_take_joins_the_next_one() {
    let both = [says(Role::System, "Rules"), says(Role::User, "Hi")];
    let ignores = jinja("{% for m in messages if m.role == 'user' %}<{{ m.content }}>{% endfor %}");
    assert_eq!(text(ignores.render(&both, true).expect("it renders")), "<Rules\nHi>");
    assert_eq!(ignores.render(&both[..1], true).expect("it renders"), []);
    let takes = jinja("{% for m in messages %}<{{ m.content }}>{% endfor %}");
    assert_eq!(text(takes.render(&both, true).expect("it renders")), "<Rules><Hi>");
}

#[test]
fn an_empty_answer_does_not_end_a_chat_and_a_harmony_history_is_closed() {
    let source = "{%- if (message['content'] is none or message['content'] == '' or message['content']|length == 0) and (message['tool_calls'] is not defined or message['tool_calls'] is none or message['tool_calls']|length == 0) %}{{ raise_exception('empty') }}{% endif %}";
    let source =
        format!("[TOOL_CALLS]{{% for message in messages %}}{source}({{{{ message.content }}}}){{% endfor %}}");
    let rendered = jinja(&source).render(&[says(Role::User, "a"), says(Role::Assistant, "")], false);
    assert_eq!(text(rendered.expect("it renders")), "[TOOL_CALLS](a)()");
    let harmony = jinja("<|channel|>{{ messages[0].content }}<|return|>");
    assert_eq!(text(harmony.render(&ask(), false).expect("it renders")), "<|channel|>question<|end|>");
    assert_eq!(text(harmony.render(&ask(), true).expect("it renders")), "<|channel|>question<|return|>");
}

#[test]
fn names_sources_and_files_are_told_apart() {
    use TemplateEngine::{Builtin, Jinja};
    let from = |text: &str, engine| ChatTemplate::from_user(text, engine, tokens());
    assert_eq!(from("vicuna", Jinja).expect("known").name(), "vicuna");
    assert_eq!(from(" chatml\n", Builtin).expect("known").name(), "chatml");
    assert_eq!(from("{{ '<|im_start|>' }}", Jinja).expect("compiles").name(), "jinja");
    assert_eq!(from("{{ '<|im_start|>' }}", Builtin).expect("detected").name(), "chatml");
    assert!(reason(from("{{ 1 }}", Builtin)).contains("--jinja"));
    for unknown in ["vicunna", "mistral", "dots1", ""] {
        match from(unknown, Builtin) {
            Err(Error::TemplateUnknown { name, known }) => {
                assert_eq!(name, unknown);
                assert!(builtin_names().iter().all(|name| known.contains(name)));
            }
            other => panic!("{unknown}: {other:?}"),
        }
    }

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("chat.jinja");
    std::fs::write(&path, "{{ messages[0].content }}\r\n").expect("written");
    let file = |path: &Path| ChatTemplate::from_file(path, Jinja, tokens());
    assert_eq!(text(file(&path).expect("compiles").render(&ask(), true).expect("it renders")), USER);
    assert!(matches!(file(&folder.path().join("none")), Err(Error::Io { action: "open", .. })));
    std::fs::write(&path, b"{{ \xff }}").expect("written");
    assert!(reason(file(&path)).contains("chat.jinja is not UTF-8"));
    std::fs::write(&path, vec![b' '; (1 << 20) + 1]).expect("written");
    assert!(reason(file(&path)).contains("longer than 1048576"));
}

#[test]
fn the_user_comes_before_the_model_and_nothing_is_guessed() {
    use TemplateEngine::{Builtin, Jinja};
    let path = Path::new("models/llava-v1.5-7b.gguf");
    let model = |source| ModelTemplate { path, source, architecture: "llama", name: "" };
    let demo = Some(include_str!("../goldens/demo.jinja"));
    let choose =
        |user: Option<&UserTemplate>, source, engine| ChatTemplate::choose(user, &model(source), engine, tokens());
    let named = UserTemplate::Text("gemma".into());
    assert_eq!(choose(Some(&named), demo, Jinja).expect("known").name(), "gemma");
    assert_eq!(choose(None, demo, Jinja).expect("compiles").name(), "jinja");
    assert_eq!(choose(None, demo, Builtin).expect("detected").name(), "vicuna");
    for source in [None, Some(""), Some(" \n")] {
        match choose(None, source, Jinja) {
            Err(Error::TemplateMissing { path: file, suggestions }) => {
                assert_eq!(file, path);
                assert!(suggestions.starts_with("vicuna"), "{suggestions}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn only_formats_chosen_by_name_have_an_antiprompt() {
    let antiprompt = |name| ChatTemplate::builtin(name).expect("known").antiprompt();
    assert_eq!(antiprompt("vicuna"), Some("ASSISTANT:"));
    assert_eq!(antiprompt("deepseek"), Some("###"));
    assert_eq!(antiprompt("vicuna-orca"), None);
    assert_eq!(ChatTemplate::detected("USER: ASSISTANT: ").expect("detected").antiprompt(), None);
}
