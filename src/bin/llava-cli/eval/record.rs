//! What one variant made of one question, as a line of JSON.

use serde_json::{Map, Value, json};

use super::items::Item;

/// How far a variant's next-token distributions are from the first variant's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// KL divergence at the first token of the answer that is not blank, in nats.
    pub first: f64,
    /// Whether both find the same token likeliest there.
    pub same_first: bool,
    /// Mean KL divergence over the first variant's answer, its end included, in nats per token.
    pub mean: f64,
}

/// An answer and what it cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub answer: String,
    /// Credit, 0 to 1.
    pub score: f64,
    pub encode_ms: f64,
    pub prefill_ms: f64,
    pub decode_ms: f64,
    pub ttft_ms: f64,
    pub text_tokens: u64,
    /// Of the pictures: rows that the encoder gave.
    pub image_rows: u64,
    /// Of the pictures: rows that the text model got.
    pub image_tokens: u64,
    pub visual_tokens: u64,
    pub decode_tokens: u64,
    /// What prompt and answer take in the KV cache; `None` where the model does not say.
    pub kv_bytes: Option<f64>,
    pub finish: String,
    /// `None` for the first variant, and where vocabularies differ.
    pub distance: Option<Distance>,
}

impl Record {
    pub fn is_right(&self) -> bool {
        self.score >= 1.0
    }

    pub fn to_json(&self, item: &Item, variant: &str) -> Value {
        let mut value = json!({
            "item": item.id,
            "variant": variant,
            "task": item.task,
            "question": item.question,
            "right": item.answers,
            "answer": self.answer,
            "score": self.score,
            "encode_ms": self.encode_ms,
            "prefill_ms": self.prefill_ms,
            "decode_ms": self.decode_ms,
            "ttft_ms": self.ttft_ms,
            "text_tokens": self.text_tokens,
            "image_rows": self.image_rows,
            "image_tokens": self.image_tokens,
            "visual_tokens": self.visual_tokens,
            "decode_tokens": self.decode_tokens,
            "kv_bytes": self.kv_bytes,
            "finish": self.finish,
        });
        if let Some(distance) = &self.distance {
            value["kl_first"] = json!(distance.first);
            value["same_first"] = json!(distance.same_first);
            value["kl_mean"] = json!(distance.mean);
        }
        value
    }

    /// Reads what [`to_json`](Self::to_json) wrote; says which field is missing.
    pub fn from_json(object: &Map<String, Value>) -> Result<Self, String> {
        let text = |key: &str| {
            object.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| format!("`{key}` is no text"))
        };
        let number = |key: &str| object.get(key).and_then(Value::as_f64).ok_or_else(|| format!("`{key}` is no number"));
        let count = |key: &str| object.get(key).and_then(Value::as_u64).ok_or_else(|| format!("`{key}` is no count"));
        let distance = match object.get("same_first") {
            None => None,
            Some(same) => Some(Distance {
                first: number("kl_first")?,
                same_first: same.as_bool().ok_or("`same_first` is no truth value")?,
                mean: number("kl_mean")?,
            }),
        };
        Ok(Self {
            answer: text("answer")?,
            score: number("score")?,
            encode_ms: number("encode_ms")?,
            prefill_ms: number("prefill_ms")?,
            decode_ms: number("decode_ms")?,
            ttft_ms: number("ttft_ms")?,
            text_tokens: count("text_tokens")?,
            image_rows: count("image_rows")?,
            image_tokens: count("image_tokens")?,
            visual_tokens: count("visual_tokens")?,
            decode_tokens: count("decode_tokens")?,
            kv_bytes: object.get("kv_bytes").and_then(Value::as_f64),
            finish: text("finish")?,
            distance,
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::eval::items::Source;
    use crate::eval::score::Scorer;

    pub fn item(id: &str, task: &str) -> Item {
        Item {
            id: id.into(),
            task: task.into(),
            source: Source::File("a.png".into()),
            before: Vec::new(),
            question: "?".into(),
            answers: vec!["x".into()],
            choices: Vec::new(),
            scorer: Scorer::Exact,
        }
    }

    pub fn record(score: f64) -> Record {
        Record {
            answer: " x\n\"é".into(),
            score,
            encode_ms: 1.5,
            prefill_ms: 0.1 + 0.2,
            decode_ms: 3.0,
            ttft_ms: 4.0,
            text_tokens: 5,
            image_rows: 196,
            image_tokens: 49,
            visual_tokens: 49,
            decode_tokens: 2,
            kv_bytes: Some(1024.0),
            finish: "end".into(),
            distance: Some(Distance { first: 0.25, same_first: false, mean: 1e-17 }),
        }
    }

    #[test]
    fn a_line_is_read_back() {
        for distance in [record(0.75).distance, None] {
            let record = Record { distance, ..record(0.75) };
            let line = record.to_json(&item("a-1", "a"), "q8").to_string();
            assert!(!line.contains('\n'));
            let value: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(Record::from_json(value.as_object().unwrap()), Ok(record));
        }
        let error = Record::from_json(json!({"answer": "x"}).as_object().unwrap()).unwrap_err();
        assert_eq!(error, "`score` is no number");
    }
}
