//! The command line as clap sees it. Names and defaults are llama-mtmd-cli's where it has the flag.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use llava::embedding::{CacheDtype, EmbeddingKey};
use llava::image::Background;
use llava::llama::{FlashAttention, KvType};

use crate::bench;
use crate::compress_flags::VisualTokenArgs;
use crate::eval;
use crate::inspect;
use crate::quantize;
use crate::values::{self, CachePlace, CardinalOrAll, Layout, ThreadCount, Vision};
use crate::version;

const ABOUT: &str = "Ask GGUF models about pictures.";

const LONG_ABOUT: &str = "\
Ask GGUF models about pictures.

With -p (or -f) it answers once and ends; without, it is a chat: one message a line, /image PATH shows a picture, /help lists
the rest. Without -m the built-in demo model answers, a tiny one that knows shapes, colours and words in synthetic pictures.
Only the model's text goes to stdout, one line end after each answer; everything else goes to stderr.";

const AFTER: &str = "\
Examples:
  llava-cli -m model.gguf --mmproj mmproj.gguf --image cat.jpg -p \"What is this?\"
  llava-cli -m folder/ --image a.png --image b.png -p \"What changed?\" --temp 0
  llava-cli -m folder/ --image a.png                     chat about a picture
  llava-cli -m folder/ -sys \"Be brief.\" -f question.txt    text only, from a file
  llava-cli --image sign.png -p \"What word is written?\"  the demo model
  llava-cli embed -m folder/ --image a.png -o a.npy      embedding rows for NumPy
  llava-cli inspect --image a.png --visual-tokens 64 -o look.png   what the text model gets of it
  llava-cli eval --n 100                                 how good the demo model is at its tasks
  llava-cli bench -m folder/ --json result.json          what reuse saves on this machine
  llava-cli quantize mmproj.gguf small.gguf --check builtin   a smaller projector that sees the same

Where pictures stand: before the text, in the order given. If the text holds <__media__> exactly as many times as there are
pictures, they stand there instead; otherwise <__media__> is text like any other.

Exit status:
    0  answered (also when the reader of stdout went away, or the answer was cut by -n or by the context's end)
    1  something failed while running
    2  the command line is wrong: unknown flag, bad value, unreadable prompt or grammar file
    3  the text model, projector or chat template is missing, damaged, or they do not fit together
    4  a picture is missing, damaged, too large or of an unknown format
    5  the request does not fit: context (-c), micro-batch (-ub) or memory
  130  interrupted. The first Ctrl-C stops the answer (a chat on a terminal goes on), the second one ends the program.";

/// Ask GGUF models about pictures.
#[derive(Debug, Parser)]
#[command(
    name = "llava-cli",
    version = version::text(),
    about = ABOUT,
    long_about = LONG_ABOUT,
    after_help = "--help tells more: examples, exit status.",
    after_long_help = AFTER,
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    max_term_width = 120
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub ask: AskArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write the embedding rows of pictures: for NumPy, or to answer from them without a projector
    #[command(args_override_self = true, long_about = EMBED)]
    Embed(EmbedArgs),
    /// Look after the cache folder: stats, list, clear, verify, export, import
    #[command(args_override_self = true)]
    Cache(CacheCommandArgs),
    /// Ask questions whose right answers are known, and say how good the answers are
    #[command(args_override_self = true, long_about = eval::ABOUT, after_long_help = eval::AFTER)]
    Eval(Box<eval::EvalArgs>),
    /// Measure what reuse saves, against the path that has none
    #[command(args_override_self = true, long_about = bench::LONG_ABOUT)]
    Bench(Box<bench::BenchArgs>),
    /// Draw which visual tokens of a picture the text model gets
    #[command(args_override_self = true, long_about = inspect::ABOUT)]
    Inspect(Box<inspect::InspectArgs>),
    /// Say what this machine and this build offer: CPU, kernels, llama.cpp, folders
    Doctor,
    /// Write a smaller projector file: Q8_0 vision tower, F16 projector
    #[command(args_override_self = true, long_about = quantize::ABOUT)]
    Quantize(Box<quantize::QuantizeArgs>),
}

