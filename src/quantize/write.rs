//! Carrying a plan out: read, convert and write in pieces, on all cores, in bounded memory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::convert::{Raw, Refusal, convert};
use super::plan::{Plan, PlannedTensor};
use super::record::{KEY_BELOW_FLOOR, KEY_CHECKED, KEY_DATA, is_below_floor, metadata};
use super::report::GateReport;
use super::rules::Rules;
use crate::error::{Error, Result};
use crate::gguf::{Fingerprint, GgufFile, GgufSink, GgufWriter, SealedGguf, TensorInfo, check_projector};
use crate::llama::Progress;

/// Elements read, converted and written as one piece; a multiple of every block.
const PIECE: u64 = 1 << 18;
/// Pieces in the works for each thread: enough that nobody waits for the slowest, some 10 MiB.
const PIECES_PER_THREAD: usize = 8;
/// Pieces in the works for all threads together: some 64 MiB, being converted and being written. More threads than these would
/// only wait for the disk.
const MOST_PIECES: usize = 32;

/// How to quantise a file.
#[derive(Clone, Default)]
pub struct QuantizeParams {
    /// What becomes of which tensor.
    pub rules: Rules,
    /// Threads; `None` takes [`crate::llama::physical_cores`].
    pub threads: Option<u32>,
    /// Replace an existing output.
    pub overwrite: bool,
    /// Progress from 0 to 1, and cancel.
    pub progress: Option<Progress>,
}

impl std::fmt::Debug for QuantizeParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuantizeParams")
            .field("rules", &self.rules)
            .field("threads", &self.threads)
            .field("overwrite", &self.overwrite)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

/// What was done.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Summary {
    /// What became of each tensor.
    pub plan: Plan,
    /// XXH3-128 of the source file (of a split one, of its parts' hashes).
    pub source_hash: u128,
    /// XXH3-128 of the result's tensor bytes: [`GgufFile::data_hash`].
    pub data_hash: u128,
    /// Bytes of the source, all parts.
    pub source_bytes: u64,
    /// Bytes of the result.
    pub target_bytes: u64,
    /// Time from the first byte read to the last one written.
    pub took: Duration,
}

/// Quantises a projector file. `output` appears whole or not at all.
///
/// ```
/// # #[cfg(feature = "demo")] {
/// use llava::quantize::{QuantizeParams, quantize};
///
/// let home = tempfile::tempdir().unwrap();
/// let small = home.path().join("mmproj-q8_0.gguf");
/// let summary = quantize("models/demo/demo-mmproj-f16.gguf", &small, &QuantizeParams::default())?;
/// assert!(summary.target_bytes < summary.source_bytes * 7 / 10);
/// # }
/// # Ok::<(), llava::Error>(())
/// ```
///
/// # Errors
/// As [`Candidate::write`] and [`Candidate::publish`].
pub fn quantize(input: impl AsRef<Path>, output: impl AsRef<Path>, params: &QuantizeParams) -> Result<Summary> {
    Candidate::write(input, output, params)?.publish()
}

/// A quantised file that is complete but has not got its name yet, so that somebody can look at it first. Dropped, it is removed.
#[derive(Debug)]
pub struct Candidate {
    sealed: SealedGguf,
    summary: Summary,
    source: PathBuf,
    output: PathBuf,
    overwrite: bool,
    marked: bool,
}

impl Candidate {
    /// Writes the quantised file under a temporary name beside `output`.
    ///
    /// # Errors
    /// What [`GgufFile::open_split`] and [`check_projector`] say about the source; [`Error::BadTensor`] for weights that are not
    /// finite or larger than their new type holds; [`Error::BadParameter`] where `output` is the source, no regular file, or
    /// exists and may not be replaced, or where the rules change nothing; [`Error::State`] where the source changes meanwhile;
    /// [`Error::Io`]; [`Error::Cancelled`].
    pub fn write(input: impl AsRef<Path>, output: impl AsRef<Path>, params: &QuantizeParams) -> Result<Self> {
        let input = input.as_ref();
        let output = &destination(output.as_ref())?;
        let started = Instant::now();
        let source = GgufFile::open_split(input)?;
        let seen = Fingerprint::new(source.paths())?;
        check_projector(&source)?;
        let plan = Plan::new(&source, &params.rules)?;
        if !plan.changes() {
            return Err(bad_source(input, "holds nothing that these rules change: there is nothing to do"));
        }
        check_output(&source, output, params.overwrite)?;
        let source_hash = seen.get()?;
        let sealed = write(&source, source_hash, &plan, output, params)?;
        // somebody may have written to it between hash and weights
        seen.check()?;
        let size = |path: &Path| {
            let io = |source| Error::Io { action: "read", path: path.to_owned(), source };
            std::fs::metadata(path).map(|m| m.len()).map_err(io)
        };
        let summary = Summary {
            plan,
            source_hash,
            data_hash: sealed.data_hash(),
            source_bytes: source.paths().map(size).sum::<Result<u64>>()?,
            target_bytes: size(sealed.path())?,
            took: started.elapsed(),
        };
        Ok(Self {
            sealed,
            summary,
            source: input.to_owned(),
            output: output.to_owned(),
            overwrite: params.overwrite,
            marked: is_below_floor(&source),
        })
    }

