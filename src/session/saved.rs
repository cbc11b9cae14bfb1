//! A conversation as bytes: messages, pictures, and what the KV cache holds of them.
//!
//! ```text
//! magic "LLAVASES", version, bytes of the body, XXH3-128 of the body, body:
//!   messages: role, parts: text, a picture as PNG, or an encoded picture
//!   items of the KV cache: token, or (key of the rows, picture, tokens before it, chunk, and for fewer rows than the encoder gives,
//!   the recipe, their number and that of their positions)
//!   state of the sequence, as llama::SequenceState writes it
//! ```
//! All numbers are little-endian, all lists and texts are length-prefixed.

use super::bytes::{Reader, Writer, open, seal};
use super::conversation::Session;
use super::encoded::EncodedPicture;
use super::message::{Message, Part, Picture, Shown};
use super::prompt::{Fewer, Item, Recipe, count_tokens, image_item};
use super::template::Role;
use crate::error::{Error, Result};
use crate::image::{DecodeOptions, Limits, decode};
use crate::llama::{SequenceState, Token};
use crate::units::{PosCount, TokenCount};

const MAGIC: &[u8; 8] = b"LLAVASES";
const VERSION: u32 = 3;

/// What came back of a saved conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restored {
    /// Messages and KV cache: nothing has to be computed again.
    Everything,
    /// Messages and pictures only; the next answer computes the conversation anew.
    Messages {
        /// Why the KV cache could not be taken over.
        reason: String,
    },
}

impl Session {
    /// The conversation as bytes that [`Session::load`] takes: messages, pictures (lossless), KV cache. They are as private as
    /// the conversation is.
    ///
    /// # Errors
    /// Those of [`Context::save_sequence`](crate::llama::Context::save_sequence); [`Error::State`] where a picture cannot be
    /// written as PNG.
    pub fn save(&mut self) -> Result<Vec<u8>> {
        let mut out = Writer::default();
        out.len(self.messages.len());
        for message in &self.messages {
            out.byte(role_number(message.role));
            out.len(message.parts.len());
            for part in &message.parts {
                match part {
                    Part::Text(text) => {
                        out.byte(0);
                        out.bytes(text.as_bytes());
                    }
                    Part::Picture(picture) => {
                        out.byte(1);
                        out.bytes(&picture.image().to_png()?);
                    }
                    Part::Encoded(picture) => {
                        out.byte(2);
                        out.bytes(&picture.to_bytes());
                    }
                }
            }
        }
        let live = self.live_items();
        match &live {
            Some(items) => {
                out.len(items.len());
                for item in items {
                    match item {
                        Live::Token(token) => {
                            out.byte(0);
                            out.int(token.0);
                        }
                        Live::Image { index, before, chunk, key, fewer } => {
                            out.byte(if fewer.is_some() { 2 } else { 1 });
                            out.hash(*key);
                            [*index, before.get(), *chunk].into_iter().for_each(|n| out.len(n));
                            if let Some(Fewer { recipe, tokens, positions }) = fewer {
                                out.bytes(recipe.method.as_bytes());
                                [recipe.least, tokens.get(), positions.get()].into_iter().for_each(|n| out.len(n));
                            }
                        }
                    }
                }
            }
            None => out.len(0),
        }
        match live.filter(|items| !items.is_empty()) {
            Some(_) => out.bytes(self.memory.save()?.as_bytes()),
            None => out.bytes(&[]),
        }
        Ok(seal(MAGIC, VERSION, &out.0))
    }

    /// Puts a saved conversation in place of this one. Where it was saved with another model, or with a context made
    /// otherwise, its messages come back and the KV cache does not.
    ///
    /// The checksum finds damage, not malice: take saved conversations only from where nobody else can write.
    ///
    /// # Errors
    /// [`Error::State`] where the bytes are damaged, of another version, or no saved conversation;
    /// [`Error::PictureTooLarge`] where a picture is over the default [`Limits`]. This conversation is unchanged then.
    pub fn load(&mut self, bytes: &[u8]) -> Result<Restored> {
        self.load_within(bytes, &Limits::default())
    }

    /// As [`Session::load`], with other limits for the pictures in it.
    ///
    /// # Errors
    /// Those of [`Session::load`].
    pub fn load_within(&mut self, bytes: &[u8], limits: &Limits) -> Result<Restored> {
        let saved = parse(bytes, limits)?;
        let has_pictures = saved.messages.iter().any(|m| m.pictures().next().is_some());
        if has_pictures && self.projector().is_none() {
            return Err(Error::NoVision { reason: "the saved conversation has pictures; load its projector".into() });
        }
        self.messages = saved.messages;
        self.forget_prompt();
        match self.restore_live(&saved.live, saved.state) {
            Ok(true) => Ok(Restored::Everything),
            Ok(false) => Ok(Restored::Messages { reason: "it was saved without its KV cache".into() }),
            Err(error) => {
                self.forget_prompt();
                Ok(Restored::Messages { reason: error.to_string() })
            }
        }
    }

    /// What the KV cache holds, by picture. `None` where a picture of it is not of the conversation any more, or its state cannot be saved
    /// now.
    fn live_items(&self) -> Option<Vec<Live>> {
        if !self.memory.can_be_saved() {
            return None;
        }
        self.memory
            .live()
            .iter()
            .map(|item| match item {
                Item::Token(token) => Some(Live::Token(*token)),
                Item::Image(image) => {
                    let known = self.prepared.iter().find(|r| r.chunks.is(&image.source))?;
                    // the conversation may have been edited since
                    let now = self.messages.iter().flat_map(Message::shown).nth(known.index)?;
                    if now.content_hash() != image.picture {
                        return None;
                    }
                    let key = name(item).ok()??;
                    let fewer = image.fewer.clone();
                    Some(Live::Image { index: known.index, before: known.before, chunk: image.chunk, key, fewer })
                }
            })
            .collect()
    }

