//! What benchmarks share: settings from the environment, and the middle of several runs with its spread.

use std::path::PathBuf;

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

pub fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// A file from the environment, or one of the demo model's.
pub fn file(name: &str, demo: &str) -> PathBuf {
    let demo = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/demo").join(demo);
    std::env::var_os(name).map_or(demo, PathBuf::from)
}

/// Median, least and most.
pub fn summary(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}
