//! How ranges of memory come and go: what they take from a device and give back, and whether
//! somebody still uses what is freed.

use std::sync::Arc;

use cuguard_sys::CUresult;

use crate::address_map::{Origin, Range};
use crate::address_space::is_device_address;
use crate::area::{Area, Shape, Span};
use crate::handle::Id;
use crate::lock::Leftover;
use crate::machine::{Answer, Machine};
use crate::memory_block::{Address, MemoryBlock, is_unused};
use crate::physical::{PACKED_MAX, to_pages};

impl Machine {
    /// Device memory for `cuMemAlloc` in a context.
    pub(crate) fn take_device_memory(&mut self, context: Id, bytes: u64) -> Result<u64, CUresult> {
        let device = self.device_of(context);
        if bytes > PACKED_MAX {
            let pages = to_pages(bytes).ok_or(CUresult::OUT_OF_MEMORY)?;
            if pages > self.on(device).memory.total || !self.take_pages(device, pages) {
                return Err(CUresult::OUT_OF_MEMORY);
            }
            let base = self.addresses.pages.take(pages, crate::PAGE);
            if base.is_none() {
                self.on_mut(device).memory.give(pages);
            }
            return base.ok_or(CUresult::OUT_OF_MEMORY);
        }
        for squeezed in [false, true] {
            if squeezed {
                self.squeeze_pools(device, None);
            }
            let memory = &mut self.devices[device as usize].memory;
            let context = self
                .contexts
                .get_mut(&context)
                .ok_or(CUresult::INVALID_CONTEXT)?;
            let addresses = &mut self.addresses.packed;
            if let Some(at) = context.packed.take(bytes, memory, addresses) {
                return Ok(at);
            }
        }
        Err(CUresult::OUT_OF_MEMORY)
    }

    /// Enters a range into the map, with an id of its own.
    pub(crate) fn add_range(&mut self, mut range: Range) {
        self.last_range += 1;
        range.id = self.last_range;
        self.map.insert(range);
    }

    /// The same for memory that the host has just been given. Where that lies over memory that is
    /// registered, the program has freed the latter and let its registration stand.
    pub(crate) fn add_host_range(&mut self, range: Range) -> Answer {
        let stale = self.map.overlapping(range.base, range.size).next();
        let Some((base, size)) = stale.map(|stale| (stale.base, stale.size)) else {
            self.add_range(range);
            return Ok(());
        };
        // What is registered there is gone, so it is no longer known.
        if let Some(stale) = self.map.remove(base) {
            self.discard(stale.block);
        }
        self.discard(range.block);
        Err(self.misused(
            CUresult::INVALID_VALUE,
            format!("host memory of {size} bytes at {base:#x} was freed while registered"),
        ))
    }

    /// Gives back what a range that has left the map took.
    pub(crate) fn release_range(&mut self, range: Range) {
        let memory = &mut self.devices[range.device as usize].memory;
        match range.origin {
            Origin::Device if range.size > PACKED_MAX => {
                let pages = to_pages(range.size).unwrap_or(range.size);
                memory.give(pages);
                self.addresses.pages.give(range.base, pages);
            }
            Origin::Device => {
                let context = range.context.and_then(|id| self.contexts.get_mut(&id));
                if let Some(context) = context {
                    let addresses = &mut self.addresses.packed;
                    context
                        .packed
                        .give(range.base, range.size, memory, addresses);
                }
            }
            Origin::Pool(id) => {
                if let Some(pool) = self.pools.get_mut(&id) {
                    pool.free_now(range.base, range.size);
                    pool.release(pool.release_threshold, memory);
                }
                self.drop_pool_if_done(id);
            }
            Origin::Mapping { physical, .. } => {
                if let Some(physical) = self.physical.get_mut(&physical) {
                    physical.mappings -= 1;
                }
                self.drop_physical_if_done(physical);
            }
            Origin::Pinned | Origin::Managed => {
                let block = range.block.clone();
                let gone = self.quarantine.add(range.base, range.size, block);
                self.leftovers.extend(gone.into_iter().map(Leftover::Drop));
                self.leftovers.push(Leftover::Seal(range.block));
                return;
            }
            Origin::Registered => {}
        }
        self.discard(range.block);
    }

