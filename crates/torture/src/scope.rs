//! Work in a [`Stream::scope`], done on the device and in the model.

use std::cell::RefCell;

use bytemuck::Pod;
use cuguard::DeviceCopy;
use cuguard::scope::{Bindable, BindableMut};
use cuguard::{Context, DeviceBuffer, Error, Event, ResourceKind, Result, Scope, Stream};

use crate::guard::{Guard, words};
use crate::make::{panic_deliberately, unwinds};
use crate::mismatch::{Check, Expected, ensure_eq, expect};
use crate::model::{DriverContext, Record};
use crate::resource::Resource;
use crate::step::{End, LastByte, Task, Work};
use crate::world::World;

/// The byte that fills, on the device and in the model.
const FILL: u8 = 0x5C;

/// What happens in a scope.
struct Plan<'a> {
    stream: &'a Stream,
    event: Option<&'a Event>,
    work: &'a [Work],
    end: End,
    /// How many elements are worked on, and where the back part begins.
    len: usize,
    mid: usize,
    /// How often the work is launched as a graph; 0 for a scope.
    launches: u8,
    /// What each piece of work fails with if it uses the host memory, which another context has page-locked: where it is
    /// captured, and where that context is closed and has not unregistered it.
    host_refusals: Vec<Option<Expected>>,
    /// The addresses of the scratch memory.
    scratch: RefCell<Vec<u64>>,
}

impl Plan<'_> {
    /// Whether a piece of work goes through scratch memory of the scope. Not where the context is closed, whose report
    /// would name it.
    fn uses_scratch(&self, work: &Work) -> bool {
        let plain = self.launches == 0 && !matches!(self.end, End::Close(_));
        plain && work.back && work.task == Task::FillBytes
    }

    /// Whether a piece of work copies from or to the host.
    fn uses_host(&self, work: &Work) -> bool {
        let len = if work.back {
            self.len - self.mid
        } else {
            self.mid
        };
        len != 0 && matches!(work.task, Task::Upload | Task::Download)
    }

    /// The piece of work before which the end comes.
    fn end_at(&self) -> usize {
        match self.end {
            End::Plain => self.work.len(),
            End::Panic(after) | End::Error(after) | End::Close(after) | End::CloseHost(after) => {
                usize::from(after).min(self.work.len())
            }
        }
    }

    /// The first piece of work that fails because of its host memory, if the scope does not end before.
    fn fails_at(&self) -> Option<usize> {
        let last = match self.end {
            End::Plain | End::CloseHost(_) => self.work.len(),
            _ => self.end_at(),
        };
        (0..last).find(|number| {
            self.host_refusals[*number].is_some() && self.uses_host(&self.work[*number])
        })
    }

    /// Whether the work is captured, and its graph instantiated.
    fn is_captured(&self) -> bool {
        matches!(self.end, End::Plain | End::CloseHost(_)) && self.fails_at().is_none()
    }

    /// How often the work is executed.
    fn runs(&self) -> u8 {
        match self.launches {
            0 => 1,
            launches if self.is_captured() => launches,
            _ => 0,
        }
    }

    /// How many pieces of work are enqueued before the scope ends.
    fn enqueued(&self) -> usize {
        let end = match self.end {
            End::CloseHost(_) => self.work.len(),
            _ => self.end_at(),
        };
        self.fails_at().unwrap_or(end)
    }
}

/// The resources of a scope.
struct Participants {
    stream: Resource,
    to: Resource,
    from: Option<Resource>,
    host: Option<Resource>,
    event: Option<Resource>,
}

/// The error that a program returns from a scope.
fn own_error() -> Error {
    Error::WrongContext {
        operation: "on purpose",
        one: "this",
        one_context: 0,
        other: "that",
        other_context: 0,
    }
}

