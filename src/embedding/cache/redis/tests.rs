//! Servers that misbehave, on the loopback interface.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::embedding::cache::{CacheConfig, EmbeddingCache, Tier, Wanted};
use crate::embedding::rows::{Embedding, Grid};

const TIMEOUT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(600);

/// A server that does `serve` with every connection, on a thread each.
struct Fake {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Fake {
    fn new(serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped, serve) = (Arc::clone(&connections), Arc::clone(&stop), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (serve, number) = (Arc::clone(&serve), count.fetch_add(1, Ordering::Relaxed));
                std::thread::spawn(move || serve(stream.unwrap(), number));
            }
        });
        Self { address, connections, stop }
    }

    /// Says the same to every command.
    fn saying(reply: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::new(move |mut stream, _| {
            while command(&stream).is_some() {
                // who is refused may be gone already
                let _ = stream.write_all(reply.as_ref());
            }
        })
    }

    fn silent() -> Self {
        Self::new(|mut stream, _| {
            let _ = stream.read_to_end(&mut Vec::new());
        })
    }

    fn config(&self) -> RedisConfig {
        config(&format!("redis://{}", self.address))
    }

    fn tier(&self) -> RedisTier {
        RedisTier::new(self.config()).unwrap()
    }

    fn asked(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn config(url: &str) -> RedisConfig {
    RedisConfig::new(url).connect_timeout(TIMEOUT).response_timeout(TIMEOUT).pause(LONG, LONG)
}

/// Reads one command: its words. `None` at the end.
fn command(stream: &TcpStream) -> Option<Vec<String>> {
    // one byte at a time, so that nothing is taken that belongs to the next command
    let mut reader = BufReader::with_capacity(1, stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&n| n > 0)?;
        Some(line.trim_end().to_owned())
    };
    let words = line()?.strip_prefix('*')?.parse().ok()?;
    (0..words).map(|_| line().and_then(|_| line())).collect()
}

fn key(n: u128) -> EmbeddingKey {
    EmbeddingKey::from_u128(n)
}

/// What one call says, in words.
fn said<T: fmt::Debug>(result: std::result::Result<T, SharedError>) -> String {
    result.unwrap_err().to_string()
}

fn timed<T>(job: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (job(), start.elapsed())
}

/// All calls after the first are told at once that the server is not asked.
fn is_left_alone(tier: &RedisTier) {
    for n in 0..50 {
        assert!(matches!(tier.get(key(n)), Err(SharedError::Open)));
        assert!(matches!(tier.put(key(n), vec![0; 100]), Err(SharedError::Open)));
    }
}

#[test]
fn a_silent_server_costs_one_time_out() {
    let server = Fake::silent();
    let tier = server.tier();
    let (words, took) = timed(|| {
        let words = said(tier.get(key(1)));
        is_left_alone(&tier);
        words
    });
    assert_eq!(words, format!("{}: no answer in time", server.address));
    assert!(TIMEOUT <= took && took < TIMEOUT * 2, "{took:?}");
    assert_eq!(server.asked(), 1);
}

#[test]
fn threads_do_not_wait_for_each_other() {
    let server = Fake::silent();
    let tier = server.tier();
    let ((), took) = timed(|| {
        std::thread::scope(|scope| {
            for n in 0..16 {
                let tier = &tier;
                scope.spawn(move || assert!(tier.get(key(n)).is_err()));
            }
        });
    });
    assert!(took < TIMEOUT * 2, "{took:?}");
    is_left_alone(&tier);
}

