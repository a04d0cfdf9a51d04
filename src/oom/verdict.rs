//! The verdict: from numbers to causes.
//!
//! A cause is named with the bytes that would be free without it. What is wasted (held by others,
//! kept by pools, lying in pages that small blocks keep, waiting to be freed) is named where it is
//! at least a tenth of what is missing. The program's own data is what memory is for: it is a cause
//! where the rest does not explain what is missing, where others hold next to nothing, or where it is
//! seen to grow. A place whose blocks are the waste is not blamed for growing as well.
//!
//! Where nobody but the driver knows how much was wanted, as for a stream, it was more than is free.
//! What is missing is taken to be as much again then, and at least a hundredth of the device: who holds
//! next to nothing of a device that is nearly empty does not explain it.

use super::facts::{Holder, OutOfMemory, Processes};
use crate::registry::{Kind, PAGE};

/// A reason why memory ran out, with the bytes that it accounts for.
///
/// ```
/// let cause = cuguard::Cause::Fragmentation { bytes: 30 << 30, pages: 30_720 };
/// assert_eq!((cause.name(), cause.bytes()), ("fragmentation", 30 << 30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The device cannot have as much, with nothing else on it.
    LargerThanDevice {
        /// What was asked for.
        asked: u64,
        /// All memory of the device.
        total: u64,
    },
    /// The budget of the context does not allow it.
    MemoryLimit {
        /// The budget.
        limit: u64,
        /// What the context holds of it.
        held: u64,
    },
    /// The memory is full of what this context's guards hold.
    OwnData {
        /// How much that is.
        bytes: u64,
        /// Whether the largest place, or another, was seen to [grow](Holder::grows).
        grows: bool,
    },
    /// Other contexts of this process hold it.
    OtherContexts {
        /// How much they hold.
        bytes: u64,
    },
    /// Other processes hold it.
    OtherProcesses {
        /// How much they hold, as far as that is known.
        bytes: u64,
        /// Which they are, the largest first.
        pids: Vec<u32>,
    },
    /// Memory pools have it and do not use it.
    HoardedByPools {
        /// How much that is.
        bytes: u64,
    },
    /// It was freed on streams that have not got there.
    PendingFrees {
        /// At most so much.
        bytes: u64,
        /// On how many streams.
        streams: u64,
    },
    /// It lies unused in pages that small blocks keep.
    Fragmentation {
        /// How much that is.
        bytes: u64,
        /// In how many pages.
        pages: u64,
    },
    /// It is lost because large blocks take whole pages.
    Rounding {
        /// How much that is.
        bytes: u64,
    },
    /// Contexts themselves take it, or somebody of whom nothing is known here: libraries of this
    /// process, and where nobody could be asked, other processes.
    Unexplained {
        /// How much that is.
        bytes: u64,
    },
}

impl Cause {
    /// The bytes that it accounts for.
    ///
    /// ```
    /// assert_eq!(cuguard::Cause::Unexplained { bytes: 5 }.bytes(), 5);
    /// ```
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::LargerThanDevice { asked, total } => asked.saturating_sub(*total),
            Self::MemoryLimit { held, .. } => *held,
            Self::OwnData { bytes, .. }
            | Self::OtherContexts { bytes }
            | Self::OtherProcesses { bytes, .. }
            | Self::HoardedByPools { bytes }
            | Self::PendingFrees { bytes, .. }
            | Self::Fragmentation { bytes, .. }
            | Self::Rounding { bytes }
            | Self::Unexplained { bytes } => *bytes,
        }
    }

    /// Whether it is not this context's doing.
    const fn is_elsewhere(&self) -> bool {
        matches!(
            self,
            Self::OtherProcesses { .. } | Self::OtherContexts { .. }
        )
    }

    /// The word for it in data such as JSON: one word that never changes.
    ///
    /// ```
    /// assert_eq!(cuguard::Cause::HoardedByPools { bytes: 5 }.name(), "hoarded_by_pools");
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LargerThanDevice { .. } => "larger_than_device",
            Self::MemoryLimit { .. } => "memory_limit",
            Self::OwnData { .. } => "own_data",
            Self::OtherContexts { .. } => "other_contexts",
            Self::OtherProcesses { .. } => "other_processes",
            Self::HoardedByPools { .. } => "hoarded_by_pools",
            Self::PendingFrees { .. } => "pending_frees",
            Self::Fragmentation { .. } => "fragmentation",
            Self::Rounding { .. } => "rounding",
            Self::Unexplained { .. } => "unexplained",
        }
    }
}

