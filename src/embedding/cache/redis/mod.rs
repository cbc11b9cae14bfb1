//! A Redis or Valkey server as the tier that several machines share (feature `redis`).
//!
//! What this room does: keeps entries in a server by key, within a time per call; leaves a server alone that fails.
//! What it never does: wait longer than it was told to, panic, speak TLS, show a password, or believe what it is given: entries carry
//! a key and a checksum, and the cache checks both.
//! Who calls it: the cache, through [`SharedTier`]; applications and the program make one.

mod breaker;
mod config;
mod link;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use config::RedisConfig;

use super::flight::lock;
use super::shared::{SharedError, SharedTier};
use crate::embedding::key::EmbeddingKey;
use crate::error::Result;
use breaker::{Breaker, Pass};
use config::Server;
use link::{Fault, Link, Reply};

/// Connections kept for the next calls.
const MOST_IDLE: usize = 8;
/// Unused for longer, a connection is not trusted: what lies between may have forgotten it without a word.
const LONGEST_IDLE: Duration = Duration::from_secs(60);

/// A Redis or Valkey server as a [`SharedTier`].
///
/// **What is stored.** Under `llava:1:` and the 32 hexadecimal digits of the key, one string: the entry as it would lie on a disk,
/// 128 bytes and the rows as f32 or f16 ([`CacheConfig::dtype`](crate::embedding::CacheConfig::dtype)). A vision tower of 576
/// rows of 4096 floats takes 9.4 MB a picture, half of that as f16. The commands are `GET` and `SET`, with `AUTH` and `SELECT`
/// before them where the URL says so. One server is spoken to, not a cluster.
///
/// **Memory.** The server has to be told what it may use and what to do when it is full, or it refuses new values once it is:
/// `maxmemory 8gb` and `maxmemory-policy allkeys-lru` (`allkeys-lfu` where few pictures come back often). Beside other data that must
/// stay, use a server of its own, or `volatile-lru` and [`RedisConfig::ttl`]. Saving to disk (`save`, `appendonly`) is not needed:
/// everything can be computed again. Values above [`RedisConfig::largest_value_bytes`] are neither sent nor taken.
///
/// **Time.** A call, whatever happens in it, is over after [`RedisConfig::response_timeout`]. After a failure the server is left
/// alone for 5 s, after further ones for twice as long each, up to 60 s; then one call tries. Until then calls return
/// [`SharedError::Open`] at once. So a server that is dead or slow costs one time-out, then one in a minute, and never an answer.
/// Calls on different threads do not wait for each other: each has a connection, and eight are kept for the next calls. (With one
/// connection behind a lock, every thread would wait for the time-outs of those before it.) A server that answers, but takes
/// nothing (full, or a read-only copy), is still asked for what it has.
///
/// **Security.** Nothing is encrypted, neither the login nor the rows, and rows tell a good deal about a picture: use it inside a
/// network you trust, on a unix socket, or through a tunnel. Who can write to the server can give other rows for a picture: the checksum
/// finds accidents, not forgery. Tenants who share a server and must not find each other's pictures each set
/// [`CacheConfig::salt`](crate::embedding::CacheConfig::salt) and, better, a user of their own with `~prefix*` in its rights.
///
/// ```
/// use std::sync::Arc;
/// use llava::embedding::{CacheConfig, EmbeddingCache, RedisConfig, RedisTier};
/// let tier = RedisTier::new(RedisConfig::new("redis://127.0.0.1:6379"))?;
/// let cache = EmbeddingCache::new(CacheConfig::default().shared(Arc::new(tier)).salt("tenant 7's secret"));
/// # Ok::<(), llava::Error>(())
/// ```
pub struct RedisTier {
    config: RedisConfig,
    server: Server,
    asking: Breaker,
    storing: Breaker,
    idle: Mutex<Vec<Link>>,
    waiting: Arc<AtomicUsize>,
}

impl RedisTier {
    /// A tier. Nothing is connected to before something is asked for.
    ///
    /// # Errors
    /// [`Error::BadParameter`](crate::Error::BadParameter) where the URL cannot be used or a number is out of range.
    pub fn new(config: RedisConfig) -> Result<Self> {
        let server = config.server()?;
        let breaker = || Breaker::new(config.first_pause, config.longest_pause);
        Ok(Self {
            server,
            asking: breaker(),
            storing: breaker(),
            idle: Mutex::new(Vec::new()),
            waiting: Arc::default(),
            config,
        })
    }

