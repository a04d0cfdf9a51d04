//! Memory that is released with `into_raw`, taken again with `from_raw`, or freed without the crate.

use std::panic::Location;

use cuguard::driver::api;
use cuguard::{Context, DeviceBuffer, ResourceKind, Stream};

use crate::guard::Guard;
use crate::make::Made;
use crate::mismatch::{Check, Stop, ensure};
use crate::model::outlives_contexts;
use crate::resource::Resource;
use crate::world::{Raw, World, pick_from};

impl World {
    pub fn release_raw(&mut self, number: u8) -> Check {
        let fits = |resource: &Resource| {
            // Memory of a pool must be freed before the pool is destroyed; its owner would not know.
            matches!(resource.guard, Guard::Bytes(_) | Guard::Words(_))
                && resource.key.is_some()
                && resource.pool.is_none()
        };
        let at = self.pick(number, fits)?;
        // Waits for its stream, which may not be possible after the context is torn down.
        self.check_contents(&self.resources[at])?;
        let resource = self.resources.remove(at);
        let (slot, open) = (resource.slot, self.is_open(resource.slot));
        let words = resource.guard.is_words();
        let (address, key) = match (resource.guard, resource.key) {
            (Guard::Bytes(buffer), Some(key)) => (buffer.into_raw(), key),
            (Guard::Words(buffer), Some(key)) => (buffer.into_raw(), key),
            _ => unreachable!("picked as a buffer with a key"),
        };
        // The memory of a closed context is freed.
        ensure(address == if open { key.1 } else { 0 }, || {
            "into_raw returned another address".to_owned()
        })?;
        if open {
            self.slots[slot].registry.escape(key);
            self.raws.push(Raw {
                key,
                driver_context: self.slots[slot].driver_context,
                words,
                contents: resource.contents,
                seed: resource.seed,
            });
            self.outcome.escaped += 1;
        }
        // It held its stream, and may have been the last to keep its context open.
        self.drop_unused_shared();
        self.end_unused(slot)
    }

    fn pick_raw(&self, number: u8) -> Check<usize> {
        pick_from(number, 0..self.raws.len())
    }

    /// Takes ownership of memory: in any context that is the same driver context, or on any stream.
    pub fn adopt_raw(&mut self, number: u8, place: u8) -> Check {
        let at = self.pick_raw(number)?;
        let stream_ordered = self.raws[at].key.0 == ResourceKind::StreamOrdered;
        let stream = self.pick_open(place, ResourceKind::Stream).ok();
        let stream = stream
            .filter(|_| stream_ordered)
            .map(|at| &self.resources[at]);
        let fits = |slot: &usize| {
            let slot = &self.slots[*slot];
            slot.context.is_some() && slot.driver_context == self.raws[at].driver_context
        };
        let context = pick_from(place, (0..self.slots.len()).filter(fits)).ok();
        let context = context.filter(|_| !stream_ordered);
        let slot = stream.map(|stream| stream.slot).or(context);
        let slot = slot.ok_or(Stop::NothingFits)?;
        if stream_ordered {
            // It must be allocated in the order of any stream.
            self.synchronize_all()?;
        }
        let raw = &self.raws[at];
        let (guard, site) = match (stream, &self.slots[slot].context) {
            (Some(stream), _) => from_raw_on(stream.guard.stream(), raw),
            (None, Some(context)) => from_raw(context, raw),
            _ => unreachable!("picked as open"),
        };
        let stream = stream.map(|stream| (stream.id, stream.guard.address()));
        let raw = self.raws.remove(at);
        let made = Made {
            guard,
            kind: raw.key.0,
            address: raw.key.1,
            contents: raw.contents,
            seed: raw.seed,
            site,
            stream,
            pool: None,
        };
        self.add(slot, made, None)?;
        let last = self.resources.last();
        last.map_or(Ok(()), |resource| self.check_contents(resource))
    }

    fn synchronize_all(&self) -> Check {
        let mut contexts = self.open_contexts();
        contexts.try_for_each(|(context, _)| Ok(context.synchronize()?))
    }

    /// Frees escaped memory. The registry keeps its record.
    pub fn free_raw(&mut self, number: u8) -> Check {
        let at = self.pick_raw(number)?;
        if self.raws[at].key.0 == ResourceKind::StreamOrdered {
            self.synchronize_all()?;
        }
        let raw = self.raws.remove(at);
        // SAFETY: `into_raw` returned the address, and nothing else owns it. All work on
        // stream-ordered memory is complete.
        let code = unsafe { api::cuMemFree_v2(raw.key.1) };
        ensure(code.is_success(), || format!("cuMemFree: {code}"))?;
        self.driver.alive.remove(&raw.key);
        Ok(())
    }

    /// Frees escaped memory that would outlive all contexts.
    pub fn free_lasting_raws(&mut self) -> Check {
        let lasting = |raw: &Raw| outlives_contexts(raw.key.0);
        while let Some(at) = self.raws.iter().position(lasting) {
            self.raws.rotate_left(at);
            self.free_raw(0)?;
        }
        Ok(())
    }
}

#[track_caller]
fn from_raw_on(on: &Stream, raw: &Raw) -> (Guard, &'static Location<'static>) {
    let (address, len) = (raw.key.1, raw.contents.len());
    // SAFETY: address and length are those of `into_raw`, allocated and written before the device was
    // synchronized; the caller removes it from the list of those that could be freed.
    let buffer = unsafe { DeviceBuffer::<u8>::from_raw_on(on, address, len) };
    (Guard::Bytes(buffer), Location::caller())
}

#[track_caller]
fn from_raw(context: &Context, raw: &Raw) -> (Guard, &'static Location<'static>) {
    let (address, len) = (raw.key.1, raw.contents.len());
    // SAFETY: address and length are those of `into_raw`, in the driver context that it was allocated
    // in.
    let guard = unsafe {
        if raw.words {
            Guard::Words(DeviceBuffer::from_raw(context, address, len / 4))
        } else {
            Guard::Bytes(DeviceBuffer::from_raw(context, address, len))
        }
    };
    (guard, Location::caller())
}
