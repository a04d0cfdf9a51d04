//! Memory usage by call site, for the out-of-memory diagnosis: how much each holds, whether it grows,
//! and which pages its small blocks keep. Less than a snapshot and faster: no addresses, no threads.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::panic::Location;
use std::time::Duration;

use crate::call_site::{self, CallSiteId};
use crate::collect::GroupKey;
use crate::counters::Amount;
use crate::group::{Group, Grouped, merge_equal};
use crate::growth::{AGES, Growth, growth_by_age};
use crate::hash::BuildMixHasher;
use crate::kind::ResourceKind;
use crate::labels::LabelTexts;
use crate::names::NameId;
use crate::pages::{PAGE, PageUse, SmallPages, pages_of};
use crate::record::{Key, Record};
use crate::sampling::Scales;

/// How many lines get a name by default, which takes much longer than adding them up.
pub(crate) const NAMED: usize = 512;

/// Which call sites grow.
pub(crate) type Trends = HashMap<CallSiteId, Growth, BuildMixHasher>;

/// Bytes by line at an earlier moment.
pub(crate) type Baseline = HashMap<Line, u64, BuildMixHasher>;

/// A line of the program with what it allocates, whatever stack led there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    kind: ResourceKind,
    site: Option<&'static Location<'static>>,
    type_name: &'static str,
    scope: NameId,
    name: NameId,
    /// Distinguishes call sites without a line, of which only the stack trace is known; else 0.
    stack: CallSiteId,
}

impl Line {
    fn of(kind: ResourceKind, key: GroupKey) -> Self {
        let call_site = call_site::get(key.call_site);
        Self {
            kind,
            site: call_site.and_then(|call_site| call_site.site),
            type_name: call_site.map_or("", |call_site| call_site.type_name),
            scope: key.scope,
            name: key.name,
            stack: match call_site {
                Some(call_site) if call_site.site.is_none() => key.call_site,
                _ => 0,
            },
        }
    }

    /// Its labels.
    pub(crate) fn labels(&self) -> [NameId; 2] {
        [self.scope, self.name]
    }

    /// Whether a sample picked it; without a call site it is recorded for another reason.
    fn is_sampled(&self) -> bool {
        self.site.is_some() || !self.type_name.is_empty()
    }
}

/// What a context holds.
#[derive(Debug, Default)]
pub struct MemoryUsage {
    /// By call site, the largest first.
    pub sites: Vec<SiteUsage>,
    /// The pages of device memory. `None` where not every block has a record.
    pub pages: Option<PageUse>,
    /// What `into_raw` released, by kind. It is in no other figure: the new owner may have freed it.
    pub escaped: [Amount; ResourceKind::COUNT],
    /// Whether there is a baseline, so that growth is known.
    pub has_baseline: bool,
}

/// What one call site holds.
///
/// ```
/// let holder = cuguard::oom::SiteUsage {
///     group: cuguard::snapshot::Group::new(cuguard::ResourceKind::Device, "f32", 1, 4096),
///     growth: None,
///     trend: cuguard::oom::Growth::Steady,
///     small_pages: 1,
/// };
/// assert!(!holder.grows());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteUsage {
    /// What it holds, and for how long. Without threads, streams and addresses.
    pub group: Group,
    /// The bytes by which it grew since the last `Context::mark_oom_baseline`; `None` without one.
    pub growth: Option<i64>,
    /// Whether it grows.
    pub trend: Growth,
    /// How many pages have small blocks of it.
    pub small_pages: u64,
}

impl SiteUsage {
    /// Whether it grows: by its [`trend`](Self::trend), if it has grown since the baseline, too; or by a tenth since the baseline.
    ///
    /// ```
    /// # use cuguard::ResourceKind;
    /// # use cuguard::oom::{Growth, Rise, SiteUsage};
    /// # use cuguard::snapshot::Group;
    /// let group = Group::new(ResourceKind::Device, "u8", 100, 1000);
    /// let trend = Growth::Grows(Rise::default());
    /// let mut holder = SiteUsage { group, growth: None, trend, small_pages: 1 };
    /// assert!(holder.grows());
    /// holder.growth = Some(0);
    /// assert!(!holder.grows());
    /// ```
    #[must_use]
    pub fn grows(&self) -> bool {
        let grows = self.trend.rise().is_some();
        match self.growth {
            // The baseline may be a moment ago, and growth since then small.
            Some(growth) => growth > 0 && (growth as u64 >= self.group.amount.bytes / 10 || grows),
            None => grows,
        }
    }
}

