//! The steps of a program, done with the crate and in the model.

use cuguard::{Context, Event, ResourceKind, Stream};

use crate::guard::{Guard, pattern, word_pattern};
use crate::mismatch::{Check, Expected, Stop, ensure_eq, expect};
use crate::step::Action;
use crate::world::{World, level, name_label};

/// The most contexts at a time.
const MOST_CONTEXTS: usize = 3;

impl World {
    /// Does a step. A step that finds nothing to work on does nothing.
    pub fn step(&mut self, action: Action) -> Check {
        match self.act(action) {
            Err(Stop::NothingFits) => Ok(()),
            done => done,
        }
    }

    fn act(&mut self, action: Action) -> Check {
        match action {
            Action::Read { resource } => {
                self.check_contents(&self.resources[self.pick(resource, |_| true)?])
            }
            Action::View {
                to,
                from,
                begin,
                work,
            } => self.view([to, from], begin, work),
            Action::Clone { resource, label } => self.try_clone(resource, label),
            Action::Write { resource, seed } => self.write(resource, seed),
            Action::Make { make } => self.make(make),
            Action::Drop { resource } => self.drop_resource(self.pick(resource, |_| true)?, false),
            Action::DropInHostFunction { resource, stream } => {
                self.drop_in_host_function(resource, stream)
            }
            Action::Close { resource } => self.drop_resource(self.pick(resource, |_| true)?, true),
            Action::Forget { resource } => self.forget(resource),
            Action::Rename { resource, label } => self.rename(resource, label),
            Action::Synchronize { stream } => self.synchronize(stream),
            Action::Scope {
                stream,
                to,
                from,
                work,
                last,
            } => self.scope([stream, to, from], work, last),
            Action::Record { event, stream } => self.with_event(event, stream, Event::record),
            Action::WaitFor { stream, event } => {
                self.with_event(event, stream, |event, stream| stream.wait_for(event))
            }
            Action::OrderAfter { stream, other } => {
                let (one, other) = (self.pick_stream(stream)?, self.pick_stream(other)?);
                let order = |one: &Guard, other: &Guard| one.stream().order_after(other.stream());
                self.with_both("order_after", one, other, order)
            }
            Action::RecordStream { resource, stream } => {
                let memory = self.pick(resource, |one| matches!(one.guard, Guard::Bytes(_)))?;
                let record = |memory: &Guard, stream: &Guard| match memory {
                    Guard::Bytes(buffer) => buffer.record_stream(stream.stream()),
                    _ => unreachable!("picked as bytes"),
                };
                self.with_both("record_stream", memory, self.pick_stream(stream)?, record)
            }
            Action::IntoRaw { resource } => self.release_raw(resource),
            Action::FromRaw { raw, place } => self.adopt_raw(raw, place),
            Action::FreeRaw { raw } => self.free_raw(raw),
            Action::Panic { first, count } => self.make_and_panic(first, count),
            Action::TooLarge { what, context } => self.allocate_too_much(what, context),
            Action::WrongLength { resource } => self.wrong_length(resource),
            Action::Kernel { resource } => self.kernel(resource),
            Action::Level { context, level } => self.set_level(context, level),
            Action::Open { .. } | Action::End { .. } if self.spares_contexts() => Ok(()),
            Action::Open { .. } if self.open_contexts().count() >= MOST_CONTEXTS => Ok(()),
            Action::Open { flags, level: byte } => {
                self.open(flags & 1 != 0, level(byte, self.mode), flags & 14 != 14)
            }
            Action::End { context, close } => self.end(self.pick_context(context)?, close),
        }
    }

    fn write(&mut self, number: u8, seed: u8) -> Check {
        let at = self.pick(number, |resource| resource.kind.is_memory())?;
        let expected = self.expected(&self.resources[at]);
        let resource = &mut self.resources[at];
        let len = resource.contents.len();
        let word_seed = resource.guard.is_words().then_some(u32::from(seed) << 7);
        let bytes = match word_seed {
            Some(seed) => word_pattern(seed, len),
            None => pattern(seed, len),
        };
        let context = self.slots[resource.slot].context.as_ref();
        if let Some(result) = resource.guard.write(context, &bytes)
            && expect("write", result, expected)?.is_some()
        {
            resource.contents = bytes;
            resource.seed = word_seed;
        }
        self.check_contents(&self.resources[at])
    }

    /// Keeps the guard and never uses it again, which is the same as `mem::forget` for the crate. It is
    /// dropped at the end, so that millions of programs do not leak host memory.
    fn forget(&mut self, number: u8) -> Check {
        let at = self.pick(number, |_| true)?;
        self.resources[at].forgotten = true;
        self.outcome.forgotten += 1;
        Ok(())
    }

    fn rename(&mut self, number: u8, label: u8) -> Check {
        let at = self.pick(number, |_| true)?;
        let resource = self.resources.remove(at);
        let resource = self.with_label(resource, name_label(label));
        self.resources.insert(at, resource);
        Ok(())
    }

    fn synchronize(&mut self, number: u8) -> Check {
        let Ok(at) = self.pick_stream(number) else {
            let context = &self.slots[self.pick_context(number)?].context;
            return Ok(context.as_ref().map_or(Ok(()), Context::synchronize)?);
        };
        let (stream, expected) = (&self.resources[at], self.expected(&self.resources[at]));
        let stream = stream.guard.stream();
        expect("synchronize", stream.synchronize(), expected)?;
        if let Some(idle) = expect("is_idle", stream.is_idle(), expected)? {
            ensure_eq("a synchronized stream is idle", idle, true)?;
        }
        Ok(())
    }

    /// An operation on two resources, which fails if they are of different contexts.
    fn with_both(
        &self,
        what: &str,
        one: usize,
        other: usize,
        work: impl FnOnce(&Guard, &Guard) -> cuguard::Result<()>,
    ) -> Check {
        let (one, other) = (&self.resources[one], &self.resources[other]);
        let expected = self.expected_of(one, other);
        expect(what, work(&one.guard, &other.guard), expected).map(drop)
    }

    fn with_event(
        &self,
        event: u8,
        stream: u8,
        work: impl FnOnce(&Event, &Stream) -> cuguard::Result<()>,
    ) -> Check {
        let event = self.pick(event, |resource| resource.kind == ResourceKind::Event)?;
        let mut waited = Ok(None);
        self.with_both(
            "event and stream",
            event,
            self.pick_stream(stream)?,
            |event, stream| {
                let event = event.event();
                work(event, stream.stream())?;
                waited = event
                    .synchronize()
                    .and_then(|()| event.is_complete().map(Some));
                Ok(())
            },
        )?;
        match waited? {
            Some(complete) => ensure_eq("a synchronized event is complete", complete, true),
            None => Ok(()),
        }
    }

    fn wrong_length(&mut self, number: u8) -> Check {
        let fits = |guard: &Guard| matches!(guard, Guard::Bytes(_) | Guard::Words(_));
        let at = self.pick(number, |resource| fits(&resource.guard))?;
        let too_long = vec![0xEE; self.resources[at].contents.len() + 4];
        if let Some(result) = self.resources[at].guard.write(None, &too_long) {
            expect("a copy of another length", result, Expected::WrongLength)?;
        }
        self.check_contents(&self.resources[at])
    }

    fn set_level(&mut self, number: u8, byte: u8) -> Check {
        let at = self.pick_context(number)?;
        let slot = &mut self.slots[at];
        slot.registry.level = level(byte, self.mode);
        if let Some(context) = &slot.context {
            context.set_level(slot.registry.level);
        }
        Ok(())
    }
}
