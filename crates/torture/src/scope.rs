//! Work in a [`Stream::scope`], done on the device and in the model.

use bytemuck::Pod;
use cuguard::scope::Bindable;
use cuguard::{Context, DeviceBuffer, Error, Event, Result, Stream};
use cust::memory::DeviceCopy;

use crate::guard::{Guard, words};
use crate::make::{panic_on_purpose, unwinds};
use crate::step::{End, Task, Work};
use crate::world::World;
use crate::wrong::{Answer, Expected, ensure_eq, expect};

/// The number that fills, for both sides.
const FILL: u8 = 0x5C;

/// What is to happen in a scope.
struct Plan<'a> {
    work: &'a [Work],
    end: End,
    event: Option<&'a Event>,
    /// How many elements are worked on, and where the back part begins.
    len: usize,
    mid: usize,
}

impl Plan<'_> {
    /// How many pieces of work are given to the stream before the scope ends.
    fn given(&self) -> usize {
        match self.end {
            End::Plain => self.work.len(),
            End::Panic(after) | End::Error(after) | End::Close(after) => {
                usize::from(after).min(self.work.len())
            }
        }
    }
}

/// The program's own error.
fn own_error() -> Error {
    Error::WrongContext {
        operation: "on purpose",
        one: "this",
        one_context: 0,
        other: "that",
        other_context: 0,
    }
}

