//! Making things, and panics in the middle of it.

use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};

use cuguard::{
    DeviceBox, DeviceBuffer, Event, Kind, ManagedBuffer, MemoryPool, PinnedBuffer, RegisteredVec,
    Result, Stream,
};

use crate::guard::{Guard, Page, Thing, pattern, word_pattern, words};
use crate::model::Key;
use crate::step::{Make, What, size};
use crate::world::{Flow, Source, World, is_shared, name_label, scope_label};
use crate::wrong::{Answer, Expected, ensure, expect};

/// What was made, and what the model must know of it.
struct Made {
    guard: Guard,
    kind: Kind,
    address: u64,
    contents: Vec<u8>,
    seed: Option<u32>,
    site: &'static Location<'static>,
}

/// A panic that belongs to the program. It goes past the panic hook.
pub struct OnPurpose;

pub fn panic_on_purpose() -> ! {
    resume_unwind(Box::new(OnPurpose))
}

/// Runs what is to panic.
pub fn unwinds<R>(work: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(answer) => Some(answer),
        Err(payload) if payload.is::<OnPurpose>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

impl World {
    pub fn make(&mut self, make: Make) -> Answer {
        let place = match self.pick_context(make.place) {
            Some(place) => place,
            None => {
                self.open(make.place & 1 != 0, cuguard::Level::Sites, true)?;
                self.places.len() - 1
            }
        };
        let open = |kind: Kind| {
            let places = &self.places;
            move |thing: &Thing| {
                let at = &places[thing.context];
                thing.kind == kind && (at.context.is_some() || at.kept_open)
            }
        };
        let stream = self.pick(make.place, open(Kind::Stream));
        let pool = self.pick(make.len, open(Kind::MemoryPool));
        match make.what {
            What::OnStream => match stream {
                Some(stream) => self.make_on(stream, None, make),
                None => self.make_in(place, What::Stream, make),
            },
            What::InPool => match (stream, pool) {
                (Some(stream), Some(pool)) => self.make_on(stream, Some(pool), make),
                (None, _) => self.make_in(place, What::Stream, make),
                (_, None) => self.make_in(place, What::Pool, make),
            },
            what => self.make_in(place, what, make),
        }
    }

    /// Stream-ordered memory.
    fn make_on(&mut self, stream: usize, pool: Option<usize>, make: Make) -> Answer {
        let Guard::Stream(on) = &self.things[stream].guard else {
            unreachable!("picked as a stream");
        };
        let (id, place) = (self.things[stream].id, self.things[stream].context);
        let pool = pool.map(|pool| &self.things[pool]);
        let pool_id = pool.map(|pool| pool.id);
        let of_one_context = pool.is_none_or(|pool| pool.context == place);
        let pool = pool.map(|pool| match &pool.guard {
            Guard::Pool(pool) => pool,
            _ => unreachable!("picked as a pool"),
        });
        let contents = pattern(make.seed, size(make.len, self.options.largest));
        let scope = cuguard::label(scope_label(make.label));
        // Two lines, so that there are two sites.
        let (site, buffer) = match make.seed & 1 {
            0 => on_stream(on, pool, &contents, make.seed),
            _ => on_stream(on, pool, &contents, make.seed),
        };
        drop(scope);
        let expected = if of_one_context {
            Expected::Success
        } else {
            Expected::WrongContext
        };
        let Some(buffer) = expect("stream-ordered memory", buffer, expected)? else {
            return Ok(());
        };
        // Binding it on its own stream gives the address without waiting.
        let address = on.scope(|s| Ok(s.bind(&buffer)?.as_device_ptr().as_raw()))?;
        let handle = on.as_raw().0 as u64;
        let made = Made {
            guard: Guard::Bytes(buffer),
            kind: Kind::StreamOrdered,
            address,
            contents,
            seed: None,
            site,
        };
        self.take_in(place, made, make.label, Some(id), handle)?;
        if let Some(thing) = self.things.last_mut() {
            // What takes no memory needs no pool.
            thing.pool = pool_id.filter(|_| thing.key.is_some());
        }
        Ok(())
    }

    fn make_in(&mut self, place: usize, what: What, make: Make) -> Answer {
        let Some(context) = &self.places[place].context else {
            unreachable!("picked as open");
        };
        let bytes = size(make.len, self.options.largest);
        let scope = cuguard::label(scope_label(make.label));
        let made = match make.seed & 1 {
            0 => in_context(context, what, bytes, make.seed)?,
            _ => in_context(context, what, bytes, make.seed)?,
        };
        drop(scope);
        self.take_in(place, made, make.label, None, 0)
    }

    fn take_in(
        &mut self,
        place: usize,
        made: Made,
        label: u8,
        home: Option<u64>,
        handle: u64,
    ) -> Answer {
        let id = self.next_id();
        let mut key = Some((made.kind, made.address));
        if made.kind.is_memory() && made.contents.is_empty() {
            key = None;
        }
        if let Some(key) = key {
            ensure(key.1 != 0, || format!("{:?} at address 0", key.0))?;
            let type_name = made.guard.type_name();
            let bytes = made.contents.len();
            let source = Source {
                label,
                site: made.site,
                stream: handle,
            };
            self.entered(place, key, bytes, type_name, source);
            if is_shared(key.0) {
                self.flows.push(Flow {
                    id,
                    context: place,
                    key,
                });
            }
        }
        let mut thing = Thing {
            id,
            context: place,
            key,
            kind: made.kind,
            contents: made.contents,
            seed: made.seed,
            home,
            pool: None,
            kept_by_driver: false,
            forgotten: false,
            guard: made.guard,
        };
        let name = name_label(label);
        if !name.is_empty() {
            thing.guard = thing.guard.named(name);
            self.renamed(place, key, name);
        }
        self.things.push(thing);
        Ok(())
    }

    pub fn renamed(&mut self, place: usize, key: Option<Key>, name: &'static str) {
        if let Some(key) = key
            && self.is_open(place)
        {
            self.places[place].registry.rename(key, name);
        }
    }

    /// Makes some things and panics; they go while the panic unwinds.
    pub fn make_and_panic(&mut self, first: Make, count: u8) -> Answer {
        let mut gone = Vec::new();
        let answer = unwinds(|| -> Answer {
            let mut locals = Vec::new();
            for number in 0..count {
                let what = What::pick(first.what as u8 + number);
                self.make(Make { what, ..first })?;
                if let Some(thing) = self.things.pop() {
                    gone.push((thing.context, thing.key));
                    locals.push(thing.guard);
                }
            }
            panic_on_purpose();
        });
        if let Some(answer) = answer {
            return answer;
        }
        for (context, key) in gone {
            self.left(context, key)?;
        }
        self.settle_flows();
        self.outcome.panics += 1;
        Ok(())
    }

    /// More than there is, and more than there are addresses.
    pub fn ask_for_too_much(&mut self, what: u8, number: u8) -> Answer {
        let Some(place) = self.pick_context(number) else {
            return Ok(());
        };
        let Some(context) = &self.places[place].context else {
            return Ok(());
        };
        let refused = match what % 4 {
            0 => DeviceBuffer::<u32>::zeroed(context, usize::MAX / 4).err(),
            1 => DeviceBuffer::<u8>::zeroed(context, 1 << 46).err(),
            2 => PinnedBuffer::<u32>::zeroed(context, usize::MAX / 2).err(),
            _ => ManagedBuffer::<u32>::zeroed(context, usize::MAX / 4).err(),
        };
        ensure(refused.is_some(), || {
            "more memory than there is was given out".to_owned()
        })
    }
}

#[track_caller]
fn on_stream(
    stream: &Stream,
    pool: Option<&MemoryPool>,
    contents: &[u8],
    seed: u8,
) -> (
    &'static Location<'static>,
    cuguard::Result<DeviceBuffer<u8>>,
) {
    let len = contents.len();
    let buffer = match pool {
        Some(pool) => DeviceBuffer::zeroed_in(pool, stream, len),
        // SAFETY: written below, before anybody reads it: the seed is not 0.
        None if seed % 8 == 7 => unsafe { DeviceBuffer::uninitialized_on(stream, len) },
        None => DeviceBuffer::zeroed_on(stream, len),
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
fn in_context(context: &cuguard::Context, what: What, bytes: usize, seed: u8) -> Result<Made> {
    let mut contents = pattern(seed, bytes);
    let mut words_seed = None;
    let (guard, kind, address) = match what {
        What::Words | What::One => {
            let bytes = if what == What::One { 4 } else { bytes / 4 * 4 };
            let seed = u32::from(seed) * 0x0101_0101;
            (contents, words_seed) = (word_pattern(seed, bytes), Some(seed));
            let values = words(&contents);
            if what == What::One {
                let one = DeviceBox::new(context, &values[0])?;
                let address = one.as_device_ptr().as_raw();
                (Guard::One(one), Kind::Device, address)
            } else {
                let buffer = DeviceBuffer::from_slice(context, &values)?;
                let address = buffer.as_device_ptr().as_raw();
                (Guard::Words(buffer), Kind::Device, address)
            }
        }
        What::Pinned => {
            let buffer = match seed {
                0 => PinnedBuffer::zeroed(context, bytes)?,
                _ => PinnedBuffer::from_slice(context, &contents)?,
            };
            let address = buffer.as_ptr().addr() as u64;
            (Guard::Pinned(buffer), Kind::Pinned, address)
        }
        What::Registered => {
            let pages = if bytes == 0 { 0 } else { 1 + bytes % 2 };
            contents = pattern(seed, pages * size_of::<Page>());
            let mut values = vec![Page([0; 4096]); pages];
            bytemuck::cast_slice_mut(&mut values).copy_from_slice(&contents);
            let address = values.as_ptr().addr() as u64;
            let guard = Guard::Registered(RegisteredVec::new(context, values)?);
            (guard, Kind::Registered, address)
        }
        What::Managed => {
            let buffer = match seed {
                0 => ManagedBuffer::zeroed(context, bytes)?,
                _ => ManagedBuffer::from_slice(context, &contents)?,
            };
            let address = buffer.as_device_ptr().as_raw();
            (Guard::Managed(buffer), Kind::Managed, address)
        }
        What::Stream => {
            contents.clear();
            let stream = if seed % 4 == 3 {
                Stream::builder(context).blocking().build()?
            } else {
                Stream::new(context)?
            };
            let address = stream.as_raw().0 as u64;
            (Guard::Stream(stream), Kind::Stream, address)
        }
        What::Event => {
            contents.clear();
            let event = if seed % 4 == 3 {
                Event::without_timing(context)?
            } else {
                Event::new(context)?
            };
            let address = event.as_raw().0 as u64;
            (Guard::Event(event), Kind::Event, address)
        }
        What::Pool => {
            contents.clear();
            let pool = MemoryPool::new(context)?;
            let address = pool.as_raw().0 as u64;
            (Guard::Pool(pool), Kind::MemoryPool, address)
        }
        What::Device | What::OnStream | What::InPool => {
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
            let address = buffer.as_device_ptr().as_raw();
            (Guard::Bytes(buffer), Kind::Device, address)
        }
    };
    Ok(Made {
        guard,
        kind,
        address,
        contents,
        seed: words_seed,
        site: Location::caller(),
    })
}
