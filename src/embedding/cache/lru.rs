//! Values by key under a budget of bytes; the one unused for longest goes first.

use std::collections::{BTreeMap, HashMap};

/// Bytes an entry costs besides its value: key, order, table slots. An upper estimate.
const OVERHEAD_BYTES: u64 = 256;

/// What can be kept: knows its size, and whether somebody is using it right now.
pub(crate) trait Weigh {
    /// Bytes of memory it holds.
    fn bytes(&self) -> u64;
    /// Whether dropping this copy would free nothing because others hold it.
    fn in_use(&self) -> bool;
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    cost: u64,
    tick: u64,
}

/// A least-recently-used map that never exceeds its budget.
#[derive(Debug)]
pub(crate) struct ByteLru<V> {
    budget: u64,
    used: u64,
    tick: u64,
    slots: HashMap<u128, Slot<V>>,
    /// Keys by when they were last used.
    order: BTreeMap<u64, u128>,
}

/// What an insertion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inserted {
    pub(crate) kept: bool,
    pub(crate) evicted: u64,
}

impl<V: Weigh + Clone> ByteLru<V> {
    pub(crate) fn new(budget: u64) -> Self {
        Self { budget, used: 0, tick: 0, slots: HashMap::new(), order: BTreeMap::new() }
    }

    /// The value, which becomes the one used last.
    pub(crate) fn get(&mut self, key: u128) -> Option<V> {
        let slot = self.slots.get_mut(&key)?;
        self.order.remove(&slot.tick);
        self.tick += 1;
        slot.tick = self.tick;
        self.order.insert(self.tick, key);
        Some(slot.value.clone())
    }

    /// Keeps a value, at the cost of others. Values in use are not given up, since that would free nothing; where the rest does
    /// not make room, the new value is not kept.
    pub(crate) fn insert(&mut self, key: u128, value: V) -> Inserted {
        self.remove(key);
        let cost = value.bytes().saturating_add(OVERHEAD_BYTES);
        let Some(victims) = self.victims(cost) else { return Inserted { kept: false, evicted: 0 } };
        let evicted = victims.len() as u64;
        for victim in victims {
            self.remove(victim);
        }
        self.tick += 1;
        self.used += cost;
        self.order.insert(self.tick, key);
        self.slots.insert(key, Slot { value, cost, tick: self.tick });
        Inserted { kept: true, evicted }
    }

    pub(crate) fn remove(&mut self, key: u128) -> bool {
        let Some(slot) = self.slots.remove(&key) else { return false };
        self.order.remove(&slot.tick);
        self.used -= slot.cost;
        true
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.order.clear();
        self.used = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Whose going makes room for `cost`, oldest first; `None` where nothing does.
    fn victims(&self, cost: u64) -> Option<Vec<u128>> {
        if cost > self.budget {
            return None;
        }
        let mut victims = Vec::new();
        let mut used = self.used;
        for key in self.order.values() {
            if used + cost <= self.budget {
                break;
            }
            let Some(slot) = self.slots.get(key) else { continue };
            if !slot.value.in_use() {
                used -= slot.cost;
                victims.push(*key);
            }
        }
        (used + cost <= self.budget).then_some(victims)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    struct Blob(Arc<Vec<u8>>);

    impl Weigh for Blob {
        fn bytes(&self) -> u64 {
            self.0.len() as u64
        }
        fn in_use(&self) -> bool {
            Arc::strong_count(&self.0) > 1
        }
    }

    fn blob(len: usize) -> Blob {
        Blob(Arc::new(vec![0; len]))
    }

    /// The same rules, written as plainly as they can be: a list, oldest first.
    #[derive(Default)]
    struct Naive(Vec<(u128, u64)>);

    impl Naive {
        fn get(&mut self, key: u128) -> Option<u64> {
            let at = self.0.iter().position(|e| e.0 == key)?;
            let entry = self.0.remove(at);
            self.0.push(entry);
            Some(entry.1)
        }

        fn insert(&mut self, budget: u64, key: u128, bytes: u64, held: &[u128]) -> bool {
            self.0.retain(|e| e.0 != key);
            let cost = |list: &[(u128, u64)]| list.iter().map(|e| e.1 + OVERHEAD_BYTES).sum::<u64>();
            let mut list = self.0.clone();
            while cost(&list) + bytes + OVERHEAD_BYTES > budget {
                let Some(at) = list.iter().position(|e| !held.contains(&e.0)) else { return false };
                list.remove(at);
            }
            list.push((key, bytes));
            self.0 = list;
            true
        }
    }

    proptest! {
        #[test]
        fn behaves_like_the_naive_list(steps in prop::collection::vec((0_u8..4, 0_u128..12, 0_usize..900), 1..200)) {
            const BUDGET: u64 = 4000;
            let (mut lru, mut naive) = (ByteLru::new(BUDGET), Naive::default());
            let mut held: Vec<(u128, Blob)> = Vec::new();
            for (what, key, len) in steps {
                match what {
                    0 | 1 => {
                        let names: Vec<u128> = held.iter().map(|h| h.0).collect();
                        // a value that is replaced is another one than the one somebody holds
                        held.retain(|h| h.0 != key);
                        let names: Vec<u128> = names.into_iter().filter(|n| *n != key).collect();
                        let kept = lru.insert(key, blob(len)).kept;
                        prop_assert_eq!(kept, naive.insert(BUDGET, key, len as u64, &names));
                    }
                    2 => {
                        let found = lru.get(key);
                        prop_assert_eq!(found.as_ref().map(Weigh::bytes), naive.get(key));
                        // every other one is held for a while
                        if let Some(found) = found && len % 2 == 0 && held.len() < 4 {
                            held.push((key, found));
                        }
                    }
                    _ => {
                        held.pop();
                    }
                }
                let list: Vec<u128> = lru.order.values().copied().collect();
                prop_assert_eq!(list, naive.0.iter().map(|e| e.0).collect::<Vec<_>>());
                prop_assert!(lru.used() <= BUDGET);
                prop_assert_eq!(lru.used(), lru.slots.values().map(|s| s.value.bytes() + OVERHEAD_BYTES).sum::<u64>());
            }
        }
    }

    #[test]
    fn no_budget_keeps_nothing() {
        let mut lru = ByteLru::new(0);
        assert_eq!(lru.insert(1, blob(0)), Inserted { kept: false, evicted: 0 });
        assert!(lru.get(1).is_none());
        assert_eq!((lru.len(), lru.used()), (0, 0));
    }

    #[test]
    fn what_does_not_fit_evicts_nobody() {
        let mut lru = ByteLru::new(1000);
        assert!(lru.insert(1, blob(100)).kept);
        assert_eq!(lru.insert(2, blob(900)), Inserted { kept: false, evicted: 0 });
        assert!(lru.get(1).is_some());
    }
}