impl OutOfMemory {
    /// The verdict: why it happened, the largest cause first. Empty where nothing that is known
    /// explains it.
    ///
    /// ```
    /// let mut why = cuguard::OutOfMemory::default();
    /// (why.asked.bytes, why.total) = (Some(3 << 30), Some(2 << 30));
    /// assert_eq!(why.causes()[0].name(), "larger_than_device");
    /// ```
    #[must_use]
    pub fn causes(&self) -> Vec<Cause> {
        if let Some(limit) = self.limit.filter(|limit| limit.refused) {
            return vec![Cause::MemoryLimit {
                limit: limit.bytes,
                held: limit.held,
            }];
        }
        let asked = self.asked.bytes.unwrap_or(0);
        let total = self.total.unwrap_or(u64::MAX);
        // Managed memory may be more than the device has.
        if asked > total && self.asked.kind != Some(Kind::Managed) {
            return vec![Cause::LargerThanDevice { asked, total }];
        }
        let missing = self.missing();
        let is_large = |bytes: u64| bytes != 0 && bytes.saturating_mul(10) >= missing;
        let mut causes = self.wastes();
        causes.retain(|cause| is_large(cause.bytes()));
        let wasted = sum(causes.iter().map(Cause::bytes));
        let own = self.own_bytes();
        let growing = self.growing(&causes);
        // Somebody else who holds a little, where all the rest is this context's.
        let elsewhere = causes.iter().filter(|cause| cause.is_elsewhere());
        let elsewhere = sum(elsewhere.map(Cause::bytes));
        let is_little = elsewhere < total / 20 && elsewhere < own / 10;
        let is_wasted_here = wasted.saturating_sub(elsewhere) >= missing;
        let explained = wasted >= missing && (is_wasted_here || !is_little);
        if own != 0 && (growing || (!explained && is_large(own))) {
            causes.push(Cause::OwnData {
                bytes: own,
                grows: growing,
            });
        }
        let explained = sum(causes.iter().map(Cause::bytes));
        let unexplained = self.unexplained();
        let is_much = is_large(unexplained) && unexplained >= total / 20;
        let is_known = self.asked.bytes.is_some() || is_large(unexplained);
        let is_last = causes.is_empty() && is_known;
        if unexplained != 0 && (is_last || (explained < missing && is_much)) {
            causes.push(Cause::Unexplained { bytes: unexplained });
        }
        // Stable: of the same size, in the order above.
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes()));
        causes
    }

    /// What would have to be free in addition. Where as much is free, it is not in one piece: then
    /// all of it. A context takes what it takes: some hundred megabytes of a large device. Others take
    /// less, mostly.
    fn missing(&self) -> u64 {
        let Some(asked) = self.asked.bytes else {
            return self.free.unwrap_or(0).max(self.total.unwrap_or(0) / 100);
        };
        match asked.saturating_sub(self.free.unwrap_or(0)) {
            0 => asked,
            missing => missing,
        }
    }

    /// What is held and is not this context's data.
    fn wastes(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        causes.push(Cause::OtherProcesses {
            bytes: self.other_bytes(),
            pids: self.others().map(|process| process.pid).collect(),
        });
        let contexts = self.contexts.iter().map(|context| context.bytes);
        causes.push(Cause::OtherContexts {
            bytes: sum(contexts),
        });
        let unused = sum(self.pools.iter().map(|pool| pool.unused()));
        causes.push(match self.busy_streams {
            0 => Cause::HoardedByPools { bytes: unused },
            streams => Cause::PendingFrees {
                bytes: unused,
                streams,
            },
        });
        if let Some(pages) = &self.pages {
            // A block that is smaller than a page would find room in them; what the driver wants for
            // itself would not.
            if self.asked.bytes.is_none_or(|asked| asked >= PAGE) {
                causes.push(Cause::Fragmentation {
                    bytes: pages.pinned(),
                    pages: pages.small_pages,
                });
            }
            causes.push(Cause::Rounding {
                bytes: pages.rounding(),
            });
        }
        causes
    }

    /// Whether places of device memory are seen to grow that hold a good part of it, and are not the
    /// waste themselves.
    fn growing(&self, wastes: &[Cause]) -> bool {
        let is_named = |name| wastes.iter().any(|cause| cause.name() == name);
        let in_pages = is_named("fragmentation");
        let in_pools = is_named("hoarded_by_pools") || is_named("pending_frees");
        let grows = |holder: &&Holder| {
            let innocent = match holder.group.kind {
                Kind::Device => !(in_pages && holder.small_pages != 0),
                Kind::StreamOrdered => !in_pools,
                _ => false,
            };
            innocent && holder.grows()
        };
        let growing = self.holders.iter().filter(grows);
        let bytes = sum(growing.map(|holder| holder.group.amount.bytes));
        bytes != 0 && bytes >= self.own_bytes() / 10
    }

    /// What other processes hold, as far as that is told, and no more than there is: where numbers of
    /// processes are those of another container, or the device is a part of a card, others on the list
    /// may be this one, or not on this device at all.
    fn other_bytes(&self) -> u64 {
        let told = sum(self.others().filter_map(|process| process.bytes));
        match (self.total, self.free) {
            (Some(total), Some(free)) => {
                let used = total.saturating_sub(free);
                told.min(used.saturating_sub(self.surely_here()))
            }
            (Some(total), None) => told.min(total),
            _ => told,
        }
    }

    /// What is taken of the device and nobody here knows by whom.
    pub(super) fn unexplained(&self) -> u64 {
        let (Some(total), Some(free)) = (self.total, self.free) else {
            return 0;
        };
        let mut here = self.surely_here();
        if let Processes::Known(list) = &self.processes
            && let Some(own) = list.iter().find(|process| process.own)
        {
            // Its contexts and libraries too.
            here = here.max(own.bytes.unwrap_or(0));
        }
        let managed = self.held_of(Kind::Managed);
        let known = sum([here, self.other_bytes(), managed]);
        total.saturating_sub(free).saturating_sub(known)
    }

    fn held_of(&self, kind: Kind) -> u64 {
        let held = self.held.iter().filter(|held| held.kind == kind);
        sum(held.map(|held| held.amount.bytes))
    }

    /// What guards and pools of this process have taken from the device. Managed memory may lie on the
    /// host.
    fn surely_here(&self) -> u64 {
        let plain = match self.pages {
            Some(pages) => pages.taken(),
            None => self.held_of(Kind::Device),
        };
        let contexts = self.contexts.iter();
        sum([
            plain,
            sum(self.pools.iter().map(|pool| pool.reserved)),
            sum(contexts.map(|context| context.bytes.saturating_sub(context.pooled))),
        ])
    }
}

/// A sum of what others say, which may be anything.
pub(super) fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}