/// Runs a scope. `None`: it ended by the panic that the plan has.
fn on_device<T, D, S>(
    stream: &Stream,
    to: &mut D,
    from: Option<&S>,
    host: &mut [T],
    plan: &Plan<'_>,
    context: &mut Option<Context>,
) -> Option<Result<()>>
where
    T: Pod + DeviceCopy,
    D: Bindable<Value = T>,
    S: Bindable<Value = T>,
{
    let value = bytemuck::pod_read_unaligned::<T>(&[FILL; 4][..size_of::<T>()]);
    unwinds(|| {
        stream.scope(|s| {
            let mut to = s.bind_mut(to)?.slice(..plan.len).split_at(plan.mid);
            let from = match from {
                None => None,
                Some(from) => Some(s.bind(from)?.slice(..plan.len).split_at(plan.mid)),
            };
            let (front, back) = host[..plan.len].split_at_mut(plan.mid);
            let mut host = (s.bind_host_mut(front), s.bind_host_mut(back));
            for number in 0..=plan.work.len() {
                if number == plan.given() {
                    match plan.end {
                        End::Plain => {}
                        End::Panic(_) => panic_on_purpose(),
                        End::Error(_) => return Err(own_error()),
                        End::Close(_) => context.take().map_or(Ok(()), Context::close)?,
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
        })
    })
}

/// The same on plain bytes.
fn in_model(to: &mut [u8], from: Option<&[u8]>, host: &mut [u8], plan: &Plan<'_>, size: usize) {
    let (len, mid) = (plan.len * size, plan.mid * size);
    for work in &plan.work[..plan.given()] {
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
    /// Work on a stream, on one thing, from another, and with memory on the host.
    pub fn scope(&mut self, picks: [u8; 4], work: [Work; 4], mut end: End) -> Answer {
        let Some(stream) = self.pick_stream(picks[0]) else {
            return Ok(());
        };
        let Some(to) = self.pick(picks[1], |thing| thing.guard.is_on_device()) else {
            return Ok(());
        };
        let place = self.things[stream].context;
        if let End::Close(after) = end
            && (self.places[place].context.is_none()
                || self.spares_contexts()
                || self.things.iter().any(|t| self.would_be_lost(t, place)))
        {
            end = End::Panic(after);
        }
        let event = self.pick(picks[3], |thing| matches!(thing.guard, Guard::Event(_)));
        let event = event.filter(|event| self.things[*event].context == place);

        // All that takes part is taken out of the list, and put back after.
        let words_wanted = matches!(self.things[to].guard, Guard::Words(_) | Guard::One(_));
        let to_id = self.things[to].id;
        let from = self.pick(picks[2], |thing| {
            let words = matches!(thing.guard, Guard::Words(_) | Guard::One(_));
            thing.id != to_id && thing.guard.is_on_device() && words == words_wanted
        });
        let host = self.pick(picks[3], |thing| {
            !words_wanted && matches!(thing.guard, Guard::Pinned(_) | Guard::Registered(_))
        });
        let mut taken: Vec<_> = [Some(stream), Some(to), from, host, event]
            .into_iter()
            .flatten()
            .collect();
        taken.sort_unstable();
        let ids = |at: Option<usize>| at.map(|at| self.things[at].id);
        let (stream, to) = (self.things[stream].id, to_id);
        let (from, host, event) = (ids(from), ids(host), ids(event));
        let mut out: Vec<_> = taken
            .iter()
            .rev()
            .map(|at| self.things.remove(*at))
            .collect();
        let mut take = |id: u64| {
            let at = out.iter().position(|thing| thing.id == id);
            at.map(|at| out.swap_remove(at))
        };
        let (Some(stream), Some(mut to)) = (take(stream), take(to)) else {
            unreachable!("both were taken out");
        };
        let (from, mut host, event) = (
            from.and_then(&mut take),
            host.and_then(&mut take),
            event.and_then(&mut take),
        );

        let answer = self.scope_on(&stream, &mut to, &from, &mut host, &event, &work, end);
        let back = [Some(stream), Some(to), from, host, event];
        self.things.extend(back.into_iter().flatten());
        self.things.sort_unstable_by_key(|thing| thing.id);
        if answer? {
            self.ended(place)?;
        }
        Ok(())
    }

    /// Answers whether the context was closed.
    #[allow(clippy::too_many_arguments, reason = "all that takes part")]
    fn scope_on(
        &mut self,
        stream: &crate::guard::Thing,
        to: &mut crate::guard::Thing,
        from: &Option<crate::guard::Thing>,
        host: &mut Option<crate::guard::Thing>,
        event: &Option<crate::guard::Thing>,
        work: &[Work],
        end: End,
    ) -> Answer<bool> {
        let Guard::Stream(on) = &stream.guard else {
            unreachable!("picked as a stream");
        };
        let event = event.as_ref().and_then(|event| match &event.guard {
            Guard::Event(event) => Some(event),
            _ => None,
        });
        // What is worked on: as much as all sides have.
        let size = if matches!(to.guard, Guard::Words(_) | Guard::One(_)) {
            4
        } else {
            1
        };
        let mut plain = to.contents.clone();
        plain.reverse();
        let mut host_model = host
            .as_ref()
            .map_or_else(|| plain.clone(), |host| host.contents.clone());
        let lens = [
            Some(to.contents.len()),
            from.as_ref().map(|from| from.contents.len()),
            Some(host_model.len()),
        ];
        let len = lens.into_iter().flatten().min().unwrap_or(0) / size;
        let plan = Plan {
            work,
            end,
            event,
            len,
            mid: len / 3,
        };
        let place = stream.context;
        let open = self.is_open(place);
        let same = |thing: &crate::guard::Thing| thing.context == place;
        let right = same(to) && from.as_ref().is_none_or(same);
        let closing = matches!(end, End::Close(_));
        let mut context = match end {
            End::Close(_) if right => self.places[place].context.take(),
            _ => None,
        };
        if let Some(context) = &context {
            self.places[place].registry.check(context)?;
        }
        let source = from.as_ref().map(|from| &from.guard);
        let ran = {
            let context = &mut context;
            let host_bytes = match host.as_mut().and_then(|host| host.guard.host_mut()) {
                Some(bytes) => bytes,
                None => &mut plain,
            };
            match (&mut to.guard, source) {
                (Guard::Bytes(to), Some(Guard::Bytes(from))) => {
                    on_device(on, to, Some(from), host_bytes, &plan, context)
                }
                (Guard::Bytes(to), Some(Guard::Managed(from))) => {
                    on_device(on, to, Some(from), host_bytes, &plan, context)
                }
                (Guard::Bytes(to), _) => on_device(
                    on,
                    to,
                    None::<&DeviceBuffer<u8>>,
                    host_bytes,
                    &plan,
                    context,
                ),
                (Guard::Managed(to), Some(Guard::Bytes(from))) => {
                    on_device(on, to, Some(from), host_bytes, &plan, context)
                }
                (Guard::Managed(to), Some(Guard::Managed(from))) => {
                    on_device(on, to, Some(from), host_bytes, &plan, context)
                }
                (Guard::Managed(to), _) => on_device(
                    on,
                    to,
                    None::<&DeviceBuffer<u8>>,
                    host_bytes,
                    &plan,
                    context,
                ),
                (to, from) => {
                    let from = match from {
                        Some(Guard::Words(from)) => Some(from),
                        Some(Guard::One(from)) => Some(from.as_buffer()),
                        _ => None,
                    };
                    let mut words = words(host_bytes);
                    let ran = match to {
                        Guard::One(to) => on_device(on, to, from, &mut words, &plan, context),
                        Guard::Words(to) => on_device(on, to, from, &mut words, &plan, context),
                        _ => unreachable!("picked as memory on the device"),
                    };
                    host_bytes.copy_from_slice(bytemuck::cast_slice(&words));
                    ran
                }
            }
        };
        let closed = closing && right && context.is_none();
        if let Some(context) = context {
            // The scope never came to it.
            self.places[place].context = Some(context);
        }
        self.outcome.scopes += 1;
        if right && open {
            let from = from.as_ref().map(|from| from.contents.as_slice());
            in_model(&mut to.contents, from, &mut host_model, &plan, size);
            to.seed = None;
        }
        let later = plan.work[plan.given()..]
            .iter()
            .any(|work| match work.task {
                Task::Copy => from.is_some(),
                Task::Record | Task::Wait => event.is_some(),
                _ => true,
            });
        let is_unwound = ran.is_none();
        match ran {
            None => self.outcome.panics += 1,
            Some(result) => {
                let expected = match end {
                    // What comes first is bound first.
                    _ if same(to) && !open => Expected::Closed,
                    _ if !right => Expected::WrongContext,
                    _ if !open => Expected::Closed,
                    End::Close(_) if later => Expected::Closed,
                    End::Error(_) => Expected::WrongContext,
                    _ => Expected::Success,
                };
                expect("scope", result, expected)?;
            }
        }
        let should_unwind = right && open && matches!(end, End::Panic(_));
        ensure_eq("a panic in the scope", is_unwound, should_unwind)?;
        match host {
            Some(host) => {
                host.contents = host_model;
                self.check_contents(host)?;
            }
            None => ensure_eq("what came to the host", plain, host_model)?,
        }
        if !closed {
            self.check_contents(to)?;
        }
        Ok(closed)
    }
}