    fn restore_live(&mut self, live: &[Live], state: Vec<u8>) -> Result<bool> {
        if live.is_empty() || state.is_empty() {
            return Ok(false);
        }
        let state = SequenceState::from_bytes(state)?;
        let refuse = |reason: &str| Error::State { reason: reason.into() };
        // clones share pixels and rows
        let messages = self.messages.clone();
        let pictures: Vec<Shown<'_>> = messages.iter().flat_map(Message::shown).collect();
        let mut items = Vec::with_capacity(live.len());
        for item in live {
            match item {
                Live::Token(token) if self.model().vocab().contains(*token) => items.push(Item::Token(*token)),
                Live::Token(_) => return Err(refuse("it has tokens that this model does not know")),
                Live::Image { index, before, chunk, key, fewer } => {
                    let (index, before, chunk, key) = (*index, *before, *chunk, *key);
                    let picture = *pictures.get(index).ok_or_else(|| refuse("a picture is missing"))?;
                    let known = self.prepared.iter().find(|r| r.index == index).map(|r| r.chunks.clone());
                    let chunks = match known {
                        Some(chunks) => chunks,
                        None => {
                            let remembered = self.prepare(picture, before, index)?;
                            let chunks = remembered.chunks.clone();
                            self.prepared.push(remembered);
                            chunks
                        }
                    };
                    let mut item = image_item(picture.content_hash(), index, &chunks, chunk)
                        .ok_or_else(|| refuse("its pictures were cut otherwise"))?;
                    // another projector, another layout, another picture: what the KV cache holds was made of other rows
                    if name(&item)? != Some(key) {
                        return Err(refuse("its pictures were encoded otherwise"));
                    }
                    if let Some(fewer) = fewer {
                        let (tokens, places) = (fewer.tokens.get(), [fewer.tokens.get(), item.positions().get()]);
                        if !(1..=item.tokens().get()).contains(&tokens) || !places.contains(&fewer.positions.get()) {
                            return Err(refuse("its pictures had other numbers of rows"));
                        }
                        item.set_fewer(Some(fewer.clone()));
                    }
                    items.push(item);
                }
            }
        }
        if count_tokens(&items).get() > self.n_ctx() as usize {
            return Err(refuse("it was longer than this context"));
        }
        self.memory.load(items, &state)?;
        Ok(true)
    }
}

/// The name of an image item's rows.
fn name(item: &Item) -> Result<Option<u128>> {
    match item {
        Item::Image(image) => Ok(image.key()?.map(|key| key.to_u128())),
        Item::Token(_) => Ok(None),
    }
}

/// An item of the KV cache, without the pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Live {
    Token(Token),
    Image { index: usize, before: TokenCount, chunk: usize, key: u128, fewer: Option<Fewer> },
}

struct Saved {
    messages: Vec<Message>,
    live: Vec<Live>,
    state: Vec<u8>,
}

fn parse(bytes: &[u8], limits: &Limits) -> Result<Saved> {
    let body = open(MAGIC, VERSION, bytes, "a saved conversation")?;
    let refuse = |reason: &str| Error::State { reason: reason.into() };
    let options = DecodeOptions { limits: limits.clone(), ..DecodeOptions::default() };
    read_body(&mut Reader(body), &options).ok_or_else(|| refuse("the saved conversation contradicts itself"))?
}

/// `None` where lengths and tags do not fit; `Some(Err)` where a picture does not decode.
fn read_body(body: &mut Reader<'_>, options: &DecodeOptions) -> Option<Result<Saved>> {
    let mut messages = Vec::new();
    for _ in 0..body.len()? {
        let role = role_from(body.byte()?)?;
        let mut parts = Vec::new();
        for _ in 0..body.len()? {
            match body.byte()? {
                0 => parts.push(Part::Text(String::from_utf8(body.bytes()?.to_vec()).ok()?)),
                1 => match decode(body.bytes()?, "saved picture", options) {
                    Ok(decoded) => parts.push(Part::Picture(Picture::new(decoded.image))),
                    Err(error) => return Some(Err(error)),
                },
                2 => match EncodedPicture::from_bytes(body.bytes()?) {
                    Ok(picture) => parts.push(Part::Encoded(picture)),
                    Err(error) => return Some(Err(error)),
                },
                _ => return None,
            }
        }
        messages.push(Message { role, parts });
    }
    let mut live = Vec::new();
    for _ in 0..body.len()? {
        live.push(match body.byte()? {
            0 => Live::Token(Token(body.int()?)),
            kind @ (1 | 2) => {
                let key = body.hash()?;
                let (index, before, chunk) = (body.len()?, TokenCount(body.len()?), body.len()?);
                let fewer = if kind == 2 {
                    let method = std::str::from_utf8(body.bytes()?).ok()?.into();
                    let recipe = Recipe { method, least: body.len()? };
                    Some(Fewer { recipe, tokens: TokenCount(body.len()?), positions: PosCount(body.len()?) })
                } else {
                    None
                };
                Live::Image { index, before, chunk, key, fewer }
            }
            _ => return None,
        });
    }
    let state = body.bytes()?.to_vec();
    body.0.is_empty().then_some(Ok(Saved { messages, live, state }))
}

fn role_number(role: Role) -> u8 {
    match role {
        Role::System => 0,
        Role::User => 1,
        Role::Assistant => 2,
        Role::Tool => 3,
    }
}

fn role_from(number: u8) -> Option<Role> {
    [Role::System, Role::User, Role::Assistant, Role::Tool].get(usize::from(number)).copied()
}