/// The records of one line, added up.
#[derive(Default)]
struct Sum {
    amount: Amount,
    /// How many by age.
    ages: [u64; AGES],
    /// When the first and the last were created, in nanoseconds.
    first: u64,
    last: u64,
    small_pages: u64,
    /// The group with most bytes: its stack trace represents the line.
    largest: Option<(GroupKey, u64)>,
}

/// Adds records up, one at a time.
pub(crate) struct UsageBuilder {
    lines: Grouped<Line, Sum>,
    /// The index of the line and the bytes of each group.
    groups: Grouped<GroupKey, (usize, u64)>,
    labels: LabelTexts,
    now: Duration,
    /// When the context was created, and how long ages are counted in one number, in nanoseconds.
    start: u64,
    age: u64,
    pages: PageUse,
    escaped: [Amount; ResourceKind::COUNT],
    small: SmallPages,
}

impl UsageBuilder {
    /// `start` is when the context was created.
    pub(crate) fn new(start: Duration, now: Duration) -> Self {
        let [start, end] = [start, now].map(|time| time.as_nanos() as u64);
        Self {
            lines: Grouped::default(),
            groups: Grouped::default(),
            labels: LabelTexts::default(),
            now,
            start,
            age: end.saturating_sub(start) / AGES as u64 + 1,
            pages: PageUse::default(),
            escaped: Default::default(),
            small: SmallPages::default(),
        }
    }

    /// Called for every record. By reference and inlined: copying records took a good part of the time.
    #[inline]
    pub(crate) fn add(&mut self, key: &Key, record: &Record) {
        let (bytes, created) = (record.bytes(), record.created_nanoseconds());
        if record.is_escaped() {
            self.escaped[key.kind.index()] += Amount::new(1, bytes);
            return;
        }
        let group = GroupKey::of(key, record);
        let index = self.groups.index_of(group, || {
            self.labels.read(group.scope, group.name);
            let new = || Sum {
                first: created,
                last: created,
                ..Sum::default()
            };
            (self.lines.index_of(Line::of(key.kind, group), new), 0)
        });
        let (line, group_bytes) = &mut self.groups.list[index].1;
        *group_bytes += bytes;
        let line = *line;
        let sum = &mut self.lines.list[line].1;
        sum.amount += Amount::new(1, bytes);
        let age = created.saturating_sub(self.start) / self.age;
        sum.ages[(age as usize).min(AGES - 1)] += 1;
        sum.first = sum.first.min(created);
        sum.last = sum.last.max(created);
        if key.kind != ResourceKind::Device {
        } else if bytes >= PAGE {
            self.pages.large_bytes += bytes;
            self.pages.large_pages += bytes.div_ceil(PAGE);
        } else {
            self.pages.small_bytes += bytes;
            for page in pages_of(key.address, bytes) {
                let (is_first, is_new) = self.small.insert(page, line);
                self.pages.small_pages += u64::from(is_first);
                // A page with blocks of several lines counts for each.
                sum.small_pages += u64::from(is_new);
            }
        }
    }

    /// Bytes by line.
    pub(crate) fn into_baseline(self) -> Baseline {
        let lines = self.lines.list.into_iter();
        lines.map(|(line, sum)| (line, sum.amount.bytes)).collect()
    }

    /// Usage by kind alone. `complete` says that every block of device memory has a record.
    pub(crate) fn by_kind(self, complete: bool) -> MemoryUsage {
        MemoryUsage {
            pages: complete.then_some(self.pages),
            escaped: self.escaped,
            ..MemoryUsage::default()
        }
    }

