//! Asking: every question goes to every variant before the next one is asked, so that what disturbs the machine disturbs all alike.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Result;
use llava::llama::{Model, Token};
use llava::mtmd::Projector;
use llava::session::{Forced, ImageUsage, Message, Part, Role, Session, Usage};
use llava::{Error, TokenCount};

use super::items::Item;
use super::plan::Plan;
use super::progress::Bar;
use super::record::{Distance, Record};
use super::results::Results;
use super::score::Scorer;
use super::stats::{argmax, divergence, mean};
use super::variants::Variant;
use crate::console::note;
use crate::open;
use crate::params;
use crate::pictures::{Reader, compose};
use crate::signals::Interrupt;
use crate::usage::ms;

/// A variant that can be asked.
struct Ready {
    session: Session,
    reader: Reader,
    instructions: Option<String>,
    blind: bool,
    /// Tokens that end an answer.
    ends: Vec<Token>,
    /// Of the KV cache, for each position.
    kv_bytes: Option<f64>,
}

/// An answer before it is compared.
struct Answered {
    text: String,
    tokens: Vec<Token>,
    usage: Usage,
}

/// Asks what has not been answered yet.
pub fn run(plan: &Plan<'_>, results: &mut Results, interrupt: &Interrupt) -> Result<()> {
    let is_open = |results: &Results, variant: usize, item: usize| {
        results.get(&plan.variants[variant].name, &plan.items.list[item].id).is_none()
    };
    let pairs = (0..plan.items.list.len()).flat_map(|i| (0..plan.variants.len()).map(move |v| (v, i)));
    let open = pairs.filter(|&(v, i)| is_open(results, v, i)).count();
    let done = plan.total() - open;
    if done > 0 {
        note(format_args!("{done} of {} answers are there already", plan.total()));
    }
    if open == 0 {
        return Ok(());
    }
    let mut ready = load(plan, interrupt)?;
    let mut bar = Bar::new(plan.total(), done);
    for (i, item) in plan.items.list.iter().enumerate() {
        if (0..ready.len()).all(|v| !is_open(results, v, i)) {
            continue;
        }
        // what the others are compared with; only made where there are others
        let mut reference: Option<Reference> = None;
        for (v, variant) in ready.iter_mut().enumerate() {
            let is_new = is_open(results, v, i);
            if !is_new && v > 0 {
                continue;
            }
            interrupt.watch(variant.session.cancel_token())?;
            let asked = variant.ask(item, v == 0 && plan.variants.len() > 1, &mut reference);
            let record = asked.inspect_err(|error| {
                if !matches!(error.downcast_ref(), Some(Error::Cancelled)) {
                    note(format_args!("at question {}", item.id));
                }
            })?;
            if is_new {
                results.add(plan, v, i, record)?;
                bar.step();
            }
        }
    }
    Ok(())
}

fn record(item: &Item, answered: Answered, kv_bytes: Option<f64>, distance: Option<Distance>) -> Record {
    let usage = &answered.usage;
    let of_images = |count: fn(&ImageUsage) -> TokenCount| usage.images.iter().map(|i| count(i).get() as u64).sum();
    let held = usage.text_tokens + usage.visual_tokens + usage.decode_tokens;
    Record {
        score: item.scorer.score(&answered.text, &item.answers),
        answer: answered.text,
        encode_ms: ms(usage.encode()),
        prefill_ms: ms(usage.prefill),
        decode_ms: ms(usage.decode),
        ttft_ms: ms(usage.time_to_first_token),
        text_tokens: usage.text_tokens.get() as u64,
        image_rows: of_images(|image| image.rows),
        image_tokens: of_images(|image| image.tokens),
        visual_tokens: usage.visual_tokens.get() as u64,
        kv_bytes: kv_bytes.map(|bytes| bytes * held.get() as f64),
        decode_tokens: usage.decode_tokens.get() as u64,
        finish: usage.finish.name().to_owned(),
        distance,
    }
}

