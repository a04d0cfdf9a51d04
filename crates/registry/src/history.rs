//! How the live bytes of each call site changed over the run, and what was alive at the peak.
//!
//! Only records [by address](crate::Key::by_address) are counted, once they are in the registry's table. Counting costs some
//! atomic additions. Now and then the thread that allocates has all records moved there, and copies the table of call sites: when the total exceeds the last copied peak by more than
//! 1/64, and when a sample is due. There are at most [`SAMPLES`] samples: then every other one is dropped, and the
//! interval doubles.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::call_site::CallSiteId;
use crate::counters::Amount;
use crate::hash::BuildMixHasher;
use crate::kind::Kind;
use crate::origin::Origin;
use crate::site_table::{SiteBytes, SiteTable};

/// The most samples.
const SAMPLES: usize = 64;

/// The first interval between two samples.
const INTERVAL: u64 = 10_000_000;

/// The time between two attempts to copy a peak, after one that found less: it takes the other threads' records into account,
/// which costs microseconds.
const PAUSE: u64 = 1_000_000;

/// The largest call sites of a sample; others are not in it.
const SITES: usize = 4096;

/// The live bytes of call sites over the run.
///
/// ```
/// use std::time::Duration;
/// use cuguard_registry::{History, Origin, SiteHistory};
///
/// let times = (1..=16).map(Duration::from_secs).collect();
/// let bytes = (1..=16).map(|second| second * 100).collect();
/// let sites = vec![SiteHistory { origin: Origin::UNKNOWN, bytes }];
/// let history = History { start: Duration::ZERO, end: Duration::from_secs(16), times, sites };
/// let growth = history.growth(&history.sites[0].bytes).unwrap();
/// assert_eq!(growth.bytes_per_second(), 100);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// When the first resource was allocated, since the start of the process.
    pub start: Duration,
    /// When the history was made.
    pub end: Duration,
    /// When the samples were taken.
    pub times: Vec<Duration>,
    /// Call sites that held memory in any of the samples.
    pub sites: Vec<SiteHistory>,
}

/// The live bytes of one call site over the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteHistory {
    /// The call site.
    pub origin: Origin,
    /// Its bytes in each sample.
    pub bytes: Vec<u64>,
}

/// What was alive when the memory of devices was at its peak, within 2 %.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// When it was, since the start of the process.
    pub time: Duration,
    /// The bytes of all call sites together.
    pub bytes: u64,
    /// What each call site held, the largest first.
    pub sites: Vec<(Origin, Amount)>,
}

struct Sample {
    time: u64,
    sites: Vec<(CallSiteId, u64)>,
}

struct Samples {
    interval: u64,
    start: Option<u64>,
    list: Vec<Sample>,
}

#[derive(Default)]
struct PeakCopy {
    time: u64,
    bytes: u64,
    sites: Vec<SiteBytes>,
    /// No copy is tried before this time.
    not_before: u64,
}

/// The figures of all call sites of a registry.
pub(crate) struct Sites {
    table: SiteTable,
    /// The peak is copied when the total exceeds this.
    copy_above: AtomicU64,
    peak: Mutex<PeakCopy>,
    next_sample: AtomicU64,
    samples: Mutex<Samples>,
}

impl Default for Sites {
    fn default() -> Self {
        Self {
            table: SiteTable::default(),
            copy_above: AtomicU64::new(0),
            peak: Mutex::default(),
            next_sample: AtomicU64::new(0),
            samples: Mutex::new(Samples {
                interval: INTERVAL,
                start: None,
                list: Vec::new(),
            }),
        }
    }
}

impl Sites {
    /// Counts a record that the table gets.
    pub(crate) fn add(&self, site: CallSiteId, kind: Kind, bytes: u64) {
        if kind.is_memory() {
            self.table.add(site, kind, bytes);
        }
    }

    /// Counts a record that the table had.
    pub(crate) fn sub(&self, site: CallSiteId, kind: Kind, bytes: u64) {
        if kind.is_memory() {
            self.table.sub(site, kind, bytes);
        }
    }

