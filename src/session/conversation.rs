//! A conversation: messages, and asking for the next one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::answer::Answer;
use super::compression::{Compression, ImagePositions, count_text, count_visual};
use super::message::{Message, Part, Shown};
use super::params::SessionParams;
use super::prefill::{ContextFill, Memory, Sources};
use super::prompt::{Chunks, Item, count_tokens, push_picture};
use super::template::{ChatTemplate, ModelTemplate, Role, Segment, TemplateTokens};
use super::usage::Usage;
use crate::compress::{CompressorSpec, Policy};
use crate::error::{Error, Result};
use crate::llama::{CancelToken, Context, ContextParams, Model, RopeKind, Sampler, Token};
use crate::mtmd::Projector;
use crate::units::TokenCount;

/// A picture prepared for its place in the prompt.
#[derive(Debug)]
pub(super) struct Remembered {
    picture: u128,
    pub(super) before: TokenCount,
    pub(super) index: usize,
    pub(super) chunks: Chunks,
}

/// A conversation with a model about pictures. It owns its context; model and projector can be shared.
///
/// ```
/// # #[cfg(feature = "demo")] {
/// use llava::demo::DemoModel;
/// use llava::llama::{Model, ModelParams, SamplerParams};
/// use llava::mtmd::{Projector, ProjectorParams};
/// use llava::session::{ImageSource, Part, Picture, Session, SessionParams};
///
/// let demo = DemoModel::unpack()?;
/// let model = Model::load(demo.model(), &ModelParams::default())?;
/// let projector = Projector::load(demo.projector(), &model, &ProjectorParams::default())?;
/// let params = SessionParams { sampler: SamplerParams::greedy(), ..SessionParams::default() };
/// let mut session = Session::new(&model, Some(projector), params)?;
///
/// let sign = Picture::from_file("models/demo/sign.png")?;
/// let (text, usage) = session.ask([Part::from(sign), Part::from("What word is written?")])?.finish()?;
/// assert_eq!(text.trim(), "EXIT");
/// assert_eq!(usage.visual_tokens.get(), 196);
///
/// // the picture is still in the KV cache
/// let (_, usage) = session.ask([Part::from("What word is written?")])?.finish()?;
/// assert_eq!(usage.images[0].source, ImageSource::Kv);
/// # }
/// # Ok::<(), llava::Error>(())
/// ```
#[derive(Debug)]
pub struct Session {
    pub(super) memory: Memory,
    pub(super) sampler: Sampler,
    pub(super) messages: Vec<Message>,
    pub(super) params: SessionParams,
    model: Arc<Model>,
    projector: Option<Arc<Projector>>,
    template: ChatTemplate,
    pub(super) prepared: Vec<Remembered>,
    pub(super) compression: Compression,
}

