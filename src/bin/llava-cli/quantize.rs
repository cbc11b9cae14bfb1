//! `llava-cli quantize`: a smaller projector file, and proof that it still sees.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum, ValueHint};
use llava::Error;
use llava::gguf::{GgufFile, check_projector};
use llava::image::{DecodeOptions, load};
use llava::quantize::{
    Candidate, Distance, Floor, Gate, GatePicture, GateReport, Plan, ProjectorPrecision, QuantizeParams, Rules,
    Summary, TowerPrecision, builtin_pictures,
};
use serde_json::{Value, json};

use crate::args::OutputArgs;
use crate::console::{note, print, say};
use crate::exit::{Problem, Stage, USAGE};
use crate::progress;
use crate::save::save;
use crate::signals::Interrupt;
use crate::values::ThreadCount;

pub const ABOUT: &str = "\
Write a smaller projector (mmproj) file: Q8_0 vision tower, F16 projector.

Matrices of the tower become Q8_0 where their rows are a multiple of 32, those behind it F16; patch convolution, positions, class \
token, norms and biases stay as they are. --dry-run prints the plan, tensor by tensor. --check encodes pictures with both files, \
compares what every layer and the projector give, and refuses a file that does not see the same. The output appears whole or not \
at all.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tower {
    #[value(name = "q8_0")]
    Q8_0,
    F16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Behind {
    F16,
    #[value(name = "q8_0")]
    Q8_0,
    F32,
}

#[derive(Debug, Args)]
pub struct QuantizeArgs {
    /// Projector file in F32, F16 or BF16; of a split one the first part
    #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
    /// File to write
    #[arg(value_name = "OUT", required_unless_present = "dry_run", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// How the matrices of the tower are stored
    #[arg(long = "type", value_name = "TYPE", default_value = "q8_0")]
    pub tower: Tower,
    /// How the matrices behind it are stored
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub projector: Behind,
    /// Leave tensors whose name this regular expression finds as they are; can be repeated
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    pub keep: Vec<String>,
    /// Print what would become of every tensor, and write nothing
    #[arg(long, conflicts_with_all = ["check", "report", "force"])]
    pub dry_run: bool,
    /// Replace OUT, and a report, if it exists
    #[arg(long)]
    pub overwrite: bool,
    /// Threads [default: physical cores]
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    pub threads: Option<ThreadCount>,
    /// Compare what both files see: builtin (pictures made by the program) or a folder of pictures
    #[arg(long, value_name = "builtin|DIR", value_hint = ValueHint::DirPath, help_heading = "Quality")]
    pub check: Option<PathBuf>,
    /// Text model (GGUF) that belongs to the projector: compares its answers too
    #[arg(short, long, value_name = "FILE", requires = "check", value_hint = ValueHint::FilePath, help_heading = "Quality")]
    pub model: Option<PathBuf>,
    /// Least mean cosine of the projector's rows
    #[arg(long, value_name = "X", default_value_t = 0.999, requires = "check", help_heading = "Quality")]
    pub min_cosine: f64,
    /// Least cosine of the worst row
    #[arg(long, value_name = "X", default_value_t = 0.99, requires = "check", help_heading = "Quality")]
    pub min_row_cosine: f64,
    /// Write the file even if it is below the floor, and mark it
    #[arg(long, requires = "check", help_heading = "Quality")]
    pub force: bool,
    /// Write what was found to FILE.json and FILE.md (an ending of FILE is replaced)
    #[arg(long, value_name = "FILE", requires = "check", value_hint = ValueHint::FilePath, help_heading = "Quality")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub output_args: OutputArgs,
}

pub fn run(args: &QuantizeArgs, interrupt: &Interrupt) -> Result<()> {
    let rules = rules(args)?;
    // read here too, so that what cannot be read is a model file and what cannot be written is not
    let file = GgufFile::open_split(&args.input).context(Stage::Model)?;
    check_projector(&file)?;
    let plan = Plan::new(&file, &rules)?;
    if args.dry_run {
        return print(&format!("{plan}\n"));
    }
    let Some(output) = &args.output else { return Err(Problem::usage("OUT is missing").into()) };
    if let (Some(_), Some(t)) = (&args.check, plan.quantized_already()) {
        let message = format!("{} stores `{}` as {}", args.input.display(), t.name, t.source);
        return Err(Problem::usage(format!("--check: {message}: compare with the original")).into());
    }
    if let Some(report) = &args.report {
        let kept = file.paths().chain([output.as_path()]).chain(args.model.as_deref());
        report_place(report, &kept.collect::<Vec<_>>(), args.overwrite)?;
    }
    drop(file);
    let gate = gate(args, interrupt)?;
    let params = QuantizeParams {
        rules,
        threads: args.threads.map(|t| t.0),
        overwrite: args.overwrite,
        progress: Some(progress::working("quantising", interrupt)),
    };
    let candidate = Candidate::write(&args.input, output, &params).map_err(output_hint)?;
    let summary = match gate {
        None => candidate.publish().map_err(output_hint)?,
        Some(gate) => {
            let report = gate.run(&args.input, candidate.path()).map_err(gate_stage)?;
            if let Some(path) = &args.report {
                write_report(path, candidate.summary(), &report)?;
            }
            say(report.why_not());
            if let (Some(kl), Some(top1)) = (report.kl(), report.top1()) {
                say(format_args!("first token: KL {kl:.2e} nats, the same in {:.1} %", 100.0 * top1));
            }
            if !report.passed() && args.force {
                note("below the floor: written because of --force, and marked");
            }
            candidate.publish_checked(&report, args.force).map_err(output_hint)?
        }
    };
    tell(output, &summary);
    Ok(())
}

/// Says what helps where OUT is in the way.
fn output_hint(error: Error) -> anyhow::Error {
    match &error {
        Error::BadParameter { name: "output", reason, .. } if reason.starts_with("exists already") => {
            Problem::new(USAGE, error.code(), error.to_string()).hint("--overwrite replaces it").into()
        }
        _ => error.into(),
    }
}

/// Says what could not be read, or that the comparison found no room for a file of its own.
fn gate_stage(error: Error) -> anyhow::Error {
    match &error {
        Error::Io { action: "write", .. } => {
            let hint =
                "the comparison needs some megabytes in the folder for temporary files (TMPDIR), or -m TEXT.gguf";
            Problem::failed(error.code(), error.to_string()).hint(hint).into()
        }
        _ => anyhow::Error::new(error).context(Stage::Model),
    }
}

fn rules(args: &QuantizeArgs) -> Result<Rules> {
    let tower = match args.tower {
        Tower::Q8_0 => TowerPrecision::Q8_0,
        Tower::F16 => TowerPrecision::F16,
    };
    let behind = match args.projector {
        Behind::F16 => ProjectorPrecision::F16,
        Behind::Q8_0 => ProjectorPrecision::Q8_0,
        Behind::F32 => ProjectorPrecision::F32,
    };
    let mut rules = Rules::new(tower, behind);
    for expression in &args.keep {
        rules.keep(expression)?;
    }
    Ok(rules)
}

/// The comparison, with its pictures read: a folder without any is found out before minutes of work.
fn gate(args: &QuantizeArgs, interrupt: &Interrupt) -> Result<Option<Gate>> {
    let Some(what) = &args.check else { return Ok(None) };
    let pictures = if what == Path::new("builtin") { builtin_pictures()? } else { folder(what)? };
    for (flag, value) in [("--min-cosine", args.min_cosine), ("--min-row-cosine", args.min_row_cosine)] {
        if !(-1.0..=1.0).contains(&value) {
            return Err(Problem::usage(format!("{flag} {value}: a cosine is -1 to 1")).into());
        }
    }
    let mut gate = Gate::new(pictures);
    gate.text_model.clone_from(&args.model);
    gate.floor = Floor { mean_cosine: args.min_cosine, worst_cosine: args.min_row_cosine };
    gate.threads = args.threads.map(|t| t.0);
    gate.progress = Some(progress::working("comparing", interrupt));
    interrupt.watch(gate.cancel.clone())?;
    Ok(Some(gate))
}

/// The pictures of a folder, by name. Files of other kinds are passed over, damaged pictures are not.
fn folder(dir: &Path) -> Result<Vec<GatePicture>> {
    let io = |source| Error::Io { action: "read", path: dir.to_owned(), source };
    let entries = std::fs::read_dir(dir).map_err(io).context(Stage::Picture)?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(io).context(Stage::Picture)?.path());
    }
    paths.sort();
    let mut pictures = Vec::new();
    for path in paths.into_iter().filter(|p| p.is_file()) {
        match load(&path, &DecodeOptions::default()) {
            // only looked at whether it can be decoded: all of a folder at once may be more than the memory
            Ok(_) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                pictures.push(GatePicture { name, image: path.into() });
            }
            Err(Error::PictureFormat { .. }) => tracing::debug!(file = %path.display(), "no picture"),
            Err(error) => return Err(anyhow::Error::new(error).context(Stage::Picture)),
        }
    }
    if pictures.is_empty() {
        return Err(Problem::usage(format!("--check {}: no picture in this folder", dir.display())).into());
    }
    Ok(pictures)
}

