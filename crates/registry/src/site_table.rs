//! Live bytes by call site, as atomic numbers that every insert and remove of a record by address changes.
//!
//! Call sites have small consecutive ids, so the table is an array. It grows by segments that double in size and never
//! move, so that no lock is needed to count.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use cuguard_sync::per_thread;

use crate::call_site::CallSiteId;
use crate::counters::Amount;
use crate::kind::ResourceKind;

/// Call sites in the first segment; the next one has twice as many.
const FIRST: u32 = 1 << 10;

/// Enough segments for every id.
const SEGMENTS: usize = 23;

/// In how many parts a call site's figures are counted. Threads use different ones, so that those that allocate at one call
/// site do not contend for a cache line.
const PARTS: usize = 8;

/// The figures of one call site. What one part counts may be freed in another: only the sums are meaningful.
#[derive(Debug, Default)]
struct Site([Part; PARTS]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Part {
    added: AtomicU64,
    removed: AtomicU64,
    /// Bytes that take memory of a device.
    device: AtomicU64,
    /// Bytes of the host, or imported.
    host: AtomicU64,
}

/// What one call site holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SiteBytes {
    pub(crate) site: CallSiteId,
    pub(crate) count: u64,
    /// How many it has held in all.
    pub(crate) added: u64,
    pub(crate) device: u64,
    pub(crate) host: u64,
}

impl SiteBytes {
    pub(crate) fn device_amount(&self) -> Amount {
        Amount::new(self.count, self.device)
    }
}

#[derive(Debug)]
pub(crate) struct SiteTable {
    segments: [OnceLock<Box<[Site]>>; SEGMENTS],
    /// The highest id so far.
    highest: AtomicU32,
}

impl Default for SiteTable {
    fn default() -> Self {
        Self {
            segments: std::array::from_fn(|_| OnceLock::new()),
            highest: AtomicU32::new(0),
        }
    }
}

/// The segment of an id, and the index in it.
fn position(id: CallSiteId) -> (usize, usize) {
    let number = u64::from(id) + u64::from(FIRST);
    let segment = number.ilog2() - FIRST.ilog2();
    (
        segment as usize,
        (number - (u64::from(FIRST) << segment)) as usize,
    )
}

impl SiteTable {
    /// The calling thread's part of a call site.
    fn part(&self, id: CallSiteId) -> &Part {
        &self.site(id).0[per_thread::slot_index() % PARTS]
    }

    fn site(&self, id: CallSiteId) -> &Site {
        let (segment, index) = position(id);
        let sites = self.segments[segment].get_or_init(|| {
            let length = (FIRST as usize) << segment;
            (0..length).map(|_| Site::default()).collect()
        });
        &sites[index]
    }

    /// Counts an allocation of memory.
    pub(crate) fn add(&self, id: CallSiteId, kind: ResourceKind, bytes: u64) {
        if self.highest.load(Relaxed) < id {
            self.highest.fetch_max(id, Relaxed);
        }
        let part = self.part(id);
        part.added.fetch_add(1, Relaxed);
        if kind.is_device_memory() {
            part.device.fetch_add(bytes, Relaxed);
        } else {
            part.host.fetch_add(bytes, Relaxed);
        }
    }

    /// Counts a free of memory that [`add`](Self::add) counted.
    pub(crate) fn sub(&self, id: CallSiteId, kind: ResourceKind, bytes: u64) {
        let part = self.part(id);
        part.removed.fetch_add(1, Relaxed);
        if kind.is_device_memory() {
            part.device.fetch_sub(bytes, Relaxed);
        } else {
            part.host.fetch_sub(bytes, Relaxed);
        }
    }

    /// Bytes of devices, of all call sites.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.live().map(|site| site.device).sum()
    }

    /// All call sites that hold memory, by id. Other threads may continue meanwhile.
    pub(crate) fn live(&self) -> impl Iterator<Item = SiteBytes> + '_ {
        let highest = self.highest.load(Relaxed);
        let segments = self.segments.iter().enumerate();
        let sites = segments.flat_map(|(segment, sites)| {
            // The last segment has more than there are ids.
            let first = (u64::from(FIRST) << segment) - u64::from(FIRST);
            let first = first as CallSiteId;
            let sites = sites.get().map_or(&[][..], |sites| sites);
            (first..).zip(sites)
        });
        sites
            .take_while(move |(id, _)| *id <= highest)
            .filter_map(|(site, numbers)| {
                let sum = |figure: fn(&Part) -> &AtomicU64| {
                    let figures = numbers.0.iter().map(|part| figure(part).load(Relaxed));
                    // Below zero while another thread has counted a free and not yet the allocation.
                    let sum = figures.fold(0_u64, u64::wrapping_add);
                    Some(sum).filter(|sum| *sum <= i64::MAX as u64).unwrap_or(0)
                };
                // First: what is freed in between makes the count too large, and not too small.
                let removed = sum(|part| &part.removed);
                let added = sum(|part| &part.added);
                let bytes = SiteBytes {
                    site,
                    count: added.saturating_sub(removed),
                    added,
                    device: sum(|part| &part.device),
                    host: sum(|part| &part.host),
                };
                (bytes.device != 0 || bytes.host != 0).then_some(bytes)
            })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{FIRST, SEGMENTS, SiteBytes, SiteTable, position};
    use crate::kind::ResourceKind;

    #[test]
    fn every_id_has_a_position_of_its_own() {
        let mut expected = (0, 0);
        for id in 0..FIRST * 8 {
            assert_eq!(position(id), expected);
            expected.1 += 1;
            if expected.1 == (FIRST as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(position(u32::MAX).0 < SEGMENTS);
    }

    #[test]
    fn the_table_has_what_is_alive() {
        let table = SiteTable::default();
        let ids = [0, 1, FIRST - 1, FIRST, 5 * FIRST];
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for id in ids {
                        table.add(id, ResourceKind::Device, 10);
                        table.add(id, ResourceKind::Pinned, 7);
                        table.add(id, ResourceKind::Managed, 1);
                        table.sub(id, ResourceKind::Pinned, 7);
                        table.sub(id, ResourceKind::Device, 10);
                    }
                });
            }
        });
        assert_eq!(table.device_bytes(), 20);
        let live: Vec<_> = table.live().collect();
        let expected = ids.map(|site| SiteBytes {
            site,
            count: 4,
            added: 12,
            device: 4,
            host: 0,
        });
        assert_eq!(live, expected);
    }
}
