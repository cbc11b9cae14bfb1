//! This library with cache and reuse off: what a cache adds is measured against it, and in builds without upstream's helper
//! it stands for the plain path.

use std::sync::Arc;

use anyhow::Result;
use llava::llama::Model;
use llava::mtmd::Projector;
use llava::session::{Message, Part, Session, SessionParams};

use super::sample::{Sample, ask};
use crate::signals::Interrupt;

/// A session that forgets everything between two questions.
#[derive(Debug)]
pub struct Off(Session);

impl Off {
    #[cfg(not(feature = "parity"))]
    pub const NAME: &str =
        "the same library, cache and reuse off (this build has no upstream helper: feature `parity`)";
    #[cfg(not(feature = "parity"))]
    pub const SHORT: &str = "off";

    pub fn new(model: &Arc<Model>, projector: &Arc<Projector>, params: SessionParams) -> Result<Self> {
        let params = SessionParams { cache: None, snapshots: None, ..params };
        Ok(Self(Session::new(model, Some(Arc::clone(projector)), params)?))
    }

    /// Answers `parts` after what was said before, from nothing.
    pub fn answer(&mut self, history: &[Message], parts: &[Part], interrupt: &Interrupt) -> Result<Sample> {
        self.0.clear();
        self.0.set_messages(history.to_vec());
        ask(&mut self.0, parts, interrupt)
    }
}