impl Session {
    /// Starts a conversation.
    ///
    /// The context's micro-batch (and batch) is raised to the largest picture where the projector's pictures have to be decoded
    /// in one piece.
    ///
    /// # Errors
    /// Those of [`Context::new`] and [`Sampler::new`]; [`Error::TemplateMissing`], [`Error::TemplateFailed`] for the template;
    /// [`Error::BadParameter`] for a projector that was loaded for another model.
    pub fn new(model: &Arc<Model>, projector: Option<Arc<Projector>>, mut params: SessionParams) -> Result<Self> {
        if let Some(projector) = &projector {
            if !Arc::ptr_eq(projector.model(), model) {
                return Err(Error::BadParameter {
                    name: "projector",
                    value: projector.path().display().to_string(),
                    reason: "it was loaded for another model".into(),
                });
            }
            if params.cache.is_some() || params.snapshots.is_some() {
                projector.fingerprint_ahead(notes(&params));
            }
            let whole = whole_picture(projector)?;
            params.context.n_ubatch = params.context.n_ubatch.max(whole);
            params.context.n_batch = params.context.n_batch.max(whole);
        }
        if params.snapshots.is_some() {
            model.fingerprint_ahead(notes(&params));
        }
        let template = choose_template(model, &params)?;
        if let Some(text) = template.antiprompt() {
            params.stop.push(text.to_owned());
        }
        let sampler = Sampler::new(model, &params.sampler)?;
        let context = Context::new(model, &params.context)?;
        if params.image_positions == ImagePositions::Preserve && model.rope() != RopeKind::MRope && !context.can_shift()
        {
            return Err(Error::BadParameter {
                name: "image positions",
                value: params.image_positions.name().into(),
                reason: format!(
                    "the memory of `{}` with K in {} cannot move positions; use compact, or F16 keys (-ctk f16)",
                    model.architecture(),
                    params.context.type_k.name()
                ),
            });
        }
        let compressor = match &params.compressor {
            Some(compressor) => Arc::clone(compressor),
            None => CompressorSpec::default().build(None)?,
        };
        let policy = params.visual_tokens.clone();
        let compression = Compression::new(policy, compressor, params.image_positions, model, projector.as_deref());
        Ok(Self {
            memory: Memory::new(context),
            sampler,
            messages: Vec::new(),
            params,
            model: Arc::clone(model),
            projector,
            template,
            prepared: Vec::new(),
            compression,
        })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The projector, where there is one.
    #[must_use]
    pub fn projector(&self) -> Option<&Arc<Projector>> {
        self.projector.as_ref()
    }

    /// What was said so far.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Positions the context holds.
    #[must_use]
    pub fn n_ctx(&self) -> u32 {
        self.memory.context.n_ctx()
    }

    /// What the context was made with, after the session's own adjustments.
    #[must_use]
    pub fn context_params(&self) -> &ContextParams {
        self.memory.context.params()
    }

    /// A token that stops work in progress from another thread.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.memory.context.cancel_token()
    }

    /// Puts the conversation in place of the one so far. What the KV cache holds of it is not computed again.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// Sets, replaces or (with empty text) removes the instructions at the head of the conversation.
    pub fn set_system(&mut self, text: &str) {
        self.messages.retain(|m| m.role != Role::System);
        if !text.is_empty() {
            self.messages.insert(0, Message::text(Role::System, text));
        }
    }

    /// What the KV cache holds.
    #[must_use]
    pub fn context_fill(&self) -> ContextFill {
        self.memory.fill()
    }

    /// How many visual tokens pictures keep.
    #[must_use]
    pub fn visual_tokens(&self) -> &Policy {
        &self.compression.policy
    }

    /// Changes how many visual tokens pictures keep, from the next answer on. What the KV cache holds up to the first picture that has
    /// to change stays in use.
    pub fn set_visual_tokens(&mut self, policy: Policy) {
        self.compression.policy = policy;
    }

    /// Forgets the conversation, keeping the instructions at its head.
    pub fn clear(&mut self) {
        self.messages.retain(|m| m.role == Role::System);
        self.forget_prompt();
    }

    /// Forgets what was computed, not what was said.
    pub(super) fn forget_prompt(&mut self) {
        self.prepared.clear();
        self.memory.clear();
    }

    /// Adds a message of the user and starts the answer to it.
    ///
    /// Everything up to the answer's first token happens here. On an error the message is taken back and the KV cache holds the part
    /// of the conversation that it already held.
    ///
    /// # Errors
    /// [`Error::NoVision`] for a picture without a projector; [`Error::ContextFull`] and [`Error::MicroBatchTooSmall`] before
    /// anything is encoded; those of [`Projector::prepare`], [`Projector::encode`], [`Context::decode`] and of the template.
    pub fn ask(&mut self, parts: impl IntoIterator<Item = Part>) -> Result<Answer<'_>> {
        self.messages.push(Message::new(Role::User, parts));
        match self.start() {
            Ok(usage) => Ok(Answer::new(self, usage)),
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    /// Starts the answer to the conversation as it is, whose last message is not the assistant's.
    ///
    /// # Errors
    /// As [`Session::ask`]; [`Error::BadParameter`] where there is nothing to answer.
    pub fn answer(&mut self) -> Result<Answer<'_>> {
        if self.messages.last().is_none_or(|m| m.role == Role::Assistant) {
            return Err(Error::BadParameter {
                name: "messages",
                value: self.messages.len().to_string(),
                reason: "the last message has to be somebody else's than the assistant's".into(),
            });
        }
        let usage = self.start()?;
        Ok(Answer::new(self, usage))
    }

