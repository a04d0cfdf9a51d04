//! From numbers to causes.
//!
//! A cause has the bytes that would be free without it. Waste (memory that pools keep, that lies in pages
//! with small blocks, or that waits to be freed) and memory that others hold is a cause if it is at least a
//! tenth of what is missing. The program's own data is a cause if the rest does not explain what is missing,
//! if waste and other holders are small beside it, or if it grows. A call site whose blocks are the waste is
//! not named for growing as well, unless it grew by much more than is wasted.
//!
//! If as much is free as was requested, the holders of the rest are no cause.
//!
//! Page-locked host memory is refused for a reason on the host, and nothing on the device is a cause.
//!
//! If only the driver knows how much was requested, as for a stream, it was more than is free. The same again
//! counts as missing then, and at least a hundredth of the device: small holders on a nearly empty device do
//! not explain it.

use cuguard_registry::{PAGE, ResourceKind, SiteUsage};

use super::facts::OutOfMemory;
use super::others::{GRAPH_CHUNK, OtherContext};
use super::shares::Shares;
use crate::words::total as sum;

/// A reason why an allocation failed, with the bytes that it accounts for.
///
/// ```
/// let cause = cuguard::oom::Cause::Fragmentation { bytes: 30 << 30, pages: 30_720 };
/// assert_eq!((cause.name(), cause.bytes()), ("fragmentation", 30 << 30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// More than an empty device has.
    LargerThanDevice {
        /// The request.
        request: u64,
        /// The device's memory.
        total: u64,
    },
    /// The memory limit of the context.
    MemoryLimit {
        /// The limit.
        limit: u64,
        /// What the context holds of it.
        held: u64,
    },
    /// This context's guards hold it.
    OwnData {
        /// How much.
        bytes: u64,
        /// Whether a call site [grows](SiteUsage::grows).
        grows: bool,
    },
    /// Managed memory of this context is on the device.
    Managed {
        /// At most: it may be on the host.
        bytes: u64,
    },
    /// It escaped by `into_raw`, and is not known to be freed.
    Escaped {
        /// At most: the new owner may have freed it.
        bytes: u64,
    },
    /// This process holds it outside of guards: other libraries, code that calls the driver, contexts
    /// themselves, local memory of kernels (which the driver allocates at a launch for the whole device, and
    /// keeps until the context is destroyed). Where it is not known how blocks lie in pages, the unused part
    /// of these pages counts too.
    OutsideGuards {
        /// What NVML reports for this process and what pools report as used, less what guards and pools
        /// explain.
        bytes: u64,
    },
    /// Other contexts of this process hold it.
    OtherContexts {
        /// How much they hold.
        bytes: u64,
    },
    /// Other processes hold it.
    OtherProcesses {
        /// How much they hold, as far as that is known, and no more than is in use.
        bytes: u64,
        /// Their pids, the largest first. In a container one of them may be this process, by its pid
        /// outside.
        pids: Vec<u32>,
    },
    /// Graphs have reserved it: those that run, the driver for their next launch, or launches that failed for lack of
    /// memory.
    ReservedForGraphs {
        /// How much.
        bytes: u64,
        /// How much of it such a launch has left behind: unused, and not released until the process ends.
        lost: u64,
    },
    /// Memory pools reserve it and do not use it.
    HoardedByPools {
        /// How much.
        bytes: u64,
    },
    /// It was freed on streams where the free is not complete, or that nothing has waited for since.
    PendingFrees {
        /// At most.
        bytes: u64,
        /// On how many streams.
        streams: u64,
    },
    /// It lies unused in pages that small blocks keep.
    Fragmentation {
        /// How much.
        bytes: u64,
        /// In how many pages.
        pages: u64,
    },
    /// It is lost because large blocks take whole pages.
    Rounding {
        /// How much.
        bytes: u64,
    },
    /// As much as was requested is free, and the driver refused it: a limit outside of the program, or free
    /// memory that is not contiguous.
    FreeButRefused {
        /// What is free.
        free: u64,
    },
    /// Page-locked host memory was requested, and the host refused it: a limit of the container or of locked
    /// memory, or too little memory that is free.
    HostMemory {
        /// The page-locked memory that is recorded.
        bytes: u64,
    },
    /// Contexts themselves hold it, or holders that are not known here: libraries of this process, and other
    /// processes where those are not known.
    Unexplained {
        /// How much.
        bytes: u64,
    },
}

