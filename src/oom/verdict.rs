//! The verdict: from numbers to causes.
//!
//! A cause is named with the bytes that would be free without it. What is wasted (held by others,
//! kept by pools, lying in pages that small blocks keep, waiting to be freed) is named where it is
//! at least a tenth of what is missing. The program's own data is what memory is for: it is the
//! cause where the rest does not explain what is missing, or where it is seen to grow.

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
    /// Somebody holds it of whom nothing is known here: contexts and libraries of this process,
    /// and where nobody could be asked, other processes.
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
        if asked > total {
            return vec![Cause::LargerThanDevice { asked, total }];
        }
        let missing = self.missing();
        let is_large = |bytes: u64| bytes != 0 && bytes.saturating_mul(10) >= missing;
        let mut causes = self.wastes();
        causes.retain(|cause| is_large(cause.bytes()));
        let explained: u64 = causes.iter().map(Cause::bytes).sum();
        let own = Cause::OwnData {
            bytes: self.own_bytes(),
            grows: self.holders.iter().any(Holder::grows),
        };
        let grown = self.grown();
        if (explained < missing || is_large(grown)) && is_large(own.bytes()) {
            causes.push(own);
        }
        let explained: u64 = causes.iter().map(Cause::bytes).sum();
        let unexplained = self.unexplained();
        if explained < missing && is_large(unexplained) && unexplained >= total / 20 {
            causes.push(Cause::Unexplained { bytes: unexplained });
        }
        // Stable: of the same size, in the order above.
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes()));
        if causes.is_empty() && self.total.is_some() && asked > total - self.overhead() {
            causes.push(Cause::LargerThanDevice { asked, total });
        }
        causes
    }

    /// What would have to be free in addition. Where as much is free, it is not in one piece: then
    /// all of it.
    fn missing(&self) -> u64 {
        let asked = self.asked.bytes.unwrap_or(0);
        match asked.saturating_sub(self.free.unwrap_or(0)) {
            0 => asked,
            missing => missing,
        }
    }

    /// What is held and is not this context's data.
    fn wastes(&self) -> Vec<Cause> {
        let asked = self.asked.bytes.unwrap_or(0);
        let mut causes = Vec::new();
        let others = self.others();
        causes.push(Cause::OtherProcesses {
            bytes: others.filter_map(|process| process.bytes).sum(),
            pids: self.others().map(|process| process.pid).collect(),
        });
        let contexts = self.contexts.iter().map(|context| context.bytes);
        causes.push(Cause::OtherContexts {
            bytes: contexts.sum(),
        });
        let unused = self.pools.iter().map(|pool| pool.unused()).sum();
        causes.push(match self.busy_streams {
            0 => Cause::HoardedByPools { bytes: unused },
            streams => Cause::PendingFrees {
                bytes: unused,
                streams,
            },
        });
        if let Some(pages) = &self.pages {
            // A block that is smaller than a page would find room in them.
            if asked >= PAGE {
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

    /// The bytes by which places of device memory grew since the checkpoint.
    fn grown(&self) -> u64 {
        let growing = |holder: &&Holder| {
            holder.grows() && matches!(holder.group.kind, Kind::Device | Kind::StreamOrdered)
        };
        let growth = self.holders.iter().filter(growing);
        growth
            .filter_map(|holder| holder.growth)
            .map(|growth| growth.max(0) as u64)
            .sum()
    }

    /// What is taken of the device and nobody here knows by whom.
    pub(super) fn unexplained(&self) -> u64 {
        let (Some(total), Some(free)) = (self.total, self.free) else {
            return 0;
        };
        let mut here = self.known_here();
        if let Processes::Known(list) = &self.processes
            && let Some(own) = list.iter().find(|process| process.own)
        {
            // Its contexts and libraries too.
            here = here.max(own.bytes.unwrap_or(0));
        }
        let others: u64 = self.others().filter_map(|process| process.bytes).sum();
        total.saturating_sub(free).saturating_sub(here + others)
    }

    /// What guards and pools of this process have taken from the device.
    pub(super) fn known_here(&self) -> u64 {
        let device = |held: &&super::Held| held.kind == Kind::Device;
        let asked: u64 = self
            .held
            .iter()
            .filter(device)
            .map(|held| held.amount.bytes)
            .sum();
        let plain = self.pages.map_or(asked, |pages| pages.taken());
        let pools: u64 = self.pools.iter().map(|pool| pool.reserved).sum();
        let contexts = self.contexts.iter();
        let contexts: u64 = contexts
            .map(|context| context.bytes.saturating_sub(context.pooled))
            .sum();
        plain + pools + contexts
    }

    /// What is taken even where nothing is allocated: the context's own cost.
    fn overhead(&self) -> u64 {
        self.unexplained().min(self.total.unwrap_or(0))
    }
}
