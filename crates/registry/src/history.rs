//! What each call site held over the run, and what was alive at the peak.
//!
//! Only records [by address](crate::Key::by_address) are counted, once they are in the registry's table. Counting costs some
//! additions. Now and then the thread that allocates has all records moved there, and copies the table of call sites: when the total
//! exceeds the last copied peak by more than 1/64, and when a sample is due: at the end of a [step](StepLength).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::Duration;

use cuguard_sync::per_thread::PerThread;
use cuguard_sync::{lock, try_lock};

use crate::call_site::CallSiteId;
use crate::counters::Amount;
use crate::growth::{SiteSteps, Steps, is_teardown};
use crate::hash::BuildMixHasher;
use crate::kind::ResourceKind;
use crate::origin::Origin;
use crate::site_table::{SiteBytes, SiteTable};
use crate::step_length::StepLength;

/// The time between two attempts to copy a peak, after one that found less: it takes the other threads' records into account,
/// which costs microseconds.
const PAUSE: u64 = 1_000_000;

/// How many milliseconds a report waits for a thread that takes a sample, which takes microseconds.
const PATIENCE: u32 = 100;

/// The largest call sites of a sample; others are not in it.
const SITES: usize = 4096;

/// What call sites held over the run.
///
/// ```
/// use cuguard_registry::{Entry, Key, ResourceKind, TrackingLevel, Registry, growth};
///
/// let registry = Registry::new(TrackingLevel::Stacks, 32);
/// let block = |address, stack| {
///     let key = Key::by_address(ResourceKind::Device, address);
///     registry.insert_stack(key, Entry { bytes: 100, type_name: "", stream: 0 }, &[stack], 1);
///     key
/// };
/// for round in 1..=20 {
///     block(round << 20, 7); // stays
///     registry.remove(block(1, 8), 100);
/// }
/// let history = registry.history();
/// assert_eq!(history.sites.len(), 2);
/// let rise = growth(&history.steps, &history.sites[0].steps).rise().unwrap();
/// assert_eq!((history.sites[0].origin.stack, rise.blocks), (&[7][..], 20));
/// assert!(growth(&history.steps, &history.sites[1].steps).rise().is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The run up to now, to the beginning of the exit, or to the last sample, where everything was freed soon after it.
    pub steps: Steps,
    /// Call sites that held memory at the end of any of the steps.
    pub sites: Vec<SiteHistory>,
}

/// What one call site held over the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteHistory {
    /// The call site.
    pub origin: Origin,
    /// Its blocks at the end of each step. The registry does not know which of them are lost.
    pub steps: SiteSteps,
    /// Its bytes at the end of each step.
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

#[derive(Default)]
struct Sample {
    time: u64,
    allocated: u64,
    /// Operations that are neither allocations nor frees.
    others: u64,
    work: u64,
    count: u64,
    sites: Vec<SiteBytes>,
}

#[derive(Default)]
struct Samples {
    list: Vec<Sample>,
    /// Where the exit began.
    end: Option<Sample>,
}

/// What one thread did. Frees are not counted: at a sample they are what was allocated and is not live.
#[derive(Default)]
struct Operations {
    allocated: AtomicU64,
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
#[derive(Default)]
pub(crate) struct Sites {
    table: SiteTable,
    /// The peak is copied when the total exceeds this.
    copy_above: AtomicU64,
    peak: Mutex<PeakCopy>,
    operations: PerThread<Operations>,
    /// Operations of other kinds.
    others: OnceLock<fn() -> u64>,
    length: StepLength,
    samples: Mutex<Samples>,
}

impl Sites {
    /// Counts a record that the table gets.
    pub(crate) fn add(&self, site: CallSiteId, kind: ResourceKind, bytes: u64) {
        if kind.is_memory() {
            self.table.add(site, kind, bytes);
        }
    }

    /// Counts a record that the table had.
    pub(crate) fn sub(&self, site: CallSiteId, kind: ResourceKind, bytes: u64) {
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
        let nth = self.operations.slot().add(|thread| &thread.allocated, 1);
        if self.length.ends_step(nth) {
            self.take_sample(now, &flush);
        }
    }

    /// Has operations counted that are neither allocations nor frees.
    pub(crate) fn count_others(&self, others: fn() -> u64) {
        let _ = self.others.set(others);
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
        // A thread that takes one does it for this one too.
        let Ok(mut samples) = self.samples.try_lock() else {
            return;
        };
        let sample = self.sample(now, flush);
        samples.list.push(sample);
        if self.length.is_too_short(samples.list.len()) {
            StepLength::drop_every_other(&mut samples.list);
            self.length.double();
        }
    }

