//! Getting a prompt into the KV cache: what is there already, encoding, decoding.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::compression::{Compression, Done, Outlooks, count_text, count_visual, counts, with_counts};
use super::encoder::{Embedded, embed};
use super::fit;
use super::prompt::{ImageItem, Item, common_prefix, count_positions, count_tokens, pictures};
use super::snapshots::{self, KvSnapshots};
use super::usage::{ImageSource, ImageUsage, Usage};
use crate::compress::Reason;
use crate::embedding::{EmbeddingCache, EmbeddingKey};
use crate::error::{Error, Result};
use crate::llama::{Batch, Context, Position, SequenceState};
use crate::mtmd::Projector;
use crate::units::{PosCount, TokenCount};

/// The only sequence a session uses.
pub(super) const SEQUENCE: i32 = 0;

/// Where the rows and states that a prompt needs can come from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) projector: Option<&'a Projector>,
    pub(super) cache: Option<&'a EmbeddingCache>,
    pub(super) snapshots: Option<&'a KvSnapshots>,
    pub(super) compression: &'a Compression,
}

/// Where a state is kept while a prompt is decoded.
#[derive(Debug, Clone, Copy)]
struct Save<'a> {
    snapshots: &'a KvSnapshots,
    /// Behind so many of the items that are decoded.
    at: usize,
    key: EmbeddingKey,
}

/// How far a session's context is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextFill {
    /// Cells that are taken: text tokens, and the rows of pictures that are left after compression.
    pub tokens: TokenCount,
    /// Position at which the next token goes: other than the number of cells where pictures take more or fewer positions than they have
    /// rows (M-RoPE, [`super::ImagePositions::Preserve`]).
    pub next_position: PosCount,
    /// Largest position that native code holds; `None` where there is nothing.
    pub last_position: Option<i32>,
}

/// A context and what its KV cache holds, item by item.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) context: Context,
    live: Vec<Item>,
    /// So many of the items were computed as a cold start computes them. A run of text that was cut elsewhere gives the
    /// same answer, but other last bits.
    cold: usize,
}

impl Memory {
    pub(super) fn new(context: Context) -> Self {
        Self { context, live: Vec::new(), cold: 0 }
    }

    pub(super) fn clear(&mut self) {
        // where it fails, cells are left that `live` does not name: the next prefill sees them, clears again and tells the error
        let _ = self.empty();
    }

    /// Forgets what the KV cache holds, and the books with it.
    fn empty(&mut self) -> Result<()> {
        self.live.clear();
        self.cold = 0;
        self.context.clear()
    }

    /// What the KV cache holds.
    pub(super) fn live(&self) -> &[Item] {
        &self.live
    }

    /// Whether the state can be saved: not between moving rows and the next batch, which turns their keys.
    pub(super) fn can_be_saved(&self) -> bool {
        !self.context.shift_pending()
    }

    /// The state of the sequence.
    pub(super) fn save(&mut self) -> Result<SequenceState> {
        self.context.save_sequence(SEQUENCE)
    }

    /// Puts a saved state, which holds `items`, in place of what the KV cache holds.
    pub(super) fn load(&mut self, items: Vec<Item>, state: &SequenceState) -> Result<()> {
        self.empty()?;
        self.context.restore_sequence(SEQUENCE, state)?;
        self.live = items;
        if self.ends_where_live_does() {
            return Ok(());
        }
        self.empty()?;
        Err(Error::State { reason: "the KV cache ends elsewhere than the conversation".into() })
    }

    pub(super) fn fill(&self) -> ContextFill {
        ContextFill {
            tokens: count_tokens(&self.live),
            next_position: count_positions(&self.live),
            last_position: self.context.positions(SEQUENCE).map(|(_, last)| last),
        }
    }

    /// Cells that are not taken.
    pub(super) fn free(&self) -> usize {
        (self.context.n_ctx() as usize).saturating_sub(count_tokens(&self.live).get())
    }

    fn next_position(&self) -> i32 {
        i32::try_from(count_positions(&self.live).get()).unwrap_or(i32::MAX)
    }

