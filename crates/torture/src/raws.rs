//! Memory that is given away, taken back, or freed by others.

use std::panic::Location;

use cuguard::driver::api;
use cuguard::{DeviceBuffer, Kind, Stream};

use crate::guard::{Guard, Thing};
use crate::model::{Record, outlives_contexts};
use crate::world::{Raw, World, thread_name};
use crate::wrong::{Answer, ensure};

impl World {
    pub fn into_raw(&mut self, number: u8) -> Answer {
        let fits = |thing: &Thing| {
            // Memory of a pool must be freed before the pool goes, which nobody would see to.
            matches!(thing.guard, Guard::Bytes(_) | Guard::Words(_))
                && thing.key.is_some()
                && thing.pool.is_none()
        };
        let Some(at) = self.pick(number, fits) else {
            return Ok(());
        };
        // Waits for its stream: nobody else may be able to, once the context is torn down.
        self.check_contents(&self.things[at])?;
        let thing = self.things.remove(at);
        let place = thing.context;
        let (address, words) = match thing.guard {
            Guard::Bytes(buffer) => (buffer.into_raw(), false),
            Guard::Words(buffer) => (buffer.into_raw(), true),
            _ => unreachable!("picked as a buffer"),
        };
        let Some(key) = thing.key else {
            unreachable!("picked with a key");
        };
        // A closed context has nothing to give.
        let expected = if self.is_open(place) { key.1 } else { 0 };
        ensure(address == expected, || {
            "another address came back".to_owned()
        })?;
        if self.is_open(place) {
            self.places[place].registry.escape(key);
            self.raws.push(Raw {
                key,
                home: self.places[place].home,
                words,
                contents: thing.contents,
                seed: thing.seed,
            });
            self.outcome.escaped += 1;
        }
        // It held its stream, and may have been the last to keep its context open.
        self.settle_flows();
        self.settle_place(place)
    }

    /// Takes memory back: in any context that is the driver's same one, or on any stream.
    pub fn from_raw(&mut self, number: u8, place: u8) -> Answer {
        if self.raws.is_empty() {
            return Ok(());
        }
        let at = usize::from(number) % self.raws.len();
        let on_stream = self.raws[at].key.0 == Kind::StreamOrdered;
        let home = self.raws[at].home;
        if on_stream {
            let open = |thing: &Thing| thing.kind == Kind::Stream && self.is_open(thing.context);
            match self.pick(place, open) {
                Some(stream) => self.adopt_on(at, stream),
                None => Ok(()),
            }
        } else {
            let fits = |place: &usize| {
                let at = &self.places[*place];
                at.context.is_some() && at.home == home
            };
            let fitting: Vec<_> = (0..self.places.len()).filter(fits).collect();
            match fitting.len() {
                0 => Ok(()),
                count => self.adopt_in(at, fitting[usize::from(place) % count]),
            }
        }
    }

    fn adopt_on(&mut self, at: usize, stream: usize) -> Answer {
        // It must be there in the order of any stream: what was given to its own is done.
        for place in &self.places {
            if let Some(context) = &place.context {
                context.synchronize()?;
            }
        }
        let raw = self.raws.remove(at);
        let Guard::Stream(on) = &self.things[stream].guard else {
            unreachable!("picked as a stream");
        };
        let (guard, site) = adopt_stream_ordered(on, &raw);
        let handle = on.as_raw().0 as u64;
        let (place, id) = (self.things[stream].context, self.things[stream].id);
        self.adopted(raw, place, guard, Some((id, handle)), site)
    }

    fn adopt_in(&mut self, at: usize, place: usize) -> Answer {
        let raw = self.raws.remove(at);
        let Some(context) = &self.places[place].context else {
            unreachable!("picked as open");
        };
        let (guard, site) = adopt(context, &raw);
        self.adopted(raw, place, guard, None, site)
    }

    fn adopted(
        &mut self,
        raw: Raw,
        place: usize,
        guard: Guard,
        home: Option<(u64, u64)>,
        site: &'static Location<'static>,
    ) -> Answer {
        let record = Record {
            bytes: raw.contents.len() as u64,
            type_name: guard.type_name(),
            site: Some(site),
            thread: Some(thread_name()),
            stream: home.map_or(0, |(_, handle)| handle),
            ..Record::default()
        };
        self.places[place].registry.adopt(raw.key, record);
        let id = self.next_id();
        let thing = Thing {
            id,
            context: place,
            key: Some(raw.key),
            kind: raw.key.0,
            contents: raw.contents,
            seed: raw.seed,
            home: home.map(|(id, _)| id),
            pool: None,
            kept_by_driver: false,
            forgotten: false,
            guard,
        };
        self.check_contents(&thing)?;
        self.things.push(thing);
        Ok(())
    }

    /// Frees memory that was given away. The registry goes on listing it.
    pub fn free_raw(&mut self, number: u8) -> Answer {
        if self.raws.is_empty() {
            return Ok(());
        }
        let at = usize::from(number) % self.raws.len();
        if self.raws[at].key.0 == Kind::StreamOrdered {
            for place in &self.places {
                if let Some(context) = &place.context {
                    context.synchronize()?;
                }
            }
        }
        let raw = self.raws.remove(at);
        // SAFETY: given away by `into_raw`, and nobody else has the address. All work on
        // stream-ordered memory is done.
        let code = unsafe { api::cuMemFree_v2(raw.key.1) };
        ensure(code.is_success(), || format!("cuMemFree: {code}"))?;
        self.driver.alive.remove(&raw.key);
        Ok(())
    }

    /// Frees what would outlive all contexts.
    pub fn free_raws_for_good(&mut self) -> Answer {
        let lasting = |raw: &Raw| outlives_contexts(raw.key.0);
        while let Some(at) = self.raws.iter().position(lasting) {
            // Those before it go with their contexts.
            self.raws.rotate_left(at);
            self.free_raw(0)?;
        }
        Ok(())
    }
}

#[track_caller]
fn adopt_stream_ordered(on: &Stream, raw: &Raw) -> (Guard, &'static Location<'static>) {
    let (address, len) = (raw.key.1, raw.contents.len());
    // SAFETY: the address and the length that `into_raw` gave, allocated and written before the
    // device was waited for; it is no longer in the list of those that could be freed.
    let buffer = unsafe { DeviceBuffer::<u8>::from_raw_on(on, address, len) };
    (Guard::Bytes(buffer), Location::caller())
}

#[track_caller]
fn adopt(context: &cuguard::Context, raw: &Raw) -> (Guard, &'static Location<'static>) {
    let (address, len) = (raw.key.1, raw.contents.len());
    // SAFETY: the address and the length that `into_raw` gave, in a context of the driver's that is
    // the one it was allocated in.
    let guard = unsafe {
        if raw.words {
            Guard::Words(DeviceBuffer::from_raw(context, address, len / 4))
        } else {
            Guard::Bytes(DeviceBuffer::from_raw(context, address, len))
        }
    };
    (guard, Location::caller())
}