    /// Called after every allocation of memory, `now` in nanoseconds. `device_bytes` returns the bytes of devices, of all
    /// call sites: a sum here would be one more number that all threads contend for. `flush` has all records counted.
    #[inline]
    pub(crate) fn observe(&self, now: u64, device_bytes: impl FnOnce() -> u64, flush: impl Fn()) {
        if device_bytes() > self.copy_above.load(Relaxed) {
            self.copy_peak(now, &flush);
        }
        if now >= self.next_sample.load(Relaxed) {
            self.take_sample(now, &flush);
        }
    }

    #[cold]
    fn copy_peak(&self, now: u64, flush: impl Fn()) {
        // Another thread that copies does it for this one too, or the next allocation does.
        let Ok(mut peak) = self.peak.try_lock() else {
            return;
        };
        if now < peak.not_before {
            return;
        }
        flush();
        let bytes = self.table.device_bytes();
        // Also where `peak` has asked for a copy of whatever is more.
        let enough = peak.bytes.max(self.copy_above.load(Relaxed));
        if bytes <= enough {
            // Other threads have freed meanwhile.
            self.copy_above.store(enough, Relaxed);
            peak.not_before = now + PAUSE;
            return;
        }
        peak.sites.clear();
        let live = self.table.live().filter(|site| site.device != 0);
        peak.sites.extend(live);
        (peak.time, peak.bytes) = (now, bytes);
        self.copy_above.store(bytes + bytes / 64, Relaxed);
    }

    #[cold]
    fn take_sample(&self, now: u64, flush: impl Fn()) {
        let Ok(mut samples) = self.samples.try_lock() else {
            return;
        };
        if now < self.next_sample.load(Relaxed) {
            return;
        }
        samples.start.get_or_insert(now);
        flush();
        let live = self.table.live();
        let mut sites: Vec<_> = live
            .map(|site| (site.site, site.device.saturating_add(site.host)))
            .collect();
        if sites.len() > SITES {
            sites.select_nth_unstable_by_key(SITES, |(_, bytes)| std::cmp::Reverse(*bytes));
            sites.truncate(SITES);
        }
        samples.list.push(Sample { time: now, sites });
        if samples.list.len() >= SAMPLES {
            let mut index = 0;
            samples.list.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            samples.interval *= 2;
        }
        self.next_sample.store(now + samples.interval, Relaxed);
    }

    pub(crate) fn peak(&self, now: u64, flush: impl Fn()) -> Option<Peak> {
        flush();
        // The last allocations may not have been enough for a copy.
        if self.table.device_bytes() > lock(&self.peak).bytes {
            self.copy_above.store(0, Relaxed);
            lock(&self.peak).not_before = 0;
            self.copy_peak(now, flush);
        }
        let peak = lock(&self.peak);
        let mut sites: Vec<_> = peak
            .sites
            .iter()
            .map(|site| (Origin::of(site.site), site.device_amount()))
            .collect();
        sites.sort_by_key(|(_, amount)| std::cmp::Reverse((amount.bytes, amount.count)));
        (!sites.is_empty()).then(|| Peak {
            time: Duration::from_nanos(peak.time),
            bytes: peak.bytes,
            sites,
        })
    }

