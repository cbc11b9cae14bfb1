//! The one public error type, what a caller can do about it, and its stable codes.

use std::path::PathBuf;

/// `Result` with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`enum@Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input (a file, a picture, a prompt, a parameter) has to change.
    FixInput,
    /// A limit (context, micro-batch, memory, size cap) has to be raised, or less has to be asked for.
    Enlarge,
    /// The same call may succeed later or after something outside has changed (disk, cancelled by the caller).
    Retry,
    /// Nothing the caller can change at run time helps: a fault of the build, the machine or of this library.
    GiveUp,
}

/// Everything that can go wrong, with the numbers needed to act on it.
///
/// Missing, invalid and failed are three different answers, so they are three different variants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- files -------------------------------------------------------------------------------------------------
    /// A file could not be opened, read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: `open`, `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: std::io::Error,
    },

    // ---- GGUF --------------------------------------------------------------------------------------------------
    /// The file is not GGUF at all (wrong magic, empty, shorter than a header).
    #[error("{} is not a GGUF file: {reason}", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// The file is GGUF of a kind this crate does not read (version, big-endian).
    #[error("{} is a GGUF file this build cannot read: {reason}", path.display())]
    UnsupportedGguf {
        /// The file.
        path: PathBuf,
        /// Version or byte order found.
        reason: String,
    },
    /// The file says it is GGUF, but its counts, lengths, offsets or values contradict each other.
    #[error("{} is damaged: {reason} (at byte {offset})", path.display())]
    DamagedGguf {
        /// The file.
        path: PathBuf,
        /// Byte offset at which the contradiction was found.
        offset: u64,
        /// What contradicts what, with both numbers.
        reason: String,
    },
    /// A metadata key is missing, of the wrong type, or out of the range that the native code can take.
    #[error("{}: metadata key `{key}`: {reason}", path.display())]
    BadMetadata {
        /// The file.
        path: PathBuf,
        /// The GGUF key.
        key: String,
        /// Value found and range or type wanted.
        reason: String,
    },
    /// A tensor is missing, or its shape or storage type does not fit what the metadata says.
    #[error("{}: tensor `{tensor}` {reason}", path.display())]
    BadTensor {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// What was found and what is wanted.
        reason: String,
    },

    // ---- pictures ----------------------------------------------------------------------------------------------
    /// The bytes are no picture format this build decodes; known-but-unsupported formats (HEIC, AVIF) are named.
    #[error("{name}: {detail}")]
    PictureFormat {
        /// File name or `<memory>`.
        name: String,
        /// What was recognised, and what to convert it to.
        detail: String,
    },
    /// The format is known, the content is damaged.
    #[error("{name}: damaged {format}: {reason}")]
    PictureDamaged {
        /// File name or `<memory>`.
        name: String,
        /// Format by content, for example `PNG`.
        format: &'static str,
        /// The decoder's words.
        reason: String,
    },
    /// The header declares more than the limits allow; nothing was decoded.
    #[error("{name}: {what} is {value}, the limit is {limit}; raise it with `Limits` if this picture is meant")]
    PictureTooLarge {
        /// File name or `<memory>`.
        name: String,
        /// `width_px`, `height_px`, `pixels` or `file bytes`.
        what: &'static str,
        /// Declared value.
        value: u64,
        /// Limit in force.
        limit: u64,
    },

    // ---- chat templates ----------------------------------------------------------------------------------------
    /// The model file carries no chat template and none was given.
    #[error("{} has no chat template; name one with --chat-template: {suggestions}", path.display())]
    TemplateMissing {
        /// The text model's file.
        path: PathBuf,
        /// Likely built-in names, most likely first.
        suggestions: String,
    },
    /// The name is no built-in template.
    #[error("`{name}` is no built-in chat template; known: {known}")]
    TemplateUnknown {
        /// The name given.
        name: String,
        /// All known names.
        known: String,
    },
    /// The template does not compile, throws, or refuses the conversation.
    #[error("chat template failed: {reason}")]
    TemplateFailed {
        /// The engine's or the template's own words.
        reason: String,
    },

    // ---- machine and build -------------------------------------------------------------------------------------
    /// The processor lacks instructions this build was compiled for.
    #[error("this build needs {baseline}, this processor lacks: {missing}; build with the feature `portable`")]
    CpuTooOld {
        /// Baseline the native code was compiled for.
        baseline: &'static str,
        /// Missing instruction sets.
        missing: String,
    },

    // ---- loading -----------------------------------------------------------------------------------------------
    /// llama.cpp refused the text model.
    #[error("cannot load text model {}: {reason}", path.display())]
    ModelLoad {
        /// The file.
        path: PathBuf,
        /// Native message and last native error lines.
        reason: String,
    },
    /// libmtmd refused the projector file.
    #[error("cannot load projector {}: {reason}", path.display())]
    ProjectorLoad {
        /// The file.
        path: PathBuf,
        /// Native message and last native error lines.
        reason: String,
    },
    /// Text model and projector do not belong together.
    #[error(
        "the projector does not fit the text model: {} ({projector_type}) gives rows of {projector_width}, {} ({architecture}) takes rows of {model_width}",
        projector_path.display(),
        model_path.display()
    )]
    Mismatch {
        /// Text model file.
        model_path: PathBuf,
        /// `general.architecture` of the text model.
        architecture: String,
        /// Input embedding width of the text model.
        model_width: usize,
        /// Projector file.
        projector_path: PathBuf,
        /// Projector type.
        projector_type: String,
        /// Output width of the projector.
        projector_width: usize,
    },
    /// A picture was given, but nothing loaded can see.
    #[error("no vision: {reason}")]
    NoVision {
        /// What is missing and how to give it.
        reason: String,
    },
    /// A folder was given where several files fit.
    #[error("{} holds {} candidates, name one: {}", path.display(), candidates.len(), candidates.join(", "))]
    Ambiguous {
        /// The folder.
        path: PathBuf,
        /// File names.
        candidates: Vec<String>,
    },

    // ---- parameters and capacity -------------------------------------------------------------------------------
    /// A parameter is outside of what can work.
    #[error("{name} = {value}: {reason}")]
    BadParameter {
        /// Parameter name.
        name: &'static str,
        /// Value given.
        value: String,
        /// Range or rule.
        reason: String,
    },
    /// The context has no room for what was asked. Computed before anything is encoded.
    #[error("the context is full: {needed} positions needed, {available} free of {n_ctx}{}; {advice}", picture_note(*.picture))]
    ContextFull {
        /// Positions (or KV cells, whichever is scarcer) needed.
        needed: usize,
        /// Free ones.
        available: usize,
        /// Size of the context.
        n_ctx: usize,
        /// Index of the first picture that does not fit, if a picture is the cause.
        picture: Option<usize>,
        /// Flags that would help, with values.
        advice: String,
    },
    /// An image that attends to itself in both directions is larger than a micro-batch.
    #[error(
        "a picture of {tokens} tokens needs non-causal attention and must fit one micro-batch of {n_ubatch}; use -ub {tokens} or more"
    )]
    MicroBatchTooSmall {
        /// Visual tokens of the picture.
        tokens: usize,
        /// Micro-batch in force.
        n_ubatch: usize,
    },
    /// The context could not be made (memory, parameter combination).
    #[error("cannot make a context of {n_ctx} positions: {reason}")]
    ContextCreate {
        /// Size asked for.
        n_ctx: u32,
        /// Native message.
        reason: String,
    },

    // ---- visual tokens -----------------------------------------------------------------------------------------
    /// How the rows of an encoded picture lie is not known, so that none of them can be left out.
    #[error("the layout of {rows} visual tokens is not known: {reason}; use --visual-tokens full or auto")]
    UnknownLayout {
        /// Rows of the chunk.
        rows: usize,
        /// What does not fit.
        reason: String,
    },
    /// A trained compressor was made for another projector.
    #[error("compressor {} was trained for the projector with fingerprint {found}, the loaded one has {wanted}", path.display())]
    CompressorMismatch {
        /// The compressor's file.
        path: PathBuf,
        /// The fingerprint it names, `none` where it names none.
        found: String,
        /// The loaded projector's.
        wanted: String,
    },

    // ---- running -----------------------------------------------------------------------------------------------
    /// Pre-processing of a picture failed in libmtmd.
    #[error("cannot prepare picture {width_px}x{height_px}: {reason}")]
    Prepare {
        /// Width in pixels.
        width_px: u32,
        /// Height in pixels.
        height_px: u32,
        /// Native message.
        reason: String,
    },
    /// The vision encoder failed.
    #[error("cannot encode picture: {reason}")]
    Encode {
        /// Native message.
        reason: String,
    },
    /// The encoder's rows hold NaN or infinity; they were dropped and nothing was cached.
    #[error("the vision encoder gave {count} non-finite values in {rows} rows of {width}{}", retry_note(*.retried_in_f32))]
    NonFinite {
        /// How many values.
        count: usize,
        /// Rows of the embedding.
        rows: usize,
        /// Width of a row.
        width: usize,
        /// Whether a second pass without flash attention gave them too.
        retried_in_f32: bool,
    },
    /// `llama_process` failed; the KV cache was trimmed back to where it was.
    #[error("decoding {tokens} tokens at position {position} failed with status {status}: {reason}")]
    Decode {
        /// Tokens or rows in the batch.
        tokens: usize,
        /// First position.
        position: i32,
        /// Native status.
        status: i32,
        /// Native message.
        reason: String,
    },
    /// The text could not be tokenized.
    #[error("cannot tokenize {bytes} bytes of text: {reason}")]
    Tokenize {
        /// Length of the text.
        bytes: usize,
        /// Why.
        reason: String,
    },
    /// The grammar does not parse, or leaves no token to choose.
    #[error("grammar: {reason}")]
    Grammar {
        /// What and where.
        reason: String,
    },
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// Saved state does not belong to this model, context or version, or is damaged.
    #[error("saved data refused: {reason}")]
    State {
        /// What does not match.
        reason: String,
    },
    /// A quantised file does not see what its source sees.
    #[error("the quantised {} is not good enough: {reason}", path.display())]
    BelowFloor {
        /// The source.
        path: PathBuf,
        /// Figures and floor.
        reason: String,
    },
    /// The native library threw or broke its own contract.
    #[error("llama.cpp: {call}: {reason}")]
    Native {
        /// The native function.
        call: &'static str,
        /// Its words.
        reason: String,
    },
}

