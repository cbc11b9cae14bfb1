//! Fewer visual tokens: what a prompt's pictures are to keep, before they are encoded, and what they keep in the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::encoder::Embedded;
use super::prompt::{Fewer, ImageItem, Item, Match, Recipe, count_tokens, pictures};
use crate::compress::{
    Compressor, Costs, Gate, Layout, Outlook, Policy, Reason, Rows, Tile, VisualTokenSetting, VisualTokens,
    compress_tiles, overview,
};
use crate::error::{Error, Result};
use crate::llama::{Model, Position, RopeKind};
use crate::mtmd::Projector;
use crate::units::{PosCount, TokenCount};

/// Where the rows of a compressed picture stand in a text model that has one position a token. Under M-RoPE every row keeps the
/// place of its cell, and this has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ImagePositions {
    /// One behind the other: a picture takes as many positions as it has rows.
    #[default]
    Compact,
    /// While they are decoded, one behind the other; then each is moved to where it would stand without compression, and the text
    /// goes on where it would. The last row stands at the picture's last position, since there must be no gap. Not for models whose
    /// memory cannot move positions.
    Preserve,
}

impl ImagePositions {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Preserve => "preserve",
        }
    }
}

/// A session's way to fewer rows.
#[derive(Debug, Clone)]
pub(super) struct Compression {
    pub(super) policy: Policy,
    compressor: Arc<dyn Compressor>,
    positions: ImagePositions,
    costs: Option<Costs>,
    m_rope: bool,
    /// Floats of a row that similarity is computed on.
    main: usize,
    projector_type: Option<String>,
}

/// What each picture of a prompt is to keep, by its index in the prompt.
pub(super) type Outlooks = Vec<Option<Outlook>>;

/// What compression did to one picture.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) index: usize,
    pub(super) reasons: Vec<Reason>,
    pub(super) took: Duration,
}

impl Compression {
    pub(super) fn new(
        policy: Policy,
        compressor: Arc<dyn Compressor>,
        positions: ImagePositions,
        model: &Model,
        projector: Option<&Projector>,
    ) -> Self {
        Self {
            policy,
            compressor,
            positions,
            costs: projector.map(|p| costs(model, p)),
            m_rope: model.rope() == RopeKind::MRope,
            main: model.n_embd(),
            projector_type: projector.map(|p| p.info().projector_type.clone()),
        }
    }

    /// How a picture that is in the KV cache already has to compare with what is wanted.
    pub(super) fn matching(&self) -> Match {
        // in `auto`, rows that are there already cost nothing
        if self.policy.setting == VisualTokenSetting::Auto { Match::AtLeast } else { Match::Exact }
    }

    /// Says what every picture of a prompt is to keep, and notes it in its items: as many rows as there will be at least.
    ///
    /// # Errors
    /// Those of [`Policy::outlook`].
    pub(super) fn foresee(&self, wanted: &mut [Item], question: &str) -> Result<Outlooks> {
        let pictures = pictures(wanted);
        let mut outlooks: Outlooks = Vec::new();
        let mut gate = None;
        for (index, tiles) in pictures {
            let gate = gate.get_or_insert_with(|| Gate::of(question));
            let layouts: Result<Vec<Layout>> = tiles.iter().map(|&at| layout(&wanted[at])).collect();
            let outlook = match &layouts {
                Ok(layouts) => self.policy.outlook(gate, self.costs, Ok(layouts), &*self.compressor)?,
                Err(error) => {
                    let rows = tiles.iter().map(|&at| wanted[at].tokens().get()).sum();
                    let unknown = Error::UnknownLayout { rows, reason: error.to_string() };
                    self.policy.outlook(gate, self.costs, Err(unknown), &*self.compressor)?
                }
            };
            if let (Some((least, _)), Ok(layouts)) = (outlook.range(), &layouts) {
                let method: Arc<str> = self.method(&outlook, tiles.len()).into();
                let cells: usize = layouts.iter().map(Layout::cells).sum();
                for (&at, layout) in tiles.iter().zip(layouts) {
                    // rounded down: together at most what the picture keeps at least
                    let share = (least * layout.cells() / cells.max(1)).max(1);
                    let kept = self.compressor.plan(layout, share).map_or(share, |plan| plan.cells());
                    let tokens = TokenCount(layout.lead() + kept + layout.trail());
                    let recipe = Recipe { method: Arc::clone(&method), least };
                    let positions = self.advance(&wanted[at], tokens);
                    wanted[at].set_fewer(Some(Fewer { recipe, tokens, positions }));
                }
            }
            if outlooks.len() <= index {
                outlooks.resize(index + 1, None);
            }
            outlooks[index] = Some(outlook);
        }
        Ok(outlooks)
    }