/// Loads all variants; equal model flags share the weights.
fn load(plan: &Plan<'_>, interrupt: &Interrupt) -> Result<Vec<Ready>> {
    let mut loaded: Vec<(Arc<Model>, Option<Arc<Projector>>)> = Vec::new();
    let mut ready = Vec::new();
    for (i, (variant, files)) in plan.variants.iter().zip(&plan.files).enumerate() {
        let Variant { setup, .. } = variant;
        let same_model = plan.files[..i].iter().position(|f| Rc::ptr_eq(f, files));
        let same_both =
            plan.variants[..i].iter().position(|v| v.setup.model == setup.model && v.setup.picture == setup.picture);
        let model = match same_model {
            Some(same) => Arc::clone(&loaded[same].0),
            None => open::model(&setup.model, files, interrupt)?,
        };
        let projector = match same_both {
            Some(same) => loaded[same].1.clone(),
            None => open::projector(&setup.model, &setup.picture, files, None, &model, interrupt)?,
        };
        loaded.push((Arc::clone(&model), projector.clone()));
        let settings = params::session(&setup.prompt, &setup.model, &setup.context, &setup.sampling)?;
        let kv_bytes = settings.context.kv_bytes_per_position(model.facts());
        let vocab = model.vocab();
        let n_tokens = i32::try_from(vocab.n_tokens()).unwrap_or(i32::MAX);
        ready.push(Ready {
            session: open::session(settings, &setup.visual(), &model, projector)?,
            reader: Reader::new(&setup.picture),
            instructions: params::system(&setup.prompt)?,
            blind: setup.blind,
            ends: (0..n_tokens).map(Token).filter(|&t| vocab.is_end_of_generation(t)).collect(),
            kv_bytes,
        });
    }
    Ok(ready)
}

impl Ready {
    /// Answers, and compares with the reference or becomes it.
    fn ask(&mut self, item: &Item, is_first: bool, reference: &mut Option<Reference>) -> Result<Record> {
        let answered = self.answer(item)?;
        let mut distance = None;
        if is_first {
            *reference = Some(self.reference(item, &answered)?);
        } else if let Some(reference) = reference {
            distance = self.distance(item, reference)?;
        }
        Ok(record(item, answered, self.kv_bytes, distance))
    }

    /// Asks from an empty KV cache, so that times and answers do not depend on what was asked before.
    fn answer(&mut self, item: &Item) -> Result<Answered> {
        self.session.clear();
        let parts = self.begin(item)?;
        if item.scorer == Scorer::Choice {
            return self.choose(item, &parts);
        }
        let mut answer = self.session.ask(parts)?;
        for piece in answer.by_ref() {
            piece?;
        }
        Ok(Answered { text: answer.text().to_owned(), tokens: answer.tokens().to_vec(), usage: answer.usage().clone() })
    }

    /// The likeliest choice as a whole answer, the end of it included.
    fn choose(&mut self, item: &Item, parts: &[Part]) -> Result<Answered> {
        let mut best: Option<(f64, Answered)> = None;
        let mut first_usage = None;
        for choice in &item.choices {
            let tokens = self.answer_tokens(parts, choice)?;
            let (forced, usage) = self.session.force(parts.iter().cloned(), &tokens)?;
            // the picture is encoded for the first one only
            let usage = first_usage.get_or_insert(usage).clone();
            let likelihood = forced.log_probabilities().iter().sum::<f64>() + self.log_end(&forced);
            if best.as_ref().is_none_or(|(most, _)| likelihood > *most) {
                best = Some((likelihood, Answered { text: choice.clone(), tokens, usage }));
            }
        }
        let none = || crate::exit::Problem::usage(format!("{} has no choices", item.id));
        Ok(best.map(|(_, answered)| answered).ok_or_else(none)?)
    }

