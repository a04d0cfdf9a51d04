//! The verdict: from numbers to causes.
//!
//! A cause is named with the bytes that would be free without it. What is wasted (held by others,
//! kept by pools, lying in pages that small blocks keep, waiting to be freed) is named where it is
//! at least a tenth of what is missing. The program's own data is what memory is for: it is a cause
//! where the rest does not explain what is missing, where others hold next to nothing and waste is
//! next to nothing beside the data, or where it is seen to grow. A place whose blocks are the waste is
//! not blamed for growing as well, unless it grew by much more than is wasted.
//!
//! Where as much is free as was asked for, nobody who holds the rest is to blame.
//!
//! Where nobody but the driver knows how much was wanted, as for a stream, it was more than is free.
//! What is missing is taken to be as much again then, and at least a hundredth of the device: who holds
//! next to nothing of a device that is nearly empty does not explain it.

use super::facts::OutOfMemory;
use super::others::OtherContext;
use super::shares::{Shares, sum};
use cuguard_registry::{Kind, PAGE, SiteUsage};

/// A reason why memory ran out, with the bytes that it accounts for.
///
/// ```
/// let cause = cuguard::oom::Cause::Fragmentation { bytes: 30 << 30, pages: 30_720 };
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
        /// Whether the largest place, or another, was seen to [grow](SiteUsage::grows).
        grows: bool,
    },
    /// Managed memory of this context lies on the device.
    Managed {
        /// At most so much: it may lie on the host.
        bytes: u64,
    },
    /// It was given away by `into_raw`, and nobody is known to have freed it.
    GivenAway {
        /// At most so much: whoever has it may have freed it.
        bytes: u64,
    },
    /// This process holds it, and none of its guards took it: other libraries, code that calls the
    /// driver itself, contexts themselves, the local memory of kernels (which the driver takes for the
    /// whole device at a launch, and keeps until the context goes). Where it is not known how blocks of
    /// guards lie in pages, what they do not fill of these counts too.
    OutsideGuards {
        /// How much that is: what NVML says of this process and what pools say is in use, less what
        /// guards and pools explain.
        bytes: u64,
    },
    /// Other contexts of this process hold it.
    OtherContexts {
        /// How much they hold.
        bytes: u64,
    },
    /// Other processes hold it.
    OtherProcesses {
        /// How much they hold, as far as that is known, and no more than there is.
        bytes: u64,
        /// Which they are, the largest first. In a container one of them may be this process, by its
        /// number outside.
        pids: Vec<u32>,
    },
    /// Memory pools have it and do not use it.
    HoardedByPools {
        /// How much that is.
        bytes: u64,
    },
    /// It was freed on streams that have not got there, or that nobody has waited for since.
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
    /// As much as was asked for is free, and the driver refused it: a limit outside the program, or
    /// memory that is not in one piece.
    FreeButRefused {
        /// What is free.
        free: u64,
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
    /// assert_eq!(cuguard::oom::Cause::Unexplained { bytes: 5 }.bytes(), 5);
    /// ```
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::LargerThanDevice { asked, total } => asked.saturating_sub(*total),
            Self::MemoryLimit { held, .. } => *held,
            Self::FreeButRefused { free } => *free,
            Self::OwnData { bytes, .. }
            | Self::Managed { bytes }
            | Self::GivenAway { bytes }
            | Self::OutsideGuards { bytes }
            | Self::OtherContexts { bytes }
            | Self::OtherProcesses { bytes, .. }
            | Self::HoardedByPools { bytes }
            | Self::PendingFrees { bytes, .. }
            | Self::Fragmentation { bytes, .. }
            | Self::Rounding { bytes }
            | Self::Unexplained { bytes } => *bytes,
        }
    }

    /// Whether it lies in this context's reach, and could be had without freeing any data.
    const fn is_waste(&self) -> bool {
        matches!(
            self,
            Self::HoardedByPools { .. }
                | Self::PendingFrees { .. }
                | Self::Fragmentation { .. }
                | Self::Rounding { .. }
        )
    }

    /// The word for it in data such as JSON: one word that never changes.
    ///
    /// ```
    /// assert_eq!(cuguard::oom::Cause::HoardedByPools { bytes: 5 }.name(), "hoarded_by_pools");
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LargerThanDevice { .. } => "larger_than_device",
            Self::MemoryLimit { .. } => "memory_limit",
            Self::OwnData { .. } => "own_data",
            Self::Managed { .. } => "managed",
            Self::GivenAway { .. } => "given_away",
            Self::OutsideGuards { .. } => "outside_guards",
            Self::OtherContexts { .. } => "other_contexts",
            Self::OtherProcesses { .. } => "other_processes",
            Self::HoardedByPools { .. } => "hoarded_by_pools",
            Self::PendingFrees { .. } => "pending_frees",
            Self::Fragmentation { .. } => "fragmentation",
            Self::Rounding { .. } => "rounding",
            Self::FreeButRefused { .. } => "free_but_refused",
            Self::Unexplained { .. } => "unexplained",
        }
    }
}