impl Cause {
    /// The bytes that it accounts for.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::LargerThanDevice { request, total } => request.saturating_sub(*total),
            Self::MemoryLimit { held, .. } => *held,
            Self::FreeButRefused { free } => *free,
            Self::OwnData { bytes, .. }
            | Self::Managed { bytes }
            | Self::Escaped { bytes }
            | Self::OutsideGuards { bytes }
            | Self::OtherContexts { bytes }
            | Self::OtherProcesses { bytes, .. }
            | Self::ReservedForGraphs { bytes, .. }
            | Self::HoardedByPools { bytes }
            | Self::PendingFrees { bytes, .. }
            | Self::Fragmentation { bytes, .. }
            | Self::Rounding { bytes }
            | Self::HostMemory { bytes }
            | Self::Unexplained { bytes } => *bytes,
        }
    }

    /// Whether this context could use it without freeing any data.
    const fn is_waste(&self) -> bool {
        matches!(
            self,
            Self::HoardedByPools { .. }
                | Self::PendingFrees { .. }
                | Self::Fragmentation { .. }
                | Self::Rounding { .. }
        )
    }

    /// Its name in JSON, which never changes.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LargerThanDevice { .. } => "larger_than_device",
            Self::MemoryLimit { .. } => "memory_limit",
            Self::OwnData { .. } => "own_data",
            Self::Managed { .. } => "managed",
            Self::Escaped { .. } => "escaped",
            Self::OutsideGuards { .. } => "outside_guards",
            Self::OtherContexts { .. } => "other_contexts",
            Self::OtherProcesses { .. } => "other_processes",
            Self::ReservedForGraphs { .. } => "reserved_for_graphs",
            Self::HoardedByPools { .. } => "hoarded_by_pools",
            Self::PendingFrees { .. } => "pending_frees",
            Self::Fragmentation { .. } => "fragmentation",
            Self::Rounding { .. } => "rounding",
            Self::FreeButRefused { .. } => "free_but_refused",
            Self::HostMemory { .. } => "host_memory",
            Self::Unexplained { .. } => "unexplained",
        }
    }
}

