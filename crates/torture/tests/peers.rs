//! Random programs on two simulated devices: copies between contexts in scopes and without, peer access, and contexts that
//! are closed or dropped at any time, also within a scope. A model says what each operation returns, what memory
//! contains, and which contexts may access which.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

use cuguard::device::PeerAccess;
use cuguard::driver::sys::{CUcontext, CUresult};
use cuguard::driver::{self, DriverKind, api};
use cuguard::report::ReportSettings;
use cuguard::sim::{self, Config};
use cuguard::{Context, DeviceBuffer, Error, Result, Stream};
use proptest::prelude::*;

const LEN: usize = 4096;

struct Slot {
    context: Option<Context>,
    handle: CUcontext,
    device: u32,
    closed: bool,
}

struct Buffer {
    guard: DeviceBuffer<u8>,
    slot: usize,
    contents: Vec<u8>,
}

struct Access {
    guard: PeerAccess,
    from: usize,
    to: usize,
}

#[derive(Default)]
struct World {
    slots: Vec<Slot>,
    streams: Vec<(Stream, usize)>,
    buffers: Vec<Buffer>,
    accesses: Vec<Access>,
}

/// Four numbers: the kind of the step, and what it picks, modulo how many there are.
type Step = [u8; 4];

fn pick<T>(items: &[T], number: u8) -> Option<usize> {
    usize::from(number).checked_rem(items.len())
}

/// How a scope ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Plain,
    Panic,
    CloseOwn,
    ClosePeer,
}

impl World {
    fn open(&mut self, number: u8) -> Result<()> {
        if self.slots.len() == 6 {
            return Ok(());
        }
        let device = u32::from(number & 1);
        let builder = Context::builder()
            .device(device)
            .report(ReportSettings::silent());
        let context = match number & 2 {
            0 => builder.build()?,
            _ => builder.dedicated().build()?,
        };
        self.slots.push(Slot {
            handle: context.as_raw(),
            context: Some(context),
            device,
            closed: false,
        });
        Ok(())
    }

    fn is_closed(&self, slot: usize) -> bool {
        self.slots[slot].closed
    }

    /// A slot whose `Context` was neither closed nor dropped.
    fn with_context(&self, number: u8) -> Option<(usize, &Context)> {
        let live: Vec<_> = self.slots.iter().enumerate().collect();
        let live: Vec<_> = live
            .into_iter()
            .filter_map(|(index, slot)| Some((index, slot.context.as_ref()?)))
            .collect();
        pick(&live, number).map(|index| live[index])
    }

    fn make_stream(&mut self, number: u8) -> Result<()> {
        if let Some((slot, context)) = self.with_context(number) {
            let stream = match number & 64 {
                0 => Stream::new(context)?,
                _ => Stream::default_stream(context)?,
            };
            self.streams.push((stream, slot));
        }
        Ok(())
    }

    fn make_buffer(&mut self, [_, place, on, seed]: Step) -> Result<()> {
        let contents: Vec<u8> = (0..LEN).map(|i| (i as u8).wrapping_mul(seed)).collect();
        let (guard, slot) = if on & 1 == 0 {
            let Some((slot, context)) = self.with_context(place) else {
                return Ok(());
            };
            (DeviceBuffer::from_slice(context, &contents)?, slot)
        } else {
            let Some((stream, slot)) = pick(&self.streams, place).map(|at| &self.streams[at])
            else {
                return Ok(());
            };
            match DeviceBuffer::from_slice(stream, &contents) {
                Err(Error::ContextClosed { .. }) if self.is_closed(*slot) => return Ok(()),
                made => (made?, *slot),
            }
        };
        self.buffers.push(Buffer {
            guard,
            slot,
            contents,
        });
        Ok(())
    }

    /// Two different buffers.
    fn two(&self, one: u8, other: u8) -> Option<(usize, usize)> {
        let (one, other) = (pick(&self.buffers, one)?, pick(&self.buffers, other)?);
        (one != other).then_some((one, other))
    }