    /// Compresses the pictures among `items` that are to keep fewer rows, whose tiles `embedded` holds in order.
    ///
    /// # Errors
    /// Those of [`compress_tiles`].
    pub(super) fn settle(
        &self,
        items: &mut [Item],
        embedded: &mut [Embedded],
        outlooks: &Outlooks,
    ) -> Result<Vec<Done>> {
        let mut first = 0;
        let mut done = Vec::new();
        for (index, places) in pictures(items) {
            let tiles = first..first + places.len();
            first = tiles.end;
            let Some(outlook) = outlooks.get(index).and_then(Option::as_ref) else { continue };
            let mut reasons = outlook.reasons().to_vec();
            let mut took = Duration::ZERO;
            if !outlook.is_full() {
                let start = Instant::now();
                let rows =
                    embedded.get_mut(tiles).ok_or_else(|| Error::Encode { reason: "a tile has no rows".into() })?;
                let (kept, why) = self.compress(&items[places[0]..], &places, rows, outlook)?;
                reasons = why;
                for ((&at, rows), tokens) in places.iter().zip(rows).zip(kept) {
                    let n = tokens.embedding().rows();
                    rows.rows = tokens.embedding().clone();
                    rows.anchors = Some(tokens.anchors().to_vec());
                    let Item::Image(image) = &items[at] else { continue };
                    let positions = self.advance(&items[at], n);
                    let recipe = image.fewer.as_ref().map(|f| f.recipe.clone());
                    items[at].set_fewer(recipe.map(|recipe| Fewer { recipe, tokens: n, positions }));
                }
                took = start.elapsed();
            }
            done.push(Done { index, reasons, took });
        }
        Ok(done)
    }

    fn compress(
        &self,
        items: &[Item],
        places: &[usize],
        embedded: &[Embedded],
        outlook: &Outlook,
    ) -> Result<(Vec<VisualTokens>, Vec<Reason>)> {
        let whole = self.overview(places.len());
        let tiles: Vec<Tile<'_>> = places
            .iter()
            .zip(embedded)
            .enumerate()
            .map(|(i, (&at, e))| {
                let layout = layout(&items[at - places[0]])?;
                Ok(Tile { rows: Rows::new(&e.rows, layout, self.main)?, overview: whole == Some(i) })
            })
            .collect::<Result<_>>()?;
        let decision = outlook.settle(&tiles);
        match compress_tiles(&*self.compressor, &tiles, &decision.budgets) {
            Ok(kept) => Ok((kept, decision.reasons)),
            // a budget that the picture raised to what this method cannot give
            Err(error @ Error::BadParameter { .. }) if self.policy.setting == VisualTokenSetting::Auto => {
                let mut reasons = decision.reasons;
                reasons.insert(0, Reason::UnknownLayout { reason: error.to_string() });
                let full = |t: &Tile<'_>| VisualTokens::full(t.rows.embedding(), *t.rows.layout());
                Ok((tiles.iter().map(full).collect(), reasons))
            }
            Err(error) => Err(error),
        }
    }

    /// Everything besides the least number of cells that decides which rows are left and where they stand.
    fn method(&self, outlook: &Outlook, tiles: usize) -> String {
        let positions = if self.m_rope { "m-rope" } else { self.positions.name() };
        // without a projector nobody knows which tile of an encoded picture is the overview
        let overview = self.overview(tiles).map_or_else(|| "none".to_owned(), |at| at.to_string());
        format!("{}|{}|{positions}|{overview}", self.compressor.id(), outlook.energy())
    }

    /// Which tile shows the whole picture.
    fn overview(&self, tiles: usize) -> Option<usize> {
        self.projector_type.as_deref().and_then(|kind| overview(kind, tiles))
    }

    /// By how much an item advances the position when `tokens` of its rows are left.
    pub(super) fn advance(&self, item: &Item, tokens: TokenCount) -> PosCount {
        match item {
            Item::Image(image) if self.keeps_places() => image.image.positions,
            _ => PosCount(tokens.get()),
        }
    }

    fn keeps_places(&self) -> bool {
        self.m_rope || self.positions == ImagePositions::Preserve
    }

