//! The shared tier against a real server, which each test starts for itself on a free port with a temporary folder.

#![expect(clippy::unwrap_used, reason = "helper functions of tests are tests too")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use llava::embedding::{
    CacheConfig, CacheDtype, CacheStats, Embedding, EmbeddingCache, EmbeddingKey, Grid, Hit, RedisConfig, RedisTier,
    SharedError, SharedTier, Tier, Wanted,
};

/// Long enough for a machine that compiles at the same time.
const TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);
const ROWS: usize = 64;
const WIDTH: usize = 128;

struct Server {
    process: Child,
    port: u16,
    home: tempfile::TempDir,
    options: Vec<String>,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let home = tempfile::tempdir().unwrap();
        let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
        let process = launch(port, home.path(), &options);
        let server = Self { process, port, home, options };
        server.wait();
        server
    }

    fn wait(&self) {
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "the server does not come up on port {}", self.port);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill(&mut self) {
        // it may have gone by itself
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    /// A new process on the same port and folder.
    fn again(&mut self) {
        self.process = launch(self.port, self.home.path(), &self.options);
        self.wait();
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn config(&self) -> RedisConfig {
        config(&self.url())
    }

    /// A connection of the client library's own, to look behind the tier's back.
    fn look(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(port: u16, home: &Path, options: &[String]) -> Child {
    let names = ["redis-server", "valkey-server"];
    for name in names {
        let started = Command::new(name)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
            .arg(home)
            .args(["--save", "", "--appendonly", "no", "--logfile", "log"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match started {
            Ok(process) => return process,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    panic!(
        "these tests start a server of their own and find none of {names:?} in PATH; Debian and Ubuntu: \
         `apt-get install redis-server`, Fedora: `dnf install valkey`, macOS: `brew install redis`"
    );
}

fn config(url: &str) -> RedisConfig {
    RedisConfig::new(url).connect_timeout(TIMEOUT).response_timeout(TIMEOUT).pause(PAUSE, PAUSE)
}

/// A cache as another machine would have it: nothing but the shared tier and its own memory.
fn machine(config: RedisConfig) -> Arc<EmbeddingCache> {
    EmbeddingCache::new(CacheConfig::default().shared(Arc::new(RedisTier::new(config).unwrap())))
}

fn key(n: u128) -> EmbeddingKey {
    EmbeddingKey::from_u128(n)
}

fn rows(n: u128) -> Embedding {
    let values = (0..ROWS * WIDTH).map(|i| n as f32 + i as f32 / 1000.0).collect();
    Embedding::new(values, ROWS, WIDTH, Grid::default()).unwrap()
}

fn ask(cache: &EmbeddingCache, n: u128) -> Hit {
    let wanted = Wanted { key: key(n), rows: ROWS, width: WIDTH, grid: Grid::default() };
    let hits = cache.get_or_encode(&[wanted], || false, |_| Ok(vec![(rows(n), Duration::ZERO)]));
    let hit = hits.unwrap().remove(0);
    assert_eq!(hit.embedding, rows(n), "whatever happens, the answer is right");
    hit
}

fn name(n: u128) -> String {
    format!("llava:1:{}", key(n))
}

fn shared(stats: CacheStats) -> [u64; 4] {
    [stats.shared_hits, stats.shared_inserts, stats.shared_errors, stats.misses]
}

#[test]
fn machines_share_and_a_restart_is_not_noticed() {
    let mut server = Server::start(&[]);
    let (first, second) = (machine(server.config()), machine(server.config()));
    assert_eq!(ask(&first, 1).tier, Tier::Encoded);
    assert_eq!(ask(&second, 1).tier, Tier::Shared);
    assert_eq!(ask(&second, 1).tier, Tier::Memory);
    let values: usize = redis::cmd("DBSIZE").query(&mut server.look()).unwrap();
    let bytes: usize = redis::cmd("STRLEN").arg(name(1)).query(&mut server.look()).unwrap();
    assert_eq!((values, bytes), (1, 128 + ROWS * WIDTH * 4));

    server.kill();
    server.again();
    // it lost everything; the connections of both are dead, and neither counts an error
    assert_eq!(ask(&first, 2).tier, Tier::Encoded);
    assert_eq!(ask(&second, 2).tier, Tier::Shared);
    assert_eq!(shared(first.stats()), [0, 2, 0, 2]);
    assert_eq!(shared(second.stats()), [2, 0, 0, 0]);
}

#[test]
fn a_server_killed_between_questions_is_found_again() {
    let mut server = Server::start(&[]);
    let (first, second) = (machine(server.config()), machine(server.config()));
    ask(&first, 1);
    server.kill();
    for n in 2..20 {
        assert_eq!(ask(&first, n).tier, Tier::Encoded);
    }
    let errors = first.stats().shared_errors;
    assert_eq!(errors, 36, "18 questions and 18 values");
    server.again();
    std::thread::sleep(PAUSE * 2);
    assert_eq!(ask(&first, 20).tier, Tier::Encoded);
    assert_eq!(ask(&second, 20).tier, Tier::Shared);
    assert_eq!(first.stats().shared_errors, errors);
}

/// The server dies while eight threads ask.
#[test]
fn a_server_killed_under_load_costs_no_answer() {
    let mut server = Server::start(&[]);
    let cache = EmbeddingCache::new(
        CacheConfig::default().memory_bytes(0).shared(Arc::new(RedisTier::new(server.config()).unwrap())),
    );
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8_u128)
            .map(|thread| {
                let cache = &cache;
                scope.spawn(move || {
                    let start = Instant::now();
                    let mut n = 0;
                    while start.elapsed() < Duration::from_millis(800) {
                        ask(cache, (n * 5 + thread) % 37);
                        n += 1;
                    }
                    n
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        server.kill();
        std::thread::sleep(Duration::from_millis(200));
        server.again();
        let asked: u128 = all.into_iter().map(|t| t.join().unwrap()).sum();
        assert!(asked > 100, "{asked}");
    });
    let stats = cache.stats();
    assert!(stats.shared_hits > 0 && stats.shared_errors > 0, "{stats:?}");
    assert_eq!((stats.corrupt, stats.mismatched), (0, 0));
    std::thread::sleep(PAUSE * 2);
    ask(&cache, 1000);
    assert_eq!(ask(&cache, 1000).tier, Tier::Shared, "it is used again");
}

/// A server that is there but does nothing: the system still takes connections for it.
#[test]
fn a_stopped_server_costs_one_time_out() {
    let server = Server::start(&[]);
    let (short, long) = (Duration::from_millis(500), Duration::from_secs(600));
    let cache = machine(server.config().response_timeout(short).pause(long, long));
    ask(&cache, 1);
    server.signal("-STOP");
    let start = Instant::now();
    for n in 2..50 {
        assert_eq!(ask(&cache, n).tier, Tier::Encoded);
    }
    let took = start.elapsed();
    server.signal("-CONT");
    assert!(short <= took && took < short * 2, "{took:?}");
    assert_eq!(cache.stats().shared_errors, 2 * 48);
}

#[test]
fn a_value_that_was_evicted_is_encoded_anew() {
    let server = Server::start(&["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"]);
    let (first, second) = (machine(server.config()), machine(server.config()));
    // 33 kB each
    for n in 1..=200 {
        ask(&first, n);
    }
    assert_eq!(shared(first.stats()), [0, 200, 0, 200]);
    assert_eq!(ask(&second, 200).tier, Tier::Shared);
    let mut look = server.look();
    let gone = (1..200).find(|n| !redis::cmd("EXISTS").arg(name(*n)).query::<bool>(&mut look).unwrap());
    let gone = gone.expect("6.6 MB do not fit 3 MB");
    assert_eq!(ask(&second, gone).tier, Tier::Encoded);
    assert_eq!(ask(&machine(server.config()), gone).tier, Tier::Shared);
    assert_eq!(shared(second.stats()), [1, 1, 0, 1]);
}

#[test]
fn a_full_server_that_evicts_nothing_still_answers() {
    let server = Server::start(&["--maxmemory-policy", "noeviction"]);
    let first = machine(server.config().pause(TIMEOUT * 100, TIMEOUT * 100));
    ask(&first, 1);
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").exec(&mut server.look()).unwrap();
    for n in 2..5 {
        assert_eq!(ask(&first, n).tier, Tier::Encoded);
    }
    assert_eq!(shared(first.stats()), [0, 1, 3, 4], "values are refused, questions are not");
    first.clear_memory();
    assert_eq!(ask(&first, 1).tier, Tier::Shared);
}

/// One bit anywhere in a stored value is a counted miss, and the value is replaced.
#[test]
fn damage_is_a_counted_miss() {
    let server = Server::start(&[]);
    let config = || CacheConfig::default().memory_bytes(0).dtype(CacheDtype::F16);
    let cache = EmbeddingCache::new(config().shared(Arc::new(RedisTier::new(server.config()).unwrap())));
    ask_halves(&cache);
    let mut look = server.look();
    let good: Vec<u8> = redis::cmd("GET").arg(name(1)).query(&mut look).unwrap();
    let bits = good.len() * 8;
    for bit in 0..bits {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        redis::cmd("SET").arg(name(1)).arg(bad).exec(&mut look).unwrap();
        assert_eq!(ask_halves(&cache), Tier::Encoded, "bit {bit}");
        let now: Vec<u8> = redis::cmd("GET").arg(name(1)).query(&mut look).unwrap();
        assert!(now == good, "bit {bit}: the value was not replaced");
    }
    let stats = cache.stats();
    assert_eq!((stats.corrupt, stats.misses), (bits as u64, bits as u64 + 1));
    assert_eq!((stats.mismatched, stats.shared_errors), (0, 0));
    // a whole value of another key, and an empty one
    redis::cmd("SET").arg(name(1)).arg("").exec(&mut look).unwrap();
    assert_eq!(ask_halves(&cache), Tier::Encoded);
    redis::cmd("COPY").arg(name(1)).arg(name(7)).exec(&mut look).unwrap();
    assert_eq!(ask(&cache, 7).tier, Tier::Encoded);
    assert_eq!((cache.stats().corrupt, cache.stats().mismatched), (bits as u64 + 1, 1));
}

/// Four values that half floats hold exactly.
fn ask_halves(cache: &EmbeddingCache) -> Tier {
    let rows = Embedding::new(vec![1.0, -0.5, 2.0, 0.25], 2, 2, Grid::default()).unwrap();
    let wanted = Wanted { key: key(1), rows: 2, width: 2, grid: Grid::default() };
    let hits = cache.get_or_encode(&[wanted], || false, |_| Ok(vec![(rows.clone(), Duration::ZERO)])).unwrap();
    assert_eq!(hits[0].embedding, rows);
    hits[0].tier
}

#[test]
fn logins_databases_and_lifetimes() {
    let server = Server::start(&["--requirepass", "hunter2"]);
    let url = |login: &str| format!("redis://{login}127.0.0.1:{}/5", server.port);
    let right = RedisTier::new(config(&url(":hunter2@")).ttl(Duration::from_millis(300))).unwrap();
    right.put(key(1), vec![5; 1000]).unwrap();
    assert_eq!(right.get(key(1)).unwrap(), Some(vec![5; 1000]));

    let mut look = redis::Client::open(url(":hunter2@")).unwrap().get_connection().unwrap();
    let rights = ["ACL", "SETUSER", "tenant", "on", ">p%w", "~tenant:*", "+get", "+set", "+select"];
    redis::cmd(rights[0]).arg(&rights[1..]).exec(&mut look).unwrap();
    let tenant = RedisTier::new(config(&url("tenant:p%25w@")).prefix("tenant:")).unwrap();
    tenant.put(key(1), b"mine".to_vec()).unwrap();
    assert_eq!(tenant.get(key(1)).unwrap().unwrap(), b"mine");
    let nosy = RedisTier::new(config(&url("tenant:p%25w@"))).unwrap();
    assert!(nosy.get(key(1)).unwrap_err().to_string().contains("NOPERM"));

    for login in ["", ":wrong@", "nobody:hunter2@"] {
        let wrong = RedisTier::new(config(&url(login))).unwrap();
        let words = wrong.get(key(1)).unwrap_err().to_string();
        assert!(words.contains("refuses") && !words.contains("hunter2") && !words.contains("wrong"), "{words}");
    }
    let none = RedisTier::new(config(&format!("redis://:hunter2@127.0.0.1:{}/99", server.port))).unwrap();
    assert!(none.get(key(1)).unwrap_err().to_string().ends_with("it refuses the database"));
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(right.get(key(1)).unwrap(), None, "its time was over");
}

#[test]
fn large_values_come_back_whole() {
    let server = Server::start(&[]);
    let tier = RedisTier::new(server.config()).unwrap();
    for bytes in [0, 1, 8191, 8192, 8193, 1 << 20, 16 << 20] {
        let value: Vec<u8> = (0..bytes).map(|i: usize| (i * 31 % 251) as u8).collect();
        tier.put(key(bytes as u128), value.clone()).unwrap();
        assert!(tier.get(key(bytes as u128)).unwrap() == Some(value), "{bytes} bytes");
    }
    assert!(matches!(tier.put(key(0), vec![0; (16 << 20) + 1]), Err(SharedError::Failed(_))));
    // another machine with a larger limit stored it
    let larger = RedisTier::new(server.config().largest_value_bytes(17 << 20)).unwrap();
    larger.put(key(3), vec![1; (16 << 20) + 1]).unwrap();
    assert!(matches!(tier.get(key(3)), Err(SharedError::Failed(_))));
    assert_eq!(tier.get(key(1)).unwrap().unwrap(), [0]);
}

#[cfg(unix)]
#[test]
fn a_unix_socket_does_as_well() {
    let socket = tempfile::tempdir().unwrap();
    let path = socket.path().join("s");
    let mut server = Server::start(&["--unixsocket", path.to_str().unwrap()]);
    let url = format!("unix://{}?db=1", path.display());
    let (first, second) = (machine(config(&url)), machine(config(&url)));
    assert_eq!(ask(&first, 1).tier, Tier::Encoded);
    assert_eq!(ask(&second, 1).tier, Tier::Shared);
    let tier = RedisTier::new(config(&url)).unwrap();
    tier.put(key(9), vec![3; 16 << 20]).unwrap();
    assert!(tier.get(key(9)).unwrap() == Some(vec![3; 16 << 20]));
    server.kill();
    assert_eq!(ask(&first, 2).tier, Tier::Encoded);
    assert_eq!(first.stats().shared_errors, 2);
}

/// Threads that ask at once get connections of their own, and few stay.
#[test]
fn connections_are_reused() {
    let server = Server::start(&[]);
    let tier = RedisTier::new(server.config()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..12_u128 {
            let tier = &tier;
            scope.spawn(move || {
                for n in 0..100 {
                    let value = vec![thread as u8; 5000 + n];
                    tier.put(key(thread), value.clone()).unwrap();
                    assert_eq!(tier.get(key(thread)).unwrap(), Some(value));
                }
            });
        }
    });
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.look()).unwrap();
    let open = clients.lines().filter(|l| !l.contains("cmd=client")).count();
    assert!((1..=8).contains(&open), "{clients}");
}