    /// What an operation on both slots returns.
    fn check(&self, one: usize, other: usize, result: Result<()>) -> Result<bool> {
        match result {
            Err(Error::ContextClosed { .. }) if self.is_closed(one) || self.is_closed(other) => {
                Ok(false)
            }
            Ok(()) => {
                assert!(!self.is_closed(one) && !self.is_closed(other));
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn copy(&mut self, [_, to, from, _]: Step) -> Result<()> {
        let Some((to, from)) = self.two(to, from) else {
            return Ok(());
        };
        let [a, b] = self.buffers.get_disjoint_mut([to, from]).expect("two");
        let (slots, copied) = ((a.slot, b.slot), a.guard.copy_from(&b.guard));
        if self.check(slots.0, slots.1, copied)? {
            self.buffers[to].contents = self.buffers[from].contents.clone();
        }
        Ok(())
    }

    /// A copy in a scope of the stream's context with memory of another one, a few times.
    fn scope(&mut self, [kind, stream, own, peer]: Step) -> Result<()> {
        let Some(stream) = pick(&self.streams, stream) else {
            return Ok(());
        };
        let slot = self.streams[stream].1;
        let ours: Vec<_> = (0..self.buffers.len())
            .filter(|at| self.buffers[*at].slot == slot)
            .collect();
        let Some(own) = pick(&ours, own).map(|at| ours[at]) else {
            return Ok(());
        };
        let Some(peer) = pick(&self.buffers, peer).filter(|peer| *peer != own) else {
            return Ok(());
        };
        let end = match kind / 16 % 8 {
            0 => End::Panic,
            1 => End::CloseOwn,
            2 => End::ClosePeer,
            _ => End::Plain,
        };
        let to_peer = kind & 8 != 0;
        let other = self.buffers[peer].slot;
        let closing = match end {
            End::CloseOwn => Some(slot),
            End::ClosePeer => Some(other),
            _ => None,
        };
        let closing = closing.and_then(|slot| Some((slot, self.slots[slot].context.take()?)));
        let mut closed = None;
        let [a, b] = self.buffers.get_disjoint_mut([own, peer]).expect("two");
        let stream = &self.streams[stream].0;
        let work = || {
            stream.scope(|s| {
                let (mut a, mut b) = (s.bind_mut(&mut a.guard)?, s.bind_peer_mut(&mut b.guard)?);
                for _ in 0..3 {
                    match to_peer {
                        true => s.copy_to_peer(&mut b, &a)?,
                        false => s.copy_from_peer(&mut a, &b)?,
                    }
                }
                if let Some((slot, context)) = closing {
                    closed = Some(slot);
                    context.close()?;
                    let late = s.copy_to_peer(&mut b, &a).expect_err("it is closed");
                    assert!(matches!(late, Error::ContextClosed { .. }), "{late}");
                }
                assert!(end != End::Panic, "deliberate");
                Ok(())
            })
        };
        let result = catch_unwind(AssertUnwindSafe(work));
        let result = match result {
            // The copies before the close succeeded.
            Ok(Ok(())) if closed.is_some() => true,
            Ok(result) => self.check(slot, other, result)?,
            Err(panic) => {
                let text = panic.downcast_ref::<&str>();
                assert!(text.is_some_and(|text| text.contains("deliberate")));
                true
            }
        };
        // Otherwise, where nothing could be bound, it was dropped, and stays open for its resources.
        if let Some(closed) = closed {
            self.slots[closed].closed = true;
        }
        if result {
            let (to, from) = if to_peer { (peer, own) } else { (own, peer) };
            self.buffers[to].contents = self.buffers[from].contents.clone();
        }
        Ok(())
    }

    fn enable(&mut self, [_, from, to, _]: Step) -> Result<()> {
        let (Some((from, one)), Some((to, other))) =
            (self.with_context(from), self.with_context(to))
        else {
            return Ok(());
        };
        match PeerAccess::new(one, other) {
            Err(Error::SameDevice { .. }) => {
                assert_eq!(self.slots[from].device, self.slots[to].device);
            }
            made => {
                let guard = made?;
                assert_ne!(self.slots[from].device, self.slots[to].device);
                self.accesses.push(Access { guard, from, to });
            }
        }
        Ok(())
    }

    /// Whether a guard stands for the access between two contexts of the driver.
    fn may_access(&self, from: CUcontext, to: CUcontext) -> bool {
        self.accesses.iter().any(|access| {
            let (one, other) = (&self.slots[access.from], &self.slots[access.to]);
            (one.handle, other.handle) == (from, to) && !one.closed && !other.closed
        })
    }

    fn end_context(&mut self, [_, number, close, _]: Step) -> Result<()> {
        let Some(slot) = self.with_context(number).map(|(slot, _)| slot) else {
            return Ok(());
        };
        if let Some(context) = self.slots[slot].context.take()
            && close & 1 != 0
        {
            self.slots[slot].closed = true;
            context.close()?;
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<()> {
        let [kind, number, ..] = step;
        match kind % 16 {
            0 => self.open(number)?,
            1 => self.make_stream(number)?,
            2 | 3 => self.make_buffer(step)?,
            4 => self.copy(step)?,
            5..=9 | 13 => self.scope(step)?,
            10 => self.enable(step)?,
            11 => {
                if let Some(at) = pick(&self.accesses, number) {
                    let access = self.accesses.swap_remove(at);
                    let closed = self.is_closed(access.from);
                    match access.guard.close() {
                        Err(Error::ContextClosed { .. }) if closed => {}
                        result => result?,
                    }
                }
            }
            12 => self.end_context(step)?,
            14 => {
                if let Some(at) = pick(&self.buffers, number) {
                    drop(self.buffers.swap_remove(at));
                }
            }
            _ => {
                if let Some(at) = pick(&self.streams, number) {
                    drop(self.streams.swap_remove(at));
                }
            }
        }
        Ok(())
    }

    /// Compares the driver with the model.
    fn compare(&self) -> Result<()> {
        for buffer in &self.buffers {
            match buffer.guard.to_vec() {
                Err(Error::ContextClosed { .. }) if self.is_closed(buffer.slot) => {}
                contents => assert!(contents? == buffer.contents, "contents"),
            }
        }
        let live: Vec<_> = self
            .slots
            .iter()
            .filter_map(|slot| Some((slot.context.as_ref()?, slot.device)))
            .collect();
        for (one, device) in &live {
            for (other, _) in live.iter().filter(|(_, other)| other != device) {
                let _current = one.make_current()?;
                // SAFETY: both are alive; what is enabled here is disabled below.
                let code = unsafe { api::cuCtxEnablePeerAccess(other.as_raw(), 0) };
                let enabled = code == CUresult::PEER_ACCESS_ALREADY_ENABLED;
                assert_eq!(
                    enabled,
                    self.may_access(one.as_raw(), other.as_raw()),
                    "{code}"
                );
                if !enabled {
                    // SAFETY: as above.
                    let code = unsafe { api::cuCtxDisablePeerAccess(other.as_raw()) };
                    assert!(code.is_success(), "{code}");
                }
            }
        }
        Ok(())
    }
}

fn run(program: &[Step], order: u8) -> Result<()> {
    let before = sim::live_counters();
    let mut world = World::default();
    for number in 0..3 {
        world.open(number)?;
    }
    for step in program {
        world.step(*step)?;
        world.compare()?;
    }
    // In any order: guards keep their contexts open.
    let World {
        slots,
        streams,
        buffers,
        accesses,
    } = world;
    match order % 3 {
        0 => drop((slots, streams, buffers, accesses)),
        1 => drop((accesses, buffers, streams, slots)),
        _ => drop((streams, accesses, slots, buffers)),
    }
    assert_eq!(sim::live_counters(), before, "in the driver");
    Ok(())
}

/// Two devices, on which work takes a while. False, and a line that says so, on a real GPU.
fn two_devices() -> bool {
    static ONCE: Once = Once::new();
    let simulated = driver::load().expect("a driver").kind() == DriverKind::Simulated;
    ONCE.call_once(|| {
        if simulated {
            let config = Config::new()
                .devices(2)
                .memory(1 << 36)
                .context_cost(1 << 20)
                .latency(Duration::from_micros(20));
            sim::configure(config).expect("it does not run yet");
            std::panic::set_hook(Box::new(|info| {
                if !info.to_string().contains("deliberate") {
                    eprintln!("{info}");
                }
            }));
        }
    });
    if !simulated {
        cuguard_testing::not_run(
            cuguard_testing::Requirement::SimulatedGpu,
            "with two devices",
        );
    }
    simulated
}

proptest! {
    #![proptest_config(cuguard_testing::property_config!(400))]

    #[test]
    fn random_programs_on_two_devices(
        program in proptest::collection::vec(any::<Step>(), 0..80),
        order in any::<u8>(),
    ) {
        if two_devices() {
            run(&program, order).unwrap();
        }
    }
}
