//! The quality gate: both files look at the same pictures.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::compare::{Distance, answer_distance};
use super::report::{AnswerDistance, GateReport, LayerReport, PictureReport};
use super::stand_in::StandIn;
use crate::error::{Error, Result};
use crate::image::{DecodeOptions, RgbImage, load};
use crate::llama::{CancelToken, ContextParams, LoadMode, Model, ModelParams, Progress, SamplerParams};
use crate::mtmd::{GraphTap, Projector, ProjectorParams};
use crate::session::{Part, Picture, Session, SessionParams};
use crate::units::TokenCount;

/// What the text model is asked about each picture.
const QUESTION: &str = "Describe the image.";
/// Positions of the context that the question is asked in, where the model was trained for so many.
const MOST_POSITIONS: u32 = 8192;

/// A picture with a name to call it by.
#[derive(Debug, Clone)]
pub struct GatePicture {
    /// How reports call it.
    pub name: String,
    /// What it shows.
    pub image: GateImage,
}

/// Where a picture's pixels are.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum GateImage {
    /// In memory.
    Pixels(RgbImage),
    /// In a picture file, which is decoded when its turn comes: any number of them takes the memory of one.
    File(PathBuf),
}

impl GateImage {
    pub(super) fn pixels(&self) -> Result<Cow<'_, RgbImage>> {
        match self {
            Self::Pixels(image) => Ok(Cow::Borrowed(image)),
            Self::File(path) => Ok(Cow::Owned(load(path, &DecodeOptions::default())?.image)),
        }
    }
}

impl From<RgbImage> for GateImage {
    fn from(image: RgbImage) -> Self {
        Self::Pixels(image)
    }
}

impl From<PathBuf> for GateImage {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

/// Least cosines between the rows of source and result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// Of the mean over all rows, -1 to 1.
    pub mean_cosine: f64,
    /// Of the worst row, likewise.
    pub worst_cosine: f64,
}

impl Default for Floor {
    fn default() -> Self {
        Self { mean_cosine: 0.999, worst_cosine: 0.99 }
    }
}

/// What to compare, and how good it has to be.
#[derive(Clone)]
pub struct Gate {
    /// The pictures; at least one. [`builtin_pictures`](super::builtin_pictures) has some.
    pub pictures: Vec<GatePicture>,
    /// The text model: adds the distance of its answers, and costs its memory.
    pub text_model: Option<PathBuf>,
    /// Least cosines.
    pub floor: Floor,
    /// Compare behind every layer too.
    pub layers: bool,
    /// Threads; `None` takes [`crate::llama::physical_cores`].
    pub threads: Option<u32>,
    /// Progress from 0 to 1, and cancel between pictures.
    pub progress: Option<Progress>,
    /// Stops in the middle of a picture.
    pub cancel: CancelToken,
}

impl Gate {
    /// A gate with the default floor, all layers and no text model.
    #[must_use]
    pub fn new(pictures: Vec<GatePicture>) -> Self {
        Self {
            pictures,
            text_model: None,
            floor: Floor::default(),
            layers: true,
            threads: None,
            progress: None,
            cancel: CancelToken::new(),
        }
    }

    /// Encodes every picture with both files and compares what they give. Numbers are those of the CPU.
    ///
    /// # Errors
    /// [`Error::BadParameter`] without pictures, or for a projector whose width only its text model tells; what loading, decoding,
    /// preparing and encoding say; [`Error::Cancelled`].
    pub fn run(&self, source: &Path, result: &Path) -> Result<GateReport> {
        if self.pictures.is_empty() {
            let reason = "there is nothing to look at".to_owned();
            return Err(Error::BadParameter { name: "pictures", value: "0".to_owned(), reason });
        }
        let (model, stand_in) = self.model(source)?;
        let mut sides = [Side::load(source, &model, self)?, Side::load(result, &model, self)?];
        // mapped or read by now; kept until here for the fingerprints of native code
        drop(stand_in);
        let mut pictures = Vec::new();
        let mut layers: Vec<LayerReport> = Vec::new();
        for (i, picture) in self.pictures.iter().enumerate() {
            if self.progress.as_ref().is_some_and(|p| !p(i as f32 / self.pictures.len() as f32)) {
                return Err(Error::Cancelled);
            }
            let report = self.compare(picture, &mut sides)?;
            for layer in &report.layers {
                match layers.iter_mut().find(|l| l.name == layer.name) {
                    Some(sum) => sum.rows = sum.rows.and(&layer.rows),
                    None => layers.push(layer.clone()),
                }
            }
            pictures.push(report);
        }
        if let Some(progress) = &self.progress {
            progress(1.0);
        }
        let rows = pictures.iter().map(|p| p.rows).reduce(|a, b| a.and(&b)).ok_or_else(|| differ("no rows"))?;
        Ok(GateReport {
            source: source.to_owned(),
            text_model: self.text_model.clone(),
            pictures,
            rows,
            layers,
            floor: self.floor,
        })
    }

