//! What was alive at a moment, in groups.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::by::By;
use crate::keys::Keys;
use crate::look::Frames;
use crate::moment::Moment;
use crate::run::Frame;
use cuguard_registry::Amount;

/// A group of what was alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its name, as the program has it: with any characters. Of a call site the innermost function of the program
    /// that is not an [allocation helper](crate::Run::naming_frames).
    pub name: String,
    /// All of it. Bytes are those of memory.
    pub amount: Amount,
    /// The bytes of device memory alone.
    pub device_bytes: u64,
    /// For functions and libraries: what they and all that they call allocated. Otherwise as [`amount`](Self::amount).
    pub inclusive: Amount,
    /// By kind, in the order of [`Run::kinds`](crate::Run::kinds).
    pub kinds: Vec<(u8, Amount)>,
    /// Its call sites, the largest first.
    pub sites: Vec<(u32, Amount)>,
    /// Indices of names, in order.
    pub labels: Vec<u32>,
    /// Indices of names, in order.
    pub threads: Vec<u32>,
    /// Handles, in order, without 0.
    pub streams: Vec<u64>,
    /// When the oldest was allocated, in nanoseconds since the [origin](crate::Run::origin).
    pub oldest: u64,
    /// When the youngest was allocated.
    pub youngest: u64,
}

/// All that groups need of allocations that are alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Alike {
    key: u64,
    stream: u64,
    site: u32,
    label: u32,
    thread: u32,
    kind: u8,
}

struct Sum {
    amount: Amount,
    device_bytes: u64,
    oldest: u64,
    youngest: u64,
}

/// A group in the making.
#[derive(Default)]
struct Parts {
    amount: Amount,
    device_bytes: u64,
    kinds: BTreeMap<u8, Amount>,
    sites: HashMap<u32, Amount>,
    labels: BTreeSet<u32>,
    threads: BTreeSet<u32>,
    streams: BTreeSet<u64>,
    span: Option<(u64, u64)>,
}

/// What was alive, in groups: the largest first, equal ones by count and name. Call sites by stack trace are one group
/// where `frames` of them are equal.
///
/// ```
/// use cuguard_view::{Allocation, At, By, FOREVER, Frames, RecordedKind, Run, group, moment};
///
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = Allocation { end: FOREVER, bytes: 512, ..Allocation::default() };
/// let run = Run { kinds: vec![device], allocations: vec![block; 2], ..Run::default() };
/// let groups = group(&moment(&run, At::Exit)?, By::Kind, Frames::Program);
/// assert_eq!((groups[0].name.as_str(), groups[0].amount.bytes), ("device memory", 1024));
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
#[must_use]
pub fn group(moment: &Moment<'_>, by: By, frames: Frames) -> Vec<Group> {
    let run = moment.run;
    let keys = Keys::new(run, by, frames);
    let mut sums: HashMap<Alike, Sum> = HashMap::new();
    for allocation in moment.allocations() {
        let alike = Alike {
            key: keys.of(allocation),
            stream: allocation.stream,
            site: allocation.site,
            label: allocation.label,
            thread: allocation.thread,
            kind: allocation.kind,
        };
        let sum = sums.entry(alike).or_insert(Sum {
            amount: Amount::default(),
            device_bytes: 0,
            // They are in order of their begin.
            oldest: allocation.start,
            youngest: allocation.start,
        });
        sum.amount += run.amount(allocation);
        sum.device_bytes = sum
            .device_bytes
            .saturating_add(run.device_bytes(allocation));
        sum.youngest = allocation.start;
    }
    let mut parts: HashMap<u64, Parts> = HashMap::new();
    for (alike, sum) in sums {
        parts.entry(alike.key).or_default().add(alike, &sum);
    }
    let inclusive = match by {
        By::Function => inclusive(moment, |frame| &frame.function),
        By::Library => inclusive(moment, |frame| &frame.library),
        _ => HashMap::new(),
    };
    let mut groups: Vec<(u64, Group)> = parts
        .into_iter()
        .map(|(key, parts)| {
            let mut group = parts.finish(keys.name(key));
            let wider = inclusive.get(group.name.as_str()).copied();
            group.inclusive = wider.unwrap_or(group.amount);
            (key, group)
        })
        .collect();
    groups.sort_by(|(a_key, a), (b_key, b)| {
        let size = |group: &Group| (group.amount.bytes, group.amount.count);
        let by_size = size(b).cmp(&size(a));
        by_size
            .then_with(|| a.name.cmp(&b.name))
            .then(a_key.cmp(b_key))
    });
    groups.into_iter().map(|(_, group)| group).collect()
}

/// By a name of frames: all that has such a frame anywhere in its stack trace.
fn inclusive<'r>(
    moment: &Moment<'r>,
    name: impl Fn(&'r Frame) -> &'r String,
) -> HashMap<&'r str, Amount> {
    let mut by_site: HashMap<u32, Amount> = HashMap::new();
    for allocation in moment.allocations() {
        *by_site.entry(allocation.site).or_default() += moment.run.amount(allocation);
    }
    let mut sums: HashMap<&str, Amount> = HashMap::new();
    for (site, amount) in by_site {
        let Some(site) = moment.run.sites.get(site as usize) else {
            continue;
        };
        // Once for each stack trace, also where a function calls itself.
        let names: HashSet<&str> = site.frames.iter().map(|f| name(f).as_str()).collect();
        for name in names {
            *sums.entry(name).or_default() += amount;
        }
    }
    sums
}

impl Parts {
    fn add(&mut self, alike: Alike, sum: &Sum) {
        self.amount += sum.amount;
        self.device_bytes = self.device_bytes.saturating_add(sum.device_bytes);
        *self.kinds.entry(alike.kind).or_default() += sum.amount;
        *self.sites.entry(alike.site).or_default() += sum.amount;
        self.threads.insert(alike.thread);
        if alike.label != 0 {
            self.labels.insert(alike.label);
        }
        if alike.stream != 0 {
            self.streams.insert(alike.stream);
        }
        let (oldest, youngest) = self.span.unwrap_or((sum.oldest, sum.youngest));
        self.span = Some((oldest.min(sum.oldest), youngest.max(sum.youngest)));
    }

    fn finish(self, name: String) -> Group {
        let mut sites: Vec<_> = self.sites.into_iter().collect();
        sites.sort_by_key(|(site, amount)| {
            (u64::MAX - amount.bytes, u64::MAX - amount.count, *site)
        });
        let (oldest, youngest) = self.span.unwrap_or_default();
        Group {
            name,
            amount: self.amount,
            device_bytes: self.device_bytes,
            inclusive: self.amount,
            kinds: self.kinds.into_iter().collect(),
            sites,
            labels: self.labels.into_iter().collect(),
            threads: self.threads.into_iter().collect(),
            streams: self.streams.into_iter().collect(),
            oldest,
            youngest,
        }
    }
}