    /// Usage by call site, of the `named` largest lines. One resource in `sample` has a record; `live` are the exact totals; `trends` are of call sites whose history is
    /// known.
    pub(crate) fn by_site(
        mut self,
        named: usize,
        baseline: Option<&Baseline>,
        trends: &Trends,
        sample: u32,
        live: impl Fn(ResourceKind) -> Amount,
        complete: bool,
    ) -> MemoryUsage {
        let lines = &mut self.lines.list;
        for (group, (line, bytes)) in &self.groups.list {
            let largest = &mut lines[*line].1.largest;
            if largest.is_none_or(|(_, most)| most < *bytes) {
                *largest = Some((*group, *bytes));
            }
        }
        let sampled = lines
            .iter()
            .map(|(line, sum)| (line.kind, sum.amount, line.is_sampled()));
        let kinds = || ResourceKind::ALL.iter().copied();
        let escaped = kinds().map(|kind| (kind, self.escaped[kind.index()], false));
        let live = kinds().map(|kind| (kind, live(kind)));
        let scales = Scales::new(sample, live, sampled.chain(escaped));
        if lines.len() > named {
            lines.select_nth_unstable_by_key(named, |(_, sum)| Reverse(sum.amount.bytes));
            let rest = lines.split_off(named).into_iter();
            lines.extend(rest.max_by_key(|(_, sum)| sum.small_pages));
        }
        let sites = lines.iter().filter_map(|(line, sum)| {
            let scale = scales.of(line.kind, line.is_sampled());
            let time = Duration::from_nanos;
            let mut group =
                sum.largest?
                    .0
                    .to_group(&self.labels, time(sum.first), time(sum.last), self.now);
            group.amount = scale.apply(sum.amount);
            let growth = baseline.map(|baseline| {
                let before = baseline.get(line).copied().unwrap_or(0);
                (group.amount.bytes as i64).saturating_sub(scale.apply_bytes(before) as i64)
            });
            Some(SiteUsage {
                group,
                growth,
                trend: match trends.get(&line.stack) {
                    Some(trend) if line.site.is_none() => *trend,
                    _ => growth_by_age(&sum.ages),
                },
                small_pages: sum.small_pages,
            })
        });
        let mut sites = sites.collect();
        merge(&mut sites);
        // Lines that were merged may have counted a page more than once.
        for site in &mut sites {
            site.small_pages = site.small_pages.min(self.pages.small_pages);
        }
        MemoryUsage {
            sites,
            has_baseline: baseline.is_some(),
            ..self.by_kind(complete)
        }
    }
}

/// Merges call sites that a reader cannot tell apart, for example where a label was put together in
/// another way, and sorts the largest first. The stack trace of the largest remains.
fn merge(sites: &mut Vec<SiteUsage>) {
    let by_identity = |one: &SiteUsage, other: &SiteUsage| -> Ordering {
        let stack = |site: &SiteUsage| match site.group.origin.site {
            None => site.group.origin.stack,
            Some(_) => &[],
        };
        let identity = one.group.identity().cmp(&other.group.identity());
        identity.then_with(|| stack(one).cmp(stack(other)))
    };
    sites.sort_by_key(|site| (site.group.size_order(), Reverse(site.group.oldest)));
    merge_equal(sites, by_identity, |site, more| {
        site.group.absorb(&more.group);
        site.growth = site.growth.zip(more.growth).map(|(one, two)| one + two);
        site.small_pages += more.small_pages;
        if site.trend.rise().is_none() {
            site.trend = more.trend;
        }
    });
    // Stable: of the same size, in the order of their names.
    sites.sort_by_key(|site| site.group.size_order());
}

#[cfg(test)]
mod tests {
    use super::PAGE;
    use crate::{Entry, Key, Registry, ResourceKind, TrackingLevel};

    #[track_caller]
    fn insert(registry: &Registry, address: u64, bytes: u64) {
        let key = Key {
            kind: ResourceKind::Device,
            slot: 0,
            address,
        };
        registry.insert(
            key,
            Entry {
                bytes,
                type_name: "u8",
                stream: 0,
            },
        );
    }

    #[test]
    fn pages_are_counted_once_and_for_each_call_site_with_blocks_in_them() {
        for base in [0, 1 << 46] {
            let registry = Registry::new(TrackingLevel::Sites, 8);
            for page in 1..=10 {
                insert(&registry, page * PAGE, 1 << 20);
            }
            // Another call site, in pages 10 and 11, and at a distant address.
            insert(&registry, 10 * PAGE + (1 << 20), 1 << 20);
            insert(&registry, base + 11 * PAGE, 512);
            insert(&registry, 20 * PAGE, 3 << 20);
            let usage = registry.memory_usage();
            let pages = usage.pages.unwrap();
            assert_eq!(
                (pages.small_pages, pages.small_bytes),
                (11, (11 << 20) + 512)
            );
            assert_eq!((pages.large_pages, pages.large_bytes), (2, 3 << 20));
            let rows: Vec<_> = usage
                .sites
                .iter()
                .map(|site| (site.group.amount.bytes, site.small_pages))
                .collect();
            assert_eq!(rows, [(10 << 20, 10), (3 << 20, 0), (1 << 20, 1), (512, 1)]);
        }
    }