    /// Takes the last answer back and starts another one.
    ///
    /// # Errors
    /// As [`Session::answer`].
    pub fn regenerate(&mut self) -> Result<Answer<'_>> {
        while self.messages.last().is_some_and(|m| m.role == Role::Assistant) {
            self.messages.pop();
        }
        self.answer()
    }

    /// The prompt with `parts` asked next, as the template renders it: what will be tokenized, cut where pictures stand.
    ///
    /// # Errors
    /// Those of the template.
    pub fn render(&self, parts: impl IntoIterator<Item = Part>) -> Result<Vec<Segment>> {
        let mut chat: Vec<_> = self.messages.iter().map(Message::to_chat).collect();
        chat.push(Message::new(Role::User, parts).to_chat());
        self.template.render(&chat, true)
    }

    /// Logits of the first token of the answer to `parts`, one per token of the vocabulary, and what they cost. The conversation
    /// stays as it is; the KV cache keeps the prompt for whoever asks the same next.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub fn first_logits(&mut self, parts: impl IntoIterator<Item = Part>) -> Result<(Vec<f32>, Usage)> {
        self.messages.push(Message::new(Role::User, parts));
        let started = self.start();
        self.messages.pop();
        let (usage, _) = started?;
        Ok((self.memory.context.logits().to_vec(), usage))
    }

    /// Prompt tokens the conversation would take with `parts` asked next: text and visual ones. Nothing is encoded; where the number of
    /// visual tokens depends on what encoding gives, it is the least there can be.
    ///
    /// # Errors
    /// Those of the template, the tokenizer, [`Projector::prepare`] and [`Policy::outlook`].
    pub fn count_tokens(&mut self, parts: impl IntoIterator<Item = Part>) -> Result<(TokenCount, TokenCount)> {
        self.messages.push(Message::new(Role::User, parts));
        let items = self.build_prompt();
        let foreseen = items.and_then(|mut items| {
            self.compression.foresee(&mut items, &question(&self.messages))?;
            Ok(items)
        });
        self.messages.pop();
        let items = foreseen?;
        Ok((count_text(&items), count_visual(&items)))
    }

    fn start(&mut self) -> Result<(Usage, Instant)> {
        let received = Instant::now();
        let mut usage = Usage::new();
        self.sampler.reset()?;
        let mut items = self.build_prompt()?;
        let outlooks = self.compression.foresee(&mut items, &question(&self.messages))?;
        let sources = Sources {
            projector: self.projector.as_deref(),
            cache: self.params.cache.as_deref(),
            snapshots: self.params.snapshots.as_deref(),
            compression: &self.compression,
        };
        self.memory.prefill(sources, items, &outlooks, &mut usage)?;
        Ok((usage, received))
    }

    /// Renders, tokenizes and prepares the conversation.
    fn build_prompt(&mut self) -> Result<Vec<Item>> {
        let pictures: Vec<Shown<'_>> = self.messages.iter().flat_map(Message::shown).collect();
        if pictures.iter().any(|p| matches!(p, Shown::Pixels(_))) && self.projector.is_none() {
            return Err(Error::NoVision {
                reason: format!("{} was loaded without a projector; give its mmproj file", self.model.path().display()),
            });
        }
        let chat: Vec<_> = self.messages.iter().map(Message::to_chat).collect();
        let segments = self.template.render(&chat, true)?;
        let vocab = self.model.vocab();
        let mut items: Vec<Item> = Vec::new();
        if vocab.add_bos() {
            items.extend(vocab.bos().map(Item::Token));
        }
        let mut used = Vec::with_capacity(pictures.len());
        for segment in segments {
            match segment {
                Segment::Text(text) => {
                    items.extend(vocab.tokenize(&text, false, true)?.into_iter().map(Item::Token));
                }
                Segment::Picture(index) => {
                    let remembered = self.prepare(pictures[index], count_tokens(&items), index)?;
                    push_picture(&mut items, remembered.picture, index, &remembered.chunks);
                    used.push(remembered);
                }
            }
        }
        drop_double_bos(&mut items, vocab.bos());
        self.prepared = used;
        if items.is_empty() {
            return Err(Error::TemplateFailed { reason: "the rendered conversation is empty".into() });
        }
        Ok(items)
    }

    /// A picture prepared for its place: remembered from the last prompt, or made now.
    pub(super) fn prepare(&self, picture: Shown<'_>, before: TokenCount, index: usize) -> Result<Remembered> {
        let hash = picture.content_hash();
        let known = self.prepared.iter().find(|r| r.picture == hash && r.before == before && r.index == index);
        let chunks = match (known, picture, &self.projector) {
            (Some(known), _, _) => known.chunks.clone(),
            (None, Shown::Encoded(picture), _) => {
                picture.check_fit(&self.model)?;
                Chunks::Encoded(picture.clone())
            }
            (None, Shown::Pixels(picture), Some(projector)) => {
                let place = u32::try_from(index).unwrap_or(u32::MAX);
                Chunks::Prepared(Arc::new(projector.prepare(picture.image(), before, place)?))
            }
            (None, Shown::Pixels(_), None) => {
                return Err(Error::NoVision { reason: "no projector is loaded".into() });
            }
        };
        Ok(Remembered { picture: hash, before, index, chunks })
    }
}

