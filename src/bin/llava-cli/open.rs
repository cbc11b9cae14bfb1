//! Loading what a command needs.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use llava::llama::Model;
use llava::mtmd::Projector;
use llava::session::{Session, SessionParams};

use crate::args::{ModelArgs, PictureArgs};
use crate::compress_flags::VisualTokenArgs;
use crate::console::note;
use crate::exit::{FAILED, Problem, Stage};
use crate::files::Files;
use crate::params;
use crate::signals::Interrupt;
use crate::vision;

pub fn model(args: &ModelArgs, files: &Files, interrupt: &Interrupt) -> Result<Arc<Model>> {
    let model = Model::load(&files.model, &params::model(args, interrupt)).context(Stage::Model)?;
    interrupt.check()?;
    tracing::info!(
        model = %files.model.display(),
        architecture = model.architecture(),
        n_ctx_train = model.n_ctx_train(),
        mib = model.size_bytes() >> 20,
        "loaded"
    );
    if args.gpu_layers.0.is_some_and(|n| n > 0) && !model.backend().supports_gpu() {
        note("-ngl has no effect: this build or machine has no GPU to put layers on");
    }
    Ok(model)
}

/// The projector, unless nothing to come needs it.
pub fn projector(
    args: &ModelArgs,
    pictures: &PictureArgs,
    files: &Files,
    cache_dir: Option<&Path>,
    model: &Arc<Model>,
    interrupt: &Interrupt,
) -> Result<Option<Arc<Projector>>> {
    let Some(path) = &files.projector else { return Ok(None) };
    let path = &vision::file(args, path, cache_dir, interrupt)?;
    let projector =
        Projector::load(path, model, &params::projector(args, pictures, interrupt)).context(Stage::Model)?;
    interrupt.check()?;
    let info = projector.info();
    tracing::info!(projector = %path.display(), kind = info.projector_type, image_px = info.image_size_px, "loaded");
    if info.image_max_tokens.is_none() {
        for (flag, value) in
            [("--image-min-tokens", pictures.image_min_tokens), ("--image-max-tokens", pictures.image_max_tokens)]
        {
            if value.is_some() {
                note(format_args!("{flag} has no effect: {} scales pictures to a fixed size", info.projector_type));
            }
        }
    }
    Ok(Some(projector))
}

/// Model and projector, for commands that do nothing without a picture.
pub fn seeing(
    args: &ModelArgs,
    pictures: &PictureArgs,
    files: &Files,
    interrupt: &Interrupt,
) -> Result<(Arc<Model>, Arc<Projector>)> {
    files.need_vision()?;
    let model = model(args, files, interrupt)?;
    let projector = projector(args, pictures, files, None, &model, interrupt)?
        .ok_or_else(|| Problem::new(FAILED, "failed", "the projector was not loaded"))?;
    Ok((model, projector))
}

/// A conversation on loaded models.
pub fn session(
    params: SessionParams,
    visual: &VisualTokenArgs,
    model: &Arc<Model>,
    projector: Option<Arc<Projector>>,
) -> Result<Session> {
    let params = visual.apply(params, projector.as_deref())?;
    // the only file a session reads itself is the chat template's
    Session::new(model, projector, params).context(Stage::Argument)
}
