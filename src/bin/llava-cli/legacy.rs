//! llama.cpp's spellings in clap's language: single-dash names of several letters, and flags that have no meaning here.

use std::collections::HashSet;
use std::ffi::OsString;

use anyhow::Result;
use clap::CommandFactory;

use crate::args::Cli;
use crate::console;
use crate::exit::Problem;
use crate::values;

/// Upstream's name and ours.
const NAMES: &[(&str, &str)] = &[
    ("-ngl", "--gpu-layers"),
    ("-sys", "--system-prompt"),
    ("-sysf", "--system-prompt-file"),
    ("-mm", "--mmproj"),
    ("-ub", "--ubatch-size"),
    ("-tb", "--threads-batch"),
    ("-fa", "--flash-attn"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("--usage", "--help"),
];

/// Flags that change nothing in this program, and whether a value follows.
const IGNORED: &[(&str, bool)] = &[
    ("--simple-io", false),
    ("--perf", false),
    ("--no-perf", false),
    ("--offline", false),
    ("--log-disable", false),
    ("--log-prefix", false),
    ("--log-timestamps", false),
    ("--log-colors", true),
    ("--color", true),
    ("-co", true),
    ("--mmproj-auto", false),
];

/// Flags whose meaning this program does not have, and what to do instead.
const REFUSED: &[(&[&str], &str)] = &[
    (
        &["-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-mu", "--model-url", "-mmu", "--mmproj-url"],
        "this program downloads nothing: fetch the files and give them with -m and --mmproj",
    ),
    (&["--audio", "--video"], "this program takes pictures only, with --image"),
    (&["-j", "--json-schema", "-jf", "--json-schema-file"], "write the schema as a grammar and give it with --grammar"),
];

/// Translates a command line.
///
/// Values are left alone whatever they look like: `-p -ngl` asks about the text `-ngl`.
pub fn translate(argv: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>> {
    let takes_value = value_flags();
    let mut argv = argv.into_iter().peekable();
    let mut out: Vec<OsString> = argv.next().into_iter().collect();
    while let Some(arg) = argv.next() {
        let Some(given) = arg.to_str() else {
            out.push(arg);
            continue;
        };
        if let Some((_, advice)) = REFUSED.iter().find(|(names, _)| names.contains(&given)) {
            return Err(Problem::usage(format!("{given} is not supported")).hint(*advice).into());
        }
        if let Some((_, value)) = IGNORED.iter().find(|(name, _)| *name == given) {
            console::note(format_args!("{given} has no effect here"));
            // older versions of upstream's `--color` had no value
            if *value && argv.peek().and_then(|v| v.to_str()).is_some_and(values::is_switch) {
                argv.next();
            }
            continue;
        }
        let name = NAMES.iter().find(|(theirs, _)| *theirs == given).map_or(given, |(_, ours)| ours);
        if name == "--flash-attn" {
            let value = argv.next_if(|v| v.to_str().is_some_and(values::is_switch));
            out.extend([name.into(), value.unwrap_or_else(|| "on".into())]);
            continue;
        }
        out.push(name.into());
        if takes_value.contains(name) {
            out.extend(argv.next());
        }
    }
    Ok(out)
}

/// Every flag of every command that a value follows.
fn value_flags() -> HashSet<String> {
    let mut command = Cli::command();
    command.build();
    let mut flags = HashSet::new();
    for command in std::iter::once(&command).chain(command.get_subcommands()) {
        for arg in command.get_arguments().filter(|a| a.get_action().takes_values()) {
            flags.extend(arg.get_short().map(|c| format!("-{c}")));
            flags.extend(arg.get_long().map(|l| format!("--{l}")));
            flags.extend(arg.get_all_aliases().unwrap_or_default().into_iter().map(|l| format!("--{l}")));
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn run(args: &[&str]) -> Vec<String> {
        let argv = std::iter::once("llava-cli").chain(args.iter().copied()).map(OsString::from);
        translate(argv).unwrap().into_iter().skip(1).map(|a| a.into_string().unwrap()).collect()
    }

    #[test]
    fn long_names_with_one_dash() {
        assert_eq!(
            run(&["-ngl", "99", "-sys", "Be brief.", "-ub", "64", "-m", "x"]),
            ["--gpu-layers", "99", "--system-prompt", "Be brief.", "--ubatch-size", "64", "-m", "x"]
        );
        // every name leads to a flag that exists
        for (theirs, ours) in NAMES {
            let known = ["--help"].contains(ours) || value_flags().contains(*ours);
            assert!(known, "{theirs} -> {ours}");
        }
    }

    #[test]
    fn values_are_not_touched() {
        assert_eq!(
            run(&["-p", "-ngl", "-sys", "-fa", "-n", "-1"]),
            ["-p", "-ngl", "--system-prompt", "-fa", "-n", "-1"]
        );
        assert_eq!(run(&["--n-gpu-layers", "-hf"]), ["--n-gpu-layers", "-hf"]);
        assert_eq!(run(&["-p"]), ["-p"]);
    }

    #[test]
    fn flash_attention_with_and_without_a_value() {
        assert_eq!(run(&["-fa", "-p", "x"]), ["--flash-attn", "on", "-p", "x"]);
        assert_eq!(run(&["-fa", "off", "-fa"]), ["--flash-attn", "off", "--flash-attn", "on"]);
        assert_eq!(run(&["--flash-attn", "auto"]), ["--flash-attn", "auto"]);
    }

    #[test]
    fn flags_without_meaning_are_dropped_and_others_refused_with_advice() {
        assert_eq!(run(&["--simple-io", "--color", "on", "-co", "-p", "x"]), ["-p", "x"]);
        for refused in ["-hf", "--audio", "-j"] {
            assert!(translate(["llava-cli", refused, "x"].map(OsString::from)).is_err());
        }
    }

    #[test]
    fn upstreams_own_command_lines_parse() {
        let lines = [
            "-m a.gguf --mmproj b.gguf --image x.png -p hello --temp 0 -n 72 -c 512 -ngl 99 -fa on",
            "-m a --mmproj b --image x,y --temperature 0.1 -ctk q8_0 -ctv q8_0 -fa -t 4 -tb 8 -ub 1024 -b 2048 --seed 1",
            "-m a --mmproj b --chat-template vicuna --jinja --no-warmup --no-mmproj-offload -e -v --top-k 1 --typical 0.9",
            "-m a -mm b -sys x -f q.txt --mlock -s -1 --repeat-last-n 64 --n-predict 3 -r ### --no-jinja --image-max-tokens 256",
        ];
        for line in lines {
            let argv = std::iter::once("llava-cli").chain(line.split(' ')).map(OsString::from);
            let parsed = Cli::try_parse_from(translate(argv).unwrap());
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}
