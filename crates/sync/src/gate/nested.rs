//! How often the calling thread is inside a gate, for threads that share a slot.
//!
//! A thread with a slot of its own reads that. The count of the shared slot says nothing of one thread, so such a thread
//! counts for itself, in a table without a destructor: it is used while the thread's locals are dropped, too.
//!
//! The table is small. What it does not count is taken for not nested, and so waits at a paused gate: the pause that waits
//! for the outer operation then reaches its deadline. The count is never too high, so no operation passes a pause wrongly.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many gates a thread counts at the same time.
const GATES: usize = 8;

/// A gate's number and how often the thread is inside.
type Entry = std::cell::Cell<(u64, u32)>;

#[cfg(not(cuguard_loom))]
thread_local! {
    static ENTERED: [Entry; GATES] = const { [const { Entry::new((0, 0)) }; GATES] };
}

#[cfg(cuguard_loom)]
loom::thread_local! {
    static ENTERED: [Entry; GATES] = [const { Entry::new((0, 0)) }; GATES];
}

/// A number for a gate. Not its address: a guard that was forgotten stays in the table.
pub(super) fn next_gate() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The thread has entered.
#[cold]
pub(super) fn enter(gate: u64) {
    ENTERED.with(|table| {
        let entry = find(table, gate).or_else(|| table.iter().find(|entry| entry.get().1 == 0));
        if let Some(entry) = entry {
            let count = find(table, gate).map_or(0, |entry| entry.get().1);
            entry.set((gate, count + 1));
        }
    });
}

/// The thread has left.
#[cold]
pub(super) fn leave(gate: u64) {
    ENTERED.with(|table| {
        if let Some(entry) = find(table, gate) {
            entry.set((gate, entry.get().1 - 1));
        }
    });
}

/// How often the thread is inside, or less.
pub(super) fn count(gate: u64) -> u64 {
    ENTERED.with(|table| find(table, gate).map_or(0, |entry| u64::from(entry.get().1)))
}

fn find(table: &[Entry; GATES], gate: u64) -> Option<&Entry> {
    let is_inside = |entry: &&Entry| entry.get().0 == gate && entry.get().1 > 0;
    table.iter().find(is_inside)
}

#[cfg(all(test, not(cuguard_loom)))]
mod tests {
    use super::{GATES, count, enter, leave, next_gate};

    #[test]
    fn a_gate_is_counted_and_one_too_many_is_not() {
        let gates: Vec<u64> = (0..=GATES).map(|_| next_gate()).collect();
        gates.iter().for_each(|gate| enter(*gate));
        enter(gates[0]);
        let counts: Vec<u64> = gates.iter().map(|gate| count(*gate)).collect();
        assert_eq!(counts, [2, 1, 1, 1, 1, 1, 1, 1, 0]);
        gates.iter().for_each(|gate| leave(*gate));
        assert_eq!(count(gates[0]), 1);
        leave(gates[0]);
        enter(gates[GATES]);
        assert_eq!((count(gates[0]), count(gates[GATES])), (0, 1));
        leave(gates[GATES]);
    }
}
