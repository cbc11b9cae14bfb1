//! One answer, measured.

use std::time::{Duration, Instant};

use anyhow::Result;
use llava::session::{FinishReason, ImageSource, Part, Session, Usage};
use serde_json::{Value, json};

use super::stats::ms;
use crate::exit::Problem;
use crate::signals::Interrupt;

/// What an answer said and cost. Of a conversation: all its answers, one after the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// From the question to its first token.
    pub first_token: Duration,
    /// From the question to the answer's end.
    pub whole: Duration,
    pub text: String,
    /// Pictures that went through the encoder.
    pub encoded: usize,
    /// Visual tokens that went through the text model.
    pub visual_prefilled: usize,
    /// A stop text of our chat template ended it: the plain path knows none and goes on.
    pub stopped: bool,
    /// Loading, where a process of its own answered.
    pub load: Option<Duration>,
}

impl Sample {
    /// Takes another answer of the same conversation in.
    pub fn add(&mut self, next: &Sample) {
        self.first_token += next.first_token;
        self.whole += next.whole;
        self.text.push_str(&next.text);
        self.encoded += next.encoded;
        self.visual_prefilled += next.visual_prefilled;
        self.stopped |= next.stopped;
    }

    /// Whether both said the same, as far as ours went.
    pub fn agrees(&self, plain: &Sample) -> bool {
        if self.stopped { plain.text.starts_with(&self.text) } else { plain.text == self.text }
    }

    /// One line for the parent process.
    pub fn to_json(&self) -> Value {
        json!({
            "first_token_ms": ms(self.first_token),
            "whole_ms": ms(self.whole),
            "text": self.text,
            "encoded": self.encoded,
            "visual_prefilled": self.visual_prefilled,
            "stopped": self.stopped,
            "load_ms": self.load.map(ms),
        })
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    pub fn from_json(value: &Value) -> Result<Self> {
        let missing = || Problem::failed("failed", format!("a child process reported something else: {value}"));
        let time = |name: &str| {
            let ms = value[name].as_f64().filter(|ms| ms.is_finite() && *ms >= 0.0)?;
            Duration::try_from_secs_f64(ms / 1e3).ok()
        };
        let count = |name: &str| value[name].as_u64().and_then(|n| usize::try_from(n).ok()).ok_or_else(missing);
        Ok(Self {
            first_token: time("first_token_ms").ok_or_else(missing)?,
            whole: time("whole_ms").ok_or_else(missing)?,
            text: value["text"].as_str().ok_or_else(missing)?.to_owned(),
            encoded: count("encoded")?,
            visual_prefilled: count("visual_prefilled")?,
            stopped: value["stopped"].as_bool().ok_or_else(missing)?,
            load: time("load_ms"),
        })
    }
}

/// Lets the threads of whoever computed before fall asleep: they spin for a while.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Asks a session and runs the answer to its end.
pub fn ask(session: &mut Session, parts: &[Part], interrupt: &Interrupt) -> Result<Sample> {
    interrupt.watch(session.cancel_token())?;
    let parts = parts.to_vec();
    settle();
    let start = Instant::now();
    let (text, usage) = session.ask(parts)?.finish()?;
    let whole = start.elapsed();
    Ok(Sample {
        first_token: usage.time_to_first_token,
        whole,
        text,
        encoded: encoded(&usage),
        visual_prefilled: visual_prefilled(&usage),
        stopped: usage.finish == FinishReason::Stop,
        load: None,
    })
}

fn encoded(usage: &Usage) -> usize {
    usage.images.iter().filter(|i| i.source == ImageSource::Encoded).count()
}

fn visual_prefilled(usage: &Usage) -> usize {
    let held = |source| matches!(source, ImageSource::Kv | ImageSource::Snapshot);
    usage.images.iter().filter(|i| !held(i.source)).map(|i| i.tokens.get()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str) -> Sample {
        Sample {
            first_token: Duration::from_millis(3),
            whole: Duration::from_millis(5),
            text: text.into(),
            ..Sample::default()
        }
    }

    #[test]
    fn a_report_comes_back_as_it_was() {
        let full = Sample {
            encoded: 1,
            visual_prefilled: 196,
            stopped: true,
            load: Some(Duration::from_micros(1250)),
            ..sample("a \"b\"\n\u{fffd}")
        };
        let line = full.to_json().to_string();
        assert!(!line.contains('\n'));
        assert_eq!(Sample::from_json(&serde_json::from_str(&line).unwrap()).unwrap(), full);
        assert!(Sample::from_json(&json!({"first_token_ms": 1.0})).is_err());
        assert!(Sample::from_json(&json!({"first_token_ms": -1.0})).is_err());
    }

    #[test]
    fn an_answer_that_a_stop_text_ended_agrees_with_its_longer_twin() {
        assert!(sample("a").agrees(&sample("a")) && !sample("a").agrees(&sample("ab")));
        let stopped = Sample { stopped: true, ..sample("a") };
        assert!(stopped.agrees(&sample("ab")) && !stopped.agrees(&sample("b")));
    }

    #[test]
    fn a_conversation_is_the_sum_of_its_answers() {
        let mut sum = sample("a");
        sum.add(&Sample { encoded: 1, visual_prefilled: 4, ..sample("b") });
        assert_eq!((sum.first_token.as_millis(), sum.whole.as_millis(), sum.text.as_str()), (6, 10, "ab"));
        assert_eq!((sum.encoded, sum.visual_prefilled), (1, 4));
    }
}