    /// Makes the KV cache hold `wanted` and leaves the logits of its last item.
    ///
    /// After an error the KV cache holds what it shared with `wanted`, and nothing of what was added.
    pub(super) fn prefill(
        &mut self,
        sources: Sources<'_>,
        mut wanted: Vec<Item>,
        outlooks: &Outlooks,
        usage: &mut Usage,
    ) -> Result<()> {
        // what is decoded anew is what was foreseen, however much of it is live now
        let foreseen = wanted.clone();
        // the last item is always decoded again: its logits are not kept
        let shared = common_prefix(&self.live, &mut wanted, sources.compression.matching());
        let keep = whole_pictures(&wanted, shared.min(wanted.len().saturating_sub(1)));
        fit::check(&self.context, sources.projector, &wanted, keep)?;
        // a memory that cannot be cut there is cut further back, or emptied: what is left decides what has to be encoded
        let live = self.cut(keep)?;
        wanted[live..].clone_from_slice(&foreseen[live..]);
        let find = |wanted: &[Item], memory: &Self| {
            sources.snapshots.map_or_else(Vec::new, |_| memory.snapshot_points(wanted, sources.cache))
        };
        let mut points = find(&wanted, self);
        let kept = match sources.snapshots {
            Some(snapshots) => self.restore(snapshots, &points, &mut wanted, live, sources.compression)?,
            None => live,
        };
        if kept < live {
            wanted.clone_from_slice(&foreseen);
            points = find(&wanted, self);
        }
        if kept < keep {
            fit::check(&self.context, sources.projector, &wanted, kept)?;
        }
        let new = &mut wanted[kept..];
        let images: Vec<Arc<ImageItem>> = new
            .iter()
            .filter_map(|i| match i {
                Item::Image(image) => Some(Arc::clone(image)),
                Item::Token(_) => None,
            })
            .collect();
        let mut embedded = embed(sources.projector, sources.cache, &images, &self.context.cancel_token())?;
        let done = sources.compression.settle(new, &mut embedded, outlooks)?;
        if wanted[kept..].iter().any(|i| matches!(i, Item::Image(i) if i.fewer.is_some())) {
            // now it is known how many rows there are
            fit::check(&self.context, sources.projector, &wanted, kept)?;
        }
        report_images(usage, &wanted, live.min(kept)..kept, &images, &embedded);
        report_compression(usage, outlooks, done);
        usage.visual_tokens = count_visual(&wanted);
        usage.text_tokens = count_text(&wanted);
        usage.reused_tokens = count_tokens(&wanted[..kept]);

        let start = Instant::now();
        // The state behind the last picture is worth keeping, once, and only if it is what a cold start would compute: so a
        // restored state never changes a bit.
        let behind_picture = kept == 0 || matches!(wanted[kept - 1], Item::Image(_));
        let cold = self.cold == kept && behind_picture;
        let save = sources.snapshots.zip(points.last().copied()).filter(|(_, point)| cold && point.0 > kept);
        let save = save.map(|(snapshots, (at, key))| Save { snapshots, at: at - kept, key });
        let result = self.decode_items(&wanted[kept..], &embedded, sources.compression, save);
        if cold && result.is_ok() {
            self.cold = wanted.iter().rposition(|i| matches!(i, Item::Image(_))).map_or(0, |last| last + 1);
        }
        usage.prefill = start.elapsed();
        if result.is_err() {
            self.cut(kept)?;
        }
        result
    }