fn picture_note(picture: Option<usize>) -> String {
    picture.map_or_else(String::new, |i| format!(" (picture {} does not fit)", i + 1))
}

fn retry_note(retried: bool) -> &'static str {
    if retried { ", with and without flash attention" } else { "" }
}

impl Error {
    /// A stable, machine-readable name that never changes once released.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Io { .. } => "io",
            Error::NotGguf { .. } => "gguf-not",
            Error::UnsupportedGguf { .. } => "gguf-unsupported",
            Error::DamagedGguf { .. } => "gguf-damaged",
            Error::BadMetadata { .. } => "gguf-metadata",
            Error::BadTensor { .. } => "gguf-tensor",
            Error::PictureFormat { .. } => "picture-format",
            Error::PictureDamaged { .. } => "picture-damaged",
            Error::PictureTooLarge { .. } => "picture-too-large",
            Error::TemplateMissing { .. } => "template-missing",
            Error::TemplateUnknown { .. } => "template-unknown",
            Error::TemplateFailed { .. } => "template-failed",
            Error::CpuTooOld { .. } => "cpu-too-old",
            Error::ModelLoad { .. } => "model-load",
            Error::ProjectorLoad { .. } => "projector-load",
            Error::Mismatch { .. } => "mismatch",
            Error::NoVision { .. } => "no-vision",
            Error::Ambiguous { .. } => "ambiguous",
            Error::BadParameter { .. } => "bad-parameter",
            Error::ContextFull { .. } => "context-full",
            Error::MicroBatchTooSmall { .. } => "ubatch-too-small",
            Error::ContextCreate { .. } => "context-create",
            Error::UnknownLayout { .. } => "layout-unknown",
            Error::CompressorMismatch { .. } => "compressor-mismatch",
            Error::Prepare { .. } => "prepare",
            Error::Encode { .. } => "encode",
            Error::NonFinite { .. } => "non-finite",
            Error::Decode { .. } => "decode",
            Error::Tokenize { .. } => "tokenize",
            Error::Grammar { .. } => "grammar",
            Error::Cancelled => "cancelled",
            Error::State { .. } => "state",
            Error::BelowFloor { .. } => "below-floor",
            Error::Native { .. } => "native",
        }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::ContextFull { .. }
            | Error::MicroBatchTooSmall { .. }
            | Error::ContextCreate { .. }
            | Error::PictureTooLarge { .. } => ErrorKind::Enlarge,
            Error::Io { .. } | Error::Cancelled => ErrorKind::Retry,
            Error::CpuTooOld { .. }
            | Error::Native { .. }
            | Error::Encode { .. }
            | Error::NonFinite { .. }
            | Error::Decode { .. } => ErrorKind::GiveUp,
            _ => ErrorKind::FixInput,
        }
    }
}
