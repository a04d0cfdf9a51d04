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

    /// Units that were made usable, the table included.
    #[cfg(test)]
    pub(super) fn top(&self) -> u32 {
        self.top
    }
}