    /// Where states of this prompt are kept. None where its pictures cannot be named: then nothing is kept or found.
    fn snapshot_points(&self, wanted: &[Item], cache: Option<&EmbeddingCache>) -> Vec<(usize, EmbeddingKey)> {
        match snapshots::points(&self.context, wanted, cache) {
            Ok(points) => points.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "KV states are not kept");
                Vec::new()
            }
        }
    }

    /// Takes the longest saved state of this prompt's beginning, where it is longer than what is live; returns how many items
    /// the KV cache holds then.
    fn restore(
        &mut self,
        snapshots: &KvSnapshots,
        points: &[(usize, EmbeddingKey)],
        wanted: &mut [Item],
        live: usize,
        compression: &Compression,
    ) -> Result<usize> {
        // the last item is always decoded again
        for &(at, key) in points.iter().rev().filter(|p| p.0 > live && p.0 < wanted.len()) {
            let Some(found) = snapshots.get(key) else { continue };
            let known = with_counts(&wanted[..at], found.counts(), compression);
            let unfit = || Error::State { reason: "its pictures have other numbers of rows".into() };
            match known.ok_or_else(unfit).and_then(|items| self.load(items, found.state())) {
                Ok(()) => {
                    wanted[..at].clone_from_slice(&self.live);
                    self.cold = at; // others are not saved
                    return Ok(at);
                }
                Err(error) => tracing::debug!(%error, "a KV snapshot does not fit"),
            }
            snapshots.refuse(key);
            self.empty()?;
            return Ok(0);
        }
        Ok(live)
    }

    /// Drops everything from item `keep` on and returns how many items are left: fewer than asked for where this memory can
    /// only be emptied (recurrent models, or a sliding window that has already forgotten what comes before).
    fn cut(&mut self, keep: usize) -> Result<usize> {
        if keep >= self.live.len() && self.is_exact() {
            return Ok(self.live.len());
        }
        let keep = keep.min(self.live.len());
        self.cold = self.cold.min(keep);
        let from = i32::try_from(count_positions(&self.live[..keep]).get()).unwrap_or(i32::MAX);
        if keep > 0 && self.window_reaches(from) && self.context.trim(SEQUENCE, from).is_ok() {
            self.live.truncate(keep);
            return Ok(keep);
        }
        self.empty()?;
        Ok(0)
    }

    /// Whether the KV cache ends where `live` says: not so after a batch that failed half-way.
    fn is_exact(&self) -> bool {
        let last = self.context.positions(SEQUENCE).map_or(-1, |(_, max)| max);
        // under M-RoPE the largest position of a picture lies before the position that follows it
        last < self.next_position()
    }

    /// Whether the KV cache ends just where `live` does; stricter than [`Self::is_exact`], for states that come from outside.
    fn ends_where_live_does(&self) -> bool {
        let Some((_, last)) = self.context.positions(SEQUENCE) else { return self.live.is_empty() };
        // under M-RoPE the largest position of a picture at the end lies before the position that follows it
        let behind_picture = matches!(self.live.last(), Some(Item::Image(_)));
        last.checked_add(1) == Some(self.next_position()) || (behind_picture && last < self.next_position())
    }

    /// Whether a sliding window that ends at `from` is still complete.
    fn window_reaches(&self, from: i32) -> bool {
        let window = i32::try_from(self.context.model().n_swa()).unwrap_or(i32::MAX);
        if window == 0 {
            return true;
        }
        self.context.positions(SEQUENCE).is_some_and(|(min, _)| min <= from.saturating_sub(window).max(0))
    }

    /// Decodes one token of an answer.
    pub(super) fn decode_token(&mut self, token: crate::llama::Token) -> Result<()> {
        let before = self.live.len();
        let mut batch = Batch::new();
        batch.push_token(token, self.next_position(), SEQUENCE, true);
        let result = self.decode(&batch, true);
        match result {
            Ok(()) => self.live.push(Item::Token(token)),
            Err(_) => {
                self.cut(before)?;
            }
        }
        result
    }

    /// Decodes items behind what is there, as upstream's helper does: runs of text and tiles apart, each in pieces of
    /// `n_batch`. So the numbers are upstream's, bit for bit.
    ///
    /// `save`: where the state is kept on the way.
    fn decode_items(
        &mut self,
        items: &[Item],
        embedded: &[Embedded],
        compression: &Compression,
        save: Option<Save<'_>>,
    ) -> Result<()> {
        let n_batch = self.context.n_batch() as usize;
        let mut rows = embedded.iter();
        let mut i = 0;
        while i < items.len() {
            if let Item::Image(image) = &items[i] {
                let rows = rows.next().ok_or_else(|| Error::NoVision { reason: "no projector is loaded".into() })?;
                let moved = self.decode_image(image, rows, compression, i + 1 == items.len())?;
                self.live.push(items[i].clone());
                i += 1;
                // keys that are yet to be turned cannot be saved
                if let Some(save) = save.filter(|s| s.at == i && !moved && !s.snapshots.holds(s.key)) {
                    match self.context.save_sequence(SEQUENCE) {
                        Ok(state) => save.snapshots.put(save.key, state, counts(&self.live)),
                        // the answer does not depend on it
                        Err(error) => tracing::warn!(%error, "a KV state could not be kept"),
                    }
                }
                continue;
            }
            let run = items[i..].iter().take_while(|i| matches!(i, Item::Token(_))).take(n_batch).count();
            let mut batch = Batch::new();
            let first = self.next_position();
            for (position, item) in (first..).zip(&items[i..i + run]) {
                if let Item::Token(token) = item {
                    let last = position - first + 1 == i32::try_from(run).unwrap_or(i32::MAX) && i + run == items.len();
                    batch.push_token(*token, position, SEQUENCE, last);
                }
            }
            self.decode(&batch, true)?;
            self.live.extend_from_slice(&items[i..i + run]);
            i += run;
        }
        Ok(())
    }

    /// Returns whether rows were moved to other positions afterwards.
    fn decode_image(
        &mut self,
        item: &ImageItem,
        embedded: &Embedded,
        compression: &Compression,
        logits_last: bool,
    ) -> Result<bool> {
        let start = self.next_position();
        let rows = &embedded.rows;
        let n = rows.rows().get();
        let positions = match &embedded.anchors {
            Some(anchors) => compression.positions(item, anchors, start)?,
            None => item.decoder_positions(start)?,
        };
        if n != positions.len() || n != item.tokens().get() {
            let (known, places) = (item.tokens().get(), positions.len());
            return Err(Error::Encode { reason: format!("{n} rows for {places} positions, {known} were foreseen") });
        }
        // all of a picture that attends in both directions has to be computed at once
        let step = self.context.n_batch() as usize;
        let mut from = 0;
        while from < n {
            let to = (from + step).min(n);
            let mut batch = Batch::new();
            for (row, &position) in (from..to).zip::<&[Position]>(&positions[from..to]) {
                batch.push_row(rows.row(row), position, SEQUENCE, logits_last && row + 1 == n);
            }
            self.decode(&batch, !item.image.non_causal)?;
            from = to;
        }
        let moves = embedded.anchors.as_ref().map_or_else(Vec::new, |a| compression.moves(item, a, start));
        for &(from, to, by) in &moves {
            self.context.shift(SEQUENCE, from, to, by)?;
        }
        Ok(!moves.is_empty())
    }

    /// Says before every batch who may look at whom: whatever ended the last one, nothing is left to be put right.
    fn decode(&mut self, batch: &Batch<'_>, causal: bool) -> Result<()> {
        self.context.set_causal(causal);
        self.context.decode(batch)
    }
}

