//! All integration tests in one program, because each one links the whole native library.

#![expect(clippy::unwrap_used, reason = "helper functions of tests are tests too")]

#[path = "../models/mod.rs"]
mod models;
#[path = "../reference/mod.rs"]
mod reference;
mod world;

mod answers;
mod cache;
mod capacity;
#[cfg(all(feature = "cli", feature = "demo"))]
mod cli;
mod compression;
mod forced;
mod gemm;
mod handles;
mod layout;
mod loading;
#[cfg(all(feature = "cli", target_os = "linux"))]
mod memory;
#[cfg(feature = "parity")]
mod parity;
mod peer_faults;
mod quantize;
mod reuse;
mod saved;
