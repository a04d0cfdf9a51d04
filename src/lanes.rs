//! Lanes: threads that count at the same time do so in different places, so that none waits for a
//! cache line that another one just wrote. Who wants the sum adds up all lanes.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many lanes there are. More threads than that share.
pub(crate) const LANES: usize = 32;

/// One thing for each lane, on cache lines of its own. (Processors fetch them in pairs.)
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone<T>(T);

/// One `T` for each lane.
#[derive(Debug, Default)]
pub(crate) struct Lanes<T>([Alone<T>; LANES]);

impl<T> Lanes<T> {
    /// The calling thread's.
    pub(crate) fn mine(&self) -> &T {
        &self.0[lane()].0
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|alone| &alone.0)
    }
}

/// The calling thread's lane. It is the same for as long as the thread lives.
pub(crate) fn lane() -> usize {
    /// Not yet known.
    const NONE: usize = LANES;
    thread_local! {
        // Without a destructor, so that it can be read while a thread's locals go.
        static LANE: Cell<usize> = const { Cell::new(NONE) };
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    LANE.with(|lane| {
        if lane.get() == NONE {
            lane.set(NEXT.fetch_add(1, Ordering::Relaxed) % LANES);
        }
        lane.get()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::{LANES, Lanes, lane};

    #[test]
    fn a_thread_keeps_its_lane_and_all_lanes_are_counted() {
        let lanes: Lanes<AtomicU64> = Lanes::default();
        thread::scope(|scope| {
            for _ in 0..2 * LANES {
                scope.spawn(|| {
                    let here = lane();
                    assert!(here < LANES);
                    for _ in 0..100 {
                        lanes.mine().fetch_add(1, Ordering::Relaxed);
                    }
                    assert_eq!(lane(), here);
                });
            }
        });
        let sum: u64 = lanes.all().map(|n| n.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 200 * LANES as u64);
    }
}