    pub(crate) fn history(&self, now: u64) -> History {
        let samples = lock(&self.samples);
        let mut sites: HashMap<CallSiteId, Vec<u64>, BuildMixHasher> = HashMap::default();
        let count = samples.list.len();
        for (index, sample) in samples.list.iter().enumerate() {
            for (site, bytes) in &sample.sites {
                sites.entry(*site).or_insert_with(|| vec![0; count])[index] = *bytes;
            }
        }
        let mut sites: Vec<_> = sites.into_iter().collect();
        sites.sort_unstable_by_key(|(site, _)| *site);
        let sites = sites.into_iter().map(|(site, bytes)| SiteHistory {
            origin: Origin::of(site),
            bytes,
        });
        History {
            start: Duration::from_nanos(samples.start.unwrap_or(now)),
            end: Duration::from_nanos(now),
            times: samples
                .list
                .iter()
                .map(|sample| Duration::from_nanos(sample.time))
                .collect(),
            sites: sites.collect(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{INTERVAL, SAMPLES, Sites};
    use crate::call_site::{CallSiteId, intern_frames};
    use crate::kind::Kind;

    fn add(sites: &Sites, site: CallSiteId, kind: Kind, bytes: u64, now: u64) {
        let total = || sites.table.device_bytes();
        sites.add(site, kind, bytes);
        sites.observe(now, total, || ());
    }

    fn intern(stack: &[usize]) -> CallSiteId {
        intern_frames(stack, "history").unwrap().id
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_peak_has_what_each_call_site_held() {
        let sites = Sites::default();
        let [one, other] = [[101], [102]].map(|stack| intern(&stack));
        for i in 0..100 {
            add(&sites, one, Kind::Device, 1000, i);
            add(&sites, other, Kind::Device, 10, i);
            add(&sites, other, Kind::Pinned, 1 << 30, i);
        }
        for _ in 0..90 {
            sites.sub(one, Kind::Device, 1000);
        }
        add(&sites, one, Kind::Device, 5, 1000);
        let peak = sites.peak(2000, || ()).unwrap();
        assert!((99_000..=101_000).contains(&peak.bytes), "{}", peak.bytes);
        assert!(peak.time.as_nanos() < 100);
        let bytes: Vec<_> = peak.sites.iter().map(|(_, amount)| amount.bytes).collect();
        assert!(bytes[0] >= 98_000 && bytes.iter().sum::<u64>() == peak.bytes);
        assert_eq!(peak.sites[0].0.stack, [101]);
    }

    /// More is alive than at the peak when a report begins, and is freed before it is counted.
    #[test]
    fn a_peak_is_not_replaced_by_less() {
        let sites = Sites::default();
        let site = intern(&[103]);
        add(&sites, site, Kind::Device, 1000, 1);
        sites.add(site, Kind::Device, 5);
        let is_first = std::cell::Cell::new(true);
        let peak = sites.peak(2000, || {
            // The second time, between the two sums.
            if !is_first.replace(false) {
                sites.sub(site, Kind::Device, 900);
            }
        });
        assert_eq!(peak.unwrap().bytes, 1000);
    }

    /// Also what was too little for a copy.
    #[test]
    fn what_is_alive_now_may_be_the_peak() {
        let sites = Sites::default();
        let one = intern(&[103]);
        assert_eq!(sites.peak(0, || ()), None);
        add(&sites, one, Kind::Device, 1000, 0);
        add(&sites, one, Kind::Device, 1, 0);
        assert_eq!(sites.peak(5, || ()).unwrap().bytes, 1001);
        sites.sub(one, Kind::Device, 1001);
        assert_eq!(sites.peak(6, || ()).unwrap().bytes, 1001);
    }

    #[test]
    fn a_long_run_has_evenly_spaced_samples() {
        let sites = Sites::default();
        let one = intern(&[104]);
        for time in 0..100_000 {
            sites.add(one, Kind::Device, 1);
            sites.observe(time * INTERVAL, || 0, || ());
        }
        let history = sites.history(100_000 * INTERVAL);
        let count = history.times.len();
        assert!((SAMPLES / 2 - 1..SAMPLES).contains(&count), "{count}");
        let steps: Vec<_> = history
            .times
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect();
        let (least, most) = (steps.iter().min().unwrap(), steps.iter().max().unwrap());
        assert!(*most <= *least * 2, "{least:?} {most:?}");
        let bytes = &history.sites[0].bytes;
        assert!(bytes.is_sorted() && bytes[count - 1] > 95_000);
        let growth = history.growth(bytes).unwrap();
        assert_eq!(growth.bytes_per_second(), SECOND / INTERVAL);
    }
}
