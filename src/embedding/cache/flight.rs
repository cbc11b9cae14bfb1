//! One miss, one computation: whoever comes second waits for the first one's result.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a waiter looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
enum State<V> {
    Running,
    Done(V),
    /// The one who computed it failed, was cancelled, or panicked: whoever waits tries itself.
    Given,
}

/// A computation in progress.
#[derive(Debug)]
pub(super) struct Flight<V> {
    state: Mutex<State<V>>,
    changed: Condvar,
}

impl<V: Clone> Flight<V> {
    fn set(&self, state: State<V>) {
        *lock(&self.state) = state;
        self.changed.notify_all();
    }

    /// Waits for the result. `None` where there is none, or where `stop` says so.
    pub(super) fn wait(&self, stop: impl Fn() -> bool) -> Option<V> {
        let mut state = lock(&self.state);
        loop {
            match &*state {
                State::Done(value) => return Some(value.clone()),
                State::Given => return None,
                State::Running if stop() => return None,
                State::Running => {
                    state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

/// Computations in progress by key.
#[derive(Debug)]
pub(super) struct Flights<V>(Mutex<HashMap<u128, Arc<Flight<V>>>>);

impl<V: Clone> Flights<V> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    /// Claims a key, or names the one who has.
    pub(super) fn claim(&self, key: u128) -> Result<Claim<'_, V>, Arc<Flight<V>>> {
        match lock(&self.0).entry(key) {
            Entry::Occupied(taken) => Err(Arc::clone(taken.get())),
            Entry::Vacant(free) => {
                let flight = Arc::new(Flight { state: Mutex::new(State::Running), changed: Condvar::new() });
                free.insert(Arc::clone(&flight));
                Ok(Claim { flights: self, flight, key })
            }
        }
    }
}

/// The right and the duty to compute a value. Dropped without [`Claim::publish`], it passes the right on.
#[derive(Debug)]
pub(super) struct Claim<'a, V: Clone> {
    flights: &'a Flights<V>,
    flight: Arc<Flight<V>>,
    key: u128,
}

impl<V: Clone> Claim<'_, V> {
    /// Gives the value to all who wait.
    pub(super) fn publish(self, value: V) {
        self.flight.set(State::Done(value));
    }
}

impl<V: Clone> Drop for Claim<'_, V> {
    fn drop(&mut self) {
        lock(&self.flights.0).remove(&self.key);
        let mut state = lock(&self.flight.state);
        if matches!(*state, State::Running) {
            *state = State::Given;
        }
        drop(state);
        self.flight.changed.notify_all();
    }
}

/// Nothing here is left half changed by a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
