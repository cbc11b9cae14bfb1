//! What a cache did, counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A snapshot of what a cache did since it was made. Times add up over threads.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct CacheStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Time spent looking up, hits and misses, in nanoseconds.
            pub lookup_ns: u64,
            /// Time spent keeping what was encoded, in nanoseconds.
            pub store_ns: u64,
            /// Entries in memory now.
            pub memory_entries: u64,
            /// Bytes in memory now, overhead included.
            pub memory_bytes: u64,
        }

        impl CacheStats {
            /// All numbers with their names, in a stable order.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![
                    $((stringify!($name), self.$name),)*
                    ("lookup_ns", self.lookup_ns),
                    ("store_ns", self.store_ns),
                    ("memory_entries", self.memory_entries),
                    ("memory_bytes", self.memory_bytes),
                ]
            }
        }

        /// The living counters.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Counter,)*
            lookup_ns: AtomicU64,
            store_ns: AtomicU64,
        }

        impl Counters {
            pub(super) fn snapshot(&self, memory_entries: u64, memory_bytes: u64) -> CacheStats {
                CacheStats {
                    $($name: self.$name.get(),)*
                    lookup_ns: self.lookup_ns.load(Ordering::Relaxed),
                    store_ns: self.store_ns.load(Ordering::Relaxed),
                    memory_entries,
                    memory_bytes,
                }
            }
        }
    };
}

counters! {
    /// Found in memory.
    memory_hits,
    /// Found on the disk.
    disk_hits,
    /// Found in the shared tier.
    shared_hits,
    /// Taken over from another thread that was encoding the same picture.
    joined,
    /// Found nowhere: encoded.
    misses,
    /// Kept in memory.
    memory_inserts,
    /// Not kept in memory: larger than the budget, or everything else was in use.
    memory_refused,
    /// Pushed out of memory by the budget.
    memory_evictions,
    /// Written to the disk.
    disk_inserts,
    /// Not written to the disk: larger than the budget, or the folder was busy for too long.
    disk_refused,
    /// Pushed off the disk by the budget.
    disk_evictions,
    /// Written to the shared tier.
    shared_inserts,
    /// Entries whose bytes had changed; they were removed.
    corrupt,
    /// Entries that were whole but did not fit the request; they were removed.
    mismatched,
    /// Reads or writes of the disk that failed.
    disk_errors,
    /// Calls to the shared tier that failed, or were not made because it had failed lately.
    shared_errors,
}

/// One number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn looked_up(&self, took: Duration) {
        self.lookup_ns.fetch_add(nanos(took), Ordering::Relaxed);
    }

    pub(super) fn stored(&self, took: Duration) {
        self.store_ns.fetch_add(nanos(took), Ordering::Relaxed);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