    /// Host memory has left the map and is waited for before it is released.
    pub(crate) fn announce_release(&mut self, range: &Range) {
        if matches!(range.origin, Origin::Pinned | Origin::Managed) {
            self.quarantine.announce(range.base, range.size);
        }
    }

    /// Lets memory go once the lock is free.
    pub(crate) fn discard(&mut self, block: Arc<MemoryBlock>) {
        self.leftovers.push(Leftover::Drop(block));
    }

    /// A free that was asked for on a stream happens.
    pub(crate) fn free_happens(&mut self, range: Range) {
        // There is nobody to answer; where misuse is no reason to abort, it is only noted.
        let _ = self.check_unused(&range, "freed on a stream");
        match range.origin {
            Origin::Device => self.release_range(range),
            _ => self.discard(range.block),
        }
    }

    /// Whether work in flight holds memory that is being freed: it would write to what belongs to
    /// somebody else by then.
    pub(crate) fn check_unused(&self, range: &Range, how: &str) -> Answer {
        if is_unused(&range.block) {
            return Ok(());
        }
        Err(self.misused(
            CUresult::INVALID_VALUE,
            format!(
                "memory of {} bytes at {:#x} is {how} while work that uses it is in flight",
                range.size, range.base
            ),
        ))
    }

    /// Whether work on a stream comes after the allocation of stream-ordered memory that it uses:
    /// before that, the memory may be somebody else's.
    pub(crate) fn check_allocated(&self, range: &Range, stream: Id) -> Answer {
        let Some((on, work)) = range.born else {
            return Ok(());
        };
        let ordered = on == stream
            || self.is_done(on, work)
            || self
                .streams
                .get(&stream)
                .is_some_and(|own| own.clock.covers(on, work));
        if ordered {
            return Ok(());
        }
        Err(self.misused(
            CUresult::INVALID_VALUE,
            format!(
                "stream-ordered memory at {:#x} is used on {} before its allocation on {}: \
                 nothing orders the two",
                range.base,
                self.stream_words(stream),
                self.stream_words(on)
            ),
        ))
    }

    /// Memory that the driver knows, for work on a stream.
    pub(crate) fn known_area(
        &self,
        stream: Id,
        address: u64,
        shape: Shape,
    ) -> Result<Area, CUresult> {
        let extent = self.extent(address, shape)?;
        let spans = self.map.spans(address, extent)?;
        if let Some(range) = self.map.find(address) {
            self.check_allocated(range, stream)?;
        }
        Ok(Area::new(spans, shape))
    }

    /// The same, but memory that the driver does not know of is pageable host memory, whose length
    /// nobody can check. Says whether it is.
    pub(crate) fn any_area(
        &self,
        stream: Id,
        address: u64,
        shape: Shape,
    ) -> Result<(Area, bool), CUresult> {
        if self.map.find(address).is_some() || is_device_address(address) {
            return Ok((self.known_area(stream, address, shape)?, false));
        }
        let extent = self.extent(address, shape)?;
        let start = Address::new(address as *mut u8).ok_or(CUresult::INVALID_VALUE)?;
        self.check_not_freed(address, shape.width as u64)?;
        let span = Span::pageable(start, extent);
        Ok((Area::new(vec![span], shape), true))
    }

    /// Whether host memory is the program's, and not what the driver has taken back.
    pub(crate) fn check_not_freed(&self, address: u64, bytes: u64) -> Answer {
        match self.quarantine.find(address, bytes) {
            None => Ok(()),
            Some(base) => Err(self.misused(
                CUresult::INVALID_VALUE,
                format!(
                    "{bytes} bytes at {address:#x} are used, of host memory at {base:#x} that \
                     was freed"
                ),
            )),
        }
    }

    /// The bytes from the first to the last. A length that wraps around the address space: a real
    /// driver was seen to take it, and to corrupt the context by it.
    fn extent(&self, address: u64, shape: Shape) -> Result<usize, CUresult> {
        let extent = shape.extent().ok_or(CUresult::INVALID_VALUE)?;
        match address.checked_add(extent as u64) {
            Some(_) => Ok(extent),
            None => Err(self.misused(
                CUresult::INVALID_VALUE,
                format!("{extent} bytes from {address:#x} wrap around the address space"),
            )),
        }
    }
}