fn tell(output: &Path, summary: &Summary) {
    say(summary.plan.sums());
    let seconds = summary.took.as_secs_f64();
    let (before, after) = (summary.source_bytes, summary.target_bytes);
    let percent = 100.0 * (after as f64 / before.max(1) as f64 - 1.0);
    say(format_args!("{}: {before} -> {after} bytes ({percent:+.1} %) in {seconds:.2} s", output.display()));
}

/// Finds out before minutes of work whether a report can be written: never over a file that is read or made here.
fn report_place(report: &Path, kept: &[&Path], overwrite: bool) -> Result<()> {
    let refuse = |path: &Path, why: &str| Problem::usage(format!("--report {}: {why}", path.display()));
    for path in report_files(report) {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            return Err(refuse(&path, "there is no such folder").into());
        }
        if kept.iter().any(|other| same_place(&path, other)) {
            return Err(refuse(&path, "is another file of this command").into());
        }
        if path.is_dir() {
            return Err(refuse(&path, "is a folder").into());
        }
        if !overwrite && path.symlink_metadata().is_ok() {
            return Err(refuse(&path, "exists already").hint("--overwrite replaces it").into());
        }
    }
    Ok(())
}

/// Whether two paths lead to one file, which may not be there yet.
fn same_place(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| {
        let found =
            std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned());
        match (found.parent().map(std::fs::canonicalize), found.file_name()) {
            (Some(Ok(folder)), Some(name)) => folder.join(name),
            _ => found,
        }
    };
    place(a) == place(b)
}