    /// Positions of the rows that are left, in the order in which they are decoded.
    pub(super) fn positions(&self, item: &ImageItem, anchors: &[u32], start: i32) -> Result<Vec<Position>> {
        let all = item.decoder_positions(start)?;
        let picked = if self.m_rope {
            anchors.iter().map(|&a| all.get(a as usize).copied()).collect()
        } else {
            all.get(..anchors.len()).map(<[Position]>::to_vec)
        };
        picked.ok_or_else(|| Error::Encode { reason: format!("{} rows for {} positions", anchors.len(), all.len()) })
    }

    /// Moves to make once rows with these anchors, the first at `start`, are decoded: from, to, by. The last rows first, so that none
    /// lands among those that have not moved.
    pub(super) fn moves(&self, item: &ImageItem, anchors: &[u32], start: i32) -> Vec<(i32, i32, i32)> {
        if self.m_rope || self.positions == ImagePositions::Compact {
            return Vec::new();
        }
        let last = u32::try_from(item.image.positions.get().saturating_sub(1)).unwrap_or(u32::MAX);
        let target = |row: usize| if row + 1 == anchors.len() { last } else { anchors[row] };
        let place = |n: usize| start.saturating_add(i32::try_from(n).unwrap_or(i32::MAX));
        let mut moves: Vec<(i32, i32, i32)> = Vec::new();
        for row in (0..anchors.len()).rev() {
            let by = i64::from(target(row)) - row as i64;
            let by = i32::try_from(by).unwrap_or(i32::MAX);
            match moves.last_mut() {
                Some((from, _, same)) if *same == by => *from = place(row),
                _ => moves.push((place(row), place(row + 1), by)),
            }
        }
        moves.retain(|m| m.2 != 0);
        moves
    }
}

/// How the rows of an item lie before compression.
fn layout(item: &Item) -> Result<Layout> {
    match item {
        Item::Image(image) => Layout::of(image.image.grid, image.image.tokens),
        Item::Token(_) => Err(Error::UnknownLayout { rows: 1, reason: "it is text".into() }),
    }
}

/// Puts what a saved prompt says about its pictures, in order, into these items. `None` where it does not fit them.
pub(super) fn with_counts(items: &[Item], counts: &[u32], compression: &Compression) -> Option<Vec<Item>> {
    let mut counts = counts.iter().map(|&n| TokenCount(n as usize));
    let mut items = items.to_vec();
    for item in &mut items {
        let Item::Image(image) = &*item else { continue };
        let tokens = counts.next()?;
        let most = image.image.tokens;
        match image.fewer.clone() {
            None if tokens == most => {}
            Some(fewer) if (1..=most.get()).contains(&tokens.get()) => {
                let positions = compression.advance(item, tokens);
                item.set_fewer(Some(Fewer { tokens, positions, ..fewer }));
            }
            _ => return None,
        }
    }
    counts.next().is_none().then_some(items)
}

/// Rows that these items' pictures put into the KV cache, one number a tile.
pub(super) fn counts(items: &[Item]) -> Vec<u32> {
    let images = items.iter().filter(|i| matches!(i, Item::Image(_)));
    images.map(|i| u32::try_from(i.tokens().get()).unwrap_or(u32::MAX)).collect()
}

/// Visual tokens of these items.
pub(super) fn count_visual(items: &[Item]) -> TokenCount {
    items.iter().filter(|i| matches!(i, Item::Image(_))).map(Item::tokens).sum()
}

/// Text tokens of these items.
pub(super) fn count_text(items: &[Item]) -> TokenCount {
    count_tokens(items) - count_visual(items)
}

/// What the model gate of [`Policy`] goes by: arithmetic for one row, from what the files say of layers and widths. Two operations a
/// weight, attention left out.
#[must_use]
pub fn costs(model: &Model, projector: &Projector) -> Costs {
    let info = projector.info();
    let (width, wide) = (info.tower_width as f64, info.feed_forward as f64);
    let layers = info.layers_run.unwrap_or(info.layers) as f64;
    let patches = f64::from(info.merge.max(1)).powi(2);
    let embeddings = (model.vocab().n_tokens() * model.n_embd()) as f64;
    Costs {
        encode: 2.0 * layers * (4.0 * width * width + 2.0 * width * wide) * patches,
        prefill: 2.0 * (model.n_params() as f64 - embeddings).max(0.0),
    }
}
