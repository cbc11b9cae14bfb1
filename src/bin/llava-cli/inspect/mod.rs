//! `llava-cli inspect`: what of a picture the text model gets.
//!
//! What this room does: encodes one picture, has the library decide and compress, and shows the outcome: as a drawing, as a page with
//! a slider over budgets, as text and JSON.
//! What it never does: decide or choose cells itself, or ask the text model anything.
//! Who calls it: `main`, for the command of this name.

mod account;
mod drawing;
mod look;
mod page;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueHint};
use llava::compress::{Gate, Policy};
use llava::llama::CancelToken;
use llava::session::costs;

use crate::args::{ModelArgs, OutputArgs, PictureArgs};
use crate::compress_flags::CompressFlags;
use crate::console::print;
use crate::exit::Problem;
use crate::files::Files;
use crate::open;
use crate::pictures::{Reader, paths};
use crate::save::save;
use crate::signals::Interrupt;

use account::Account;
use look::Seen;

pub const ABOUT: &str = "\
Draw which visual tokens of a picture the text model gets.

The drawing shows each tile as the encoder sees it, with its grid of tokens: framed cells are kept, a line leads from each cell to \
the one that stands for it, cells that nobody stands for are dark. --html writes a page that needs no other file, with a slider over \
budgets. What was decided, and why, goes to stdout.";

#[derive(Debug, Args)]
pub struct InspectArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub picture: PictureArgs,
    #[command(flatten)]
    pub compress: CompressFlags,
    /// The question that --visual-tokens auto goes by [default: a wish to have the picture described]
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Visual tokens")]
    pub prompt: Option<String>,
    /// Drawing to write (PNG)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    #[arg(required_unless_present_any = ["html", "json"])]
    pub output_file: Option<PathBuf>,
    /// Page to write: the picture, and a slider over budgets
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Write what goes to stdout as one JSON object too, with the cells that are kept
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn run(args: &InspectArgs, interrupt: &Interrupt) -> Result<()> {
    let image = only_picture(args)?;
    let files = Files::find(&args.model)?;
    check_outputs(args, &image, &files)?;
    let picture = Reader::new(&args.picture).pixels(&image)?;
    let token = CancelToken::new();
    interrupt.watch(token.clone())?;
    let (model, projector) = open::seeing(&args.model, &args.picture, &files, interrupt)?;
    let setting = args.compress.visual_tokens;
    let compressor = args.compress.build(Some(&projector))?;

    let seen = Seen::new(&projector, picture.image(), &token)?;
    let layouts = seen.layouts();
    let gate = Gate::of(args.prompt.as_deref().unwrap_or_default());
    let layouts = layouts.as_deref().map_err(|_| seen.unknown());
    let outlook = Policy::new(setting).outlook(&gate, Some(costs(&model, &projector)), layouts, compressor.as_ref())?;
    let decision = seen.tiles().map(|tiles| outlook.settle(&tiles)).ok();
    let cut = decision.as_ref().map(|d| seen.cut(compressor.as_ref(), &d.budgets)).transpose()?;
    let account = Account {
        image: &image,
        setting,
        compressor: compressor.id(),
        seen: &seen,
        outlook: &outlook,
        decision: decision.as_ref(),
        cut: cut.as_ref(),
        k90: seen.cells_for(0.9).ok(),
    };

    if let Some(path) = &args.output_file {
        save(path, &drawing::draw(&seen, cut.as_ref(), &account.headline())?.to_png()?)?;
    }
    if let Some(path) = &args.html {
        interrupt.check()?;
        save(path, page::page(&account, compressor.as_ref())?.as_bytes())?;
    }
    if let Some(path) = &args.json {
        save(path, format!("{:#}\n", account.json()).as_bytes())?;
    }
    print(&account.text())
}

fn only_picture(args: &InspectArgs) -> Result<PathBuf> {
    match paths(&args.picture.image).as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Problem::usage("inspect needs a picture: --image FILE").into()),
        many => Err(Problem::usage(format!("inspect looks at one picture, {} were given", many.len())).into()),
    }
}

/// Refuses to write over what is read, or two things into one file.
fn check_outputs(args: &InspectArgs, image: &Path, files: &Files) -> Result<()> {
    let given = [("-o", &args.output_file), ("--html", &args.html), ("--json", &args.json)];
    let mut taken = vec![("--image", real(image)), ("-m", real(&files.model))];
    taken.extend(files.projector.iter().map(|path| ("--mmproj", real(path))));
    taken.extend(args.compress.compressor.file().map(|path| ("--compressor", real(path))));
    for (flag, path) in given.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
        // what is no file (a device, a pipe) can be written twice
        let whole = real(path);
        if let Some((other, _)) = taken.iter().find(|(_, known)| *known == whole && !is_device(path)) {
            return Err(Problem::usage(format!("{other} and {flag} name the same file, {}", path.display())).into());
        }
        taken.push((flag, whole));
    }
    Ok(())
}

/// The file that a path means, whether it is there already or not.
fn real(path: &Path) -> PathBuf {
    let folder = path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    let coming = || Some(folder?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(coming).unwrap_or_else(|| path.to_owned())
}

fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| !m.is_file())
}