const EMBED: &str = "\
Write the embedding rows of pictures.

A NumPy file holds a float32 array of shape [rows, width]: what the projector gives for one picture, all its tiles in prompt order.
An encoded picture holds everything the text model needs: give it to --image, and no projector is loaded.
Give as many -o as there are pictures; the first belongs to the first.";

/// What `embed` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EmbedFormat {
    Npy,
    Encoded,
}

#[derive(Debug, Args)]
pub struct AskArgs {
    #[command(flatten)]
    pub prompt: PromptArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub picture: PictureArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub visual: VisualTokenArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Write what the last answer cost as one JSON object: load_ms, ttft_ms, prefill_ms, token counts, images, ...
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub usage_json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct EmbedArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub picture: PictureArgs,
    /// What to write: npy (rows for NumPy) or encoded (a file that --image takes in place of the picture, without a projector)
    #[arg(long, value_name = "FORMAT", default_value = "npy", help_heading = "Output")]
    pub format: EmbedFormat,
    /// File to write, one for each picture
    #[arg(short, long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub output_file: Vec<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Question")]
pub struct PromptArgs {
    /// The question: answer it and end
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Read the question from a file (UTF-8; one line end at its end is dropped)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "prompt")]
    pub file: Option<PathBuf>,
    /// Instructions at the head of the conversation [-sys]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system_prompt: Option<String>,
    /// Read the instructions from a file [-sysf]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "system_prompt")]
    pub system_prompt_file: Option<PathBuf>,
    /// Turn \n, \t, \r, \', \", \\ and \xNN in -p, -f and -r into what they stand for (default)
    #[arg(short, long, overrides_with = "no_escape")]
    pub escape: bool,
    /// Leave backslashes alone
    #[arg(long)]
    pub no_escape: bool,
    /// Chat template: a built-in name (vicuna, chatml, gemma, ...) or Jinja source [default: the model file's]
    #[arg(long, value_name = "NAME|JINJA", allow_hyphen_values = true)]
    pub chat_template: Option<String>,
    /// Read the chat template from a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "chat_template")]
    pub chat_template_file: Option<PathBuf>,
    /// Run the chat template as Jinja (default)
    #[arg(long, overrides_with = "no_jinja")]
    pub jinja: bool,
    /// Use the built-in format that the template resembles, as llama-mtmd-cli does by default
    #[arg(long)]
    pub no_jinja: bool,
}

#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Text model (GGUF), or a folder with one text model and one projector [default: the demo model]
    #[arg(short, long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub model: Option<PathBuf>,
    /// Projector (GGUF) that belongs to it [-mm]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub mmproj: Option<PathBuf>,
    /// Load no projector, even if there is one: text only
    #[arg(long, conflicts_with = "mmproj")]
    pub no_mmproj: bool,
    /// Layers to put on a GPU: a number, auto or all [-ngl]
    #[arg(long, visible_alias = "n-gpu-layers", value_name = "N", default_value = "auto", allow_hyphen_values = true)]
    pub gpu_layers: CardinalOrAll,
    /// Encode pictures on the CPU even where there is a GPU
    #[arg(long, overrides_with = "mmproj_offload")]
    pub no_mmproj_offload: bool,
    #[arg(long, hide = true)]
    pub mmproj_offload: bool,
    /// Read the text model into memory instead of mapping the file
    #[arg(long, conflicts_with = "mlock")]
    pub no_mmap: bool,
    /// Map the text model and keep it in memory
    #[arg(long)]
    pub mlock: bool,
    /// Threads for single tokens and for the vision encoder; 0: all logical cores [default: physical cores]
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    pub threads: Option<ThreadCount>,
    /// When fused attention is used: on, off or auto [-fa]
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = values::flash_attention)]
    pub flash_attn: FlashAttention,
    /// Do not run the models once while loading
    #[arg(long, overrides_with = "warmup")]
    pub no_warmup: bool,
    #[arg(long, hide = true)]
    pub warmup: bool,
    /// Numbers of a LLaVA tower: as its authors defined them, or as llama.cpp computes them
    #[arg(long, value_name = "LAYOUT", default_value = "reference")]
    pub clip_layout: Layout,
    /// Precision of the vision tower: as-is, f16 (the original; refuses a quantised file) or q8_0 (quantised once, kept in the
    /// cache folder)
    #[arg(long, value_name = "PRECISION", default_value = "as-is")]
    pub vision: Vision,
}