    /// Logarithm of the probability that the answer ends behind the tokens.
    fn log_end(&self, forced: &Forced) -> f64 {
        let Some(row) = forced.rows().last() else { return 0.0 };
        let most = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let weight = |logit: f32| (f64::from(logit) - most).exp();
        let all: f64 = row.iter().copied().map(weight).sum();
        let at = |token: &Token| usize::try_from(token.0).ok().and_then(|i| row.get(i)).copied();
        let ends: f64 = self.ends.iter().filter_map(at).map(weight).sum();
        (ends / all).ln()
    }

    /// An answer as this model would write it behind the prompt: with a space, unless the prompt ends with one or the tokenizer
    /// adds one.
    fn answer_tokens(&self, parts: &[Part], answer: &str) -> Result<Vec<Token>> {
        use llava::session::template::Segment;
        let vocab = self.session.model().vocab();
        let segments = self.session.render(parts.iter().cloned())?;
        let ends_with_space = matches!(segments.last(), Some(Segment::Text(t)) if t.ends_with(char::is_whitespace));
        let adds_space = vocab.text(&vocab.tokenize("a", false, false)?, false)?.starts_with(' ');
        let space = if ends_with_space || adds_space { "" } else { " " };
        Ok(vocab.tokenize(&format!("{space}{answer}"), false, false)?)
    }

    /// Sets the conversation up to the question, and returns the question.
    fn begin(&mut self, item: &Item) -> Result<Vec<Part>> {
        let mut pictures: Vec<Part> = Vec::new();
        if !self.blind {
            pictures.push(item.picture(&self.reader)?.into());
        }
        let mut messages = Vec::new();
        if let Some(text) = self.instructions.as_deref().filter(|t| !t.is_empty()) {
            messages.push(Message::text(Role::System, text));
        }
        for (question, answer) in &item.before {
            messages.push(Message::new(Role::User, compose(question, std::mem::take(&mut pictures))));
            messages.push(Message::text(Role::Assistant, answer.as_str()));
        }
        self.session.set_messages(messages);
        Ok(compose(&item.question, pictures))
    }

    /// The distributions along this variant's own answer.
    fn reference(&mut self, item: &Item, answered: &Answered) -> Result<Reference> {
        let parts = self.begin(item)?;
        let (forced, _) = self.session.force(parts, &answered.tokens)?;
        let text = self.session.model().vocab().text(&answered.tokens, true)?;
        Ok(Reference { forced, text })
    }

    /// How far this variant is from another one along that one's answer. `None` where their tokens are not the same.
    fn distance(&mut self, item: &Item, reference: &Reference) -> Result<Option<Distance>> {
        let vocab = self.session.model().vocab();
        let tokens = reference.forced.tokens();
        let known = tokens.iter().all(|&t| vocab.contains(t));
        let width = reference.forced.rows().next().map_or(0, <[f32]>::len);
        if !known || vocab.n_tokens() != width || vocab.text(tokens, true)? != reference.text {
            return Ok(None);
        }
        let parts = self.begin(item)?;
        let (forced, _) = self.session.force(parts, tokens)?;
        let pairs = || reference.forced.rows().zip(forced.rows());
        let divergences = mean(pairs().map(|(a, b)| divergence(a, b)));
        let first = pairs().nth(self.first_visible(tokens)?);
        Ok(first.zip(divergences).map(|((a, b), mean)| Distance {
            first: divergence(a, b),
            same_first: argmax(a) == argmax(b),
            mean,
        }))
    }

    /// Index of the first token that is not blank: many models begin every answer with a space, about which all agree.
    fn first_visible(&self, tokens: &[Token]) -> Result<usize> {
        let vocab = self.session.model().vocab();
        for (i, &token) in tokens.iter().enumerate() {
            if !vocab.text(&[token], true)?.trim().is_empty() {
                return Ok(i);
            }
        }
        // an empty answer: what counts is where it ends
        Ok(tokens.len())
    }
}

/// What other variants are compared with.
struct Reference {
    forced: Forced,
    /// Its tokens as text, which shows whether another vocabulary means the same by them.
    text: String,
}
