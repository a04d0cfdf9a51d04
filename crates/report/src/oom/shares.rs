//! Who has what of the device: shares that add up to what is taken.

use super::facts::{KindUsage, OutOfMemory};
use super::others::{OtherContext, ProcessUse, Processes};
use cuguard_registry::Kind;

/// Pools give memory out in multiples of this.
const POOL_STEP: u64 = 512;

/// What is taken of the device, by who has it. Nothing is in two shares, but for what pools have: that
/// is all in `here`, whoever uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    /// What guards of this process and pools have taken.
    pub(super) here: u64,
    /// At most so much was given away and not freed.
    pub(super) given_away: u64,
    /// At most so much is managed memory of this context.
    pub(super) managed: u64,
    /// At most so much is managed memory of other contexts of this process.
    pub(super) managed_elsewhere: u64,
    /// What this process has beside all these; `None` where nobody tells.
    pub(super) outside: Option<u64>,
    /// What other processes have: no more than is left by this one.
    pub(super) others: u64,
    /// What is left, and whose it is nobody here knows.
    pub(super) rest: u64,
}

impl OutOfMemory {
    /// The bytes that the context's guards hold of the device's own memory.
    pub(super) fn own_bytes(&self) -> u64 {
        sum([Kind::Device, Kind::StreamOrdered].map(|kind| held_of(&self.held, kind).1))
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

    /// What this process holds of the device, where that is told.
    fn own_told(&self) -> Option<u64> {
        self.known().iter().find(|process| process.own)?.bytes
    }

    /// Whether a process on the list may be this one, by its number outside of a container. This one
    /// has a context, so it is on a list that is complete, and it holds what its guards hold.
    pub(super) fn may_be_own(&self, process: &ProcessUse) -> bool {
        let has_context = self.info.context != 0 || !self.contexts.is_empty();
        let is_listed = self.known().iter().any(|process| process.own);
        let is_less = |bytes| bytes < self.taken_here();
        has_context && !is_listed && !process.own && !process.bytes.is_some_and(is_less)
    }

    /// Whether pages that guards' blocks do not fill may be among what seems to be outside of them.
    pub(super) fn pages_are_unknown(&self) -> bool {
        let mut others = self.contexts.iter();
        let unknown = |other: &OtherContext| other.taken.is_none() && other.bytes > other.pooled;
        self.own_pages_are_unknown() || others.any(unknown)
    }

    /// Whether it is not known how this context's blocks lie in pages.
    pub(super) fn own_pages_are_unknown(&self) -> bool {
        self.pages.is_none() && held_of(&self.held, Kind::Device).1 != 0
    }

    /// What other processes hold as they are listed: where numbers of processes are those of another
    /// container, others on the list may be this one.
    pub(super) fn others_told(&self) -> u64 {
        sum(self.others().filter_map(|process| process.bytes))
    }

    pub(super) fn shares(&self) -> Shares {
        let here = self.taken_here();
        let told = self.own_told();
        let own = here.max(told.unwrap_or(0));
        let used = match (self.total, self.free) {
            (Some(total), Some(free)) => Some(total.saturating_sub(free)),
            _ => None,
        };
        let most = used.or(self.total).unwrap_or(u64::MAX);
        let others = self.others_told().min(most.saturating_sub(own));
        // What is this process's beyond what is known of its guards, and what is nobody's.
        let mut beside = own - here;
        let mut rest = used.map_or(u64::MAX, |used| {
            used.saturating_sub(own.saturating_add(others))
        });
        let others_given = self.contexts.iter().map(|context| context.given_away);
        let given = held_of(&self.given_away, Kind::Device).1;
        let given = given.saturating_add(sum(others_given));
        let managed_elsewhere = sum(self.contexts.iter().map(|context| context.managed));
        let managed = held_of(&self.held, Kind::Managed).1;
        let mut shares = Shares {
            here,
            others,
            ..Shares::default()
        };
        if told.is_some() {
            shares.given_away = take(&mut beside, given);
            shares.managed = take(&mut beside, managed);
            shares.managed_elsewhere = take(&mut beside, managed_elsewhere);
            // What is told of a process may be without its managed memory.
            shares.managed += take(&mut rest, managed - shares.managed);
            let left = managed_elsewhere - shares.managed_elsewhere;
            shares.managed_elsewhere += take(&mut rest, left);
        } else {
            shares.given_away = take(&mut rest, given);
            shares.managed = take(&mut rest, managed);
            shares.managed_elsewhere = take(&mut rest, managed_elsewhere);
        }
        let mut strangers = self.pooled_by_nobody();
        let others_given = self
            .contexts
            .iter()
            .map(|context| context.pooled_given_away);
        let given = held_of(&self.given_away, Kind::StreamOrdered).1;
        let given = take(&mut strangers, given.saturating_add(sum(others_given)));
        shares.given_away = shares.given_away.saturating_add(given);
        shares.outside = match told {
            Some(_) => Some(beside.saturating_add(strangers)),
            None => (strangers != 0).then_some(strangers),
        };
        shares.rest = used.map_or(0, |_| rest);
        shares
    }

    /// What pools have given out to nobody's guards.
    fn pooled_by_nobody(&self) -> u64 {
        let (count, bytes) = held_of(&self.held, Kind::StreamOrdered);
        let rounded =
            |bytes: u64, count: u64| bytes.saturating_add(count.saturating_mul(POOL_STEP));
        let others = self.contexts.iter();
        let others = others.map(|other| rounded(other.pooled, other.pooled_blocks));
        let guards = rounded(bytes, count).saturating_add(sum(others));
        sum(self.pools.iter().map(|pool| pool.used)).saturating_sub(guards)
    }

    /// What guards and pools of this process have taken from the device, and no less. Managed memory
    /// may lie on the host.
    fn taken_here(&self) -> u64 {
        let plain = match self.pages {
            Some(pages) => pages.taken(),
            None => held_of(&self.held, Kind::Device).1,
        };
        let contexts = || self.contexts.iter();
        let pooled = sum(contexts().map(|context| context.pooled));
        let pooled = pooled.saturating_add(held_of(&self.held, Kind::StreamOrdered).1);
        let used = sum(self.pools.iter().map(|pool| pool.used));
        sum([
            plain,
            sum(self.pools.iter().map(|pool| pool.reserved)),
            // In pools that are not looked at, such as one that other code set as the device's.
            pooled.saturating_sub(used),
            sum(contexts().map(|context| context.taken_outside_pools())),
        ])
    }
}

/// How many blocks there are of a kind, and their bytes.
fn held_of(list: &[KindUsage], kind: Kind) -> (u64, u64) {
    let of_kind = || list.iter().filter(|held| held.kind == kind);
    (
        sum(of_kind().map(|held| held.amount.count)),
        sum(of_kind().map(|held| held.amount.bytes)),
    )
}

/// Takes as much as there is, and no more than is wanted.
fn take(from: &mut u64, wanted: u64) -> u64 {
    let taken = wanted.min(*from);
    *from -= taken;
    taken
}

/// A sum of what others say, which may be anything.
pub(super) fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}
