//! One connection: commands out, replies in, and an hour by which a call is over.
//!
//! The socket is ours and not the `redis` crate's: its connection bounds every single read but not a call, so a server that sends
//! a byte now and then holds a thread for as long as it likes; it has no limit for looking up a name, nor for a value's size.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::config::{Address, Server};

/// Longest line of a reply: replies without a value and errors are lines.
const LONGEST_LINE: u64 = 4096;
/// Read at once where a reply is a line.
const BUFFER_BYTES: usize = 8192;
/// Written at once. A unix socket applies its time-out to pieces of about this size, not to a whole write.
const PIECE_BYTES: usize = 32 << 10;
/// Most threads that look up a name or connect to a unix socket and do not come back.
const MOST_WAITING: usize = 32;

/// What a server said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// There is no such key.
    Nothing,
    /// It is done.
    Done,
    /// A value.
    Value(Vec<u8>),
}

/// Why a call gave nothing. No text in here comes from an answer to a login.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It was not over in time; what was waited for.
    Late(&'static str),
    /// The other side closed the connection.
    Gone,
    /// The system's words.
    Io(String),
    /// The server's words; the connection can be used further.
    Refused(String),
    /// It does not take the login, or has no such database.
    Rejected(&'static str),
    /// A value of so many bytes is more than is allowed.
    TooLarge(u64),
    /// Not the protocol.
    Garbage(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(what) => write!(f, "no {what} in time"),
            Self::Gone => f.write_str("it closed the connection"),
            Self::Io(reason) => f.write_str(reason),
            Self::Refused(reason) => write!(f, "it refuses: {reason}"),
            Self::Rejected(what) => write!(f, "it refuses the {what}"),
            Self::TooLarge(bytes) => write!(f, "a value of {bytes} bytes, more than the largest allowed"),
            Self::Garbage(what) => write!(f, "not a Redis server: {what}"),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::WouldBlock | Kind::TimedOut => Self::Late("answer"),
            Kind::UnexpectedEof | Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => Self::Gone,
            _ => Self::Io(error.to_string()),
        }
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// A socket whose every read and write ends by `until`.
#[derive(Debug)]
struct Timed {
    socket: Socket,
    until: Instant,
}

fn rest(until: Instant) -> io::Result<Duration> {
    until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()).ok_or_else(|| io::ErrorKind::TimedOut.into())
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = Some(rest(self.until)?);
        match &mut self.socket {
            Socket::Tcp(socket) => socket.set_read_timeout(rest).and_then(|()| socket.read(buffer)),
            #[cfg(unix)]
            Socket::Unix(socket) => socket.set_read_timeout(rest).and_then(|()| socket.read(buffer)),
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let rest = Some(rest(self.until)?);
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        match &mut self.socket {
            Socket::Tcp(socket) => socket.set_write_timeout(rest).and_then(|()| socket.write(piece)),
            #[cfg(unix)]
            Socket::Unix(socket) => socket.set_write_timeout(rest).and_then(|()| socket.write(piece)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection that is logged in. After any fault but [`Fault::Refused`] it has to be dropped: what comes next on it may be the
/// rest of an old reply.
#[derive(Debug)]
pub(super) struct Link {
    stream: BufReader<Timed>,
    used: Instant,
}

impl Link {
    /// Connects, logs in and chooses the database.
    pub(super) fn connect(server: &Server, waiting: &Arc<AtomicUsize>, until: Instant) -> Result<Self, Fault> {
        let socket = Socket::connect(&server.address, waiting, until).map_err(|error| match Fault::from(error) {
            Fault::Late(_) => Fault::Late("connection"),
            other => other,
        })?;
        let stream = BufReader::with_capacity(BUFFER_BYTES, Timed { socket, until });
        let mut link = Self { stream, used: Instant::now() };
        if let Some(password) = &server.password {
            let words = [Some("AUTH"), server.user.as_deref(), Some(password)];
            let login: Vec<_> = words.into_iter().flatten().map(|w| w.as_bytes().to_vec()).collect();
            link.prepare(&login, "login", until)?;
        }
        if server.database != 0 {
            link.prepare(&[b"SELECT".to_vec(), server.database.to_string().into_bytes()], "database", until)?;
        }
        Ok(link)
    }

    fn prepare(&mut self, command: &[Vec<u8>], what: &'static str, until: Instant) -> Result<(), Fault> {
        match self.ask(&redis::pack_command(command), 0, until) {
            Ok(Reply::Done) => Ok(()),
            // servers quote commands they do not know, with the password
            Err(Fault::Refused(_)) => Err(Fault::Rejected(what)),
            Ok(_) | Err(Fault::TooLarge(_)) => Err(Fault::Garbage("the answer to a login")),
            Err(other) => Err(other),
        }
    }

    /// Sends a command and reads its reply.
    pub(super) fn ask(&mut self, command: &[u8], largest: usize, until: Instant) -> Result<Reply, Fault> {
        self.stream.get_mut().until = until;
        self.stream.get_mut().write_all(command)?;
        let reply = read_reply(&mut self.stream, largest)?;
        if !self.stream.buffer().is_empty() {
            return Err(Fault::Garbage("more than one reply"));
        }
        self.used = Instant::now();
        Ok(reply)
    }

    /// Since when nobody used it.
    pub(super) fn idle(&self) -> Duration {
        self.used.elapsed()
    }
}

impl Socket {
    fn connect(address: &Address, waiting: &Arc<AtomicUsize>, until: Instant) -> io::Result<Self> {
        let (host, port) = match address {
            Address::Tcp(host, port) => (host.clone(), *port),
            #[cfg(unix)]
            Address::Unix(path) => {
                let path = path.clone();
                return in_time(until, waiting, || UnixStream::connect(path)).map(Self::Unix);
            }
        };
        let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
            Ok(ip) => vec![(ip, port).into()],
            Err(_) => in_time(until, waiting, move || Ok((host, port).to_socket_addrs()?.collect()))?,
        };
        let mut result = Err(io::Error::other("the name has no address"));
        for (i, address) in addresses.iter().enumerate() {
            // what does not answer must leave time for the others
            let share = rest(until)? / u32::try_from(addresses.len() - i).unwrap_or(1);
            result = TcpStream::connect_timeout(address, share.max(Duration::from_micros(1)));
            if result.is_ok() {
                break;
            }
        }
        let socket = result?;
        // the last piece of a command must not wait for the acknowledgement of the one before
        socket.set_nodelay(true)?;
        Ok(Self::Tcp(socket))
    }
}

/// Does on a thread what the system gives no time-out for. A thread that is late is left to itself.
fn in_time<T: Send + 'static>(
    until: Instant,
    waiting: &Arc<AtomicUsize>,
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    /// Gives the place back whatever happens.
    struct Place(Arc<AtomicUsize>);
    impl Drop for Place {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let rest = rest(until)?;
    let before = waiting.fetch_add(1, Ordering::Relaxed);
    let place = Place(Arc::clone(waiting));
    if before >= MOST_WAITING {
        return Err(io::Error::other("earlier attempts still hang in the system"));
    }
    let (give, take) = mpsc::channel();
    std::thread::Builder::new().name("llava-connect".into()).spawn(move || {
        let result = job();
        drop(place);
        // nobody may be waiting any more
        let _ = give.send(result);
    })?;
    take.recv_timeout(rest).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Reads one reply. Memory is taken for values up to `largest` bytes only.
fn read_reply(stream: &mut impl BufRead, largest: usize) -> Result<Reply, Fault> {
    let mut line = Vec::new();
    stream.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    let Some((&kind, rest)) = line.strip_suffix(b"\r\n").and_then(|l| l.split_first()) else {
        return Err(match line.last() {
            Some(b'\n') => Fault::Garbage("a line that is no reply"),
            _ if line.len() as u64 == LONGEST_LINE => Fault::Garbage("a line without an end"),
            _ => Fault::Gone,
        });
    };
    match kind {
        b'+' => Ok(Reply::Done),
        b'-' => Err(Fault::Refused(printable(rest))),
        b'$' if rest == b"-1" => Ok(Reply::Nothing),
        b'$' => {
            let length = std::str::from_utf8(rest).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()));
            let length = length.and_then(|t| t.parse::<u64>().ok()).ok_or(Fault::Garbage("a length that is none"))?;
            let fits = usize::try_from(length).ok().filter(|&n| n <= largest).ok_or(Fault::TooLarge(length))?;
            read_value(stream, fits)
        }
        _ => Err(Fault::Garbage("a reply of an unknown kind")),
    }
}

fn read_value(stream: &mut impl BufRead, length: usize) -> Result<Reply, Fault> {
    let whole = length.saturating_add(2);
    let mut value = Vec::new();
    value.try_reserve_exact(whole).map_err(|_| Fault::TooLarge(length as u64))?;
    stream.take(whole as u64).read_to_end(&mut value)?;
    if value.len() < whole {
        return Err(Fault::Gone);
    }
    if !value.ends_with(b"\r\n") {
        return Err(Fault::Garbage("a value without an end"));
    }
    value.truncate(length);
    Ok(Reply::Value(value))
}

/// A server's words, fit for a log.
fn printable(text: &[u8]) -> String {
    text.iter().take(120).map(|&b| if (b' '..=b'~').contains(&b) { char::from(b) } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Reply, Fault> {
        read_reply(&mut &bytes[..], 100)
    }

    #[test]
    fn replies_are_read() {
        assert_eq!(read(b"+OK\r\n"), Ok(Reply::Done));
        assert_eq!(read(b"$-1\r\n"), Ok(Reply::Nothing));
        assert_eq!(read(b"$0\r\n\r\n"), Ok(Reply::Value(vec![])));
        assert_eq!(read(b"$4\r\na\r\nb\r\n"), Ok(Reply::Value(b"a\r\nb".to_vec())));
        assert_eq!(read(b"-OOM a\x1b[31m b\r\n"), Err(Fault::Refused("OOM a?[31m b".into())));
    }

    #[test]
    fn what_is_no_reply_is_told_apart() {
        for cut in [&b""[..], b"$", b"$4\r\nab", b"$4\r\nabcd\r", b"+OK"] {
            assert_eq!(read(cut), Err(Fault::Gone), "{cut:?}");
        }
        let endless = vec![b'+'; 10_000];
        let garbage = [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\r\n",
            b"\n",
            b"$\r\n",
            b"$-2\r\n",
            b"$+1\r\n",
            b"$1\r\nabc",
            &endless,
        ];
        for bad in
            garbage.into_iter().chain([&b"*1\r\n+OK\r\n"[..], b"=-1\r\n", b":1\r\n", b"$99999999999999999999\r\n"])
        {
            assert!(matches!(read(bad), Err(Fault::Garbage(_))), "{:?}", printable(bad));
        }
        assert_eq!(read(b"$101\r\n"), Err(Fault::TooLarge(101)));
        assert_eq!(read(b"$18446744073709551615\r\n"), Err(Fault::TooLarge(u64::MAX)));
        assert_eq!(
            read_reply(&mut &b"$9223372036854775807\r\n"[..], usize::MAX),
            Err(Fault::TooLarge(i64::MAX as u64))
        );
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..6_usize) {
            let start = [&b""[..], b"$", b"-", b"$5\r\n", b"$-", b"+"][kind];
            let _ = read(&[start, &bytes].concat());
        }
    }

    #[test]
    fn what_hangs_is_left_behind_and_counted() {
        let waiting = Arc::new(AtomicUsize::new(0));
        let (release, held) = mpsc::channel::<()>();
        let start = Instant::now();
        let until = start + Duration::from_millis(100);
        let late = in_time(until, &waiting, move || Ok(held.recv().is_ok()));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() >= Duration::from_millis(100));
        assert_eq!(waiting.load(Ordering::Relaxed), 1);
        drop(release);
        while waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        waiting.store(MOST_WAITING, Ordering::Relaxed);
        let refused = in_time(Instant::now() + Duration::from_secs(9), &waiting, || Ok(()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(waiting.load(Ordering::Relaxed), MOST_WAITING);
    }
}
