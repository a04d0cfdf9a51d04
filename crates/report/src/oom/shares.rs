//! The shares of the device's memory, which add up to what is in use.

use cuguard_registry::{Amount, ResourceKind};

use super::facts::{KindUsage, OutOfMemory, is_page_locked};
use super::others::{OtherContext, ProcessUse, Processes};
use crate::words::total as sum;

/// The granularity of allocations from pools.
const POOL_GRANULARITY: u64 = 512;

/// Memory of the device that is in no pool. Only an audited program has records of more than the first.
const OUTSIDE_POOLS: [ResourceKind; 5] = [
    ResourceKind::Device,
    ResourceKind::Array,
    ResourceKind::Physical,
    ResourceKind::Mapped,
    ResourceKind::GraphMemory,
];

/// Memory of the device that is in pools: of the driver, or of cuguard.
const IN_POOLS: [ResourceKind; 2] = [ResourceKind::StreamOrdered, ResourceKind::Pooled];

/// What is in use on the device, by holder. Nothing is in two shares. What pools reserve is all in `here`, also
/// what other code allocates from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    /// What guards of this process and pools hold.
    pub(super) here: u64,
    /// What escaped and is not freed, at most.
    pub(super) escaped: u64,
    /// Managed memory of this context, at most.
    pub(super) managed: u64,
    /// Managed memory of other contexts of this process, at most.
    pub(super) managed_elsewhere: u64,
    /// What this process holds beside all these; `None` where that is not known.
    pub(super) outside: Option<u64>,
    /// What other processes hold: no more than this one leaves.
    pub(super) others: u64,
    /// What is left, with unknown holders.
    pub(super) rest: u64,
}

impl OutOfMemory {
    /// The bytes that the context's guards hold of the device's own memory.
    pub(super) fn own_bytes(&self) -> u64 {
        let kinds = OUTSIDE_POOLS.iter().chain(&IN_POOLS);
        sum(kinds.map(|kind| usage_of(&self.usage, *kind).bytes))
    }

    /// What graphs have reserved and no record shows.
    pub(super) fn reserved_for_graphs(&self) -> u64 {
        let recorded = usage_of(&self.usage, ResourceKind::GraphMemory).bytes;
        self.graphs.reserved.saturating_sub(recorded)
    }

    /// The bytes of page-locked host memory that are recorded.
    pub(super) fn page_locked_bytes(&self) -> u64 {
        let page_locked = self.usage.iter().filter(|held| is_page_locked(held.kind));
        sum(page_locked.map(|held| held.amount.bytes))
    }

    /// The processes that are known.
    fn known(&self) -> &[ProcessUse] {
        match &self.processes {
            Processes::Known(list) => list,
            Processes::Unknown(_) => &[],
        }
    }

    /// The processes other than this one.
    pub(super) fn others(&self) -> impl Iterator<Item = &ProcessUse> {
        self.known().iter().filter(|process| !process.own)
    }

    /// What this process holds of the device, where it is listed.
    fn own_listed(&self) -> Option<u64> {
        self.known().iter().find(|process| process.own)?.bytes
    }

    /// Whether a process on the list may be this one, by its pid outside of a container: this one has a
    /// context, so it must be on a complete list, and it holds at least what its guards hold.
    pub(super) fn may_be_own(&self, process: &ProcessUse) -> bool {
        let has_context = self.info.context != 0 || !self.contexts.is_empty();
        let is_listed = self.known().iter().any(|process| process.own);
        let is_less = |bytes| bytes < self.taken_here();
        has_context && !is_listed && !process.own && !process.bytes.is_some_and(is_less)
    }

    /// Whether unused parts of pages may be among what seems to be outside of guards.
    pub(super) fn pages_are_unknown(&self) -> bool {
        let mut others = self.contexts.iter();
        let unknown = |other: &OtherContext| other.taken.is_none() && other.bytes > other.pooled;
        self.own_pages_are_unknown() || others.any(unknown)
    }

    /// Whether it is unknown how this context's blocks lie in pages.
    pub(super) fn own_pages_are_unknown(&self) -> bool {
        self.pages.is_none() && usage_of(&self.usage, ResourceKind::Device).bytes != 0
    }

    /// What other processes hold according to the list. In a container one of them may be this process.
    pub(super) fn others_listed(&self) -> u64 {
        sum(self.others().filter_map(|process| process.bytes))
    }

