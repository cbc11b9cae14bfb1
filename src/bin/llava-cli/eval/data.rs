//! Questions in files: JSON, one object a line, beside the pictures.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use llava::Error;
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::items::{Item, Items, Source};
use super::score::Scorer;
use crate::console::note;
use crate::exit::{Problem, Stage};
use crate::pictures::Reader;
use crate::save::save;

/// Longest file of questions.
const MAX_BYTES: u64 = 1 << 30;

/// Reads the questions of a file, and says what they are: its name and a hash of everything in it and of all pictures.
pub fn read(path: &Path) -> Result<(Vec<Item>, String)> {
    let io = |source| Error::Io { action: "read", path: path.to_owned(), source };
    let size = fs::metadata(path).map_err(io).context(Stage::Argument)?.len();
    if size > MAX_BYTES {
        return Err(Problem::usage(format!("{} is longer than {MAX_BYTES} bytes", path.display())).into());
    }
    let bytes = fs::read(path).map_err(io).context(Stage::Argument)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut hash = Xxh3::new();
    hash.update(&bytes);
    let mut items = Vec::new();
    for (line, number) in bytes.split(|b| *b == b'\n').zip(1_usize..) {
        let at = |what: String| Problem::usage(format!("{}, line {number}: {what}", path.display()));
        let text = std::str::from_utf8(line).map_err(|_| at("not UTF-8".into()))?;
        // a byte order mark before the first line is none of its content
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            continue;
        }
        let item = parse(text, number, folder).map_err(at)?;
        if let Source::File(picture) = &item.source {
            let content = fs::read(picture).map_err(|e| at(format!("cannot read {}: {e}", picture.display())))?;
            hash.update(&(content.len() as u64).to_le_bytes());
            hash.update(&content);
        }
        items.push(item);
    }
    if items.is_empty() {
        return Err(Problem::usage(format!("{} holds no question", path.display())).into());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok((items, format!("{name}, content {:032x}", hash.digest128())))
}

fn parse(line: &str, number: usize, folder: &Path) -> Result<Item, String> {
    const KNOWN: [&str; 8] = ["image", "question", "answer", "answers", "task", "choices", "scorer", "before"];
    let value: Value = serde_json::from_str(line).map_err(|e| format!("not JSON: {e}"))?;
    let Value::Object(object) = value else { return Err("not a JSON object".into()) };
    // other fields are kept by whoever wrote them and mean nothing here, unless they look like a slip
    if let Some(slip) = object.keys().find(|k| KNOWN.iter().any(|known| *k != known && k.eq_ignore_ascii_case(known))) {
        return Err(format!("`{slip}` has to be written in lower case"));
    }
    let image = text(&object, "image")?.ok_or("`image` is missing")?;
    let question = text(&object, "question")?.ok_or("`question` is missing")?;
    let choices = texts(&object, "choices")?.unwrap_or_default();
    let answers = match (text(&object, "answer")?, texts(&object, "answers")?) {
        (Some(_), Some(_)) => return Err("`answer` and `answers` exclude each other".into()),
        (Some(one), None) => vec![one],
        (None, Some(list)) if !list.is_empty() => list,
        (None, Some(_)) => return Err("`answers` is empty".into()),
        (None, None) => return Err("`answer` is missing".into()),
    };
    let scorer = match text(&object, "scorer")? {
        Some(name) => name.parse()?,
        None if choices.is_empty() => Scorer::Exact,
        None => Scorer::Choice,
    };
    if scorer == Scorer::Choice {
        if choices.len() < 2 {
            return Err("scorer `choice` needs `choices`, two at least".into());
        }
        if let Some(answer) = answers.iter().find(|a| !choices.contains(a)) {
            return Err(format!("the answer `{answer}` is none of the choices"));
        }
    }
    if choices.iter().any(|c| c.trim().is_empty()) {
        return Err("a choice is empty".into());
    }
    Ok(Item {
        id: format!("line-{number}"),
        task: text(&object, "task")?.unwrap_or_else(|| "data".into()),
        source: Source::File(folder.join(image)),
        before: before(&object)?,
        question,
        answers,
        choices,
        scorer,
    })
}

/// A field that has to be text with something in it.
fn text(object: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => Err(format!("`{key}` is empty")),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        // people write numbers as numbers
        Some(Value::Number(number)) if key == "answer" => Ok(Some(number.to_string())),
        Some(other) => Err(format!("`{key}` is {}, text is wanted", kind(other))),
    }
}

fn texts(object: &Map<String, Value>, key: &str) -> Result<Option<Vec<String>>, String> {
    let list = match object.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(format!("`{key}` is {}, a list is wanted", kind(other))),
    };
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("`{key}` holds {}, text is wanted", kind(other))),
    };
    list.iter().map(one).collect::<Result<_, _>>().map(Some)
}

