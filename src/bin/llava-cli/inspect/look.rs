//! One picture through the encoder, and what a compressor makes of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use llava::compress::{
    Compressor, Layout, Rows, Tile, VisualTokens, compress_tiles, energy_curve, kept_energy, overview,
};
use llava::embedding::{Embedding, Grid, has_raster_rows};
use llava::gguf::GgufFile;
use llava::image::RgbImage;
use llava::llama::CancelToken;
use llava::mtmd::{Prepared, Projector};
use llava::{Error, TokenCount};

/// Runs of the compressor of which the middle one counts.
const RUNS: usize = 3;

/// A tile as the encoder sees it, with the rows it gives.
#[derive(Debug)]
pub struct SeenTile {
    pub image: RgbImage,
    pub rows: Embedding,
    pub grid: Grid,
    pub overview: bool,
}

/// A picture with its rows.
#[derive(Debug)]
pub struct Seen {
    pub width_px: u32,
    pub height_px: u32,
    pub projector_type: String,
    /// Floats of a row that similarity is computed on.
    pub main: usize,
    pub tiles: Vec<SeenTile>,
    pub encode: Duration,
}

/// What came out at one budget.
#[derive(Debug)]
pub struct Cut {
    pub budgets: Vec<usize>,
    pub tokens: Vec<VisualTokens>,
    /// Share of each tile's energy that is kept.
    pub energy: Vec<f32>,
    pub took: Duration,
}

impl Seen {
    pub fn new(projector: &Arc<Projector>, image: &RgbImage, token: &CancelToken) -> Result<Self> {
        let prepared = projector.prepare(image, TokenCount::ZERO, 0)?;
        let jobs: Vec<(&Prepared, usize)> = prepared.images().map(|(chunk, _)| (&prepared, chunk)).collect();
        let encoded = projector.encode(&jobs, token)?;
        let projector_type = projector.info().projector_type.clone();
        let whole = overview(&projector_type, jobs.len());
        let scale = Scale::of(&GgufFile::open(projector.path())?);
        let encode = encoded.iter().map(|(_, took)| *took).sum();
        let mut tiles = Vec::new();
        for (index, ((rows, _), (chunk, place))) in encoded.into_iter().zip(prepared.images()).enumerate() {
            let pixels =
                prepared.tile(chunk, 0).ok_or_else(|| Error::Encode { reason: "a tile has no pixels".into() })?;
            let image = RgbImage::from_rgb(pixels.width_px, pixels.height_px, scale.undo(pixels.pixels))?;
            tiles.push(SeenTile { image, rows, grid: place.grid, overview: whole == Some(index) });
        }
        let (width_px, height_px) = (image.width_px(), image.height_px());
        Ok(Self { width_px, height_px, projector_type, main: projector.model().n_embd(), tiles, encode })
    }

    /// How the rows of each tile lie.
    pub fn layouts(&self) -> llava::Result<Vec<Layout>> {
        if !has_raster_rows(&self.projector_type) {
            return Err(self.unknown());
        }
        self.tiles.iter().map(|tile| Layout::of(tile.grid, tile.rows.rows())).collect()
    }

    /// Why there is no layout.
    pub fn unknown(&self) -> Error {
        let unknown = |tile: &SeenTile| Layout::of(tile.grid, tile.rows.rows()).err();
        self.tiles.iter().find_map(unknown).unwrap_or_else(|| Error::UnknownLayout {
            rows: self.rows(),
            reason: format!("rows of `{}` stand for no places on the picture", self.projector_type),
        })
    }

    /// Rows of all tiles, separators included.
    pub fn rows(&self) -> usize {
        self.tiles.iter().map(|tile| tile.rows.rows().get()).sum()
    }

    pub fn tiles(&self) -> llava::Result<Vec<Tile<'_>>> {
        let layouts = self.layouts()?;
        self.tiles
            .iter()
            .zip(layouts)
            .map(|(tile, layout)| Ok(Tile { rows: Rows::new(&tile.rows, layout, self.main)?, overview: tile.overview }))
            .collect()
    }

    /// Fewest cells of each tile that explain a share of it.
    pub fn cells_for(&self, share: f32) -> llava::Result<Vec<usize>> {
        let needed = |tile: &Tile<'_>| energy_curve(&tile.rows, share, usize::MAX).cells_for(share);
        Ok(self.tiles()?.iter().map(needed).collect())
    }

    /// Compresses every tile to its budget.
    pub fn cut(&self, compressor: &dyn Compressor, budgets: &[usize]) -> llava::Result<Cut> {
        let tiles = self.tiles()?;
        let mut times = Vec::new();
        let mut tokens = Vec::new();
        for _ in 0..RUNS {
            let started = Instant::now();
            tokens = compress_tiles(compressor, &tiles, budgets)?;
            times.push(started.elapsed());
        }
        times.sort();
        let energy = tiles.iter().zip(&tokens).map(|(tile, tokens)| kept_energy(&tile.rows, tokens));
        Ok(Cut {
            budgets: budgets.to_vec(),
            energy: energy.collect::<llava::Result<_>>()?,
            tokens,
            took: times[RUNS / 2],
        })
    }
}

impl Cut {
    /// Rows that the text model gets, separators included.
    pub fn rows(&self) -> usize {
        self.tokens.iter().map(|tokens| tokens.embedding().rows().get()).sum()
    }

    /// Cells that are kept.
    pub fn kept(&self) -> usize {
        self.tokens.iter().map(VisualTokens::cells).sum()
    }

    /// Kept energy of the whole picture: the mean over its cells.
    pub fn mean_energy(&self) -> f64 {
        let cells = self.tokens.iter().map(|tokens| tokens.source().cells() as f64);
        let (sum, all) =
            cells.zip(&self.energy).fold((0.0, 0.0), |(sum, all), (n, e)| (sum + n * f64::from(*e), all + n));
        if all > 0.0 { sum / all } else { 0.0 }
    }
}

/// Each row that came out: the cell it stands at, then all cells it stands for.
pub fn places(tokens: &VisualTokens) -> Vec<(usize, &[u32])> {
    let anchors = tokens.anchors().iter().enumerate();
    anchors
        .filter_map(|(row, &anchor)| Some((tokens.source().cell_of(anchor as usize)?, tokens.members(row))))
        .collect()
}

/// Mean and deviation that preprocessing used, by channel.
struct Scale([(f32, f32); 3]);

impl Scale {
    fn of(projector: &GgufFile) -> Self {
        let of = |key: &str, otherwise: f32| {
            let values = projector.get::<&[f32]>(key).ok().flatten().unwrap_or_default();
            [0, 1, 2].map(|channel| values.get(channel).copied().unwrap_or(otherwise))
        };
        let (mean, deviation) = (of("clip.vision.image_mean", 0.5), of("clip.vision.image_std", 0.5));
        Self([0, 1, 2].map(|channel| (mean[channel], deviation[channel])))
    }

    /// Samples of 0 to 255 from normalised ones.
    fn undo(&self, normalised: &[f32]) -> Vec<u8> {
        let channels = self.0.iter().cycle();
        let sample = |(value, (mean, deviation)): (&f32, &(f32, f32))| {
            ((value * deviation + mean) * 255.0).round().clamp(0.0, 255.0) as u8
        };
        normalised.iter().zip(channels).map(sample).collect()
    }
}