/// Enqueues the work of a scope, or captures it. `context` is closed if the plan says so.
fn enqueue<'env, T, D, S>(
    s: &Scope<'_, 'env>,
    plan: &Plan<'_>,
    to: D,
    from: Option<S>,
    host: &'env mut [T],
    context: &mut Option<Context>,
) -> Result<()>
where
    T: Pod + DeviceCopy,
    D: BindableMut<Value = T> + 'env,
    S: Bindable<Value = T> + 'env,
{
    let value = bytemuck::pod_read_unaligned::<T>(&[FILL; 4][..size_of::<T>()]);
    let mut to = s.bind_mut(to)?.slice(..plan.len)?.split_at(plan.mid)?;
    let from = match from {
        None => None,
        Some(from) => Some(s.bind(from)?.slice(..plan.len)?.split_at(plan.mid)?),
    };
    let (front, back) = host[..plan.len].split_at_mut(plan.mid);
    let mut host = (s.bind_host_mut(front), s.bind_host_mut(back));
    for number in 0..=plan.work.len() {
        if number == plan.end_at() {
            match plan.end {
                End::Plain => {}
                End::Panic(_) => panic_deliberately(),
                End::Error(_) => return Err(own_error()),
                End::Close(_) | End::CloseHost(_) => {
                    context.take().map_or(Ok(()), Context::close)?;
                }
            }
        }
        let Some(work) = plan.work.get(number) else {
            break;
        };
        let (to, host) = if work.back {
            (&mut to.1, &mut host.1)
        } else {
            (&mut to.0, &mut host.0)
        };
        match work.task {
            Task::Upload => s.upload(to, host)?,
            Task::Download => s.download(host, to)?,
            Task::Fill => s.fill(to, value)?,
            Task::FillBytes if plan.uses_scratch(work) => {
                let mut scratch = s.zeroed(to.len())?;
                let address = scratch.as_device_ptr().as_raw();
                plan.scratch.borrow_mut().push(address);
                s.fill_bytes(&mut scratch, FILL)?;
                s.copy(to, &scratch)?;
            }
            Task::FillBytes => s.fill_bytes(to, FILL)?,
            Task::Zero => s.zero(to)?,
            Task::Copy => {
                if let Some((front, back)) = &from {
                    s.copy(to, if work.back { back } else { front })?;
                }
            }
            Task::Record => plan.event.map_or(Ok(()), |event| s.record(event))?,
            Task::Wait => plan.event.map_or(Ok(()), |event| s.wait(event))?,
        }
    }
    Ok(())
}

/// Runs a scope, or captures and launches a graph; `None` if it ended with the panic of the plan.
fn on_device<T, D, S>(
    plan: &Plan<'_>,
    to: D,
    from: Option<S>,
    host: &mut [T],
    context: &mut Option<Context>,
) -> Option<Result<()>>
where
    T: Pod + DeviceCopy,
    D: BindableMut<Value = T>,
    S: Bindable<Value = T>,
{
    unwinds(|| {
        if plan.launches == 0 {
            return plan
                .stream
                .scope(|s| enqueue(s, plan, to, from, host, context));
        }
        let captured = plan
            .stream
            .capture(|c| enqueue(c, plan, to, from, host, context));
        let mut exec = captured?.0.instantiate()?;
        for _ in 0..plan.launches {
            exec.launch(plan.stream)?;
        }
        Ok(())
    })
}

/// [`on_device`] with the type of the source.
fn bytes_on_device(
    plan: &Plan<'_>,
    to: impl BindableMut<Value = u8>,
    from: Option<&Guard>,
    host: &mut [u8],
    context: &mut Option<Context>,
) -> Option<Result<()>> {
    match from {
        Some(Guard::Bytes(from)) => on_device(plan, to, Some(from), host, context),
        Some(Guard::Managed(from)) => on_device(plan, to, Some(from), host, context),
        _ => on_device(plan, to, None::<&DeviceBuffer<u8>>, host, context),
    }
}

/// As [`bytes_on_device`], for words.
fn words_on_device(
    plan: &Plan<'_>,
    to: impl BindableMut<Value = u32>,
    from: Option<&Guard>,
    host: &mut [u8],
    context: &mut Option<Context>,
) -> Option<Result<()>> {
    let from = match from {
        Some(Guard::Words(from)) => Some(from),
        Some(Guard::One(from)) => Some(from.as_buffer()),
        _ => None,
    };
    let mut words = words(host);
    let ran = on_device(plan, to, from, &mut words, context);
    host.copy_from_slice(bytemuck::cast_slice(&words));
    ran
}

/// The same on plain bytes.
fn in_model(to: &mut [u8], from: Option<&[u8]>, host: &mut [u8], plan: &Plan<'_>, size: usize) {
    let (len, mid) = (plan.len * size, plan.mid * size);
    for work in &plan.work[..plan.enqueued()] {
        let range = if work.back { mid..len } else { 0..mid };
        let to = &mut to[range.clone()];
        match work.task {
            Task::Upload => to.copy_from_slice(&host[range]),
            Task::Download => host[range].copy_from_slice(to),
            Task::Fill | Task::FillBytes => to.fill(FILL),
            Task::Zero => to.fill(0),
            Task::Copy => {
                if let Some(from) = from {
                    to.copy_from_slice(&from[range]);
                }
            }
            Task::Record | Task::Wait => {}
        }
    }
}