impl OutOfMemory {
    /// Why the allocation failed, the largest cause first. Empty where nothing that is known explains it.
    ///
    /// ```
    /// let mut why = cuguard::oom::OutOfMemory::default();
    /// (why.request.bytes, why.total) = (Some(3 << 30), Some(2 << 30));
    /// assert_eq!(why.causes()[0].name(), "larger_than_device");
    /// ```
    #[must_use]
    pub fn causes(&self) -> Vec<Cause> {
        let request = self.request.bytes.unwrap_or(0);
        let total = self.total.unwrap_or(u64::MAX);
        // Managed memory may be more than the device has, and pinned memory is the host's.
        let kind = self.request.kind.unwrap_or(ResourceKind::Device);
        let is_larger = request > total && kind.is_device_memory() && kind != ResourceKind::Managed;
        let larger = is_larger.then_some(Cause::LargerThanDevice { request, total });
        if let Some(limit) = self.limit.filter(|limit| limit.refused) {
            // First, because it refused the request.
            let limit = Cause::MemoryLimit {
                limit: limit.bytes,
                held: limit.held,
            };
            return std::iter::once(limit).chain(larger).collect();
        }
        if let Some(larger) = larger {
            return vec![larger];
        }
        if self.request.is_host_memory() {
            let bytes = self.page_locked_bytes();
            return vec![Cause::HostMemory { bytes }];
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

    /// Adds the program's own data and what is unexplained, if the causes so far do not explain the failure.
    fn add_own(&self, causes: &mut Vec<Cause>, shares: &Shares, is_large: &dyn Fn(u64) -> bool) {
        let missing = self.missing();
        let total = self.total.unwrap_or(u64::MAX);
        let of = |causes: &[Cause], which: &dyn Fn(&Cause) -> bool| {
            sum(causes.iter().filter(|cause| which(cause)).map(Cause::bytes))
        };
        let own = self.own_bytes();
        let data = own.saturating_add(shares.managed);
        let growing = !self.growing(causes).is_empty();
        // Waste explains it unless it is small beside the data.
        let wasted = of(causes, &Cause::is_waste);
        let is_wasted = wasted >= missing && wasted >= data / 16;
        // Others may hold a little where this context holds all the rest.
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
            // Also a small amount: a context itself needs some hundred megabytes.
            let outside = shares.outside.unwrap_or(0);
            causes.push(Cause::OutsideGuards { bytes: outside });
            causes.push(Cause::Unexplained { bytes: rest });
            let most = outside.max(rest);
            // But not where any amount may have been requested.
            let is_last = |bytes: u64| bytes == most && self.request.bytes.is_some();
            let counts = |bytes: u64| bytes != 0 && (is_last(bytes) || is_large(bytes));
            causes.retain(|cause| counts(cause.bytes()));
        }
    }

    /// What would have to be free. Device memory is allocated in pages.
    fn needed(&self) -> u64 {
        let Some(request) = self.request.bytes else {
            return self.free.unwrap_or(0).max(self.total.unwrap_or(0) / 100);
        };
        match self.request.kind {
            Some(ResourceKind::Managed) => request,
            Some(ResourceKind::GraphMemory) => request
                .checked_next_multiple_of(GRAPH_CHUNK)
                .unwrap_or(request),
            _ => request.checked_next_multiple_of(PAGE).unwrap_or(request),
        }
    }

    /// What would have to be free in addition, or all of it where as much is free.
    fn missing(&self) -> u64 {
        let needed = self.needed();
        match needed.saturating_sub(self.free.unwrap_or(0)) {
            0 => needed,
            missing => missing,
        }
    }

    /// What is free, if that is as much as was requested.
    fn ample(&self) -> Option<u64> {
        let needed = match self.request.bytes {
            Some(_) => self.needed(),
            // A kernel may need more local memory than any device has.
            None if self.is_launch() => return None,
            // How much is needed is not known; a twentieth of the device is ample.
            None => self.total? / 20,
        };
        // The driver may keep the last part for itself, or it was allocated and freed meanwhile.
        let needed = needed.max(self.total.unwrap_or(0) / 50);
        self.free.filter(|free| *free != 0 && *free >= needed)
    }

    /// What is reserved and unused.
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
            // A block that is smaller than a page would fit into them; the driver's own memory would not.
            if self.request.bytes.is_none_or(|request| request >= PAGE) {
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

    /// What others hold.
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
            Cause::Escaped {
                bytes: shares.escaped,
            },
            Cause::ReservedForGraphs {
                bytes: self.reserved_for_graphs(),
                lost: self.graphs.lost(),
            },
        ];
        // Contexts themselves always need some hundred megabytes.
        let outside = shares.outside.unwrap_or(0);
        if outside >= self.total.unwrap_or(0) / 20 {
            causes.push(Cause::OutsideGuards { bytes: outside });
        }
        causes
    }

    /// Whether the cause is certainly outside of this context.
    fn is_surely_elsewhere(&self, cause: &Cause) -> bool {
        match cause {
            Cause::OtherProcesses { .. }
            | Cause::OtherContexts { .. }
            | Cause::ReservedForGraphs { .. } => true,
            // It is still this process.
            Cause::OutsideGuards { bytes } => {
                *bytes >= self.own_bytes() && !self.pages_are_unknown()
            }
            _ => false,
        }
    }

    /// The call sites of device memory that grow, if they hold a good part of it. Without those whose blocks
    /// are the waste that is named, unless they grew by much more.
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
        let mut growing: Vec<_> = self.call_sites.iter().filter(|one| one.grows()).collect();
        growing.retain(|usage| {
            matches!(
                usage.group.kind,
                ResourceKind::Device | ResourceKind::StreamOrdered | ResourceKind::Pooled
            )
        });
        for (kind, wasted) in [
            (ResourceKind::Device, in_pages),
            (ResourceKind::StreamOrdered, in_pools),
            (ResourceKind::Pooled, in_pools),
        ] {
            let is_there = |usage: &SiteUsage| {
                let in_pages_or_pools = kind != ResourceKind::Device || usage.small_pages != 0;
                usage.group.kind == kind && in_pages_or_pools
            };
            let there = growing.iter().filter(|usage| is_there(usage));
            if wasted != 0 && sum(there.map(|usage| grown(usage))) / 2 <= wasted {
                growing.retain(|usage| !is_there(usage));
            }
        }
        let bytes = sum(growing.iter().map(|usage| usage.group.amount.bytes));
        if bytes < self.own_bytes() / 10 {
            growing.clear();
        }
        // Without those that are negligible beside the largest.
        let most = growing.iter().map(|usage| grown(usage)).max();
        growing.retain(|usage| grown(usage) >= most.unwrap_or(0) / 20);
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