#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Pictures")]
pub struct PictureArgs {
    /// Picture file, or an encoded picture of `embed`; repeat it, or separate with commas, for several (order counts)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub image: Vec<PathBuf>,
    /// Fewest tokens of a picture, where the projector takes any size [default: from the projector]
    #[arg(long, value_name = "N")]
    pub image_min_tokens: Option<u32>,
    /// Most tokens of a picture, likewise
    #[arg(long, value_name = "N")]
    pub image_max_tokens: Option<u32>,
    /// What shows through transparent pixels: white, black or #RRGGBB
    #[arg(long, value_name = "COLOR", default_value = "white", value_parser = values::background)]
    pub background: Background,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Context")]
pub struct ContextArgs {
    /// Positions of the context; 0: as many as the model was trained with
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub ctx_size: u32,
    /// Most tokens submitted at once
    #[arg(short, long, value_name = "N", default_value_t = 2048)]
    pub batch_size: u32,
    /// Most tokens computed at once; raised where a picture has to be computed in one piece [-ub]
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub ubatch_size: u32,
    /// Threads for prompts [-tb] [default: as -t]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub threads_batch: Option<ThreadCount>,
    /// Element type of the K cache [-ctk]
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = values::kv_type())]
    pub cache_type_k: KvType,
    /// Element type of the V cache [-ctv]
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = values::kv_type())]
    pub cache_type_v: KvType,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Most tokens of an answer; -1: until the model ends it
    #[arg(short = 'n', long, visible_alias = "n-predict", value_name = "N", default_value_t = -1, allow_hyphen_values = true)]
    pub predict: i64,
    /// Temperature; 0: always the most likely token
    #[arg(long, alias = "temperature", value_name = "T", default_value_t = 0.2, allow_hyphen_values = true)]
    pub temp: f32,
    /// Keep the K most likely tokens; 0: all
    #[arg(long, value_name = "K", default_value_t = 40, allow_hyphen_values = true)]
    pub top_k: i32,
    /// Keep the most likely tokens that together have probability P; 1: all
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub top_p: f32,
    /// Keep tokens at least P times as likely as the most likely one; 0: all
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub min_p: f32,
    /// Keep tokens of typical surprise with probability P; 1: all
    #[arg(long, alias = "typical-p", value_name = "P", default_value_t = 1.0)]
    pub typical: f32,
    /// Keep tokens within N standard deviations of the best; -1: all
    #[arg(long, alias = "top-nsigma", value_name = "N", default_value_t = -1.0, allow_hyphen_values = true)]
    pub top_n_sigma: f32,
    /// Divide the scores of tokens seen lately; 1: off
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_hyphen_values = true)]
    pub repeat_penalty: f32,
    /// Tokens looked back at for the penalties; 0: none, -1: 64
    #[arg(long, value_name = "N", default_value_t = 64, allow_hyphen_values = true)]
    pub repeat_last_n: i32,
    /// Subtract from tokens seen lately, once
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_hyphen_values = true)]
    pub presence_penalty: f32,
    /// Subtract from tokens seen lately, each time
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_hyphen_values = true)]
    pub frequency_penalty: f32,
    /// Seed of the random choice [default: another one each time]
    #[arg(short, long, value_name = "N", allow_hyphen_values = true, value_parser = values::seed)]
    pub seed: Option<values::Seed>,
    /// GBNF grammar that the answer has to follow
    #[arg(long, value_name = "GBNF", allow_hyphen_values = true)]
    pub grammar: Option<String>,
    /// Read the grammar from a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "grammar")]
    pub grammar_file: Option<PathBuf>,
    /// Text that ends an answer and is not part of it; can be repeated
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub reverse_prompt: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Cache")]
pub struct CacheArgs {
    /// Where encoded pictures are kept: off, mem (until the program ends), disk (also for the next time) or redis://HOST:PORT
    /// (for all machines that share it)
    #[arg(long, value_name = "WHERE", env = "LLAVA_CACHE", default_value = "mem")]
    pub cache: CachePlace,
    /// Folder of the disk cache [default: the platform's cache folder]
    #[arg(long, value_name = "DIR", env = "LLAVA_CACHE_DIR", value_hint = ValueHint::DirPath)]
    pub cache_dir: Option<PathBuf>,
    /// Most MiB of the cache, rows and (with --prompt-cache) states each [default: 256 in memory, 4096 on the disk]
    #[arg(long, value_name = "MIB")]
    pub cache_mb: Option<u64>,
    /// How rows are stored outside of memory: f32 (the encoder's bits) or f16 (half the size)
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = values::cache_dtype())]
    pub cache_dtype: CacheDtype,
    /// Keep the text model's state behind pictures too, where --cache says: the same beginning is not computed again. Some
    /// megabytes a picture
    #[arg(long)]
    pub prompt_cache: bool,
    /// Go on with the conversation in this file, and save it there after every answer
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub session: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CacheCommandArgs {
    #[command(subcommand)]
    pub action: CacheAction,
    /// Folder of the disk cache [default: the platform's cache folder]
    #[arg(long, value_name = "DIR", env = "LLAVA_CACHE_DIR", value_hint = ValueHint::DirPath, global = true)]
    pub cache_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum CacheAction {
    /// How many entries and bytes there are
    Stats,
    /// Every entry: kind, key, bytes, seconds since it was last used
    List,
    /// Remove all entries
    Clear,
    /// Compare every entry with its checksum; exit status 1 where one is damaged
    Verify {
        /// Remove damaged entries
        #[arg(long)]
        remove: bool,
    },
    /// Write the entry of one encoded picture to a file
    Export {
        /// Its key, as `list` shows it
        key: EmbeddingKey,
        /// File to write
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: PathBuf,
    },
    /// Take an exported entry into the cache
    Import {
        /// The exported file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Most MiB of the cache on the disk
        #[arg(long, value_name = "MIB")]
        cache_mb: Option<u64>,
    },
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Say more on stderr: timings and settings; -vv: llama.cpp's log too; -vvv: everything
    #[arg(short, long, alias = "log-verbose", action = ArgAction::Count)]
    pub verbose: u8,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_upstreams() {
        let cli = Cli::parse_from(["llava-cli"]);
        let (sampling, context) = (cli.ask.sampling, cli.ask.context);
        assert_eq!((sampling.temp, sampling.top_k, sampling.top_p, sampling.min_p), (0.2, 40, 0.95, 0.05));
        assert_eq!((sampling.predict, sampling.repeat_last_n, sampling.repeat_penalty), (-1, 64, 1.0));
        assert_eq!((context.ctx_size, context.batch_size, context.ubatch_size), (0, 2048, 512));
        assert!(cli.command.is_none());
    }

    #[test]
    fn a_later_flag_wins_and_values_may_look_like_flags() {
        let cli =
            Cli::parse_from(["llava-cli", "--temp", "1", "--temp", "0", "-p", "--image", "-n", "-1", "-p", "embed"]);
        assert_eq!(cli.ask.sampling.temp, 0.0);
        assert_eq!(cli.ask.prompt.prompt.as_deref(), Some("embed"));
        assert!(cli.ask.picture.image.is_empty());
    }
}
