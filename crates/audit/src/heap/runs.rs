//! Contiguous runs of units: best fit by bins of powers of two, neighbours coalesced.
//!
//! A free run is described in its first and its last unit, so that a run that is freed beside it finds it.

use super::range::{Reserved, Unit, Use};

const BINS: usize = 32;

/// Units by which the usable part grows at least: 4 MiB.
const GROWTH: u32 = 64;

pub(super) struct Runs {
    /// First free run of each bin; runs of bin `n` have at least `2^n` units.
    bins: [u32; BINS],
    /// Units below are usable; zero before the first call.
    top: u32,
}

fn bin(length: u32) -> usize {
    length.ilog2() as usize
}

impl Runs {
    pub(super) const fn new() -> Runs {
        Runs {
            bins: [0; BINS],
            top: 0,
        }
    }

    /// No unit from here on is used.
    pub(super) fn top(&self) -> u32 {
        self.top
    }

    /// A run of units, whose contents are arbitrary. `None` when the range is exhausted.
    pub(super) fn allocate(&mut self, reserved: Reserved, length: u32) -> Option<u32> {
        if self.top == 0 {
            self.top = reserved.table_units();
        }
        let first = match self.find(reserved, length) {
            Some(first) => first,
            None => self.grow(reserved, length)?,
        };
        self.unlink(reserved, first);
        // SAFETY: units below `top` have entries, and the caller's lock protects those of free runs.
        let available = unsafe { (*reserved.entry(first)).length };
        if available > length {
            self.insert(reserved, first + length, available - length);
        }
        Some(first)
    }

    /// The smallest free run that is long enough.
    fn find(&self, reserved: Reserved, length: u32) -> Option<u32> {
        for head in &self.bins[bin(length)..] {
            let (mut run, mut best, mut best_length) = (*head, None, u32::MAX);
            while run != 0 {
                // SAFETY: as in `allocate`.
                let (found, next) = unsafe {
                    let entry = reserved.entry(run);
                    ((*entry).length, (*entry).next)
                };
                if found >= length && found < best_length {
                    (best, best_length) = (Some(run), found);
                    if found == length {
                        break;
                    }
                }
                run = next;
            }
            if best.is_some() {
                return best;
            }
        }
        None
    }

    /// Makes more of the range usable: a free run of at least this length.
    fn grow(&mut self, reserved: Reserved, length: u32) -> Option<u32> {
        let left = reserved.units() - self.top;
        if left < length {
            return None;
        }
        let more = length.max(GROWTH).min(left);
        let first = self.top;
        if !reserved.make_usable(first..first + more) {
            return None;
        }
        self.top += more;
        Some(self.insert(reserved, first, more))
    }

    /// Frees a run.
    pub(super) fn free(&mut self, reserved: Reserved, first: u32, length: u32) {
        self.insert(reserved, first, length);
    }

    /// Adds a free run, merged with its free neighbours. Returns the first unit of the result.
    fn insert(&mut self, reserved: Reserved, mut first: u32, mut length: u32) -> u32 {
        let end = first + length;
        // SAFETY: as in `allocate`; unit `first - 1` is at least the table's last one, which is `Untouched`.
        unsafe {
            if end < self.top && (*reserved.entry(end)).usage == Use::Free {
                self.unlink(reserved, end);
                length += (*reserved.entry(end)).length;
            }
            let before = reserved.entry(first - 1);
            if (*before).usage == Use::Free {
                let start = first - (*before).length;
                self.unlink(reserved, start);
                length += first - start;
                first = start;
            }
            let head = &mut self.bins[bin(length)];
            let next = std::mem::replace(head, first);
            if next != 0 {
                (*reserved.entry(next)).previous = first;
            }
            let last = reserved.entry(first + length - 1);
            (*last).usage = Use::Free;
            (*last).length = length;
            let entry = reserved.entry(first);
            *entry = Unit {
                usage: Use::Free,
                class: 0,
                shard: 0,
                length,
                used: 0,
                touched: 0,
                freed: 0,
                next,
                previous: 0,
            };
        }
        first
    }

    /// Removes a free run from its bin, and marks both of its ends as no longer free.
    fn unlink(&mut self, reserved: Reserved, first: u32) {
        // SAFETY: as in `allocate`.
        unsafe {
            let entry = reserved.entry(first);
            let (length, next, previous) = ((*entry).length, (*entry).next, (*entry).previous);
            if previous == 0 {
                self.bins[bin(length)] = next;
            } else {
                (*reserved.entry(previous)).next = next;
            }
            if next != 0 {
                (*reserved.entry(next)).previous = previous;
            }
            (*reserved.entry(first + length - 1)).usage = Use::Tail;
            (*entry).usage = Use::Tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_do_not_overlap_and_coalesce() {
        let reserved = Reserved::for_test(512);
        let mut runs = Runs::new();
        let mut state = 3_u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut live: Vec<(u32, u32)> = Vec::new();
        for _ in 0..20_000 {
            if random(2) == 0 || live.is_empty() {
                let length = 1 + random(40) as u32;
                if let Some(first) = runs.allocate(reserved, length) {
                    let end = first + length;
                    assert!(first >= reserved.table_units() && end <= reserved.units());
                    let clear = live
                        .iter()
                        .all(|(start, length)| *start >= end || start + length <= first);
                    assert!(clear, "{first}+{length} overlaps one of {live:?}");
                    live.push((first, length));
                }
            } else {
                let (first, length) = live.swap_remove(random(live.len() as u64) as usize);
                runs.free(reserved, first, length);
            }
        }
        for (first, length) in live {
            runs.free(reserved, first, length);
        }
        let all = reserved.units() - reserved.table_units();
        assert_eq!(runs.allocate(reserved, all), Some(reserved.table_units()));
        assert_eq!(runs.allocate(reserved, 1), None);
    }

    #[test]
    fn freed_runs_are_used_before_the_range_grows() {
        let reserved = Reserved::for_test(4096);
        let mut runs = Runs::new();
        for round in 0..1000 {
            let lengths = [1, 7, 60, 3, 200];
            let firsts = lengths.map(|length| runs.allocate(reserved, length).expect("room"));
            for at in [3, 0, 4, 2, 1] {
                runs.free(reserved, firsts[at], lengths[at]);
            }
            assert!(runs.top < 400, "round {round}: {} units", runs.top);
        }
    }
}
