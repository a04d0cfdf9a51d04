//! A model of a GPU's virtual memory: what the real driver leaves undefined is a panic here.
//!
//! Memory is sparse: a tag for each unit of 256 bytes that was written.

mod driver;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

pub const MIB: u64 = 1 << 20;
pub const KIB: u64 = 1 << 10;
pub const PAGE: u64 = 2 * MIB;
const UNIT: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    OutOfMemory,
    Refused(&'static str),
    TooLarge,
}

/// A stream is a number.
pub type Stream = u64;

#[derive(Debug)]
pub struct Point {
    stream: Stream,
    position: u64,
}

#[derive(Debug, Default)]
struct Physical {
    bytes: u64,
    released: bool,
    mappings: usize,
    tags: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    handle: u64,
    access: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    enqueued: u64,
    complete: u64,
}

/// Memory of a freed block that its stream may still use.
#[derive(Clone, Copy, Debug)]
struct Use {
    bytes: u64,
    stream: Stream,
    position: u64,
}

#[derive(Debug, Default)]
struct Inner {
    card: u64,
    taken: u64,
    last_handle: u64,
    next_address: u64,
    reservations: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
    physical: HashMap<u64, Physical>,
    copies: Vec<(u64, u64, u64)>,
    streams: HashMap<Stream, Progress>,
    /// By address.
    in_flight: BTreeMap<u64, Use>,
    live: BTreeMap<u64, u64>,
    quiet: bool,
    calls: u64,
    calls_of: BTreeMap<&'static str, u64>,
    refused: std::ops::Range<u64>,
    refused_functions: Vec<&'static str>,
    refused_handle: Option<u64>,
    forbidden: bool,
    /// The most addresses that are reserved at once.
    reservable: u64,
}

#[derive(Clone, Debug)]
pub struct Fake(Arc<Mutex<Inner>>);

/// A part of a physical handle: handle, offset, bytes.
pub type Extent = (u64, u64, u64);