impl World {
    /// Work on a stream, on one resource, from another, and with host memory.
    pub fn scope(&mut self, picks: [u8; 3], work: [Work; 4], last: LastByte) -> Check {
        let LastByte { host, mut end } = last;
        let stream = self.pick_stream(picks[0])?;
        let slot = self.resources[stream].slot;
        // Memory that fits a scope which closes the context of its host memory is rare.
        let closes_host = matches!(end, End::CloseHost(_));
        let near = |one: &Resource| {
            one.guard.is_on_device() && (!closes_host || one.slot == slot && !one.guard.is_words())
        };
        let to = self.pick(picks[1], near)?;
        if let End::Close(after) = end
            && (self.spares_contexts() || !self.can_close(slot))
        {
            end = End::Panic(after);
        }
        let event = self.pick(host, |one| matches!(one.guard, Guard::Event(_)));
        let event = event
            .ok()
            .filter(|event| self.resources[*event].slot == slot);
        let words = self.resources[to].guard.is_words();
        let to = self.resources[to].id;
        let from = self.pick(picks[2], |one| {
            one.id != to && near(one) && one.guard.is_words() == words
        });
        let fits = |one: &Resource| !words && one.guard.is_on_host();
        let of_other = |one: &Resource| one.slot != slot && self.can_close(one.slot);
        let other = self.pick(host, |one| fits(one) && of_other(one)).ok();
        let host = match (end, other) {
            // Also on a real GPU: it is rare enough there that host memory belongs to another context.
            (End::CloseHost(_), Some(other)) => Ok(other),
            _ => self.pick(host, fits),
        };
        if closes_host && other.is_none() {
            end = End::Plain;
        }

        // The participants are removed from the list, and inserted again after.
        let id = |at: Option<usize>| at.map(|at| self.resources[at].id);
        let [stream, from, host, event] = [Some(stream), from.ok(), host.ok(), event].map(id);
        let mut remove = |id: Option<u64>| {
            let at = self.resources.iter().position(|one| Some(one.id) == id)?;
            Some(self.resources.remove(at))
        };
        let (Some(stream), Some(to)) = (remove(stream), remove(Some(to))) else {
            unreachable!("both were picked");
        };
        let mut all = Participants {
            stream,
            to,
            from: remove(from),
            host: remove(host),
            event: remove(event),
        };
        // A capture has a stream of its own, which the report of a close would name.
        let launches = match end {
            End::Close(_) => 0,
            _ => [0, 0, 1, 2][usize::from(picks[2] >> 6)],
        };
        let result = self.scope_with(&mut all, &work, end, launches);
        self.resources.extend([all.stream, all.to]);
        let others = [all.from, all.host, all.event];
        self.resources.extend(others.into_iter().flatten());
        self.resources.sort_unstable_by_key(|one| one.id);
        if let Some(closed) = result? {
            self.ended(closed)?;
        }
        Ok(())
    }

    /// Whether a context can be closed now, without a leak for good.
    fn can_close(&self, slot: usize) -> bool {
        self.slots[slot].context.is_some()
            && !self.resources.iter().any(|one| self.would_leak(one, slot))
    }

    /// Whether host memory stays registered when its context is closed.
    fn stays_registered(&self, host: &Resource) -> bool {
        let slot = &self.slots[host.slot];
        let mut keys = host.key.iter();
        let is_freed = |key| slot.free_leaks && slot.registry.records.contains_key(key);
        // The last holder ends the primary context, and every registration with it.
        slot.driver_context == DriverContext::Primary
            && self.driver.primary_holders > 1
            && !keys.all(is_freed)
    }

