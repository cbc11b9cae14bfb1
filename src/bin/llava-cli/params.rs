//! From flags to the library's parameters.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use llava::Error;
use llava::llama::{ContextParams, LoadMode, ModelParams, SamplerParams};
use llava::mtmd::ProjectorParams;
use llava::session::SessionParams;
use llava::session::template::{TemplateEngine, UserTemplate};

use crate::args::{ContextArgs, ModelArgs, PictureArgs, PromptArgs, SamplingArgs};
use crate::escape::unescape;
use crate::exit::{Problem, Stage};
use crate::progress::progress;
use crate::signals::Interrupt;

/// Prompts and grammars longer than this are a mistake (a device, a model given as a prompt).
const MAX_TEXT_BYTES: u64 = 16 << 20;

pub fn model(args: &ModelArgs, interrupt: &Interrupt) -> ModelParams {
    ModelParams {
        gpu_layers: args.gpu_layers.0,
        load_mode: match (args.no_mmap, args.mlock) {
            (_, true) => LoadMode::MmapLocked,
            (true, false) => LoadMode::Read,
            (false, false) => LoadMode::Mmap,
        },
        progress: Some(progress("text model", interrupt)),
        ..ModelParams::default()
    }
}

pub fn projector(model: &ModelArgs, pictures: &PictureArgs, interrupt: &Interrupt) -> ProjectorParams {
    ProjectorParams {
        cpu_only: model.no_mmproj_offload,
        threads: model.threads.map(|t| t.0),
        flash_attention: model.flash_attn,
        no_warmup: model.no_warmup,
        image_min_tokens: pictures.image_min_tokens,
        image_max_tokens: pictures.image_max_tokens,
        clip_layout: model.clip_layout.into(),
        progress: Some(progress("projector", interrupt)),
        ..ProjectorParams::default()
    }
}

/// Without caches: whoever wants them adds them.
pub fn session(
    prompt: &PromptArgs,
    model: &ModelArgs,
    context: &ContextArgs,
    sampling: &SamplingArgs,
) -> Result<SessionParams> {
    if let Some(path) = &prompt.chat_template_file {
        // the session reads it again; loading takes too long to find out after it
        if read_text(path, "chat template")?.trim().is_empty() {
            return Err(Problem::usage(format!("chat template file {} is empty", path.display())).into());
        }
    }
    Ok(SessionParams {
        cache: None,
        snapshots: None,
        context: context_params(model, context),
        sampler: sampler(sampling)?,
        template: template(prompt),
        template_engine: engine(prompt),
        // a negative number is upstream's "no limit"
        max_tokens: usize::try_from(sampling.predict).ok(),
        stop: sampling.reverse_prompt.iter().map(|s| text_of(prompt, s)).collect(),
        ..SessionParams::default()
    })
}

pub fn context_params(model: &ModelArgs, args: &ContextArgs) -> ContextParams {
    ContextParams {
        n_ctx: args.ctx_size,
        n_batch: args.batch_size,
        n_ubatch: args.ubatch_size,
        threads: model.threads.map(|t| t.0),
        threads_batch: args.threads_batch.map(|t| t.0),
        type_k: args.cache_type_k,
        type_v: args.cache_type_v,
        flash_attention: model.flash_attn,
        warmup: !model.no_warmup,
        ..ContextParams::default()
    }
}

fn sampler(args: &SamplingArgs) -> Result<SamplerParams> {
    Ok(SamplerParams {
        temperature: args.temp,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        typical_p: args.typical,
        top_n_sigma: args.top_n_sigma,
        repeat_last_n: args.repeat_last_n,
        repeat_penalty: args.repeat_penalty,
        frequency_penalty: args.frequency_penalty,
        presence_penalty: args.presence_penalty,
        seed: args.seed.and_then(|s| s.0),
        grammar: match &args.grammar_file {
            Some(path) => Some(read_text(path, "grammar")?),
            None => args.grammar.clone(),
        },
    })
}

fn template(args: &PromptArgs) -> Option<UserTemplate> {
    let file = args.chat_template_file.clone().map(UserTemplate::File);
    file.or_else(|| args.chat_template.clone().map(UserTemplate::Text))
}

/// A template is run as the Jinja it is; `--no-jinja` takes the built-in format it resembles, llama-mtmd-cli's default.
fn engine(args: &PromptArgs) -> TemplateEngine {
    if args.no_jinja { TemplateEngine::Builtin } else { TemplateEngine::Jinja }
}

/// The question, from whichever flag gives it.
pub fn prompt(args: &PromptArgs) -> Result<Option<String>> {
    let raw = match &args.file {
        Some(path) => Some(without_line_end(read_text(path, "prompt")?)),
        None => args.prompt.clone(),
    };
    Ok(raw.map(|text| text_of(args, &text)))
}

/// The instructions, which upstream does not unescape.
pub fn system(args: &PromptArgs) -> Result<Option<String>> {
    match &args.system_prompt_file {
        Some(path) => Ok(Some(without_line_end(read_text(path, "instructions")?))),
        None => Ok(args.system_prompt.clone()),
    }
}

fn text_of(args: &PromptArgs, raw: &str) -> String {
    if args.no_escape { raw.to_owned() } else { unescape(raw) }
}

fn without_line_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

fn read_text(path: &Path, what: &str) -> Result<String> {
    let io = |source| Error::Io { action: "read", path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(io).context(Stage::Argument)?;
    file.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes).map_err(io).context(Stage::Argument)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        let message = format!("{what} file {} is longer than {MAX_TEXT_BYTES} bytes", path.display());
        return Err(Problem::usage(message).into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let message = format!("{what} file {} is not UTF-8 (at byte {at})", path.display());
        Problem::usage(message).hint("convert it, for example with iconv -t utf-8").into()
    })
}
