//! Variants: a name and flags on top of those of the command line.

use std::collections::HashSet;
use std::ffi::OsString;

use anyhow::Result;
use clap::Parser;

use super::args::{EvalArgs, SetupArgs};
use crate::args::{Cli, Command};
use crate::exit::Problem;
use crate::legacy;

/// Settings with a name.
#[derive(Debug, Clone)]
pub struct Variant {
    pub name: String,
    pub setup: SetupArgs,
}

/// The flags of a variant alone: whatever else the command line takes is refused here.
#[derive(Debug, Parser)]
#[command(args_override_self = true, disable_help_flag = true)]
struct Alone {
    #[command(flatten)]
    _setup: SetupArgs,
}

/// The variants of the command line; one of the command line's own settings where it names none.
pub fn parse(args: &EvalArgs, argv: &[OsString]) -> Result<Vec<Variant>> {
    if args.what.variant.is_empty() {
        return Ok(vec![Variant { name: "default".into(), setup: args.setup.clone() }]);
    }
    let mut names = HashSet::new();
    let mut variants = Vec::new();
    for text in &args.what.variant {
        let variant = one(text, argv)?;
        if !names.insert(variant.name.clone()) {
            return Err(Problem::usage(format!("there are two variants `{}`", variant.name)).into());
        }
        variants.push(variant);
    }
    Ok(variants)
}

fn one(text: &str, argv: &[OsString]) -> Result<Variant> {
    let Some((name, flags)) = text.split_once(':') else {
        let problem = Problem::usage(format!("--variant `{text}`: the name ends with a colon"));
        return Err(problem.hint("for example --variant \"q8: -m q8_0.gguf\"").into());
    };
    let name = name.trim().to_owned();
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(Problem::usage(format!("--variant `{text}`: the name is empty or no text")).into());
    }
    let wrong = |what: String| Problem::usage(format!("--variant `{name}`: {what}"));
    let words = split(flags).map_err(wrong)?;
    let own = legacy::translate(std::iter::once("llava-cli".into()).chain(words.into_iter().map(OsString::from)))?;
    let complain = |error: clap::Error| {
        let text = error.render().to_string();
        wrong(text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
    };
    Alone::try_parse_from(&own).map_err(complain)?;
    // a later flag wins, so the variant's own ones go last
    let all = argv.iter().chain(own.iter().skip(1));
    match Cli::try_parse_from(all).map_err(complain)?.command {
        Some(Command::Eval(args)) => {
            args.setup.check()?;
            Ok(Variant { name, setup: args.setup })
        }
        _ => Err(wrong("it changes the command".into()).into()),
    }
}

/// Splits at spaces. Single and double quotes keep words together; a backslash is itself, but for `\"` and `\\` in double quotes.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('"'), '\\') if matches!(chars.peek(), Some('"' | '\\')) => {
                word.get_or_insert_default().extend(chars.next());
            }
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".into());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variants(line: &[&str]) -> Result<Vec<Variant>> {
        let argv: Vec<OsString> = ["llava-cli", "eval"].iter().chain(line).map(OsString::from).collect();
        let argv = legacy::translate(argv)?;
        match Cli::try_parse_from(&argv)?.command {
            Some(Command::Eval(args)) => parse(&args, &argv),
            other => panic!("{other:?}"),
        }
    }

    fn complaint(line: &[&str]) -> String {
        variants(line).unwrap_err().to_string()
    }

    #[test]
    fn words_and_quotes() {
        let words = |text| split(text).unwrap();
        assert_eq!(words("  -m a.gguf\t-p 'x y' "), ["-m", "a.gguf", "-p", "x y"]);
        assert_eq!(words(r#""a \"b\" \\" c\d '' e"f g"h"#), [r#"a "b" \"#, r"c\d", "", "ef gh"]);
        assert!(words("").is_empty());
        assert!(split("'open").is_err());
    }

    #[test]
    fn a_variant_adds_to_the_command_line_and_wins() {
        let found =
            variants(&["-ngl", "3", "-t", "2", "--variant", "a: -ngl 5 -ctk q8_0", "--variant", "b c:", "--n", "4"])
                .unwrap();
        let layers: Vec<_> = found.iter().map(|v| v.setup.model.gpu_layers.0).collect();
        assert_eq!(layers, [Some(5), Some(3)]);
        assert_eq!(found[1].name, "b c");
        assert!(found.iter().all(|v| v.setup.model.threads.is_some_and(|t| t.0 == 2)));
        let blind = variants(&["--variant", "blind:--blind -sys 'Be brief.'"]).unwrap().remove(0).setup;
        assert!(blind.blind && blind.prompt.system_prompt.as_deref() == Some("Be brief."));
    }

    #[test]
    fn evaluation_is_greedy_and_short_unless_told_otherwise() {
        let found = variants(&["--variant", "a:", "--variant", "b: --temp 0.5 -n -1"]).unwrap();
        let of = |v: &Variant| (v.setup.sampling.temp, v.setup.sampling.predict);
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), [(0.0, 128), (0.5, -1)]);
        assert_eq!(variants(&[]).unwrap()[0].name, "default");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, words) in [
            (&["--variant", "no colon"][..], "ends with a colon"),
            (&["--variant", ": -t 1"], "empty"),
            (&["--variant", "a:", "--variant", "a :"], "two variants"),
            (&["--variant", "a: --no-such-flag"], "--no-such-flag"),
            (&["--variant", "a: --tasks attr"], "--tasks"),
            (&["--variant", "a: --temp warm"], "warm"),
            (&["--variant", "a: 'x"], "not closed"),
            (&["--variant", "a: -p hello"], "no meaning"),
        ] {
            let said = complaint(line);
            assert!(said.contains(words), "{line:?}: {said}");
        }
    }
}
