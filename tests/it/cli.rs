//! The program from outside: arguments in, bytes and an exit code out. Every test has a cache folder of its own.

mod answers;
mod bench;
mod cache;
mod chat;
mod embed;
mod eval;
mod failures;
mod gate;
mod inspect;
mod quantize;
mod signals;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// No run takes this long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// A picture of `models/demo` and what is asked about it.
pub struct Sample {
    pub picture: &'static str,
    pub question: &'static str,
    pub answer: &'static str,
}

pub const SAMPLES: [Sample; 4] = [
    Sample { picture: "sign.png", question: "What word is written?", answer: "EXIT" },
    Sample {
        picture: "shapes.png",
        question: "Describe the image.",
        answer: "a black square, a white triangle and a red circle",
    },
    Sample { picture: "above.png", question: "What is above the star?", answer: "orange circle" },
    Sample { picture: "triangle.png", question: "Name the colour of the triangle.", answer: "blue" },
];

/// Settings that make answers repeatable. One thread: tests run side by side, and waiting threads of ggml's pools spin.
const REPEATABLE: [&str; 7] = ["--temp", "0", "-n", "60", "-t", "1", "--no-warmup"];

/// A grammar without an end: an answer that only a limit or a signal stops.
pub const ENDLESS: &str = r#"root ::= "a" root"#;

pub fn demo(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo").join(name)
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What a run left behind.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// The run failed with this exit code, said why under this error code, and printed nothing on stdout.
    #[track_caller]
    pub fn failed(self, exit: i32, code: &str) -> Self {
        assert_eq!(self.code, Some(exit), "{self:?}");
        assert!(self.stderr.contains(&format!("error[{code}]: ")), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        self
    }

    #[track_caller]
    pub fn says(self, words: &str) -> Self {
        assert!(self.stderr.contains(words), "`{words}` is not in: {self:?}");
        self
    }
}

/// A home of its own: cache, temporary folder and working files.
pub struct World {
    home: TempDir,
}

impl World {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("tmp")).unwrap();
        Self { home }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    /// A copy of a demo file, under another name.
    pub fn copy(&self, from: &str, to: &str) -> PathBuf {
        let to = self.path(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(demo(from), &to).unwrap();
        to
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_llava-cli"));
        command
            .args(args)
            .env_remove("LLAVA_CACHE")
            .env_remove("LLAVA_CACHE_DIR")
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("HOME", self.home.path())
            .env("TMPDIR", self.path("tmp"))
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Outcome {
        finish(self.command(args).spawn().unwrap())
    }

    /// As [`run`](Self::run), with [`REPEATABLE`].
    pub fn ask(&self, args: &[&str]) -> Outcome {
        self.run(&[&REPEATABLE[..], args].concat())
    }

    pub fn chat(&self, args: &[&str], input: &str) -> Outcome {
        let mut command = self.command(&[&REPEATABLE[..], args].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // a program that ends early closes its end
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        finish(child)
    }

    /// Asks, and returns what `--usage-json` wrote.
    pub fn usage(&self, args: &[&str]) -> Value {
        let path = self.path("usage.json");
        self.ask(&[&["--usage-json", text(&path)], args].concat()).ok();
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }
}

/// Collects everything a child says until it ends.
pub fn finish(mut child: Child) -> Outcome {
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let status = wait(&mut child);
    let join = |reader: Option<std::thread::JoinHandle<Vec<u8>>>| {
        let bytes = reader.map(|r| r.join().unwrap()).unwrap_or_default();
        String::from_utf8(bytes).unwrap()
    };
    Outcome { code: status.code(), stdout: join(stdout), stderr: join(stderr) }
}

fn collect(mut from: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

pub fn wait(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the program hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
