//! What an answer cost: as JSON for programs, as a line for people.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use llava::compress::Reason;
use llava::session::{ImageSource, Usage};
use serde_json::{Value, json};

/// What stays the same for all answers of a run.
#[derive(Debug, Clone)]
pub struct Facts {
    /// From the start of the program to the point where a question could be asked.
    pub load: Duration,
    pub model: String,
    pub projector: Option<String>,
}

impl Facts {
    pub fn new(load: Duration, model: &Path, projector: Option<&Path>) -> Self {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { load, model: name(model), projector: projector.map(name) }
    }

    /// The object of `--usage-json`.
    pub fn json(&self, usage: &Usage) -> Value {
        let images: Vec<Value> = usage
            .images
            .iter()
            .map(|image| {
                json!({
                    "source": image.source.name(),
                    "encode_ms": ms(image.encode),
                    "fetch_ms": ms(image.fetch),
                    "rows": image.rows.get(),
                    "tokens": image.tokens.get(),
                    "compress_ms": ms(image.compress),
                    "reasons": image.reasons.iter().map(reason).collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({
            "load_ms": ms(self.load),
            "ttft_ms": ms(usage.time_to_first_token),
            "prefill_ms": ms(usage.prefill),
            "text_tokens": usage.text_tokens.get(),
            "visual_tokens": usage.visual_tokens.get(),
            "reused_tokens": usage.reused_tokens.get(),
            "decode_tokens": usage.decode_tokens.get(),
            "decode_tps": (usage.tokens_per_second() * 1e3).round() / 1e3,
            "images": images,
            "finish": usage.finish.name(),
            "model": self.model,
            "projector": self.projector,
        })
    }

    /// One line of timings, and one for each picture.
    pub fn lines(&self, usage: &Usage) -> Vec<String> {
        let mut lines = vec![format!(
            "load {:.0} ms | encode {:.0} ms | prefill {:.0} ms ({} text + {} visual tokens, {} reused) | first token {:.0} ms | \
             {} tokens at {:.1}/s | {}",
            ms(self.load),
            ms(usage.encode()),
            ms(usage.prefill),
            usage.text_tokens.get(),
            usage.visual_tokens.get(),
            usage.reused_tokens.get(),
            ms(usage.time_to_first_token),
            usage.decode_tokens.get(),
            usage.tokens_per_second(),
            usage.finish.name(),
        )];
        lines.extend(usage.images.iter().enumerate().map(|(i, image)| {
            let (rows, number) = (image.rows.get(), i + 1);
            let mut line = match image.source {
                ImageSource::Encoded => format!("picture {number}: encoded, {:.1} ms, {rows} rows", ms(image.encode)),
                ImageSource::Kv => format!("picture {number}: still in the context, {rows} rows"),
                ImageSource::Snapshot => format!("picture {number}: hit (saved context), {rows} rows"),
                tier => format!("picture {number}: hit ({}), {:.1} ms, {rows} rows", tier.name(), ms(image.fetch)),
            };
            if image.tokens != image.rows {
                let _ = write!(line, ", {} visual tokens", image.tokens.get());
            }
            if image.compress > Duration::ZERO {
                let _ = write!(line, " in {:.1} ms", ms(image.compress));
            }
            let why: Vec<String> = image.reasons.iter().map(ToString::to_string).collect();
            // all rows because nobody asked for fewer is nothing to report
            if !why.is_empty() && (image.tokens != image.rows || image.reasons != [Reason::Asked]) {
                let _ = write!(line, ": {}", why.join("; "));
            }
            line
        }));
        lines
    }
}

/// A reason for a report.
pub fn reason(reason: &Reason) -> Value {
    json!({ "name": reason.name(), "text": reason.to_string() })
}

/// Milliseconds with microseconds behind the point.
pub fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