    fn call(&self, command: &[Vec<u8>]) -> std::result::Result<Reply, Fault> {
        let command = &redis::pack_command(command);
        let until = Instant::now() + self.config.response_timeout;
        if let Some(mut link) = self.kept() {
            match link.ask(command, self.config.largest_value_bytes, until) {
                // the server was started anew, or closes what is idle: the other connections are as dead
                Err(Fault::Gone) => drop(std::mem::take(&mut *lock(&self.idle))),
                result => return self.keep(link, result),
            }
        }
        let connected = until.min(Instant::now() + self.config.connect_timeout);
        let mut link = Link::connect(&self.server, &self.waiting, connected)?;
        let result = link.ask(command, self.config.largest_value_bytes, until);
        self.keep(link, result)
    }

    fn kept(&self) -> Option<Link> {
        let mut idle = lock(&self.idle);
        let link = idle.pop()?;
        if link.idle() < LONGEST_IDLE {
            return Some(link);
        }
        // the last one used lies on top
        idle.clear();
        None
    }

    fn keep(&self, link: Link, result: std::result::Result<Reply, Fault>) -> std::result::Result<Reply, Fault> {
        if matches!(result, Ok(_) | Err(Fault::Refused(_))) {
            let mut idle = lock(&self.idle);
            if idle.len() < MOST_IDLE {
                idle.push(link);
            }
        }
        result
    }

    fn key(&self, key: EmbeddingKey) -> Vec<u8> {
        format!("{}{key}", self.config.prefix).into_bytes()
    }

    fn failed(&self, pass: Pass<'_>, what: &'static str, fault: Fault) -> SharedError {
        if let Some(pause) = pass.failed(Instant::now()) {
            tracing::warn!(server = %self.server, %fault, ?pause, "the shared cache {what} and is left alone");
        }
        self.error(fault)
    }

    fn error(&self, fault: Fault) -> SharedError {
        SharedError::Failed(format!("{}: {fault}", self.server))
    }
}

impl SharedTier for RedisTier {
    fn get(&self, key: EmbeddingKey) -> std::result::Result<Option<Vec<u8>>, SharedError> {
        let pass = self.asking.enter(Instant::now()).ok_or(SharedError::Open)?;
        match self.call(&[b"GET".to_vec(), self.key(key)]) {
            Ok(reply @ (Reply::Nothing | Reply::Value(_))) => {
                pass.succeeded();
                Ok(if let Reply::Value(value) = reply { Some(value) } else { None })
            }
            Ok(Reply::Done) => Err(self.failed(pass, "does not answer", Fault::Garbage("the answer to GET"))),
            // faults of this key, not of the server
            Err(fault @ Fault::TooLarge(_)) => {
                pass.succeeded();
                Err(self.error(fault))
            }
            Err(Fault::Refused(reason)) if reason.starts_with("WRONGTYPE") => {
                pass.succeeded();
                Err(self.error(Fault::Refused(reason)))
            }
            Err(fault) => Err(self.failed(pass, "does not answer", fault)),
        }
    }

    fn put(&self, key: EmbeddingKey, bytes: Vec<u8>) -> std::result::Result<(), SharedError> {
        if bytes.len() > self.config.largest_value_bytes {
            return Err(self.error(Fault::TooLarge(bytes.len() as u64)));
        }
        let storing = self.storing.enter(Instant::now()).ok_or(SharedError::Open)?;
        let pass = self.asking.enter(Instant::now()).ok_or(SharedError::Open)?;
        let mut command = vec![b"SET".to_vec(), self.key(key), bytes];
        if let Some(ttl) = self.config.ttl {
            command.extend([b"PX".to_vec(), ttl.as_millis().to_string().into_bytes()]);
        }
        match self.call(&command) {
            Ok(Reply::Done) => {
                pass.succeeded();
                storing.succeeded();
                Ok(())
            }
            Ok(_) => Err(self.failed(pass, "does not answer", Fault::Garbage("the answer to SET"))),
            Err(fault @ Fault::Refused(_)) => {
                pass.succeeded();
                Err(self.failed(storing, "takes nothing", fault))
            }
            Err(fault) => Err(self.failed(pass, "does not answer", fault)),
        }
    }
}

impl fmt::Debug for RedisTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTier").field("config", &self.config).finish_non_exhaustive()
    }
}