    fn model(&self, source: &Path) -> Result<(Arc<Model>, Option<StandIn>)> {
        let params = ModelParams { gpu_layers: Some(0), ..ModelParams::default() };
        if let Some(path) = &self.text_model {
            return Ok((Model::load(path, &params)?, None));
        }
        let stand_in = StandIn::write(source, &std::env::temp_dir())?;
        // read, so that the file can be removed while the model lives on every system
        let params = ModelParams { load_mode: LoadMode::Read, ..params };
        Ok((Model::load(stand_in.path(), &params)?, Some(stand_in)))
    }

    fn compare(&self, picture: &GatePicture, sides: &mut [Side; 2]) -> Result<PictureReport> {
        let [source, result] = sides;
        let image = picture.image.pixels()?;
        let (a, b) = (source.look(&image, &self.cancel)?, result.look(&image, &self.cancel)?);
        let rows = Distance::between(&a.rows, &b.rows, source.projector.info().width).ok_or_else(|| {
            differ(&format!("picture `{}` has {} and {} numbers", picture.name, a.rows.len(), b.rows.len()))
        })?;
        let mut layers: Vec<LayerReport> = Vec::new();
        for ((name, width, a), (_, _, b)) in a.layers.iter().zip(&b.layers) {
            // tiles of one picture give the same node several times
            let Some(one) = Distance::between(a, b, *width) else { continue };
            match layers.iter_mut().find(|l| l.name == *name) {
                Some(sum) => sum.rows = sum.rows.and(&one),
                None => layers.push(LayerReport { name: name.clone(), rows: one }),
            }
        }
        let answer = match (&mut source.session, &mut result.session) {
            (Some(source), Some(result)) => {
                let ask = |session: &mut Session| {
                    let parts = [Part::Picture(Picture::new(image.as_ref().clone())), Part::Text(QUESTION.into())];
                    session.first_logits(parts).map(|(logits, _)| logits)
                };
                answer_distance(&ask(source)?, &ask(result)?).map(AnswerDistance::new)
            }
            _ => None,
        };
        Ok(PictureReport { name: picture.name.clone(), rows, layers, answer })
    }
}

fn differ(what: &str) -> Error {
    Error::Encode { reason: format!("source and result cannot be compared: {what}") }
}

/// One of the two files.
struct Side {
    projector: Arc<Projector>,
    session: Option<Session>,
    layers: Arc<Layers>,
}

/// What a side saw in one picture.
struct Look {
    rows: Vec<f32>,
    layers: Vec<(String, usize, Vec<f32>)>,
}

impl Side {
    fn load(path: &Path, model: &Arc<Model>, gate: &Gate) -> Result<Self> {
        let layers = Arc::new(Layers::default());
        let tap: Option<Arc<dyn GraphTap>> = if gate.layers { Some(Arc::clone(&layers) as _) } else { None };
        let params = ProjectorParams {
            cpu_only: true,
            threads: gate.threads,
            no_warmup: true,
            tap,
            ..ProjectorParams::default()
        };
        let projector = Projector::load(path, model, &params)?;
        let session = match gate.text_model {
            None => None,
            Some(_) => {
                let n_ctx = model.n_ctx_train().min(MOST_POSITIONS);
                let params = SessionParams {
                    context: ContextParams { n_ctx, threads: gate.threads, warmup: false, ..ContextParams::default() },
                    sampler: SamplerParams::greedy(),
                    cache: None,
                    snapshots: None,
                    ..SessionParams::default()
                };
                Some(Session::new(model, Some(Arc::clone(&projector)), params)?)
            }
        };
        Ok(Self { projector, session, layers })
    }

    fn look(&self, image: &RgbImage, cancel: &CancelToken) -> Result<Look> {
        let prepared = self.projector.prepare(image, TokenCount::ZERO, 0)?;
        self.layers.take();
        let mut rows = Vec::new();
        // one tile at a time, so that both files compute the same graphs
        for (index, _) in prepared.images() {
            for (embedding, _) in self.projector.encode(&[(&prepared, index)], cancel)? {
                rows.extend_from_slice(embedding.as_slice());
            }
        }
        Ok(Look { rows, layers: self.layers.take() })
    }
}

/// Collects what layers give.
#[derive(Default)]
struct Layers(Mutex<Vec<(String, usize, Vec<f32>)>>);

impl Layers {
    fn take(&self) -> Vec<(String, usize, Vec<f32>)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl GraphTap for Layers {
    fn wants(&self, node: &str) -> bool {
        node.strip_prefix("layer_out-").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    }

    fn see(&self, node: &str, shape: [usize; 4], values: &[f32]) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((node.to_owned(), shape[0], values.to_vec()));
    }
}