/// Every read ends in time, the call would not.
#[test]
fn a_server_that_dribbles_costs_one_time_out() {
    let server = Fake::new(|mut stream, _| {
        for byte in b"$1000\r\n".iter().chain(std::iter::repeat_n(&b'x', 1000)) {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let tier = server.tier();
    let (words, took) = timed(|| said(tier.get(key(1))));
    assert!(words.ends_with("no answer in time"), "{words}");
    assert!(TIMEOUT <= took && took < TIMEOUT * 2, "{took:?}");
    is_left_alone(&tier);
}

/// A server that takes nothing out of its socket.
#[test]
fn a_value_that_is_not_taken_costs_one_time_out() {
    let server = Fake::new(|stream, _| {
        std::thread::sleep(TIMEOUT * 3);
        drop(stream);
    });
    let tier = server.tier();
    let (words, took) = timed(|| said(tier.put(key(1), vec![7; 15 << 20])));
    assert!(words.ends_with("no answer in time"), "{words}");
    assert!(TIMEOUT <= took && took < TIMEOUT * 2, "{took:?}");
    is_left_alone(&tier);
}

#[test]
fn connecting_is_part_of_the_call() {
    let server = Fake::silent();
    let url = format!("redis://:secret@{}", server.address);
    let short = TIMEOUT / 4;
    for (connect, response) in [(short, TIMEOUT * 4), (TIMEOUT * 4, short)] {
        let tier = RedisTier::new(config(&url).connect_timeout(connect).response_timeout(response)).unwrap();
        let (result, took) = timed(|| tier.get(key(1)));
        assert!(result.is_err() && short <= took && took < TIMEOUT, "{took:?}");
    }
}

#[test]
fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    // by number and by name
    for host in ["127.0.0.1", "localhost"] {
        let tier = RedisTier::new(config(&format!("redis://{host}:{}", address.port()))).unwrap();
        let (result, took) = timed(|| tier.get(key(1)));
        assert!(matches!(result, Err(SharedError::Failed(_))) && took < TIMEOUT, "{result:?} {took:?}");
        is_left_alone(&tier);
    }
    #[cfg(unix)]
    {
        let tier = RedisTier::new(config("unix:///no/such/socket")).unwrap();
        assert!(said(tier.put(key(1), vec![])).starts_with("/no/such/socket: "));
        is_left_alone(&tier);
    }
}

#[test]
fn a_server_that_hangs_up() {
    let server = Fake::new(|stream, _| drop(stream));
    let tier = server.tier();
    let (words, took) = timed(|| said(tier.get(key(1))));
    assert!(words.ends_with("it closed the connection"), "{words}");
    assert!(took < TIMEOUT, "{took:?}");
    is_left_alone(&tier);
    assert_eq!(server.asked(), 1);
}

#[test]
fn something_else_answers() {
    for reply in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"\x16\x03\x01\x00\xa5\r\n",
        b"*1\r\n$1\r\na\r\n",
        b"$3\r\nabcde",
        b"$-7\r\n",
        b"+OK\r\n",
        b":1\r\n",
        b"$1\r\na\r\n$1\r\nb\r\n",
    ] {
        let server = Fake::saying(reply);
        let tier = server.tier();
        let (words, took) = timed(|| said(tier.get(key(1))));
        assert!(words.contains("not a Redis server"), "{words}");
        assert!(took < TIMEOUT, "{took:?}");
        is_left_alone(&tier);
    }
    let endless = Fake::saying(vec![b'-'; 100_000]);
    assert!(said(endless.tier().get(key(1))).contains("a line without an end"));
}

/// The answer to the first question comes while the second is asked.
#[test]
fn a_late_answer_is_nobody_elses() {
    let server = Fake::new(|mut stream, _| {
        while let Some(words) = command(&stream) {
            let number = words[1].rsplit(':').next().unwrap().trim_start_matches('0').to_owned();
            if number == "1" {
                std::thread::sleep(TIMEOUT + TIMEOUT / 4);
            }
            let _ = stream.write_all(format!("${}\r\n{number}\r\n", number.len()).as_bytes());
        }
    });
    let instant = Duration::from_millis(1);
    let tier = RedisTier::new(server.config().pause(instant, instant)).unwrap();
    assert_eq!(tier.get(key(2)).unwrap().unwrap(), b"2");
    for _ in 0..2 {
        assert!(said(tier.get(key(1))).ends_with("in time"));
        std::thread::sleep(instant * 5);
        let start = Instant::now();
        while start.elapsed() < TIMEOUT / 2 {
            assert_eq!(tier.get(key(2)).unwrap().unwrap(), b"2");
        }
    }
    assert_eq!(server.asked(), 3);
}

#[test]
fn a_refused_login_shows_no_password() {
    for reply in [
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        "-ERR unknown command 'AUTH', with args beginning with: 'somebody' 'hunter2'\r\n",
        "-hunter2\r\n",
        "$7\r\nhunter2\r\n",
    ] {
        let server = Fake::saying(reply);
        let tier = RedisTier::new(config(&format!("redis://somebody:hunter2@{}/3", server.address))).unwrap();
        let words = if reply.starts_with('$') { said(tier.get(key(1))) } else { said(tier.put(key(1), vec![1])) };
        is_left_alone(&tier);
        assert!(!words.contains("hunter2") && !words.contains("somebody"), "{words}");
        assert!(words.contains("login") && words.contains("/3"), "{words}");
        assert!(!format!("{tier:?}").contains("hunter2"));
    }
}

#[test]
fn the_login_comes_before_the_question_and_the_database_between() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let server = Fake::new(move |mut stream, _| {
        while let Some(words) = command(&stream) {
            let reply = if words[0] == "GET" { "$-1\r\n" } else { "+OK\r\n" };
            lock(&log).push(words.join(" "));
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    let url = format!("redis://u:p%20w@{}/3", server.address);
    let tier = RedisTier::new(config(&url).prefix("x:").ttl(Duration::from_millis(1500))).unwrap();
    tier.put(key(255), b"v".to_vec()).unwrap();
    assert_eq!(tier.get(key(255)).unwrap(), None);
    let name = "x:000000000000000000000000000000ff";
    assert_eq!(*lock(&seen), ["AUTH u p w", "SELECT 3", &format!("SET {name} v PX 1500"), &format!("GET {name}")]);
}

#[test]
fn a_connection_that_was_closed_meanwhile_is_replaced() {
    let server = Fake::new(|mut stream, _| {
        command(&stream);
        stream.write_all(b"$-1\r\n").unwrap();
    });
    let tier = server.tier();
    for n in 1..=5 {
        assert_eq!(tier.get(key(1)).unwrap(), None);
        assert_eq!(server.asked(), n);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A full server, or a read-only copy.
#[test]
fn who_takes_nothing_is_still_asked() {
    let server = Fake::new(|mut stream, _| {
        while let Some(words) = command(&stream) {
            let reply = if words[0] == "GET" { "$2\r\nhi\r\n" } else { "-OOM command not allowed\r\n" };
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    let tier = server.tier();
    assert!(said(tier.put(key(1), vec![])).ends_with("it refuses: OOM command not allowed"));
    for _ in 0..5 {
        assert!(matches!(tier.put(key(1), vec![]), Err(SharedError::Open)));
        assert_eq!(tier.get(key(1)).unwrap().unwrap(), b"hi");
    }
    assert_eq!(server.asked(), 1);
}

#[test]
fn a_fault_of_one_key_is_no_fault_of_the_server() {
    let server = Fake::new(|mut stream, _| {
        while let Some(words) = command(&stream) {
            let reply = match words[1].bytes().last().unwrap() {
                b'1' => "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n".to_owned(),
                b'2' => format!("${}\r\n{}\r\n", 2000, "x".repeat(2000)),
                _ => "$-1\r\n".to_owned(),
            };
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    let tier = RedisTier::new(server.config().largest_value_bytes(1999)).unwrap();
    for n in [1, 3, 2, 3, 1, 3] {
        assert_eq!(tier.get(key(n)).is_ok(), n == 3);
    }
    assert!(said(tier.get(key(2))).contains("2000 bytes"));
    assert!(said(tier.put(key(3), vec![0; 2000])).contains("2000 bytes"), "it is not sent");
    tier.get(key(3)).unwrap();
}

#[test]
fn a_silent_server_never_costs_an_answer() {
    let server = Fake::silent();
    let cache = EmbeddingCache::new(CacheConfig::default().shared(Arc::new(server.tier())));
    let ((), took) = timed(|| {
        for n in 0..20 {
            let wanted = Wanted { key: key(n), rows: 1, width: 2, grid: Grid::default() };
            let rows = Embedding::new(vec![n as f32, 1.0], 1, 2, Grid::default()).unwrap();
            let hits = cache.get_or_encode(&[wanted], || false, |_| Ok(vec![(rows.clone(), Duration::ZERO)])).unwrap();
            assert_eq!((&hits[0].embedding, hits[0].tier), (&rows, Tier::Encoded));
        }
    });
    assert!(took < TIMEOUT * 2, "{took:?}");
    assert_eq!((cache.stats().shared_errors, cache.stats().misses), (40, 20));
}
