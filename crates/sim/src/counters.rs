//! What is alive in the simulated machine, and what was called.

use std::collections::BTreeMap;

use crate::address_map::Origin;

/// A number of things and the bytes they take.
///
/// ```
/// let tally = cuguard_sim::Tally::default();
/// assert_eq!((tally.count, tally.bytes), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// How many bytes, as the program asked for them.
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }

    pub(crate) fn subtract(&mut self, bytes: u64) {
        self.count -= 1;
        self.bytes -= bytes;
    }
}

/// What is alive, and how often each function was called; see [`counters`].
///
/// ```
/// let before = cuguard_sim::counters();
/// assert_eq!(before.device.count, 0);
/// assert_eq!(before.allocations().bytes, 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Contexts, primary ones included.
    pub contexts: u64,
    /// Streams that the program created.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Memory pools that the program created.
    pub pools: u64,
    /// Arrays.
    pub arrays: Tally,
    /// `cuMemAlloc` and its kin.
    pub device: Tally,
    /// Stream-ordered allocations whose free has not been asked for.
    pub pooled: Tally,
    /// `cuMemAllocHost`, `cuMemHostAlloc`.
    pub pinned: Tally,
    /// `cuMemHostRegister`.
    pub registered: Tally,
    /// `cuMemAllocManaged`.
    pub managed: Tally,
    /// Physical memory by `cuMemCreate` that is still referred to, by the program or a mapping.
    pub physical: Tally,
    /// Address ranges by `cuMemAddressReserve`.
    pub reserved: Tally,
    /// Bytes of device memory that this process uses on all devices: pages, pools' reserves,
    /// contexts' own cost.
    pub device_bytes_in_use: u64,
    /// How often misuse was seen; see [`misuses`](crate::misuses).
    pub misuses: usize,
    /// Calls by function, those with at least one call.
    pub calls: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// All memory that the program has allocated and not freed, of whatever kind. Host memory
    /// that is registered belongs to the program and does not count.
    #[must_use]
    pub fn allocations(&self) -> Tally {
        [
            self.arrays,
            self.device,
            self.pooled,
            self.pinned,
            self.managed,
            self.physical,
        ]
        .iter()
        .fold(Tally::default(), |sum, tally| Tally {
            count: sum.count + tally.count,
            bytes: sum.bytes + tally.bytes,
        })
    }

    /// The tally of ranges that came to be in a certain way. Mappings have none: they are counted
    /// once, as physical memory.
    pub(crate) fn of_origin(&mut self, origin: Origin) -> Option<&mut Tally> {
        match origin {
            Origin::Device => Some(&mut self.device),
            Origin::Pool(_) => Some(&mut self.pooled),
            Origin::Pinned => Some(&mut self.pinned),
            Origin::Registered => Some(&mut self.registered),
            Origin::Managed => Some(&mut self.managed),
            Origin::Mapping { .. } => None,
        }
    }

    /// How often a function was called.
    ///
    /// ```
    /// assert_eq!(cuguard_sim::counters().calls_of("cuMemAlloc_v2"), 0);
    /// ```
    #[must_use]
    pub fn calls_of(&self, function: &str) -> u64 {
        self.calls.get(function).copied().unwrap_or(0)
    }
}

/// Counts what is alive now. Before `cuInit` everything is zero; so it is in a forked child of a
/// process that used the simulated GPU, but for the calls.
///
/// ```
/// let counters = cuguard_sim::counters();
/// assert_eq!(counters.contexts, 0);
/// ```
#[must_use]
pub fn counters() -> Counters {
    Counters {
        calls: crate::entry::calls(),
        ..alive()
    }
}

/// The same without the calls, which take most of the time to count.
///
/// ```
/// let alive = cuguard_sim::alive();
/// assert!(alive.contexts == 0 && alive.calls.is_empty());
/// ```
#[must_use]
pub fn alive() -> Counters {
    let mut counters = Counters::default();
    // A forked child must not wait for a lock that a thread of its parent may have held.
    if !crate::machine::is_forked() {
        counters.misuses = crate::misuse::count();
        crate::machine::count_into(&mut counters);
    }
    counters
}
