//! Which server, and what it may cost.

use std::fmt;
#[cfg(unix)]
use std::path::PathBuf;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::error::{Error, Result};

/// Time-outs beyond it help nobody, and sums of times stay in range.
const LONGEST: Duration = Duration::from_secs(3600);
const LONGEST_TTL: Duration = Duration::from_secs(10 * 365 * 86400);
/// No server takes longer values.
const LARGEST_BYTES: usize = 512 << 20;

/// Which server a [`RedisTier`](super::RedisTier) asks, and what that may cost. `Debug` shows neither user nor password.
///
/// ```
/// use std::time::Duration;
/// use llava::embedding::RedisConfig;
/// let config = RedisConfig::new("redis://cache.internal:6379/2").ttl(Duration::from_secs(7 * 86400));
/// assert!(format!("{config:?}").contains("cache.internal:6379/2"));
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    url: String,
    pub(super) prefix: String,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    pub(super) ttl: Option<Duration>,
    pub(super) largest_value_bytes: usize,
    pub(super) first_pause: Duration,
    pub(super) longest_pause: Duration,
}

impl RedisConfig {
    /// A server by URL: `redis://[[user]:password@]host[:port][/database]` (also `valkey://`), or
    /// `unix:///path/to/socket[?db=1&user=..&pass=..]`. Special characters of user and password are percent-encoded.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "llava:1:".into(),
            connect_timeout: Duration::from_millis(100),
            response_timeout: Duration::from_millis(250),
            ttl: None,
            largest_value_bytes: 16 << 20,
            first_pause: Duration::from_secs(5),
            longest_pause: Duration::from_secs(60),
        }
    }

    /// What stands before the 32 hexadecimal digits of a key; `llava:1:` where nothing is said.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Most time for looking up the name, connecting and logging in: 1 ms to 1 h, 100 ms where nothing is said. It is part of
    /// the response time-out, not added to it. Inside a data centre a connection stands after a few milliseconds; where the
    /// first packet is lost, systems repeat it after a second, so that waiting a little longer would change nothing.
    #[must_use]
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = time;
        self
    }

    /// Most time for a whole call, connecting and transfer included: 1 ms to 1 h, 250 ms where nothing is said. The largest
    /// value takes 134 ms at 1 Gbit/s; the rest is for a server that is busy. Raise it together with
    /// [`RedisConfig::largest_value_bytes`].
    #[must_use]
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = time;
        self
    }

    /// How long a value lives after it was written: 1 ms to 10 years. Where nothing is said it lives until the server needs
    /// the room.
    #[must_use]
    pub fn ttl(mut self, time: Duration) -> Self {
        self.ttl = Some(time);
        self
    }

    /// Largest value that is sent or taken, at most 512 MiB; 16 MiB where nothing is said (576 rows of 4096 floats are 9 MiB).
    #[must_use]
    pub fn largest_value_bytes(mut self, bytes: usize) -> Self {
        self.largest_value_bytes = bytes;
        self
    }

    /// How long a server that failed is left alone: the first time, and at most after that has doubled with every further
    /// failure. 1 ms to 1 h; 5 s and 60 s where nothing is said.
    #[must_use]
    pub fn pause(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_pause, self.longest_pause) = (first, longest);
        self
    }

    /// Checks all of it.
    pub(super) fn server(&self) -> Result<Server> {
        let server = Server::parse(&self.url).map_err(|reason| bad("redis URL", shown(&self.url), reason))?;
        for (name, time) in [
            ("redis connect time-out", self.connect_timeout),
            ("redis response time-out", self.response_timeout),
            ("redis pause", self.first_pause),
            ("redis longest pause", self.longest_pause),
        ] {
            if !(Duration::from_millis(1)..=LONGEST).contains(&time) {
                return Err(bad(name, format!("{time:?}"), "1 ms to 1 h".into()));
            }
        }
        if let Some(ttl) = self.ttl.filter(|t| !(Duration::from_millis(1)..=LONGEST_TTL).contains(t)) {
            return Err(bad("redis TTL", format!("{ttl:?}"), "1 ms to 10 years".into()));
        }
        if !(1..=LARGEST_BYTES).contains(&self.largest_value_bytes) {
            let value = self.largest_value_bytes.to_string();
            return Err(bad("redis largest value", value, format!("1 to {LARGEST_BYTES} bytes")));
        }
        Ok(server)
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("server", &Server::parse(&self.url).map_or_else(|_| shown(&self.url), |s| s.to_string()))
            .field("prefix", &self.prefix)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("ttl", &self.ttl)
            .field("largest_value_bytes", &self.largest_value_bytes)
            .field("first_pause", &self.first_pause)
            .field("longest_pause", &self.longest_pause)
            .finish()
    }
}

fn bad(name: &'static str, value: String, reason: String) -> Error {
    Error::BadParameter { name, value, reason }
}

