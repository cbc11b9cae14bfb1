//! What a user asks for: `full`, `auto`, a number, or a share.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How many visual tokens a picture may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum VisualTokenSetting {
    /// All of them: answers are those without a compressor.
    #[default]
    Full,
    /// What question, picture and model need.
    Auto,
    /// So many for each picture, separators not counted; all where the picture has no more.
    Count(usize),
    /// A share of each picture's, in hundredths of a percent, 1 to 10000.
    Share(u32),
}

impl VisualTokenSetting {
    /// The share, 0 to 1; 1 for settings that are none.
    #[must_use]
    pub fn share(self) -> f64 {
        if let Self::Share(n) = self { f64::from(n) / 1e4 } else { 1.0 }
    }
}

impl FromStr for VisualTokenSetting {
    type Err = Error;

    /// `full`, `auto`, `64`, `33%` or `12.5%`.
    fn from_str(text: &str) -> Result<Self> {
        let count = |text: &str| text.parse::<usize>().ok().filter(|n| (1..=1 << 24).contains(n)).map(Self::Count);
        let percent = |text: &str| {
            let n = text.parse::<f64>().ok().filter(|n| (0.01..=100.0).contains(n))?;
            Some(Self::Share((n * 100.0).round() as u32))
        };
        let parsed = match text {
            "full" => Some(Self::Full),
            "auto" => Some(Self::Auto),
            _ => text.strip_suffix('%').map_or_else(|| count(text), percent),
        };
        parsed.ok_or_else(|| Error::BadParameter {
            name: "visual tokens",
            value: text.to_owned(),
            reason: "full, auto, a number from 1, or a share such as 33%".into(),
        })
    }
}

impl fmt::Display for VisualTokenSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Auto => f.write_str("auto"),
            Self::Count(n) => write!(f, "{n}"),
            Self::Share(n) => write!(f, "{}%", f64::from(*n) / 100.0),
        }
    }
}