    /// Where the file lies until it is published.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.sealed.path()
    }

    /// The file it was made from.
    #[must_use]
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// What was done.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Gives the file its name without a look at what it computes.
    ///
    /// # Errors
    /// [`Error::BadParameter`] where a file that may not be replaced has appeared meanwhile; [`Error::Io`].
    pub fn publish(self) -> Result<Summary> {
        if self.overwrite {
            self.sealed.publish()?;
            return Ok(self.summary);
        }
        match self.sealed.publish_new() {
            Ok(()) => Ok(self.summary),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => Err(exists(&self.output)),
            Err(other) => Err(other),
        }
    }

    /// Gives the file its name if the report is above its floor. With `force` it gets it anyway, and is marked in its metadata;
    /// so is what was made from a marked file.
    ///
    /// # Errors
    /// [`Error::BelowFloor`] with the figures; [`Error::BadParameter`] where the source is quantised itself and so no measure;
    /// otherwise as [`Candidate::publish`].
    pub fn publish_checked(mut self, report: &GateReport, force: bool) -> Result<Summary> {
        if self.summary.plan.quantized_already().is_some() {
            return Err(bad_source(&self.source, "is quantised already: compare with the original"));
        }
        if !report.passed() && !force {
            return Err(Error::BelowFloor { path: self.source, reason: report.why_not() });
        }
        self.sealed.replace(KEY_CHECKED, true)?;
        self.sealed.replace(KEY_BELOW_FLOOR, self.marked || !report.passed())?;
        self.publish()
    }
}

fn bad_source(input: &Path, reason: &str) -> Error {
    Error::BadParameter { name: "input", value: input.display().to_string(), reason: reason.to_owned() }
}

/// Where the file goes: a link stays a link, and its target is replaced.
fn destination(output: &Path) -> Result<PathBuf> {
    let value = || output.display().to_string();
    match std::fs::canonicalize(output) {
        Ok(found) => Ok(found),
        Err(e) if e.kind() == ErrorKind::NotFound && output.is_symlink() => {
            let reason = "is a link to a file that is not there".to_owned();
            Err(Error::BadParameter { name: "output", value: value(), reason })
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(output.to_owned()),
        Err(source) => Err(Error::Io { action: "write", path: output.to_owned(), source }),
    }
}

fn exists(output: &Path) -> Error {
    Error::BadParameter {
        name: "output",
        value: output.display().to_string(),
        reason: "exists already, and replacing it was not asked for".to_owned(),
    }
}

/// Refuses an output that is one of the source's files under whatever name, or that nothing should be renamed over.
fn check_output(source: &GgufFile, output: &Path, overwrite: bool) -> Result<()> {
    let bad = |reason: &str| {
        Err(Error::BadParameter { name: "output", value: output.display().to_string(), reason: reason.to_owned() })
    };
    if output.file_name().is_none() {
        return bad("names no file");
    }
    let meta = match std::fs::metadata(output) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|source| Error::Io { action: "read", path: output.to_owned(), source })?,
    };
    for path in source.paths() {
        let same_name = std::fs::canonicalize(path).ok() == std::fs::canonicalize(output).ok();
        if same_name || std::fs::metadata(path).is_ok_and(|m| same_file(&m, &meta)) {
            return bad("is the source itself");
        }
    }
    if !meta.is_file() {
        return bad("is no regular file");
    }
    if overwrite { Ok(()) } else { Err(exists(output)) }
}