    /// Returns the context that was closed.
    fn scope_with(
        &mut self,
        all: &mut Participants,
        work: &[Work],
        end: End,
        launches: u8,
    ) -> Check<Option<usize>> {
        let Participants { to, host, .. } = all;
        let (slot, from) = (all.stream.slot, all.from.as_ref());
        // Worked on is as much as all participants have.
        let size = if to.guard.is_words() { 4 } else { 1 };
        let mut plain: Vec<u8> = to.contents.iter().rev().copied().collect();
        let host_contents = host.as_ref().map(|host| &host.contents);
        let mut host_model = host_contents.unwrap_or(&plain).clone();
        let len = to.contents.len().min(host_model.len());
        let len = from.map_or(len, |from| len.min(from.contents.len())) / size;
        let other = host.as_ref().filter(|host| host.slot != slot);
        let close = match end {
            End::CloseHost(after) => usize::from(after),
            _ => usize::MAX,
        };
        let elsewhere = self.slots[slot].driver_context != DriverContext::Primary;
        let refusal = |number: usize| {
            let host = other.filter(|host| host.key.is_some())?;
            let kept = host.kept_by_driver || (number >= close && self.stays_registered(host));
            let open = number < close && self.is_open(host.slot);
            match (open, launches) {
                (true, 0) => None,
                (true, _) => Some(Expected::Capture),
                (false, _) => (kept && elsewhere).then_some(Expected::HostClosed),
            }
        };
        let host_refusals = (0..work.len()).map(refusal).collect();
        let plan = Plan {
            stream: all.stream.guard.stream(),
            host_refusals,
            // Events cannot be captured.
            event: all
                .event
                .as_ref()
                .filter(|_| launches == 0)
                .map(|event| event.guard.event()),
            work,
            end,
            len,
            mid: len / 3,
            launches,
            scratch: RefCell::default(),
        };
        let open = self.is_open(slot);
        let same = |one: &Resource| one.slot == slot;
        let right = same(to) && from.is_none_or(same);
        let closes = match (end, other) {
            (End::Close(_), _) => Some(slot),
            (End::CloseHost(_), Some(host)) => Some(host.slot),
            _ => None,
        };
        let closes = closes.filter(|_| right);
        let mut context = None;
        if let Some(slot) = closes.map(|slot| &mut self.slots[slot]) {
            context = slot.context.take();
            if let Some(context) = &context {
                slot.registry.check(context)?;
            }
        }
        let source = from.map(|from| &from.guard);
        let bytes = host.as_mut().and_then(|host| host.guard.host_mut());
        let bytes = bytes.unwrap_or(&mut plain);
        let ran = match &mut to.guard {
            Guard::Bytes(to) => bytes_on_device(&plan, to, source, bytes, &mut context),
            Guard::Managed(to) => bytes_on_device(&plan, to, source, bytes, &mut context),
            Guard::Words(to) => words_on_device(&plan, to, source, bytes, &mut context),
            Guard::One(to) => words_on_device(&plan, to, source, bytes, &mut context),
            other => unreachable!("picked as device memory: {other:?}"),
        };
        let mut closed = closes;
        if let (Some(slot), Some(context)) = (closes, context) {
            // The scope ended before the close.
            self.slots[slot].context = Some(context);
            closed = None;
        }
        self.outcome.scopes += 1;
        self.outcome.host_closes += u64::from(closed.is_some() && closed != Some(slot));
        if right && open {
            let from = from.map(|from| from.contents.as_slice());
            for _ in 0..plan.runs() {
                in_model(&mut to.contents, from, &mut host_model, &plan, size);
            }
            to.seed = None;
            let done = &work[..plan.enqueued()];
            let count = done.iter().filter(|work| plan.uses_scratch(work)).count();
            let scratch = plan.scratch.take();
            ensure_eq("pieces of scratch memory", scratch.len(), count)?;
            let bytes = ((plan.len - plan.mid) * size) as u64;
            if bytes != 0 {
                let registry = &mut self.slots[slot].registry;
                let keys = scratch.iter().map(|at| (ResourceKind::StreamOrdered, *at));
                // The address of escaped memory that was freed outside of the crate may be used again.
                for key in keys.clone() {
                    let record = Record {
                        bytes,
                        ..Record::default()
                    };
                    registry.insert(key, record);
                }
                keys.for_each(|key| registry.remove(key));
            }
        }
        if open && launches != 0 {
            self.outcome.graphs += 1;
            let registry = &mut self.slots[slot].registry;
            registry.pass(ResourceKind::Stream, 1, 0);
            registry.pass(ResourceKind::Graph, 1, 0);
            let executables = u64::from(right && plan.is_captured());
            registry.pass(ResourceKind::GraphExec, executables, 0);
        }
        let refusal = plan.fails_at().and_then(|at| plan.host_refusals[at]);
        let should_unwind = right && open && refusal.is_none() && matches!(end, End::Panic(_));
        ensure_eq("a panic in the scope", ran.is_none(), should_unwind)?;
        match ran {
            None => self.outcome.panics += 1,
            Some(result) => {
                let mut later = work[plan.enqueued()..].iter();
                let has_later_work = later.any(|work| match work.task {
                    Task::Copy => from.is_some(),
                    Task::Record | Task::Wait => plan.event.is_some(),
                    _ => true,
                });
                let expected = match (end, refusal) {
                    // The destination is bound first; a capture begins before.
                    _ if (same(to) || launches != 0) && !open => Expected::Closed,
                    _ if !right => Expected::WrongContext,
                    _ if !open => Expected::Closed,
                    (_, Some(refusal)) => refusal,
                    (End::Close(_), _) if has_later_work => Expected::Closed,
                    (End::Error(_), _) => Expected::WrongContext,
                    _ => Expected::Success,
                };
                expect("scope", result, expected)?;
            }
        }
        match host {
            Some(host) => {
                host.contents = host_model;
                self.check_contents(host)?;
            }
            None => ensure_eq("the host memory", plain, host_model)?,
        }
        if closed != Some(slot) {
            self.check_contents(to)?;
        }
        Ok(closed)
    }
}