    fn sample(&self, now: u64, flush: impl Fn()) -> Sample {
        flush();
        let mut sites: Vec<_> = self.table.live().collect();
        let count = sites.iter().map(|site| site.count).sum();
        if sites.len() > SITES {
            let bytes = |site: &SiteBytes| std::cmp::Reverse(site.device.saturating_add(site.host));
            sites.select_nth_unstable_by_key(SITES, bytes);
            sites.truncate(SITES);
        }
        let own = |thread: &Operations| thread.allocated.load(Relaxed);
        let allocated = self.operations.all().map(own).sum::<u64>();
        let freed = allocated.saturating_sub(count);
        let others = self.others.get().map_or(0, |others| others());
        Sample {
            time: now,
            allocated,
            others,
            work: allocated + freed + others,
            count,
            sites,
        }
    }

    /// The samples. `None` if a thread takes one and does not go on: a signal handler may have interrupted it there and exit.
    fn samples(&self) -> Option<MutexGuard<'_, Samples>> {
        for _ in 0..PATIENCE {
            if let Some(samples) = try_lock(&self.samples) {
                return Some(samples);
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// The exit begins: what is freed from now on is not part of the history. Where memory was allocated since an earlier call,
    /// that was no exit.
    pub(crate) fn end_history(&self, now: u64, flush: impl Fn()) {
        if let Some(mut samples) = self.samples() {
            let sample = self.sample(now, flush);
            if samples
                .end
                .as_ref()
                .is_none_or(|end| end.allocated != sample.allocated)
            {
                samples.end = Some(sample);
            }
        }
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

    pub(crate) fn history(&self, now: u64, flush: impl Fn()) -> History {
        let (steps, sites) = self.steps(now, flush);
        let sites = sites.into_iter().map(|(_, site)| site).collect();
        History { steps, sites }
    }

    /// How many operations that are neither allocations nor frees there were, at the times of the steps.
    pub(crate) fn other_work(&self, now: u64, flush: impl Fn()) -> Vec<(u64, u64)> {
        let Some(samples) = self.samples() else {
            return Vec::new();
        };
        let own = |sample: &Sample| (sample.time, sample.others);
        let mut work: Vec<_> = samples.list.iter().map(own).collect();
        work.push(match &samples.end {
            Some(end) => own(end),
            None => own(&self.sample(now, flush)),
        });
        work.sort_unstable();
        work
    }

    /// The history, with the ids of the call sites.
    pub(crate) fn steps(
        &self,
        now: u64,
        flush: impl Fn(),
    ) -> (Steps, Vec<(CallSiteId, SiteHistory)>) {
        let Some(samples) = self.samples() else {
            return Default::default();
        };
        let current;
        let end = match &samples.end {
            Some(end) => end,
            None => {
                current = self.sample(now, flush);
                &current
            }
        };
        let list = samples.list.iter().filter(|sample| sample.time < end.time);
        let mut list: Vec<&Sample> = list.collect();
        if !Self::is_teardown(&list, end) {
            list.push(end);
        }
        let mut sites: HashMap<CallSiteId, SiteHistory, BuildMixHasher> = HashMap::default();
        for (index, sample) in list.iter().enumerate() {
            for bytes in &sample.sites {
                let site = sites.entry(bytes.site).or_insert_with(|| SiteHistory {
                    origin: Origin::of(bytes.site),
                    steps: SiteSteps {
                        live: vec![0; list.len()],
                        allocated: vec![0; list.len()],
                        lost: 0,
                    },
                    bytes: vec![0; list.len()],
                });
                site.steps.live[index] = bytes.count;
                site.steps.allocated[index] = bytes.added;
                site.bytes[index] = bytes.device.saturating_add(bytes.host);
            }
        }
        let mut sites: Vec<_> = sites.into_iter().collect();
        sites.sort_unstable_by_key(|(site, _)| *site);
        for (_, site) in &mut sites {
            // A sample has nothing of a call site that holds nothing.
            let mut before = 0;
            for allocated in &mut site.steps.allocated {
                before = before.max(*allocated);
                *allocated = before;
            }
        }
        let times = list.iter().map(|sample| Duration::from_nanos(sample.time));
        let steps = Steps {
            times: times.collect(),
            work: list.iter().map(|sample| sample.work).collect(),
            live: list.iter().map(|sample| sample.count).collect(),
            are_rounds: false,
        };
        (steps, sites)
    }

    /// Whether what came after the last sample is the teardown of the program.
    fn is_teardown(list: &[&Sample], end: &Sample) -> bool {
        let (Some(first), Some(last)) = (list.first(), list.last()) else {
            return false;
        };
        let since = |begin| Duration::from_nanos(end.time.saturating_sub(begin));
        is_teardown(last.count, end.count, since(last.time), since(first.time))
    }
}

#[cfg(test)]
mod tests {
    use super::Sites;
    use crate::call_site::{CallSiteId, intern_frames};
    use crate::growth::{Growth, growth};
    use crate::kind::ResourceKind;
    use crate::step_length::STEPS;

    fn add(sites: &Sites, site: CallSiteId, kind: ResourceKind, bytes: u64, now: u64) {
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
            add(&sites, one, ResourceKind::Device, 1000, i);
            add(&sites, other, ResourceKind::Device, 10, i);
            add(&sites, other, ResourceKind::Pinned, 1 << 30, i);
        }
        for _ in 0..90 {
            sites.sub(one, ResourceKind::Device, 1000);
        }
        add(&sites, one, ResourceKind::Device, 5, 1000);
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
        add(&sites, site, ResourceKind::Device, 1000, 1);
        sites.add(site, ResourceKind::Device, 5);
        let is_first = std::cell::Cell::new(true);
        let peak = sites.peak(2000, || {
            // The second time, between the two sums.
            if !is_first.replace(false) {
                sites.sub(site, ResourceKind::Device, 900);
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
        add(&sites, one, ResourceKind::Device, 1000, 0);
        add(&sites, one, ResourceKind::Device, 1, 0);
        assert_eq!(sites.peak(5, || ()).unwrap().bytes, 1001);
        sites.sub(one, ResourceKind::Device, 1001);
        assert_eq!(sites.peak(6, || ()).unwrap().bytes, 1001);
    }

    #[test]
    fn a_long_run_has_evenly_spaced_samples() {
        let sites = Sites::default();
        let one = intern(&[104]);
        for time in 0..100_000 {
            for _ in 0..2 {
                sites.add(one, ResourceKind::Device, 1);
                sites.observe(time * time, || 0, || ());
            }
            sites.sub(one, ResourceKind::Device, 1);
        }
        let history = sites.history(u64::MAX, || ());
        let count = history.steps.work.len();
        assert!((STEPS / 2..=STEPS).contains(&count), "{count}");
        let work = history.steps.work.windows(2).map(|pair| pair[1] - pair[0]);
        let work: Vec<_> = work.collect();
        assert!(
            work[..count - 2].iter().all(|work| *work == 3 * 2048),
            "{work:?}"
        );
        let site = &history.sites[0];
        assert!(site.bytes.is_sorted() && site.bytes[count - 1] == 100_000);
        assert_eq!(site.steps.allocated[count - 1], 200_000);
        let rise = growth(&history.steps, &site.steps).rise().unwrap();
        assert_eq!(
            (rise.blocks, rise.first, rise.last),
            (100_000, 0, count - 1)
        );
    }

    #[test]
    fn what_is_freed_at_the_end_is_part_of_the_run_only_if_it_takes_long() {
        let (one, temporary) = (intern(&[105]), intern(&[106]));
        let filled = || {
            let sites = Sites::default();
            for time in 0..100 {
                add(&sites, one, ResourceKind::Device, 1, SECOND + time * SECOND);
                for _ in 0..2 {
                    add(
                        &sites,
                        temporary,
                        ResourceKind::Device,
                        1,
                        SECOND + time * SECOND,
                    );
                    sites.sub(temporary, ResourceKind::Device, 1);
                }
            }
            sites
        };
        let empty = |sites: &Sites| (0..100).for_each(|_| sites.sub(one, ResourceKind::Device, 1));
        let verdict = |sites: &Sites, seconds: u64| {
            let (steps, list) = sites.steps(seconds * SECOND, || ());
            let (_, kept) = list.iter().find(|(site, _)| *site == one).unwrap();
            growth(&steps, &kept.steps)
        };
        let sites = filled();
        empty(&sites);
        assert!(verdict(&sites, 110).rise().is_some());
        assert_eq!(verdict(&sites, 200), Growth::FellAgain);
        // During the exit, however long it takes.
        let sites = filled();
        sites.end_history(101 * SECOND, || ());
        empty(&sites);
        sites.end_history(400 * SECOND, || ());
        assert!(verdict(&sites, 500).rise().is_some());
        // Of an interpreter, before the program goes on.
        let sites = filled();
        sites.end_history(101 * SECOND, || ());
        add(&sites, temporary, ResourceKind::Device, 1, 300 * SECOND);
        empty(&sites);
        sites.end_history(400 * SECOND, || ());
        assert_eq!(verdict(&sites, 500), Growth::FellAgain);
    }

    #[test]
    fn other_operations_are_work() {
        let sites = Sites::default();
        let one = intern(&[106]);
        sites.count_others(|| 1000);
        add(&sites, one, ResourceKind::Device, 1, 1);
        assert_eq!(sites.history(2, || ()).steps.work, [1001, 1001]);
        assert_eq!(sites.other_work(2, || ()), [(1, 1000), (2, 1000)]);
    }
}
