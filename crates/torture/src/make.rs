//! Creating resources, and panics while they are held.

use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};

use cuguard::{
    Context, DeviceBox, DeviceBuffer, DriverPool, Event, ManagedBuffer, PinnedBuffer,
    RegisteredVec, ResourceKind, Result, Stream,
};

use crate::guard::{Guard, Page, pattern, word_pattern, words};
use crate::mismatch::{Check, Expected, Stop, ensure, expect};
use crate::model::Record;
use crate::resource::Resource;
use crate::step::{Make, ResourceType, size};
use crate::world::{SharedHandle, World, is_shared, name_label, scope_label};

/// A new guard, as the crate returned it.
pub struct Made {
    pub guard: Guard,
    pub kind: ResourceKind,
    pub address: u64,
    pub contents: Vec<u8>,
    pub seed: Option<u32>,
    pub site: &'static Location<'static>,
    /// The id and the handle of the stream that it was allocated on.
    pub stream: Option<(u64, u64)>,
    /// The id of the pool that it was allocated from.
    pub pool: Option<u64>,
}

/// The payload of a panic that is part of the program. It bypasses the panic hook.
struct Deliberate;

pub fn panic_deliberately() -> ! {
    resume_unwind(Box::new(Deliberate))
}

/// Runs work that may panic deliberately; `None` if it did.
pub fn unwinds<R>(work: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Deliberate>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

impl World {
    pub fn make(&mut self, make: Make) -> Check {
        let slot = match self.pick_context(make.place) {
            Ok(slot) => slot,
            Err(_) => {
                self.open(make.place & 1 != 0, cuguard::TrackingLevel::Sites, true)?;
                self.slots.len() - 1
            }
        };
        let stream = self.pick_open(make.place, ResourceKind::Stream).ok();
        let pool = self.pick_open(make.len, ResourceKind::MemoryPool).ok();
        match (make.what, stream, pool) {
            (ResourceType::OnStream, Some(stream), _) => self.make_on(stream, None, make),
            (ResourceType::InPool, Some(stream), Some(_)) => self.make_on(stream, pool, make),
            (ResourceType::OnStream | ResourceType::InPool, None, _) => {
                self.make_in(slot, ResourceType::Stream, make)
            }
            (ResourceType::InPool, _, None) => self.make_in(slot, ResourceType::Pool, make),
            (what, ..) => self.make_in(slot, what, make),
        }
    }

    /// Stream-ordered memory.
    fn make_on(&mut self, stream: usize, pool: Option<usize>, make: Make) -> Check {
        let stream = &self.resources[stream];
        let (on, id, slot) = (stream.guard.stream(), stream.id, stream.slot);
        let pool = pool.map(|pool| &self.resources[pool]);
        let expected = pool.map_or(Expected::Success, |pool| self.expected_of(stream, pool));
        let pool_id = pool.map(|pool| pool.id);
        let pool = pool.map(|pool| match &pool.guard {
            Guard::Pool(pool) => pool,
            _ => unreachable!("picked as a pool"),
        });
        let contents = pattern(make.seed, size(make.len, self.mode));
        let scope = cuguard::label(scope_label(make.label));
        // Two lines, so that there are two call sites.
        let (site, buffer) = match make.seed & 1 {
            0 => on_stream(on, pool, &contents, make.seed),
            _ => on_stream(on, pool, &contents, make.seed),
        };
        drop(scope);
        let Some(buffer) = expect("stream-ordered memory", buffer, expected)? else {
            return Ok(());
        };
        // Binding it on its own stream gets the address without waiting.
        let address = on.scope(|s| Ok(s.bind(&buffer)?.as_device_ptr().as_raw()))?;
        let made = Made {
            guard: Guard::Bytes(buffer),
            kind: ResourceKind::StreamOrdered,
            address,
            contents,
            seed: None,
            site,
            stream: Some((id, on.as_raw().0 as u64)),
            pool: pool_id,
        };
        self.add(slot, made, Some(make.label))
    }

    fn make_in(&mut self, slot: usize, what: ResourceType, make: Make) -> Check {
        let Some(context) = &self.slots[slot].context else {
            unreachable!("picked as open");
        };
        let bytes = size(make.len, self.mode);
        let scope = cuguard::label(scope_label(make.label));
        let made = match make.seed & 1 {
            0 => in_context(context, what, bytes, make.seed)?,
            _ => in_context(context, what, bytes, make.seed)?,
        };
        drop(scope);
        self.add(slot, made, Some(make.label))
    }

    /// Adds a guard and its model. Without a label, the crate has taken ownership of escaped memory.
    pub fn add(&mut self, slot: usize, made: Made, label: Option<u8>) -> Check {
        let id = self.next_id();
        let empty = made.kind.is_memory() && made.contents.is_empty();
        let key = (!empty).then_some((made.kind, made.address));
        if let Some(key) = key {
            ensure(key.1 != 0, || format!("{:?} at address 0", key.0))?;
            let scope = label.map(scope_label);
            let record = Record {
                scope: scope.filter(|label| !label.is_empty()),
                stream: made.stream.map_or(0, |(_, handle)| handle),
                ..Record::new(made.contents.len(), made.guard.type_name(), made.site)
            };
            if label.is_some() {
                self.created(slot, key, record);
            } else {
                self.slots[slot].registry.adopt(key, record);
            }
            if is_shared(key.0) {
                self.shared.push(SharedHandle { id, slot, key });
            }
        }
        let mut resource = Resource {
            id,
            slot,
            key,
            kind: made.kind,
            contents: made.contents,
            seed: made.seed,
            // Empty buffers hold neither a stream nor a pool.
            stream: made.stream.map(|(id, _)| id).filter(|_| !empty),
            pool: made.pool.filter(|_| !empty),
            kept_by_driver: false,
            forgotten: false,
            guard: made.guard,
        };
        let name = label.map_or("", name_label);
        if !name.is_empty() {
            resource = self.with_label(resource, name);
        }
        self.resources.push(resource);
        Ok(())
    }

    /// Names a resource.
    pub fn with_label(&mut self, mut resource: Resource, name: &'static str) -> Resource {
        resource.guard = resource.guard.with_label(name);
        if let Some(key) = resource.key
            && self.is_open(resource.slot)
        {
            self.slots[resource.slot].registry.rename(key, name);
        }
        resource
    }

    /// Creates some resources and panics; they are dropped while the panic unwinds.
    pub fn make_and_panic(&mut self, first: Make, count: u8) -> Check {
        let mut dropped = Vec::new();
        let result = unwinds(|| -> Check {
            let mut locals = Vec::new();
            for number in 0..count % 5 {
                let what = ResourceType::pick(first.what as u8 + number);
                self.make(Make { what, ..first })?;
                if let Some(resource) = self.resources.pop() {
                    dropped.push((resource.slot, resource.key));
                    locals.push(resource.guard);
                }
            }
            panic_deliberately();
        });
        if let Some(result) = result {
            return result;
        }
        for (slot, key) in dropped {
            self.dropped(slot, key)?;
        }
        self.drop_unused_shared();
        self.outcome.panics += 1;
        Ok(())
    }

    /// Allocates more than there is memory, and more than there are addresses.
    pub fn allocate_too_much(&mut self, what: u8, number: u8) -> Check {
        let slot = &self.slots[self.pick_context(number)?];
        let context = slot.context.as_ref().ok_or(Stop::NothingFits)?;
        let error = match what % 4 {
            0 => DeviceBuffer::<u32>::zeroed(context, usize::MAX / 4).err(),
            1 => DeviceBuffer::<u8>::zeroed(context, 1 << 46).err(),
            2 => PinnedBuffer::<u32>::zeroed(context, usize::MAX / 2).err(),
            _ => ManagedBuffer::<u32>::zeroed(context, usize::MAX / 4).err(),
        };
        ensure(error.is_some(), || {
            "more memory than there is was allocated".to_owned()
        })
    }
}

#[track_caller]
fn on_stream(
    stream: &Stream,
    pool: Option<&DriverPool>,
    contents: &[u8],
    seed: u8,
) -> (&'static Location<'static>, Result<DeviceBuffer<u8>>) {
    let len = contents.len();
    let buffer = match pool {
        Some(pool) => DeviceBuffer::zeroed(&pool.on(stream), len),
        // SAFETY: written below before it is read: the seed is not 0.
        None if seed % 8 == 7 => unsafe { DeviceBuffer::uninitialized(stream, len) },
        None => DeviceBuffer::zeroed(stream, len),
    };
    let written = buffer.and_then(|mut buffer| {
        if seed != 0 {
            buffer.copy_from_slice(contents)?;
        }
        Ok(buffer)
    });
    (Location::caller(), written)
}

#[track_caller]
fn in_context(context: &Context, what: ResourceType, bytes: usize, seed: u8) -> Result<Made> {
    let mut contents = pattern(seed, bytes);
    let mut word_seed = None;
    let (guard, kind) = match what {
        ResourceType::Words | ResourceType::One => {
            let one = what == ResourceType::One;
            let seed = u32::from(seed) * 0x0101_0101;
            contents = word_pattern(seed, if one { 4 } else { bytes / 4 * 4 });
            word_seed = Some(seed);
            let values = words(&contents);
            let guard = if one {
                Guard::One(DeviceBox::new(context, &values[0])?)
            } else {
                Guard::Words(DeviceBuffer::from_slice(context, &values)?)
            };
            (guard, ResourceKind::Device)
        }
        ResourceType::Pinned => {
            let buffer = match seed {
                0 => PinnedBuffer::zeroed(context, bytes)?,
                _ => PinnedBuffer::from_slice(context, &contents)?,
            };
            (Guard::Pinned(buffer), ResourceKind::Pinned)
        }
        ResourceType::Registered => {
            let pages = if bytes == 0 { 0 } else { 1 + bytes % 2 };
            contents = pattern(seed, pages * size_of::<Page>());
            let mut values = vec![Page([0; 4096]); pages];
            bytemuck::cast_slice_mut(&mut values).copy_from_slice(&contents);
            let pages = RegisteredVec::new(context, values)?;
            (Guard::Registered(pages), ResourceKind::Registered)
        }
        ResourceType::Managed => {
            let buffer = match seed {
                0 => ManagedBuffer::zeroed(context, bytes)?,
                _ => ManagedBuffer::from_slice(context, &contents)?,
            };
            (Guard::Managed(buffer), ResourceKind::Managed)
        }
        ResourceType::Stream => {
            let stream = match seed % 4 {
                3 => Stream::builder(context).blocking().build()?,
                _ => Stream::new(context)?,
            };
            (Guard::Stream(stream), ResourceKind::Stream)
        }
        ResourceType::Event => {
            let event = match seed % 4 {
                3 => Event::without_timing(context)?,
                _ => Event::new(context)?,
            };
            (Guard::Event(event), ResourceKind::Event)
        }
        ResourceType::Pool => (
            Guard::Pool(DriverPool::new(context)?),
            ResourceKind::MemoryPool,
        ),
        ResourceType::Device | ResourceType::OnStream | ResourceType::InPool => {
            let buffer = match seed {
                0 => DeviceBuffer::zeroed(context, bytes)?,
                7 => {
                    // SAFETY: written before it is read.
                    let mut buffer = unsafe { DeviceBuffer::uninitialized(context, bytes)? };
                    buffer.copy_from_slice(&contents)?;
                    buffer
                }
                _ => DeviceBuffer::from_slice(context, &contents)?,
            };
            (Guard::Bytes(buffer), ResourceKind::Device)
        }
    };
    if !kind.is_memory() {
        contents.clear();
    }
    Ok(Made {
        address: guard.address(),
        guard,
        kind,
        contents,
        seed: word_seed,
        site: Location::caller(),
        stream: None,
        pool: None,
    })
}