impl Fake {
    pub fn new(card: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            card,
            next_address: 1 << 40,
            reservable: 1 << 44,
            refused: 0..0,
            ..Inner::default()
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn call(&self, function: &'static str) -> Result<MutexGuard<'_, Inner>, Error> {
        let mut inner = self.inner();
        assert!(
            !inner.forbidden,
            "{function} was called where no call is permitted"
        );
        let call = inner.calls;
        inner.calls += 1;
        *inner.calls_of.entry(function).or_default() += 1;
        if inner.refused.contains(&call) || inner.refused_functions.contains(&function) {
            return Err(Error::Refused(function));
        }
        Ok(inner)
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.inner().calls
    }

    /// Calls of one function so far.
    pub fn calls_of(&self, function: &str) -> u64 {
        self.inner().calls_of.get(function).copied().unwrap_or(0)
    }

    /// Refuses the calls with these numbers.
    pub fn refuse(&self, calls: std::ops::Range<u64>) {
        self.inner().refused = calls;
    }

    /// Refuses all calls of these functions.
    pub fn refuse_functions(&self, functions: &[&'static str]) {
        self.inner().refused_functions = functions.to_vec();
    }

    /// Refuses to release the handle that is created first, of those that exist; or none.
    pub fn refuse_first_handle(&self, refuse: bool) {
        let mut inner = self.inner();
        inner.refused_handle = inner.physical.keys().min().copied().filter(|_| refuse);
    }

    /// Refuses to reserve more addresses at once.
    pub fn limit_reservations(&self, bytes: u64) {
        self.inner().reservable = bytes;
    }

    /// Every call is a failed test until it is set to false.
    pub fn forbid_calls(&self, forbidden: bool) {
        self.inner().forbidden = forbidden;
    }

    /// Whether pages of live blocks may be unmapped.
    pub fn quiet(&self, quiet: bool) {
        self.inner().quiet = quiet;
    }

    /// Handles that are created and not released, in bytes.
    pub fn held(&self) -> u64 {
        let inner = self.inner();
        inner
            .physical
            .values()
            .filter(|physical| !physical.released)
            .map(|physical| physical.bytes)
            .sum()
    }

    /// Nothing is reserved, mapped or created.
    pub fn assert_empty(&self) {
        let inner = self.inner();
        assert!(
            inner.mappings.is_empty(),
            "{} mappings are left",
            inner.mappings.len()
        );
        assert!(
            inner.physical.is_empty(),
            "{} handles are left",
            inner.physical.len()
        );
        assert!(
            inner.reservations.is_empty(),
            "{} reservations are left",
            inner.reservations.len()
        );
        assert_eq!(inner.taken, 0);
    }

    pub fn write(&self, address: u64, tag: u64) {
        let mut inner = self.inner();
        let (handle, offset, _) = inner
            .translate(address, UNIT)
            .expect("a write to memory without access");
        let physical = inner
            .physical
            .get_mut(&handle)
            .expect("a mapping is of a handle");
        physical.tags.insert(offset / UNIT, tag);
    }

    pub fn read(&self, address: u64) -> Option<u64> {
        let inner = self.inner();
        let (handle, offset, _) = inner.translate(address, UNIT)?;
        inner.physical[&handle].tags.get(&(offset / UNIT)).copied()
    }

    /// The physical memory behind addresses; none where the device has no access.
    pub fn extents(&self, address: u64, bytes: u64) -> Option<Vec<Extent>> {
        let inner = self.inner();
        let mut extents = Vec::new();
        let (mut at, end) = (address, address + bytes);
        while at < end {
            let extent = inner.translate(at, 1)?;
            let (&start, mapping) = inner.mappings.range(..=at).next_back()?;
            let length = (start + mapping.bytes).min(end) - at;
            extents.push((extent.0, extent.1, length));
            at += length;
        }
        Some(extents)
    }

    /// A block is allocated on a stream: no other stream may have work in flight that uses its memory.
    pub fn allocated(&self, stream: Stream, address: u64, bytes: u64) {
        let extents = self
            .extents(address, bytes)
            .expect("a new block without access");
        let mut inner = self.inner();
        inner.forget_complete();
        for (&used_address, used) in &inner.in_flight {
            if used.stream == stream {
                continue;
            }
            let others = inner.extents_of(used_address, used.bytes);
            for &(handle, offset, length) in &extents {
                let overlap = others.iter().any(|&(other, start, count)| {
                    other == handle && start < offset + length && offset < start + count
                });
                assert!(
                    !overlap,
                    "memory at {address:#x} on stream {stream} is still in use by stream {}",
                    used.stream
                );
            }
        }
        if let Some((&other, &count)) = inner.live.range(..address + bytes).next_back() {
            assert!(
                other + count <= address,
                "{address:#x} overlaps the live block {other:#x}"
            );
        }
        inner.live.insert(address, bytes);
    }

    /// A block is freed after work that is in flight on the stream.
    pub fn freed(&self, stream: Stream, address: u64) {
        let mut inner = self.inner();
        let bytes = inner.live.remove(&address).expect("a free of a live block");
        let progress = inner.streams.entry(stream).or_default();
        progress.enqueued += 1;
        let position = progress.enqueued;
        // It replaces an older use of the block: the stream is ordered after those that used it before.
        let used = Use {
            bytes,
            stream,
            position,
        };
        inner.in_flight.insert(address, used);
    }

    /// The stream completes all of its work.
    pub fn complete(&self, stream: Stream) {
        let mut inner = self.inner();
        let progress = inner.streams.entry(stream).or_default();
        progress.complete = progress.enqueued;
        inner.forget_complete();
    }

    pub fn complete_all(&self) {
        let mut inner = self.inner();
        inner
            .streams
            .values_mut()
            .for_each(|progress| progress.complete = progress.enqueued);
        inner.in_flight.clear();
    }

    pub fn forget_live(&self) {
        self.inner().live.clear();
    }
}

impl Inner {
    fn translate(&self, address: u64, bytes: u64) -> Option<Extent> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        let offset = address - start;
        (mapping.access && offset + bytes <= mapping.bytes).then_some((
            mapping.handle,
            offset,
            bytes,
        ))
    }

    fn extents_of(&self, address: u64, bytes: u64) -> Vec<Extent> {
        let first = self
            .mappings
            .range(..=address)
            .next_back()
            .map_or(address, |(&start, _)| start);
        let within = self.mappings.range(first..address + bytes);
        within
            .filter_map(|(&start, mapping)| {
                let from = start.max(address);
                let to = (start + mapping.bytes).min(address + bytes);
                (from < to).then(|| (mapping.handle, from - start, to - from))
            })
            .collect()
    }

    fn forget_complete(&mut self) {
        let streams = &self.streams;
        self.in_flight
            .retain(|_, used| streams[&used.stream].complete < used.position);
    }

    fn drop_if_unused(&mut self, handle: u64) {
        let physical = &self.physical[&handle];
        if physical.released && physical.mappings == 0 {
            self.taken -= physical.bytes;
            self.physical.remove(&handle);
        }
    }

    /// Mappings that lie in the range, which must be covered whole by whole mappings.
    fn whole(&self, function: &str, address: u64, bytes: u64) -> Vec<u64> {
        let mut at = address;
        let mut found = Vec::new();
        while at < address + bytes {
            let mapping = self.mappings.get(&at);
            let mapping =
                mapping.unwrap_or_else(|| panic!("{function}: no mapping begins at {at:#x}"));
            found.push(at);
            at += mapping.bytes;
        }
        assert_eq!(at, address + bytes, "{function} ends inside a mapping");
        found
    }
}