/// `restored`: the items that came from a saved state; those before it were live, those behind it are new.
fn report_images(
    usage: &mut Usage,
    wanted: &[Item],
    restored: Range<usize>,
    images: &[Arc<ImageItem>],
    embedded: &[Embedded],
) {
    let count = wanted.iter().filter_map(|i| if let Item::Image(i) = i { Some(i.index + 1) } else { None }).max();
    let nothing = ImageUsage {
        source: ImageSource::Kv,
        encode: Duration::ZERO,
        fetch: Duration::ZERO,
        rows: TokenCount::ZERO,
        tokens: TokenCount::ZERO,
        compress: Duration::ZERO,
        reasons: Vec::new(),
    };
    usage.images = vec![nothing; count.unwrap_or(0)];
    for (i, item) in wanted[..restored.end].iter().enumerate() {
        if let Item::Image(image) = item {
            let report = &mut usage.images[image.index];
            if restored.contains(&i) {
                report.source = ImageSource::Snapshot;
            }
            report.rows += image.image.tokens;
            report.tokens += image.tokens();
        }
    }
    for (image, embedded) in images.iter().zip(embedded) {
        let report = &mut usage.images[image.index];
        // a picture of several tiles is as far away as its farthest
        report.source = report.source.farther(embedded.source);
        match embedded.source {
            ImageSource::Encoded => report.encode += embedded.took,
            _ => report.fetch += embedded.took,
        }
        report.rows += image.image.tokens;
        report.tokens += embedded.rows.rows();
    }
}

/// Says why each picture keeps what it keeps.
fn report_compression(usage: &mut Usage, outlooks: &Outlooks, done: Vec<Done>) {
    for (report, outlook) in usage.images.iter_mut().zip(outlooks) {
        if let Some(outlook) = outlook {
            report.reasons = outlook.reasons().to_vec();
            // rows that were there already
            if !outlook.is_full() && report.tokens == report.rows {
                report.reasons.insert(0, Reason::InContext);
            }
        }
    }
    for done in done {
        if let Some(report) = usage.images.get_mut(done.index) {
            report.reasons = done.reasons;
            report.compress = done.took;
        }
    }
}

/// At most `keep` items, so that no picture that is compressed is cut between its tiles: they share a budget.
fn whole_pictures(items: &[Item], keep: usize) -> usize {
    let torn = pictures(items).into_iter().map(|(_, places)| places).find(|places| {
        let compressed = places.iter().any(|&at| matches!(&items[at], Item::Image(i) if i.fewer.is_some()));
        compressed && places[0] < keep && places.last().is_some_and(|&last| last >= keep)
    });
    torn.map_or(keep, |places| places[0])
}
