//! `--visual-tokens` and `--compressor`, wherever a command takes them.

use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use llava::Error;
use llava::compress::{Compressor, CompressorSpec, Method, Policy, VisualTokenSetting};
use llava::mtmd::Projector;
use llava::session::{ImagePositions, SessionParams};

use crate::exit::Stage;

#[derive(Debug, Clone, PartialEq, Default, Args)]
#[command(next_help_heading = "Visual tokens")]
pub struct CompressFlags {
    /// How many visual tokens of a picture the text model gets: full (all), auto (what question, picture and model need), a number, or
    /// a share such as 33%
    #[arg(long, value_name = "full|auto|N|R%", default_value_t, value_parser = setting)]
    pub visual_tokens: VisualTokenSetting,
    /// How they become fewer: div-c, div, energy, cover, stratified, random, pool, tome-local, resampler or full, with options behind a
    /// colon (div-c:quota=0.25,merge=0.5); resampler needs file=WEIGHTS.gguf
    #[arg(long, value_name = "NAME[:K=V,...]", default_value_t, value_parser = compressor)]
    pub compressor: CompressorSpec,
}

/// The same where a conversation follows.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct VisualTokenArgs {
    #[command(flatten)]
    pub flags: CompressFlags,
    #[command(flatten)]
    pub positions: PositionArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Args)]
#[command(next_help_heading = "Visual tokens")]
pub struct PositionArgs {
    /// Where the rows that are left stand: one behind the other, or where they would stand without compression. Models with M-RoPE
    /// always do the latter
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub image_positions: PositionsFlag,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum PositionsFlag {
    #[default]
    Compact,
    Preserve,
}

impl CompressFlags {
    /// Makes the compressor; methods that are trained are for one projector.
    pub fn build(&self, projector: Option<&Projector>) -> Result<Arc<dyn Compressor>> {
        let trained = self.compressor.method() == Method::Resampler;
        let fingerprint = projector.filter(|_| trained).map(Projector::fingerprint).transpose();
        let built = fingerprint.and_then(|fingerprint| self.compressor.build(fingerprint));
        built.context(Stage::Argument)
    }
}

impl VisualTokenArgs {
    /// Adds what these flags say to a session's parameters.
    pub fn apply(&self, params: SessionParams, projector: Option<&Projector>) -> Result<SessionParams> {
        Ok(SessionParams {
            visual_tokens: Policy::new(self.flags.visual_tokens),
            compressor: Some(self.flags.build(projector)?),
            image_positions: match self.positions.image_positions {
                PositionsFlag::Compact => ImagePositions::Compact,
                PositionsFlag::Preserve => ImagePositions::Preserve,
            },
            ..params
        })
    }
}

/// `--visual-tokens`.
pub fn setting(text: &str) -> Result<VisualTokenSetting, String> {
    read(text)
}

/// `--compressor`.
pub fn compressor(text: &str) -> Result<CompressorSpec, String> {
    read(text)
}

/// clap names flag and value itself; what is wrong inside the value is left.
fn read<T: FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| match error {
        Error::BadParameter { value, reason, .. } if value == text => reason,
        Error::BadParameter { value, reason, .. } => format!("{value}: {reason}"),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        flags: CompressFlags,
    }

    fn parse(line: &[&str]) -> Result<CompressFlags, String> {
        let words = ["x"].iter().chain(line);
        Alone::try_parse_from(words).map(|a| a.flags).map_err(|error| error.to_string())
    }

    #[test]
    fn all_tokens_unless_told_otherwise() {
        assert_eq!(parse(&[]), Ok(CompressFlags::default()));
        let flags = parse(&["--visual-tokens", "33%", "--compressor", "pool:grid=8x8"]).unwrap();
        assert_eq!(
            (flags.visual_tokens.to_string(), flags.compressor.to_string()),
            ("33%".into(), "pool:grid=8x8".into())
        );
    }

    #[test]
    fn what_is_wrong_is_said_once() {
        for (line, words) in [
            (["--visual-tokens", "0"], "'0' for '--visual-tokens <full|auto|N|R%>': full, auto, a number from 1"),
            (["--visual-tokens", "101%"], "a share such as 33%"),
            (["--compressor", "divc"], "'divc' for '--compressor <NAME[:K=V,...]>': known: full"),
            (["--compressor", "div-c:tau=1"], "tau=1: options of div-c: quota, merge"),
        ] {
            let said = parse(&line).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }
}
