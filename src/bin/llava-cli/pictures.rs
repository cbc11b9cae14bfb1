//! Picture files, and where pictures stand in a message.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use llava::image::{DecodeOptions, load};
use llava::session::{EncodedPicture, Part, Picture};

use crate::args::PictureArgs;
use crate::exit::{Stage, in_file};
use crate::save::read_whole;

/// Stands for a picture in a text, as in llama.cpp's tools, where there are as many as pictures.
pub const MARKER: &str = "<__media__>";

/// Largest encoded picture that is read; a picture of 4096 rows of 8192 floats has 128 MiB.
const MAX_ENCODED_BYTES: u64 = 4 << 30;

/// Reads pictures the same way every time.
#[derive(Debug, Clone)]
pub struct Reader(DecodeOptions);

impl Reader {
    pub fn new(args: &PictureArgs) -> Self {
        Self(DecodeOptions { background: args.background, ..DecodeOptions::default() })
    }

    /// A picture, or a file that `llava-cli embed --format encoded` made of one.
    pub fn read(&self, path: &Path) -> Result<Part> {
        if is_encoded(path) {
            let bytes = read_whole(path, MAX_ENCODED_BYTES).context(Stage::Picture)?;
            let picture = EncodedPicture::from_bytes(&bytes).map_err(in_file(path));
            return Ok(picture.context(Stage::Picture)?.into());
        }
        Ok(self.pixels(path)?.into())
    }

    pub fn pixels(&self, path: &Path) -> Result<Picture> {
        let decoded = load(path, &self.0).context(Stage::Picture)?;
        tracing::info!(
            picture = %path.display(),
            format = decoded.format.name(),
            width_px = decoded.image.width_px(),
            height_px = decoded.image.height_px(),
            "read"
        );
        Ok(Picture::new(decoded.image))
    }

    /// Reads all pictures of the command line, in order, or fails with the first that cannot be read.
    pub fn read_all(&self, args: &PictureArgs) -> Result<Vec<Part>> {
        paths(&args.image).iter().map(|path| self.read(path)).collect()
    }
}

/// Whether a file says it is an encoded picture. Not so what cannot be read: whoever reads it next says why.
fn is_encoded(path: &Path) -> bool {
    let mut start = [0_u8; 8];
    // a pipe gives its bytes only once
    std::fs::metadata(path).is_ok_and(|m| m.is_file())
        && File::open(path).and_then(|mut f| f.read_exact(&mut start)).is_ok()
        && EncodedPicture::is_beginning(&start)
}

/// The files that `--image` names: a value is one file if there is one of that name, otherwise a list with commas in
/// which double quotes keep a name together.
pub fn paths(values: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for value in values {
        match value.to_str() {
            Some(text) if text.contains(',') && !value.exists() => {
                paths.extend(split(text).into_iter().map(PathBuf::from))
            }
            _ => paths.push(value.clone()),
        }
    }
    paths
}

fn split(list: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = list.chars().peekable();
    while let Some(c) = chars.next() {
        let at_start = fields.last().is_none_or(String::is_empty);
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => push(&mut fields, chars.next().unwrap_or('"')),
            '"' if quoted => quoted = false,
            '"' if at_start => quoted = true,
            ',' if !quoted => fields.push(String::new()),
            other => push(&mut fields, other),
        }
    }
    fields.retain(|f| !f.is_empty());
    fields
}

fn push(fields: &mut [String], c: char) {
    if let Some(last) = fields.last_mut() {
        last.push(c);
    }
}

/// A message of text and pictures: pictures stand at the markers where the text has exactly as many, else before the text.
pub fn compose(text: &str, pictures: Vec<Part>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = text;
    if !pictures.is_empty() && text.matches(MARKER).count() == pictures.len() {
        for picture in pictures {
            let (before, after) = rest.split_once(MARKER).unwrap_or((rest, ""));
            if !before.is_empty() {
                parts.push(before.into());
            }
            parts.push(picture);
            rest = after;
        }
    } else {
        parts.extend(pictures);
    }
    if !rest.is_empty() || parts.is_empty() {
        parts.push(rest.into());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use llava::image::RgbImage;

    fn picture(value: u8) -> Picture {
        Picture::new(RgbImage::from_rgb(1, 1, vec![value; 3]).unwrap())
    }

    fn shape(text: &str, count: u8) -> Vec<String> {
        compose(text, (0..count).map(|n| picture(n).into()).collect())
            .into_iter()
            .map(|part| match part {
                Part::Text(text) => text,
                Part::Picture(p) => format!("[{}]", p.image().pixels()[0]),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn pictures_come_first_unless_markers_say_otherwise() {
        assert_eq!(shape("what?", 2), ["[0]", "[1]", "what?"]);
        assert_eq!(shape("a <__media__> b <__media__>", 2), ["a ", "[0]", " b ", "[1]"]);
        assert_eq!(shape("<__media__>what?", 1), ["[0]", "what?"]);
        assert_eq!(shape("", 1), ["[0]"]);
    }

    #[test]
    fn markers_of_another_number_are_text() {
        assert_eq!(shape("say <__media__>", 0), ["say <__media__>"]);
        assert_eq!(shape("a <__media__> b <__media__>", 1), ["[0]", "a <__media__> b <__media__>"]);
        assert_eq!(shape("<__media__>", 2), ["[0]", "[1]", "<__media__>"]);
        assert_eq!(shape("", 0), [""]);
    }

    #[test]
    fn lists_with_commas() {
        assert_eq!(split("a.png,b.png"), ["a.png", "b.png"]);
        assert_eq!(split("\"a,b.png\",c\"d.png,\"e\"\"f\""), ["a,b.png", "c\"d.png", "e\"f"]);
        assert_eq!(split("a.png,,"), ["a.png"]);

        let home = tempfile::tempdir().unwrap();
        let with_comma = home.path().join("a,b.png");
        std::fs::write(&with_comma, "").unwrap();
        let values = [with_comma, "x,y".into(), "z".into()];
        assert_eq!(paths(&values), [values[0].clone(), "x".into(), "y".into(), "z".into()]);
    }
}