/// What can be shown of a URL that could not be read: nothing, where a password may hide in it.
fn shown(url: &str) -> String {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let plain = scheme.len() <= 16 && scheme.bytes().all(|b| b.is_ascii_lowercase() || b == b'+');
    match url.contains(['@', '?', '#']) || !plain || scheme.is_empty() {
        true if plain && !scheme.is_empty() => format!("{scheme}://***"),
        true => "***".into(),
        false => url.chars().take(100).collect(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(String, u16),
    #[cfg(unix)]
    Unix(PathBuf),
}

/// What a URL says. `Display` and `Debug` show the address and the database only.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
}

impl Server {
    fn parse(url: &str) -> Result<Self, String> {
        if url.starts_with("rediss://") || url.starts_with("valkeys://") {
            return Err("TLS is not spoken here: use a tunnel, or a network you trust".into());
        }
        // the crate's own words quote parts of the URL
        let info: ConnectionInfo = url.into_connection_info().map_err(|_| {
            "redis://[[user]:password@]host[:port][/database] or unix:///path[?db=..&user=..&pass=..]".to_owned()
        })?;
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) if !host.is_empty() => Address::Tcp(host.clone(), *port),
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
            _ => return Err("no address that can be connected to".into()),
        };
        let settings = info.redis_settings();
        let server = Self {
            address,
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
            database: settings.db(),
        };
        if server.user.is_some() && server.password.is_none() {
            return Err("a user without a password; a password alone is written `:password@`".into());
        }
        if server.database < 0 {
            return Err("a database below 0".into());
        }
        if settings.protocol() != ProtocolVersion::RESP2 {
            return Err("only the protocol RESP2 is spoken here".into());
        }
        Ok(server)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}")?,
            Address::Tcp(host, port) => write!(f, "{host}:{port}")?,
            #[cfg(unix)]
            Address::Unix(path) => write!(f, "{}", path.display())?,
        }
        if self.database != 0 {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Server {
        RedisConfig::new(url).server().unwrap()
    }

    #[test]
    fn urls_are_read() {
        let server = parsed("redis://u%40:p%2Fw%3a@h.example:7000/3");
        assert_eq!(server.address, Address::Tcp("h.example".into(), 7000));
        assert_eq!((server.user.as_deref(), server.password.as_deref()), (Some("u@"), Some("p/w:")));
        assert_eq!((server.database, server.to_string().as_str()), (3, "h.example:7000/3"));
        assert_eq!(parsed("valkey://:pw@127.0.0.1").password.as_deref(), Some("pw"));
        assert_eq!(parsed("redis://[::1]/").to_string(), "[::1]:6379");
        #[cfg(unix)]
        {
            let server = parsed("unix:///run/r.sock?db=2&user=u&pass=secret");
            assert_eq!((server.address.clone(), server.database), (Address::Unix("/run/r.sock".into()), 2));
            assert_eq!((server.user.as_deref(), server.password.as_deref()), (Some("u"), Some("secret")));
            assert_eq!(format!("{server:?}"), "/run/r.sock/2");
        }
    }

    #[test]
    fn bad_ones_are_refused_without_a_word_of_the_password() {
        for url in [
            "",
            "hunter2",
            "hunter2@host",
            "http://u:hunter2@host",
            "rediss://u:hunter2@host",
            "redis://u:hunter2@",
            "redis://u:hunter2@host/x",
            "redis://u:hunter2@host/-1",
            "redis://u:hunter2@host:99999",
            "redis://u:hunter2@0.0.0.0",
            "redis://hunter2@host",
            "redis://u:hunter2/x?y@host",
            "redis:u:hunter2@host",
            "redis://u:%ff%fehunter2@host",
            "redis://u:hunter2@host/?protocol=resp3",
            "redis://host/?protocol=hunter2",
            "unix:?pass=hunter2",
            "unix://host/s?db=hunter2&pass=hunter2@x",
            "hunter2://host",
        ] {
            let config = RedisConfig::new(url);
            let error = config.server().unwrap_err();
            assert_eq!(error.code(), "bad-parameter", "{url}");
            for text in [error.to_string(), format!("{error:?}"), format!("{config:?}")] {
                assert!(!text.contains("hunter2"), "{url}: {text}");
            }
        }
    }

    #[test]
    fn numbers_have_ranges() {
        let good = || RedisConfig::new("redis://localhost");
        assert!(good().server().is_ok());
        let (zero, long) = (Duration::ZERO, Duration::MAX);
        let second = Duration::from_secs(1);
        for config in [
            good().connect_timeout(zero),
            good().connect_timeout(long),
            good().response_timeout(zero),
            good().response_timeout(long),
            good().pause(zero, second),
            good().pause(second, long),
            good().ttl(zero),
            good().ttl(long),
            good().largest_value_bytes(0),
            good().largest_value_bytes(usize::MAX),
        ] {
            assert_eq!(config.server().unwrap_err().code(), "bad-parameter", "{config:?}");
        }
    }
}