fn report_files(report: &Path) -> [PathBuf; 2] {
    ["json", "md"].map(|ending| report.with_extension(ending))
}

fn write_report(path: &Path, summary: &Summary, report: &GateReport) -> Result<()> {
    let [json, markdown] = report_files(path);
    save(&json, format!("{:#}\n", json_of(summary, report)).as_bytes())?;
    save(&markdown, report.markdown().as_bytes())?;
    Ok(())
}

fn json_of(summary: &Summary, report: &GateReport) -> Value {
    let pictures = report.pictures.iter().map(|p| {
        json!({
            "name": p.name,
            "rows": distance(&p.rows),
            "layers": p.layers.iter().map(|l| json!({ "name": l.name, "rows": distance(&l.rows) })).collect::<Vec<_>>(),
            "answer": p.answer.map(|a| json!({ "kl": a.kl, "same_top": a.same_top })),
        })
    });
    json!({
        // a path need not be text, which JSON is
        "source": report.source.display().to_string(),
        "source_xxh3": format!("{:032x}", summary.source_hash),
        "data_xxh3": format!("{:032x}", summary.data_hash),
        "source_bytes": summary.source_bytes,
        "target_bytes": summary.target_bytes,
        "rules": summary.plan.rules().to_string(),
        "text_model": report.text_model.as_ref().map(|path| path.display().to_string()),
        "passed": report.passed(),
        "floor": { "mean_cosine": report.floor.mean_cosine, "worst_cosine": report.floor.worst_cosine },
        "rows": distance(&report.rows),
        "kl": report.kl(),
        "top1": report.top1(),
        "layers": report.layers.iter().map(|l| json!({ "name": l.name, "rows": distance(&l.rows) })).collect::<Vec<_>>(),
        "pictures": pictures.collect::<Vec<_>>(),
    })
}

fn distance(d: &Distance) -> Value {
    json!({
        "n": d.rows,
        "mean_cosine": d.mean_cosine,
        "worst_cosine": d.worst_cosine,
        "worst_row": d.worst_row,
        "relative_l2": d.relative_l2,
    })
}