impl OutOfMemory {
    /// The verdict: why it happened, the largest cause first. Empty where nothing that is known
    /// explains it.
    ///
    /// ```
    /// let mut why = cuguard::oom::OutOfMemory::default();
    /// (why.asked.bytes, why.total) = (Some(3 << 30), Some(2 << 30));
    /// assert_eq!(why.causes()[0].name(), "larger_than_device");
    /// ```
    #[must_use]
    pub fn causes(&self) -> Vec<Cause> {
        let asked = self.asked.bytes.unwrap_or(0);
        let total = self.total.unwrap_or(u64::MAX);
        // Managed memory may be more than the device has.
        let is_larger = asked > total && self.asked.kind != Some(Kind::Managed);
        let larger = is_larger.then_some(Cause::LargerThanDevice { asked, total });
        if let Some(limit) = self.limit.filter(|limit| limit.refused) {
            // It is what refused, so it stands first; without it the device would have.
            let limit = Cause::MemoryLimit {
                limit: limit.bytes,
                held: limit.held,
            };
            return std::iter::once(limit).chain(larger).collect();
        }
        if let Some(larger) = larger {
            return vec![larger];
        }
        let shares = self.shares();
        let missing = self.missing();
        let is_large = |bytes: u64| bytes != 0 && bytes.saturating_mul(10) >= missing;
        let mut causes = self.wastes();
        if let Some(free) = self.ample() {
            causes.push(Cause::FreeButRefused { free });
        } else {
            causes.extend(self.elsewhere(&shares));
        }
        causes.retain(|cause| is_large(cause.bytes()));
        if self.ample().is_none() {
            self.add_own(&mut causes, &shares, &is_large);
        }
        // Stable: of the same size, in the order above.
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes()));
        causes
    }

    /// Names the program's own data, and what is nobody's, where all that is named already does not
    /// explain it.
    fn add_own(&self, causes: &mut Vec<Cause>, shares: &Shares, is_large: &dyn Fn(u64) -> bool) {
        let missing = self.missing();
        let total = self.total.unwrap_or(u64::MAX);
        let of = |causes: &[Cause], which: &dyn Fn(&Cause) -> bool| {
            sum(causes.iter().filter(|cause| which(cause)).map(Cause::bytes))
        };
        let own = self.own_bytes();
        let data = own.saturating_add(shares.managed);
        let growing = !self.growing(causes).is_empty();
        // Waste explains it where it is not next to nothing beside the data.
        let wasted = of(causes, &Cause::is_waste);
        let is_wasted = wasted >= missing && wasted >= data / 16;
        // Somebody else may hold a little, where all the rest is this context's.
        let elsewhere = of(causes, &|cause| self.is_surely_elsewhere(cause));
        let is_little = elsewhere < total / 20 && elsewhere < data / 10;
        let is_elsewhere = wasted.saturating_add(elsewhere) >= missing && !is_little;
        let is_explained = is_wasted || (elsewhere != 0 && is_elsewhere);
        if own != 0 && (growing || (!is_explained && is_large(own))) {
            causes.push(Cause::OwnData {
                bytes: own,
                grows: growing,
            });
        }
        if !is_explained && is_large(shares.managed) {
            causes.push(Cause::Managed {
                bytes: shares.managed,
            });
        }
        let rest = shares.rest;
        let named = of(causes, &|_| true);
        let is_much = is_large(rest) && rest >= total / 20;
        if is_much && (named < missing || named < rest) {
            causes.push(Cause::Unexplained { bytes: rest });
        }
        if causes.is_empty() {
            // Little as it is: a context takes some hundred megabytes.
            let outside = shares.outside.unwrap_or(0);
            causes.push(Cause::OutsideGuards { bytes: outside });
            causes.push(Cause::Unexplained { bytes: rest });
            let most = outside.max(rest);
            // But where any amount may have been wanted, little explains nothing.
            let is_last = |bytes: u64| bytes == most && self.asked.bytes.is_some();
            let counts = |bytes: u64| bytes != 0 && (is_last(bytes) || is_large(bytes));
            causes.retain(|cause| counts(cause.bytes()));
        }
    }

    /// What would have to be free. A context takes what it takes: some hundred megabytes of a large
    /// device. Device memory comes in pages.
    fn needed(&self) -> u64 {
        let Some(asked) = self.asked.bytes else {
            return self.free.unwrap_or(0).max(self.total.unwrap_or(0) / 100);
        };
        match self.asked.kind {
            Some(Kind::Managed) => asked,
            _ => asked.checked_next_multiple_of(PAGE).unwrap_or(asked),
        }
    }

    /// What would have to be free in addition. Where as much is free: all of it.
    fn missing(&self) -> u64 {
        let needed = self.needed();
        match needed.saturating_sub(self.free.unwrap_or(0)) {
            0 => needed,
            missing => missing,
        }
    }

    /// What is free, where that is as much as was asked for, and was refused.
    fn ample(&self) -> Option<u64> {
        let needed = match self.asked.bytes {
            Some(_) => self.needed(),
            // A kernel may want more local memory than any device has.
            None if self.is_launch() => return None,
            // What others take is not known: where a good part is free, it is not for want of it.
            None => self.total? / 20,
        };
        // The last little bit may be kept by the driver itself, or be given out and freed meanwhile.
        let needed = needed.max(self.total.unwrap_or(0) / 50);
        self.free.filter(|free| *free != 0 && *free >= needed)
    }

    /// What is taken in this context's reach, and used by nobody.
    fn wastes(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        let unused = sum(self.pools.iter().map(|pool| pool.unused()));
        let pending = match self.busy_streams {
            0 => 0,
            _ => unused.min(self.pending_bytes),
        };
        causes.push(Cause::PendingFrees {
            bytes: pending,
            streams: self.busy_streams,
        });
        causes.push(Cause::HoardedByPools {
            bytes: unused - pending,
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

    /// What is held and is not this context's data.
    fn elsewhere(&self, shares: &Shares) -> Vec<Cause> {
        let taken = |context: &OtherContext| {
            let plain = context.taken_outside_pools();
            plain.saturating_add(context.pooled)
        };
        let contexts = sum(self.contexts.iter().map(taken));
        let mut causes = vec![
            Cause::OtherProcesses {
                bytes: shares.others,
                pids: self.others().map(|process| process.pid).collect(),
            },
            Cause::OtherContexts {
                bytes: contexts.saturating_add(shares.managed_elsewhere),
            },
            Cause::GivenAway {
                bytes: shares.given_away,
            },
        ];
        // Contexts take some hundred megabytes themselves, everywhere and always.
        let outside = shares.outside.unwrap_or(0);
        if outside >= self.total.unwrap_or(0) / 20 {
            causes.push(Cause::OutsideGuards { bytes: outside });
        }
        causes
    }

    /// Whether it is not this context's doing, beyond doubt.
    fn is_surely_elsewhere(&self, cause: &Cause) -> bool {
        match cause {
            Cause::OtherProcesses { .. } | Cause::OtherContexts { .. } => true,
            // It is this process's all the same.
            Cause::OutsideGuards { bytes } => {
                *bytes >= self.own_bytes() && !self.pages_are_unknown()
            }
            _ => false,
        }
    }

    /// The places of device memory that are seen to grow, where they hold a good part of it. Those
    /// whose blocks are the waste that is named are not among them, unless they grew by much more.
    pub(super) fn growing(&self, named: &[Cause]) -> Vec<&SiteUsage> {
        let (mut in_pages, mut in_pools) = (0, 0_u64);
        for cause in named {
            match cause {
                Cause::Fragmentation { bytes, .. } => in_pages = *bytes,
                Cause::HoardedByPools { bytes } | Cause::PendingFrees { bytes, .. } => {
                    in_pools = in_pools.saturating_add(*bytes);
                }
                _ => {}
            }
        }
        let mut growing: Vec<_> = self.holders.iter().filter(|one| one.grows()).collect();
        growing.retain(|holder| matches!(holder.group.kind, Kind::Device | Kind::StreamOrdered));
        for (kind, wasted) in [(Kind::Device, in_pages), (Kind::StreamOrdered, in_pools)] {
            let is_there = |holder: &SiteUsage| {
                let in_pages_or_pools = kind != Kind::Device || holder.small_pages != 0;
                holder.group.kind == kind && in_pages_or_pools
            };
            let there = growing.iter().filter(|holder| is_there(holder));
            if wasted != 0 && sum(there.map(|holder| grown(holder))) / 2 <= wasted {
                growing.retain(|holder| !is_there(holder));
            }
        }
        let bytes = sum(growing.iter().map(|holder| holder.group.amount.bytes));
        if bytes < self.own_bytes() / 10 {
            growing.clear();
        }
        // Beside one that grows by gigabytes, nobody looks for kilobytes.
        let most = growing.iter().map(|holder| grown(holder)).max();
        growing.retain(|holder| grown(holder) >= most.unwrap_or(0) / 20);
        growing
    }
}

/// By how much a call site grew, as far as that is known. Without a baseline, or with one a moment ago, all
/// that it holds counts as growth.
fn grown(site: &SiteUsage) -> u64 {
    let bytes = site.group.amount.bytes;
    match site.growth {
        Some(growth) if growth.max(0) as u64 >= bytes / 10 => growth.max(0) as u64,
        _ => bytes,
    }
}