    pub(super) fn shares(&self) -> Shares {
        let here = self.taken_here();
        let listed = self.own_listed();
        let own = here.max(listed.unwrap_or(0));
        let sizes = self.total.zip(self.free);
        let used = sizes.map(|(total, free)| total.saturating_sub(free));
        let most = used.or(self.total).unwrap_or(u64::MAX);
        let others = self.others_listed().min(most.saturating_sub(own));
        // What this process holds beyond its guards, and what nothing listed holds.
        let mut beside = own - here;
        let mut rest = used.map_or(u64::MAX, |used| {
            used.saturating_sub(own.saturating_add(others))
        });
        let others_escaped = self.contexts.iter().map(|context| context.escaped);
        let escaped = usage_of(&self.escaped, ResourceKind::Device).bytes;
        let escaped = escaped.saturating_add(sum(others_escaped));
        let managed_elsewhere = sum(self.contexts.iter().map(|context| context.managed));
        let managed = usage_of(&self.usage, ResourceKind::Managed).bytes;
        let mut shares = Shares {
            here,
            others,
            ..Shares::default()
        };
        shares.escaped = match listed {
            Some(_) => take(&mut beside, escaped),
            None => take(&mut rest, escaped),
        };
        shares.managed = take(&mut beside, managed);
        shares.managed_elsewhere = take(&mut beside, managed_elsewhere);
        // The list may count a process without its managed memory, or not at all.
        shares.managed += take(&mut rest, managed - shares.managed);
        let left = managed_elsewhere - shares.managed_elsewhere;
        shares.managed_elsewhere += take(&mut rest, left);
        let mut unowned = self.pooled_outside_guards();
        let others_escaped = self.contexts.iter().map(|context| context.pooled_escaped);
        let escaped = usage_in_pools(&self.escaped).bytes;
        let escaped = take(&mut unowned, escaped.saturating_add(sum(others_escaped)));
        shares.escaped = shares.escaped.saturating_add(escaped);
        shares.outside = match listed {
            Some(_) => Some(beside.saturating_add(unowned)),
            None => (unowned != 0).then_some(unowned),
        };
        shares.rest = used.map_or(0, |_| rest);
        shares
    }

    /// What is allocated from the driver's pools outside of guards.
    fn pooled_outside_guards(&self) -> u64 {
        let Amount { count, bytes } = usage_of(&self.usage, ResourceKind::StreamOrdered);
        let rounded =
            |bytes: u64, count: u64| bytes.saturating_add(count.saturating_mul(POOL_GRANULARITY));
        let others = self.contexts.iter();
        let others = others.map(|other| rounded(other.pooled, other.pooled_blocks));
        let guards = rounded(bytes, count).saturating_add(sum(others));
        let pools = self.pools.iter().filter(|pool| !pool.of_cuguard);
        sum(pools.map(|pool| pool.used)).saturating_sub(guards)
    }

    /// What guards and pools of this process hold of the device, at least. Managed memory may be on the host.
    fn taken_here(&self) -> u64 {
        let of = |kind: &ResourceKind| usage_of(&self.usage, *kind).bytes;
        let in_pages = self.pages.map(|pages| pages.taken());
        let plain = sum(OUTSIDE_POOLS.iter().map(|kind| match (kind, in_pages) {
            (ResourceKind::Device, Some(taken)) => taken,
            (ResourceKind::GraphMemory, _) => of(kind).max(self.graphs.reserved),
            _ => of(kind),
        }));
        let contexts = || self.contexts.iter();
        let pooled = sum(contexts().map(|context| context.pooled));
        let pooled = pooled.saturating_add(usage_in_pools(&self.usage).bytes);
        let used = sum(self.pools.iter().map(|pool| pool.used));
        sum([
            plain,
            sum(self.pools.iter().map(|pool| pool.reserved)),
            // In pools that are not listed, such as one that other code set as the device's.
            pooled.saturating_sub(used),
            sum(contexts().map(|context| context.taken_outside_pools())),
        ])
    }
}

/// The amount in pools.
fn usage_in_pools(list: &[KindUsage]) -> Amount {
    IN_POOLS.iter().map(|kind| usage_of(list, *kind)).sum()
}

/// The amount of one kind.
fn usage_of(list: &[KindUsage], kind: ResourceKind) -> Amount {
    let of_kind = list.iter().filter(|held| held.kind == kind);
    of_kind.map(|held| held.amount).sum()
}

/// Moves up to `wanted` out of `from`.
fn take(from: &mut u64, wanted: u64) -> u64 {
    let taken = wanted.min(*from);
    *from -= taken;
    taken
}
