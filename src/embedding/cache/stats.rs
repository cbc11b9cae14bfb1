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
        #[derive(Debug)]
        pub(super) struct Counters {
            $(pub(super) $name: Counter,)*
            lookup_ns: AtomicU64,
            store_ns: AtomicU64,
        }

        impl Default for Counters {
            fn default() -> Self {
                Self {
                    $($name: Counter::new(concat!("llava_cache_", stringify!($name), "_total")),)*
                    lookup_ns: AtomicU64::new(0),
                    store_ns: AtomicU64::new(0),
                }
            }
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

/// One number that only grows. With the feature `metrics` the recorder of the application sees it too.
#[derive(Debug)]
pub(crate) struct Counter {
    value: AtomicU64,
    #[cfg(feature = "metrics")]
    name: &'static str,
}

impl Counter {
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "the name is for the recorder"))]
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            value: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            name,
        }
    }

    pub(crate) fn add(&self, n: u64) {
        self.value.fetch_add(n, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        if n > 0 {
            metrics::counter!(self.name).increment(n);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn looked_up(&self, took: Duration) {
        self.lookup_ns.fetch_add(nanos(took), Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        metrics::histogram!("llava_cache_lookup_seconds").record(took.as_secs_f64());
    }

    pub(super) fn stored(&self, took: Duration) {
        self.store_ns.fetch_add(nanos(took), Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        metrics::histogram!("llava_cache_store_seconds").record(took.as_secs_f64());
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use std::sync::{Arc, Mutex};

    use metrics::{
        Counter as Handle, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };

    use super::*;

    #[derive(Default)]
    struct Seen(Mutex<Vec<String>>);

    struct One(Arc<Seen>, String);

    impl CounterFn for One {
        fn increment(&self, n: u64) {
            super::super::flight::lock(&self.0.0).push(format!("{} {n}", self.1));
        }
        fn absolute(&self, _: u64) {}
    }

    struct Notebook(Arc<Seen>);

    impl Recorder for Notebook {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Handle {
            Handle::from_arc(Arc::new(One(Arc::clone(&self.0), key.name().to_owned())))
        }
        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn the_recorder_sees_what_is_counted() {
        let seen = Arc::new(Seen::default());
        metrics::with_local_recorder(&Notebook(Arc::clone(&seen)), || {
            let counters = Counters::default();
            counters.misses.add(2);
            counters.corrupt.add(0);
            counters.looked_up(Duration::from_millis(1));
            assert_eq!(counters.snapshot(0, 0).misses, 2);
        });
        assert_eq!(*seen.0.lock().unwrap(), ["llava_cache_misses_total 2"]);
    }
}