#[cfg(unix)]
fn same_file(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn same_file(_: &std::fs::Metadata, _: &std::fs::Metadata) -> bool {
    // names are compared by what they lead to already
    false
}

fn write(
    source: &GgufFile,
    source_hash: u128,
    plan: &Plan,
    output: &Path,
    params: &QuantizeParams,
) -> Result<SealedGguf> {
    let threads = params.threads.unwrap_or_else(crate::llama::physical_cores);
    let bad_threads = |reason: String| Error::BadParameter { name: "threads", value: threads.to_string(), reason };
    if !(1..=512).contains(&threads) {
        return Err(bad_threads("1 to 512".to_owned()));
    }
    let (workers, batch) = in_the_works(threads as usize, pieces(source, plan).take(MOST_PIECES).count());
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(workers)
        .thread_name(|i| format!("llava-quantize-{i}"))
        .build()
        .map_err(|e| bad_threads(e.to_string()))?;

    let mut writer = GgufWriter::new();
    for (key, value) in metadata(source, source_hash, plan) {
        writer.set(&key, value)?;
    }
    for t in plan.tensors() {
        writer.declare(&t.name, &t.dims, t.target)?;
    }
    let mut sink = writer.begin(output)?;
    copy(source, plan, &mut sink, &pool, batch, params.progress.as_ref())?;
    let mut sealed = sink.seal()?;
    sealed.replace(KEY_DATA, format!("{:032x}", sealed.data_hash()))?;
    Ok(sealed)
}

/// How many threads work, and on how many pieces at once, where so many threads are allowed and there is so much to do.
fn in_the_works(threads: usize, pieces: usize) -> (usize, usize) {
    let most = MOST_PIECES.min(pieces.max(1));
    (threads.min(most), (threads * PIECES_PER_THREAD).min(most))
}

/// A part of a tensor: whole blocks.
struct Piece<'a> {
    info: &'a TensorInfo,
    planned: &'a PlannedTensor,
    first: u64,
    elements: u64,
}

/// All pieces in file order.
fn pieces<'a>(source: &'a GgufFile, plan: &'a Plan) -> impl Iterator<Item = Piece<'a>> {
    source.tensors().iter().zip(plan.tensors()).flat_map(|(info, planned)| {
        // bytes of blocks are copied as they are, so that their number counts, not the elements'
        let total = if planned.changes() { info.elements() } else { info.byte_len };
        (0..total.div_ceil(PIECE)).map(move |i| {
            let first = i * PIECE;
            Piece { info, planned, first, elements: PIECE.min(total - first) }
        })
    })
}

/// Converts on the pool while this thread's turn writes what is ready, in file order.
fn copy(
    source: &GgufFile,
    plan: &Plan,
    sink: &mut GgufSink,
    pool: &rayon::ThreadPool,
    at_once: usize,
    progress: Option<&Progress>,
) -> Result<()> {
    let mut rest = pieces(source, plan);
    let mut next = || rest.by_ref().take(at_once).collect::<Vec<_>>();
    let all = plan.source_bytes().max(1) as f64;
    let (mut done, mut pending) = (0, 0);
    let mut batch = next();
    let mut ready: Vec<Vec<u8>> = Vec::new();
    while !batch.is_empty() || !ready.is_empty() {
        let convert_all = || {
            let converted = batch.par_iter().map_init(Raw::default, |raw, piece| piece.convert(source, raw));
            converted.collect::<Result<Vec<_>>>()
        };
        let write_all = || ready.iter().try_for_each(|bytes| sink.put(bytes));
        let (converted, written) = pool.install(|| rayon::join(convert_all, write_all));
        written?;
        done += pending;
        if progress.is_some_and(|p| !p((done as f64 / all) as f32)) {
            return Err(Error::Cancelled);
        }
        ready = converted?;
        pending = batch.iter().map(Piece::source_bytes).sum::<u64>();
        batch = next();
    }
    Ok(())
}

impl Piece<'_> {
    /// Bytes of one unit: an element, or a byte where nothing is converted.
    fn unit(&self) -> u64 {
        if self.planned.changes() { self.planned.source.block_bytes() } else { 1 }
    }

    fn source_bytes(&self) -> u64 {
        self.elements * self.unit()
    }

    fn convert(&self, source: &GgufFile, raw: &mut Raw) -> Result<Vec<u8>> {
        // a piece is a megabyte at most
        let len = self.source_bytes() as usize;
        source.read_part(self.info, self.first * self.unit(), raw.room(len))?;
        let mut out = Vec::new();
        convert(raw, self.planned.source, self.planned.target, &mut out).map_err(|refusal| {
            let target = self.planned.target;
            let reason = match refusal {
                Refusal::NotFinite(v) => format!("holds {v}; a file with such weights cannot be quantised"),
                Refusal::TooLarge(v) => format!("holds {v:e}, more than {target} can: keep it, or take f32 for it"),
            };
            source.bad_tensor(&self.planned.name, reason)
        })?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_does_not_grow_with_threads() {
        assert_eq!(in_the_works(1, 10_000), (1, 8));
        assert_eq!(in_the_works(2, 10_000), (2, 16));
        assert_eq!(in_the_works(512, 10_000), (32, 32));
        // nobody is hired who finds nothing to do
        assert_eq!(in_the_works(512, 3), (3, 3));
        assert_eq!(in_the_works(4, 0), (1, 1));
    }
}
