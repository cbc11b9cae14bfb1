//! What is said and shown: typed parts, so that no text can pass for a picture.

use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::encoded::EncodedPicture;
use super::template::{ChatMessage, ContentPart, Role};
use crate::error::Result;
use crate::image::{DecodeOptions, RgbImage, decode, load};

/// A picture in a conversation, known by its content. Clones share the pixels.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    image: RgbImage,
    content: u128,
}

impl Picture {
    /// A picture from decoded pixels.
    #[must_use]
    pub fn new(image: RgbImage) -> Self {
        let mut hash = Xxh3::new();
        // sides first: 30 x 150 and 150 x 30 pixels with equal bytes are two pictures
        hash.update(&image.width_px().to_le_bytes());
        hash.update(&image.height_px().to_le_bytes());
        hash.update(image.pixels());
        Self { content: hash.digest128(), image }
    }

    /// Reads and decodes a file, with default limits, upright, on white.
    ///
    /// # Errors
    /// Those of [`crate::image::load`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::new(load(path, &DecodeOptions::default())?.image))
    }

    /// Decodes the bytes of a file, with default limits, upright, on white.
    ///
    /// # Errors
    /// Those of [`crate::image::decode`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Ok(Self::new(decode(bytes, "<memory>", &DecodeOptions::default())?.image))
    }

    /// Its pixels.
    #[must_use]
    pub fn image(&self) -> &RgbImage {
        &self.image
    }

    /// XXH3-128 of size and pixels.
    #[must_use]
    pub fn content_hash(&self) -> u128 {
        self.content
    }
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Picture({}x{}, {:032x})", self.image.width_px(), self.image.height_px(), self.content)
    }
}

impl From<RgbImage> for Picture {
    fn from(image: RgbImage) -> Self {
        Self::new(image)
    }
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// Text. A media marker written in it is text.
    Text(String),
    /// A picture.
    Picture(Picture),
    /// A picture that is encoded already: it needs no projector.
    Encoded(EncodedPicture),
}

/// A picture of either kind.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shown<'a> {
    Pixels(&'a Picture),
    Encoded(&'a EncodedPicture),
}

impl Shown<'_> {
    pub(super) fn content_hash(&self) -> u128 {
        match self {
            Self::Pixels(picture) => picture.content_hash(),
            Self::Encoded(picture) => picture.content_hash(),
        }
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Part::Text(text.to_owned())
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Part::Text(text)
    }
}

impl From<EncodedPicture> for Part {
    fn from(picture: EncodedPicture) -> Self {
        Part::Encoded(picture)
    }
}

impl From<Picture> for Part {
    fn from(picture: Picture) -> Self {
        Part::Picture(picture)
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said and shown, in order.
    pub parts: Vec<Part>,
}

impl Message {
    /// A message.
    #[must_use]
    pub fn new(role: Role, parts: impl IntoIterator<Item = Part>) -> Self {
        Self { role, parts: parts.into_iter().collect() }
    }

    /// A message that is text only.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())] }
    }

    /// Its pictures of both kinds in order.
    pub(super) fn shown(&self) -> impl Iterator<Item = Shown<'_>> {
        self.parts.iter().filter_map(|p| match p {
            Part::Picture(picture) => Some(Shown::Pixels(picture)),
            Part::Encoded(picture) => Some(Shown::Encoded(picture)),
            Part::Text(_) => None,
        })
    }

    /// Its pictures in order, those that are encoded already left out.
    pub fn pictures(&self) -> impl Iterator<Item = &Picture> {
        self.parts.iter().filter_map(|p| match p {
            Part::Picture(picture) => Some(picture),
            Part::Text(_) | Part::Encoded(_) => None,
        })
    }

    pub(super) fn to_chat(&self) -> ChatMessage {
        let content = self
            .parts
            .iter()
            .map(|p| match p {
                Part::Text(text) => ContentPart::Text(text.clone()),
                Part::Picture(_) | Part::Encoded(_) => ContentPart::Picture,
            })
            .collect();
        ChatMessage { role: self.role, content }
    }
}