/// What the user asked last.
fn question(messages: &[Message]) -> String {
    let asked = messages.iter().rev().find(|m| m.role == Role::User);
    let texts = asked.iter().flat_map(|m| &m.parts).filter_map(|p| match p {
        Part::Text(text) => Some(text.as_str()),
        Part::Picture(_) | Part::Encoded(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Many templates write the BOS token that the tokenizer adds too; models see it once in training.
fn drop_double_bos(items: &mut Vec<Item>, bos: Option<Token>) {
    let is_bos = |item: Option<&Item>| matches!((item, bos), (Some(Item::Token(t)), Some(bos)) if *t == bos);
    if is_bos(items.first()) && is_bos(items.get(1)) {
        items.remove(0);
    }
}

/// Where fingerprints of files are kept: beside what they name.
fn notes(params: &SessionParams) -> Option<PathBuf> {
    let embeddings = || Some(params.cache.as_ref()?.config().disk_config()?.dir.clone());
    let states = || params.snapshots.as_ref()?.folder().map(Path::to_owned);
    embeddings().or_else(states).map(|dir| dir.join("fingerprints"))
}

/// Tokens of the largest picture, where a picture has to be decoded in one piece; 0 otherwise.
fn whole_picture(projector: &Arc<Projector>) -> Result<u32> {
    let info = projector.info();
    if !info.non_causal {
        return Ok(0);
    }
    if let Some(most) = info.image_max_tokens {
        return Ok(most);
    }
    let side = info.image_size_px.max(1);
    let probe = projector.prepare_placeholder(side, side, TokenCount::ZERO, 0)?;
    let most = probe.images().map(|(_, image)| image.tokens.get()).max().unwrap_or(0);
    Ok(u32::try_from(most).unwrap_or(u32::MAX))
}

/// The user's template, or the one stored in the model's file.
fn choose_template(model: &Model, params: &SessionParams) -> Result<ChatTemplate> {
    let vocab = model.vocab();
    let text = |token: Option<Token>| token.map_or(Ok(String::new()), |t| vocab.text(&[t], true));
    let tokens = TemplateTokens {
        bos: text(vocab.bos())?,
        eos: text(vocab.eos())?,
        add_bos: vocab.add_bos(),
        add_eos: vocab.add_eos(),
    };
    let source = model.chat_template();
    let name = model.metadata("general.name").unwrap_or_default();
    let stored = ModelTemplate {
        path: model.path(),
        source: source.as_deref(),
        architecture: model.architecture(),
        name: &name,
    };
    ChatTemplate::choose(params.template.as_ref(), &stored, params.template_engine, tokens)
}
