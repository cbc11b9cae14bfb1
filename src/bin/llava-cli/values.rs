//! Values of flags, read the way llama.cpp's tools read them.

use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use llava::embedding::CacheDtype;
use llava::image::Background;
use llava::llama::{FlashAttention, KvType};
use llava::mtmd::ClipLayout;
use llava::quantize::VisionPrecision;

/// A number of layers, `auto` or `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardinalOrAll(
    /// `None`: as many as fit.
    pub Option<u32>,
);

impl FromStr for CardinalOrAll {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" | "-1" => Ok(Self(None)),
            "all" | "-2" => Ok(Self(Some(u32::MAX))),
            _ => text.parse().map(|n| Self(Some(n))).map_err(|_| "a number, auto or all".to_owned()),
        }
    }
}

/// A number of threads; 0 and below stand for all logical cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadCount(pub u32);

impl FromStr for ThreadCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count: i32 = text.parse().map_err(|_| "a whole number".to_owned())?;
        match u32::try_from(count) {
            Ok(n) if n > 0 => Ok(Self(n)),
            _ => {
                let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                Ok(Self(u32::try_from(all).unwrap_or(1)))
            }
        }
    }
}

/// Where encoded pictures are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachePlace {
    Off,
    Memory,
    Disk,
    /// A server's URL.
    Redis(String),
}

impl FromStr for CachePlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" | "none" => Ok(Self::Off),
            "mem" | "memory" => Ok(Self::Memory),
            "disk" => Ok(Self::Disk),
            // whatever looks like an address: it may hold a password, which must not come back in a message
            url if url.contains(':') => Ok(Self::Redis(url.to_owned())),
            _ => Err("off, mem, disk or redis://HOST:PORT".to_owned()),
        }
    }
}

/// How rows are stored outside of memory.
pub fn cache_dtype() -> impl TypedValueParser<Value = CacheDtype> {
    PossibleValuesParser::new(["f32", "f16"]).map(|name| if name == "f16" { CacheDtype::F16 } else { CacheDtype::F32 })
}

/// A seed; `None` is a random one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub Option<u32>);

pub fn seed(text: &str) -> Result<Seed, String> {
    let value: i64 = text.parse().map_err(|_| "a whole number".to_owned())?;
    match value {
        // both spellings of upstream's LLAMA_DEFAULT_SEED
        -1 | 0xffff_ffff => Ok(Seed(None)),
        _ => u32::try_from(value).map(|n| Seed(Some(n))).map_err(|_| "-1 (random) to 4294967295".to_owned()),
    }
}

/// `--clip-layout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// Class token first, the authors' depth.
    Reference,
    /// Whatever llama.cpp computes.
    Upstream,
}

impl From<Layout> for ClipLayout {
    fn from(layout: Layout) -> Self {
        match layout {
            Layout::Reference => ClipLayout::Reference,
            Layout::Upstream => ClipLayout::Upstream,
        }
    }
}

/// `--vision`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Vision {
    /// Whatever the file holds.
    AsIs,
    /// The original.
    F16,
    /// Quantised once, and kept.
    #[value(name = "q8_0")]
    Q8_0,
}

impl From<Vision> for VisionPrecision {
    fn from(vision: Vision) -> Self {
        match vision {
            Vision::AsIs => VisionPrecision::AsIs,
            Vision::F16 => VisionPrecision::F16,
            Vision::Q8_0 => VisionPrecision::Q8_0,
        }
    }
}

/// Whether a word is one that `-fa` takes.
pub fn is_switch(text: &str) -> bool {
    flash_attention(text).is_ok()
}

pub fn flash_attention(text: &str) -> Result<FlashAttention, String> {
    match text {
        "on" | "enabled" | "true" | "1" => Ok(FlashAttention::On),
        "off" | "disabled" | "false" | "0" => Ok(FlashAttention::Off),
        "auto" | "-1" => Ok(FlashAttention::Auto),
        _ => Err("on, off or auto".to_owned()),
    }
}

pub fn kv_type() -> impl TypedValueParser<Value = KvType> {
    PossibleValuesParser::new(KvType::NAMES.iter().copied()).map(|name| KvType::from_name(&name).unwrap_or_default())
}

pub fn background(text: &str) -> Result<Background, String> {
    let hex = match text {
        "white" => return Ok(Background::WHITE),
        "black" => return Ok(Background::BLACK),
        _ => text.strip_prefix('#').unwrap_or(text),
    };
    let wrong = || "white, black or #RRGGBB".to_owned();
    if hex.len() != 6 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let value = u32::from_str_radix(hex, 16).map_err(|_| wrong())?;
    let [_, red, green, blue] = value.to_be_bytes();
    Ok(Background { red, green, blue })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_upstream_reads_them() {
        assert_eq!("99".parse(), Ok(CardinalOrAll(Some(99))));
        assert_eq!("-1".parse(), Ok(CardinalOrAll(None)));
        assert_eq!("all".parse(), Ok(CardinalOrAll(Some(u32::MAX))));
        assert!("many".parse::<CardinalOrAll>().is_err());
        assert_eq!("3".parse(), Ok(ThreadCount(3)));
        assert!("-1".parse::<ThreadCount>().is_ok_and(|t| t.0 >= 1));
        assert_eq!(seed("-1"), Ok(Seed(None)));
        assert_eq!(seed("4294967295"), Ok(Seed(None)));
        assert_eq!(seed("42"), Ok(Seed(Some(42))));
        assert!(seed("-2").is_err());
        assert_eq!(flash_attention("1"), Ok(FlashAttention::On));
        assert!(!is_switch("--image") && is_switch("auto"));
    }

    #[test]
    fn colours() {
        assert_eq!(background("#0a0B10"), Ok(Background { red: 10, green: 11, blue: 16 }));
        assert_eq!(background("ffffff"), Ok(Background::WHITE));
        for wrong in ["#fff", "+fffff", "grün00", "", "#12345g"] {
            assert!(background(wrong).is_err(), "{wrong}");
        }
    }
}
