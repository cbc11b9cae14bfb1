//! Variants: a name and flags on top of those of the command line.

use std::collections::HashSet;
use std::ffi::OsString;

use anyhow::Result;
use clap::Parser;
use llava::compress::{CompressorSpec, VisualTokenSetting};

use super::args::{EvalArgs, SetupArgs, SweepArgs};
use crate::args::{Cli, Command};
use crate::compress_flags::{self, CompressFlags};
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
    #[arg(long, value_name = "full|auto|N|R%", value_parser = compress_flags::setting)]
    visual_tokens: Option<VisualTokenSetting>,
    #[arg(long, value_name = "NAME[:K=V,...]", value_parser = compress_flags::compressor)]
    compressor: Option<CompressorSpec>,
}

/// The variants of the command line: those it names, those that its lists stand for, or one of its own settings.
pub fn parse(args: &EvalArgs, argv: &[OsString]) -> Result<Vec<Variant>> {
    let variants = if args.what.variant.is_empty() { sweep(args)? } else { named(args, argv)? };
    let mut names = HashSet::new();
    for variant in &variants {
        if !names.insert(variant.name.clone()) {
            return Err(Problem::usage(format!("there are two variants `{}`", variant.name)).into());
        }
    }
    Ok(variants)
}

/// All tokens first, then every budget with every compressor.
fn sweep(args: &EvalArgs) -> Result<Vec<Variant>> {
    let SweepArgs { visual_tokens, .. } = &args.sweep;
    let mut compressors = args.sweep.compressors();
    let variant =
        |name: String, compress: CompressFlags| Variant { name, setup: SetupArgs { compress, ..args.setup.clone() } };
    if visual_tokens.is_empty() {
        if !compressors.is_empty() {
            let problem = Problem::usage("--compressor changes nothing without --visual-tokens");
            return Err(problem.hint("for example --visual-tokens 16,32,64").into());
        }
        return Ok(vec![variant("default".into(), CompressFlags::default())]);
    }
    if compressors.is_empty() {
        compressors.push(CompressorSpec::default());
    }
    let mut variants = vec![variant("full".into(), CompressFlags::default())];
    for compressor in &compressors {
        for &visual_tokens in visual_tokens.iter().filter(|&&setting| setting != VisualTokenSetting::Full) {
            let flags = CompressFlags { visual_tokens, compressor: compressor.clone() };
            variants.push(variant(format!("{compressor} {visual_tokens}"), flags));
        }
    }
    Ok(variants)
}

/// The settings outside of the variants, where there is one value of each.
fn outside(sweep: &SweepArgs) -> Result<CompressFlags> {
    let (settings, compressors) = (&sweep.visual_tokens, sweep.compressors());
    if settings.len() > 1 || compressors.len() > 1 {
        let problem = Problem::usage(
            "lists of --visual-tokens or --compressor stand for variants: they cannot be given beside --variant",
        );
        return Err(problem
            .hint("one value outside, or in each variant: --variant \"few: --visual-tokens 64\"")
            .into());
    }
    let default = CompressFlags::default();
    Ok(CompressFlags {
        visual_tokens: settings.first().copied().unwrap_or(default.visual_tokens),
        compressor: compressors.into_iter().next().unwrap_or(default.compressor),
    })
}

fn named(args: &EvalArgs, argv: &[OsString]) -> Result<Vec<Variant>> {
    let outside = outside(&args.sweep)?;
    args.what.variant.iter().map(|text| one(text, argv, &outside)).collect()
}
fn one(text: &str, argv: &[OsString], outside: &CompressFlags) -> Result<Variant> {
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
    let alone = Alone::try_parse_from(&own).map_err(complain)?;
    // a later flag wins, so the variant's own ones go last
    let all = argv.iter().chain(own.iter().skip(1));
    match Cli::try_parse_from(all).map_err(complain)?.command {
        Some(Command::Eval(args)) => {
            args.setup.check()?;
            let compress = CompressFlags {
                visual_tokens: alone.visual_tokens.unwrap_or(outside.visual_tokens),
                compressor: alone.compressor.unwrap_or_else(|| outside.compressor.clone()),
            };
            Ok(Variant { name, setup: SetupArgs { compress, ..args.setup } })
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
    fn lists_stand_for_variants() {
        let of = |line: &[&str]| -> Vec<String> {
            let found = variants(line).unwrap();
            found
                .iter()
                .map(|v| format!("{}: {} {}", v.name, v.setup.compress.visual_tokens, v.setup.compress.compressor))
                .collect()
        };
        assert_eq!(of(&["--visual-tokens", "64"]), ["full: full div-c", "div-c 64: 64 div-c"]);
        assert_eq!(
            of(&["--visual-tokens", "full,33%,auto", "--compressor", "pool,div-c:quota=0.5,merge=1"]),
            [
                "full: full div-c",
                "pool 33%: 33% pool",
                "pool auto: auto pool",
                "div-c:quota=0.5,merge=1 33%: 33% div-c:quota=0.5,merge=1",
                "div-c:quota=0.5,merge=1 auto: auto div-c:quota=0.5,merge=1",
            ]
        );
        let beside =
            ["--visual-tokens", "64", "--variant", "a: -t 1", "--variant", "b: --visual-tokens full --compressor pool"];
        assert_eq!(of(&beside), ["a: 64 div-c", "b: full pool"]);
        assert_eq!(of(&["--variant", "a:"]), ["a: full div-c"]);
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
            (&["--compressor", "pool"], "without --visual-tokens"),
            (&["--visual-tokens", "64,64"], "two variants `div-c 64`"),
            (&["--visual-tokens", "64,32", "--variant", "a:"], "beside --variant"),
            (&["--variant", "a: --visual-tokens 64,32"], "'64,32'"),
            (&["--visual-tokens", "64,none"], "'none'"),
        ] {
            let said = complaint(line);
            assert!(said.contains(words), "{line:?}: {said}");
        }
    }
}