fn before(object: &Map<String, Value>) -> Result<Vec<(String, String)>, String> {
    let list = match object.get("before") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(format!("`before` is {}, a list is wanted", kind(other))),
    };
    let turn = |value: &Value| {
        let turn = value.as_object().ok_or("`before` holds something else than objects")?;
        let field = |key: &str| text(turn, key)?.ok_or_else(|| format!("`before`: `{key}` is missing"));
        Ok((field("question")?, field("answer")?))
    };
    list.iter().map(turn).collect()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Writes questions as `data.jsonl` and their pictures as PNG, in the form that [`read`] takes.
pub fn write(folder: &Path, items: &Items, reader: &Reader) -> Result<()> {
    fs::create_dir_all(folder).map_err(|source| Error::Io { action: "create", path: folder.to_owned(), source })?;
    let mut lines = String::new();
    for item in &items.list {
        let name = PathBuf::from(format!("{}.png", item.id));
        let picture = item.picture(reader)?;
        save(&folder.join(&name), &picture.image().to_png()?)?;
        let mut object = json!({
            "image": name.to_string_lossy(),
            "task": item.task,
            "question": item.question,
            "scorer": item.scorer.name(),
        });
        match item.answers.as_slice() {
            [one] => object["answer"] = json!(one),
            many => object["answers"] = json!(many),
        }
        if !item.choices.is_empty() {
            object["choices"] = json!(item.choices);
        }
        if !item.before.is_empty() {
            let turn = |(question, answer): &(String, String)| json!({"question": question, "answer": answer});
            object["before"] = item.before.iter().map(turn).collect();
        }
        lines.push_str(&format!("{object}\n"));
    }
    save(&folder.join("data.jsonl"), lines.as_bytes())?;
    note(format_args!("{} questions are in {}", items.list.len(), folder.join("data.jsonl").display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(line: &str) -> String {
        parse(line, 1, Path::new("")).unwrap_err()
    }

    #[test]
    fn a_line_says_what_it_has_to() {
        let line = r#"{"image": "a.png", "question": "How many?", "answer": 3, "task": "count", "scorer": "numeric", "note": 1}"#;
        let item = parse(line, 7, Path::new("set")).unwrap();
        assert_eq!((item.id.as_str(), item.task.as_str(), item.scorer), ("line-7", "count", Scorer::Numeric));
        assert_eq!(item.source, Source::File(PathBuf::from("set/a.png")));
        assert_eq!(item.answers, ["3"]);
        let line = r#"{"image": "a.png", "question": "?", "answers": ["no", "none"], "choices": ["no", "none", "yes"],
                       "before": [{"question": "What?", "answer": "a cat"}]}"#;
        let item = parse(line, 1, Path::new("")).unwrap();
        assert_eq!((item.task.as_str(), item.scorer, item.answers.len()), ("data", Scorer::Choice, 2));
        assert_eq!(item.before, [("What?".to_owned(), "a cat".to_owned())]);
    }

    #[test]
    fn everything_that_can_be_wrong_is_named() {
        let base = r#""image": "a.png", "question": "?""#;
        for (line, words) in [
            ("{".to_owned(), "not JSON"),
            ("[1]".into(), "not a JSON object"),
            (r#"{"question": "?", "answer": "x"}"#.into(), "`image` is missing"),
            (r#"{"image": "a.png", "answer": "x"}"#.into(), "`question` is missing"),
            (r#"{"image": 3, "question": "?", "answer": "x"}"#.into(), "`image` is a number"),
            (r#"{"image": "a.png", "question": " ", "answer": "x"}"#.into(), "`question` is empty"),
            (r#"{"Image": "a.png", "question": "?", "answer": "x"}"#.into(), "lower case"),
            (format!("{{{base}}}"), "`answer` is missing"),
            (format!(r#"{{{base}, "answer": "x", "answers": ["x"]}}"#), "exclude each other"),
            (format!(r#"{{{base}, "answers": []}}"#), "`answers` is empty"),
            (format!(r#"{{{base}, "answers": "x"}}"#), "a list is wanted"),
            (format!(r#"{{{base}, "answers": [null]}}"#), "`answers` holds null"),
            (format!(r#"{{{base}, "answer": "x", "scorer": "bleu"}}"#), "no scorer"),
            (format!(r#"{{{base}, "answer": "x", "scorer": "choice"}}"#), "two at least"),
            (format!(r#"{{{base}, "answer": "x", "choices": ["a", "b"]}}"#), "none of the choices"),
            (format!(r#"{{{base}, "answer": "a", "choices": ["a", ""]}}"#), "a choice is empty"),
            (format!(r#"{{{base}, "answer": "a", "before": [{{"question": "?"}}]}}"#), "`answer` is missing"),
            (format!(r#"{{{base}, "answer": "a", "before": "?"}}"#), "a list is wanted"),
        ] {
            assert!(wrong(&line).contains(words), "{line}: {}", wrong(&line));
        }
    }
}
