//! Groups: resources of one kind, type and label from one call site. And the one way in which groups
//! are formed, here and in the report: [`Grouped`] collects items by key, [`merge_equal`] merges those
//! that turn out to be equal.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::counters::Amount;
use crate::hash::BuildMixHasher;
use crate::kind::ResourceKind;
use crate::origin::Origin;

/// What becomes of a resource that is alive when its process ends, where that is known: in the report of `cuguard run`.
///
/// ```
/// assert_eq!(cuguard::snapshot::Fate::default().name(), "unclassified");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// Its address was not searched for.
    #[default]
    Unclassified,
    /// The program has its address nowhere: a leak.
    Lost,
    /// The program still has its address.
    Reachable,
    /// The driver freed it together with its context.
    DestroyedWithContext,
    /// The driver freed it together with its context, and the program freed it afterwards, which failed.
    FreedLate,
}

impl Fate {
    /// Its name in JSON, which never changes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unclassified => "unclassified",
            Self::Lost => "lost",
            Self::Reachable => "reachable",
            Self::DestroyedWithContext => "destroyed_with_context",
            Self::FreedLate => "freed_late",
        }
    }
}

/// Resources of one kind, type and label that were allocated at one call site.
///
/// ```
/// use cuguard::ResourceKind;
/// use cuguard::snapshot::Group;
///
/// let mut group = Group::new(ResourceKind::Device, "f32", 2, 4096);
/// group.label = Some("weights".into());
/// assert_eq!(group.amount.count, 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their kind.
    pub kind: ResourceKind,
    /// The type of the elements; empty for handles.
    pub type_name: &'static str,
    /// Their label.
    pub label: Option<String>,
    /// Where they were allocated.
    pub origin: Origin,
    /// How many, and how many bytes together.
    pub amount: Amount,
    /// The names of the threads that allocated them, sorted.
    pub threads: Vec<&'static str>,
    /// The handles of the streams that they were allocated on, sorted. Empty for anything but
    /// stream-ordered memory.
    pub streams: Vec<u64>,
    /// The age of the oldest.
    pub oldest: Duration,
    /// The age of the youngest.
    pub youngest: Duration,
    /// Their addresses or handles, sorted.
    pub addresses: Vec<u64>,
    /// Their owners were dropped, and another resource keeps them: a stream that a stream-ordered
    /// buffer is freed on, or the pool of that buffer. At the end of a context this is an indirect leak.
    pub kept: bool,
    /// What becomes of them, in the report of `cuguard run`.
    pub fate: Fate,
    /// Where their addresses were found, if they are reachable.
    pub holder: Option<&'static str>,
}

impl Group {
    /// A group of which nothing else is known.
    #[must_use]
    pub const fn new(kind: ResourceKind, type_name: &'static str, count: u64, bytes: u64) -> Self {
        Self {
            kind,
            type_name,
            label: None,
            origin: Origin::UNKNOWN,
            amount: Amount::new(count, bytes),
            threads: Vec::new(),
            streams: Vec::new(),
            oldest: Duration::ZERO,
            youngest: Duration::ZERO,
            addresses: Vec::new(),
            kept: false,
            fate: Fate::Unclassified,
            holder: None,
        }
    }

    /// What a report shows of the group, but for its size and stack trace: equal for groups that differ
    /// only in where the compiler stores a name, or in how a label was put together.
    pub fn identity(&self) -> impl Ord + '_ {
        let site = self.origin.site;
        let label = self.label.as_deref();
        let fate = (self.kept, self.fate, self.holder);
        (self.kind, self.type_name, label, site, fate)
    }

    /// Orders larger groups first, by bytes and then by count.
    #[must_use]
    pub const fn size_order(&self) -> Reverse<(u64, u64)> {
        Reverse((self.amount.bytes, self.amount.count))
    }

    /// Adds another group to this one, which keeps its origin. Call [`sort_lists`](Self::sort_lists)
    /// when the last one is added.
    pub fn absorb(&mut self, other: &Self) {
        self.amount += other.amount;
        self.threads.extend_from_slice(&other.threads);
        self.streams.extend_from_slice(&other.streams);
        self.addresses.extend_from_slice(&other.addresses);
        self.oldest = self.oldest.max(other.oldest);
        self.youngest = self.youngest.min(other.youngest);
    }

    /// Sorts threads, streams and addresses, and removes duplicates.
    pub fn sort_lists(&mut self) {
        fn sort<T: Ord>(list: &mut Vec<T>) {
            list.sort_unstable();
            list.dedup();
        }
        sort(&mut self.threads);
        sort(&mut self.streams);
        sort(&mut self.addresses);
    }
}

/// Merges equal items: sorts by `compare`, and has the first of each run absorb the others. The sort is
/// stable, so of equal items the earliest one remains.
pub fn merge_equal<T>(
    items: &mut Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering,
    mut absorb: impl FnMut(&mut T, &T),
) {
    items.sort_by(&compare);
    items.dedup_by(|next, first| {
        let equal = compare(next, first).is_eq();
        if equal {
            absorb(first, next);
        }
        equal
    });
}

/// Values by key, in the order in which the keys appear. Most records have the key of the record before
/// them, which is found without a look-up.
#[derive(Debug)]
pub(crate) struct Grouped<K, V> {
    pub(crate) list: Vec<(K, V)>,
    index: HashMap<K, usize, BuildMixHasher>,
    last: usize,
}

impl<K, V> Default for Grouped<K, V> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            index: HashMap::default(),
            last: 0,
        }
    }
}

impl<K: Copy + Eq + Hash, V> Grouped<K, V> {
    /// The index in `list` of the value with this key, which `new` makes if there is none.
    #[inline]
    pub(crate) fn index_of(&mut self, key: K, new: impl FnOnce() -> V) -> usize {
        match self.list.get(self.last) {
            Some((last, _)) if *last == key => {}
            _ => self.last = self.look_up(key, new),
        }
        self.last
    }

    #[inline(never)]
    fn look_up(&mut self, key: K, new: impl FnOnce() -> V) -> usize {
        let next = self.list.len();
        let index = *self.index.entry(key).or_insert(next);
        if index == next {
            self.list.push((key, new()));
        }
        index
    }
}