    #[test]
    fn growth_counts_from_the_baseline() {
        let registry = Registry::new(TrackingLevel::Sites, 8);
        let make = |address| insert(&registry, address, 100);
        make(1 << 20);
        assert_eq!(registry.memory_usage().sites[0].growth, None);
        registry.mark_baseline();
        make(2 << 20);
        make(3 << 20);
        let usage = registry.memory_usage();
        assert!(usage.has_baseline);
        assert_eq!(usage.sites.len(), 1);
        assert_eq!(usage.sites[0].growth, Some(200));
    }

    /// Usage is by line, also where stacks are recorded.
    #[test]
    fn a_line_that_is_reached_another_way_does_not_grow() {
        #[inline(never)]
        fn one_way(make: &dyn Fn(u64), address: u64) {
            make(address);
            std::hint::black_box(());
        }
        #[inline(never)]
        fn another_way(make: &dyn Fn(u64), address: u64) {
            make(address);
            std::hint::black_box(());
        }
        let registry = Registry::new(TrackingLevel::Stacks, 32);
        let make = |address| insert(&registry, address, 100);
        one_way(&make, 1 << 20);
        registry.mark_baseline();
        let first = Key {
            kind: ResourceKind::Device,
            slot: 0,
            address: 1 << 20,
        };
        registry.remove(first, 100);
        another_way(&make, 2 << 20);
        another_way(&make, 3 << 20);
        one_way(&make, 4 << 20);
        let usage = registry.memory_usage();
        assert_eq!(usage.sites.len(), 1);
        assert_eq!(usage.sites[0].growth, Some(200));
        assert_eq!(usage.sites[0].group.amount.bytes, 300);
        assert_eq!(usage.sites[0].small_pages, 2);
    }

    /// However many call sites there are.
    #[test]
    fn pages_are_counted_for_every_call_site() {
        let registry = Registry::new(TrackingLevel::Sites, 8);
        for place in 0..200_u64 {
            let _label = crate::label(&format!("place {place}"));
            for page in 0..5 {
                for block in 0..2 {
                    // All of them in the same five pages.
                    insert(&registry, page * PAGE + (2 * place + block) * 512, 512);
                }
            }
        }
        let usage = registry.memory_usage();
        assert_eq!(usage.pages.unwrap().small_pages, 5);
        assert_eq!(usage.sites.len(), 200);
        assert!(usage.sites.iter().all(|place| place.small_pages == 5));
    }

    /// Samples are scaled to the live total, and not by the average rate.
    #[test]
    fn samples_add_up_to_the_live_total() {
        let registry = Registry::new(TrackingLevel::Sites, 8)
            .sampling(100)
            .seeded(1);
        for address in 0..1000 {
            insert(&registry, address << 20, 1000);
        }
        let bytes = |usage: &super::MemoryUsage| -> u64 {
            usage
                .sites
                .iter()
                .map(|place| place.group.amount.bytes)
                .sum()
        };
        assert_eq!(bytes(&registry.memory_usage()), 1_000_000);
        // Large ones, until a sample meets one.
        let mut address = 1 << 40;
        while registry.memory_usage().sites.len() == 1 {
            insert(&registry, address, 1 << 30);
            address += 1 << 30;
        }
        let live = registry.totals(ResourceKind::Device).bytes;
        let told = bytes(&registry.memory_usage());
        assert!(told <= live && told + 2 >= live, "{told} of {live}");
    }

    #[test]
    fn pages_are_unknown_where_blocks_have_no_record() {
        let registry = Registry::new(TrackingLevel::Counts, 8);
        insert(&registry, 1, 100);
        let usage = registry.memory_usage();
        assert!(usage.sites.is_empty() && usage.pages.is_none());
    }
}
