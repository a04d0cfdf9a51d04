//! Runs a program: each step is done, the model does the same, and the two are compared.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use cuguard::{Context, Event, Kind, Level, Stream};

use crate::guard::{Guard, Thing, pattern, word_pattern};
use crate::options::Options;
use crate::program::Program;
use crate::spare;
use crate::step::{Action, Make, Step, What};
use crate::thread::on_thread;
use crate::world::{World, level, name_label};
use crate::wrong::{Answer, Expected, Wrong, ensure_eq, expect};

/// What a program did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Steps that were done.
    pub steps: u64,
    /// Things that were made: memory and handles.
    pub allocations: u64,
    /// The bytes of those.
    pub bytes: u64,
    /// Things that were forgotten.
    pub forgotten: u64,
    /// Memory that was given away.
    pub escaped: u64,
    /// Scopes that ran.
    pub scopes: u64,
    /// Panics that were caught.
    pub panics: u64,
    /// Checks by a kernel.
    pub kernels: u64,
    /// Contexts that were made.
    pub contexts: u64,
}

/// The most contexts at a time.
const MOST_CONTEXTS: usize = 3;

/// A context through which the device is looked at. It is never closed.
static OBSERVER: LazyLock<Context> = LazyLock::new(|| {
    let builder = Context::builder().dedicated().level(Level::Counts);
    builder.build().expect("a context for looking")
});

/// Runs a program and checks everything.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard_torture::{Program, run};
///
/// let outcome = run(&Program::from_bytes(&[0, 0, 40, 0, 0, 0, 100, 7]));
/// assert_eq!((outcome.steps, outcome.allocations, outcome.bytes), (1, 2, 100));
/// ```
///
/// # Panics
///
/// Where the crate under test does anything else than the model; the message names the step.
pub fn run(program: &Program) -> Outcome {
    run_with(program, &Options::thorough())
}

/// Runs a program, and checks it as the options say. One runs at a time, as the figures of the
/// driver are the process's.
///
/// # Panics
///
/// As [`run`].
pub fn run_with(program: &Program, options: &Options) -> Outcome {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if options.every_step {
        spare::end();
    }
    let before = before(options);
    let world = World::new(options, before.counters);
    let mut world = Box::new(world.unwrap_or_else(|Wrong(what)| panic!("{what}")));
    let begin = |world: &mut World| {
        let (own, level) = (
            program.begin & 1 != 0,
            level(program.begin >> 1, &world.options),
        );
        if !world.take_spare(own && level == Level::Sites) {
            world.open(own, level, true)?;
        }
        // Most of what can be done needs a stream.
        world.make(Make {
            what: What::Stream,
            place: 0,
            len: 0,
            seed: program.begin >> 4,
            label: 0,
        })
    };
    if let Err(Wrong(what)) = begin(&mut world) {
        panic!("at the beginning: {what}");
    }
    let trace = std::env::var_os("CUGUARD_TORTURE_TRACE").is_some();
    for (number, step) in program.steps.iter().enumerate() {
        if trace {
            // For programs that end the process.
            eprintln!("step {number}, {step:?}");
        }
        let result;
        (world, result) = do_step(world, *step);
        match result {
            Ok(Ok(())) => {}
            Ok(Err(Wrong(what))) => panic!("step {number}, {step:?}: {what}"),
            Err(payload) => {
                eprintln!("step {number}, {step:?}: a panic that should not be");
                resume_unwind(payload);
            }
        }
        world.outcome.steps += 1;
    }
    let outcome =
        finish(&mut world, program.end).unwrap_or_else(|Wrong(what)| panic!("at the end: {what}"));
    // A real driver keeps memory of its own back and returns it when it likes.
    let exact = world.simulated && spare::is_empty();
    drop(world);
    if exact {
        assert_eq!(free_bytes(), before.free, "bytes free on the device");
    }
    outcome
}

/// What the driver has while no program runs.
#[derive(Clone)]
struct Before {
    free: u64,
    counters: Arc<cuguard::sim::Counters>,
}

/// Looks at it before each program; for fuzzers once, as a program that passed leaves nothing.
fn before(options: &Options) -> Before {
    static FIRST: OnceLock<Before> = OnceLock::new();
    let look = || Before {
        free: free_bytes(),
        counters: Arc::new(cuguard::sim::live_counters()),
    };
    if options.every_step {
        look()
    } else {
        FIRST.get_or_init(look).clone()
    }
}

/// Bytes free on the device, in the driver's own figures.
///
/// # Panics
///
/// Where the driver does not tell.
#[must_use]
pub fn free_bytes() -> u64 {
    // Pools give back what is not in use when somebody waits.
    OBSERVER
        .synchronize()
        .expect("the device can be waited for");
    OBSERVER.memory().expect("the driver tells its memory").free
}

type Unwound = Box<dyn std::any::Any + Send>;

fn do_step(mut world: Box<World>, step: Step) -> (Box<World>, Result<Answer, Unwound>) {
    let work = move |world: &mut Box<World>| {
        world.step(step.action)?;
        if world.options.every_step {
            world.check()
        } else if world.outcome.steps % 8 == 7 {
            world.check_figures()
        } else {
            Ok(())
        }
    };
    match step.thread {
        1 | 2 if world.options.threads => on_thread(step.thread, world, work),
        3 => on_thread(1, world, work),
        _ => {
            let result = catch_unwind(AssertUnwindSafe(|| work(&mut world)));
            (world, result)
        }
    }
}

/// Compares all once more, ends all contexts, and looks whether anything is left.
fn finish(world: &mut World, end: u8) -> Answer<Outcome> {
    let thorough = world.options.every_step;
    world.check_all_contents()?;
    let contexts_first = end & 1 != 0;
    if !contexts_first {
        while let Some(at) = world.pick(end >> 3, |_| true) {
            world.drop_thing(at, end & 4 != 0)?;
        }
        if thorough {
            world.check()?;
        }
    }
    let mut places: Vec<_> = (0..world.places.len()).collect();
    if end & 2 != 0 {
        places.reverse();
    }
    world.outcome.contexts = places.len() as u64;
    world.free_raws_for_good()?;
    if !thorough && end & 24 != 0 && world.leave_spare() {
        places.retain(|place| *place != 0);
    }
    for place in places {
        world.end(place, end & 4 == 0)?;
    }
    if thorough {
        world.check()?;
    }
    // What is left is inert, or keeps its context open. Memory of the host's is still there.
    world.check_all_contents()?;
    while let Some(last) = world.things.len().checked_sub(1) {
        world.drop_thing(last, false)?;
    }
    let left = (world.driver.alive.len(), world.raws.len());
    ensure_eq("what the model has left", left, (0, 0))?;
    // For fuzzers not each time, as it takes long: what is left behind is there the next time too.
    if thorough || end & 96 == 0 {
        world.check()?;
    }
    Ok(world.outcome)
}

impl World {
    fn step(&mut self, action: Action) -> Answer {
        match action {
            Action::Read { thing } => match self.pick(thing, |_| true) {
                Some(at) => self.check_contents(&self.things[at]),
                None => Ok(()),
            },
            Action::Write { thing, seed } => self.write(thing, seed),
            Action::Make(make) => self.make(make),
            Action::Drop { thing } => self.go(thing, false),
            Action::DropInHostFunction { thing, stream } => {
                self.drop_in_host_function(thing, stream)
            }
            Action::Close { thing } => self.go(thing, true),
            Action::Forget { thing } => {
                self.forget(thing);
                Ok(())
            }
            Action::Rename { thing, label } => {
                self.rename(thing, label);
                Ok(())
            }
            Action::Synchronize { stream } => self.synchronize(stream),
            Action::Scope {
                stream,
                to,
                from,
                host,
                work,
                end,
            } => self.scope([stream, to, from, host], work, end),
            Action::Record { event, stream } => {
                self.with_event(event, stream, |event, stream| event.record(stream))
            }
            Action::WaitFor { stream, event } => {
                self.with_event(event, stream, |event, stream| stream.wait_for(event))
            }
            Action::OrderAfter { stream, other } => self.order_after(stream, other),
            Action::UsedOn { thing, stream } => self.record_stream(thing, stream),
            Action::IntoRaw { thing } => self.into_raw(thing),
            Action::FromRaw { raw, place } => self.from_raw(raw, place),
            Action::FreeRaw { raw } => self.free_raw(raw),
            Action::Panic { first, count } => self.make_and_panic(first, count),
            Action::TooLarge { what, context } => self.ask_for_too_much(what, context),
            Action::WrongLength { thing } => self.wrong_length(thing),
            Action::Kernel { thing } => self.kernel(thing),
            Action::Level { context, level } => {
                self.set_level(context, level);
                Ok(())
            }
            Action::Open {
                own,
                level: byte,
                free_leaks,
            } => {
                let open = self.places.iter().filter(|place| place.context.is_some());
                if open.count() >= MOST_CONTEXTS || self.spares_contexts() {
                    return Ok(());
                }
                let level = level(byte, &self.options);
                self.open(own, level, free_leaks)
            }
            Action::End { context, close } => match self.pick_context(context) {
                Some(place) if !self.spares_contexts() => self.end(place, close),
                _ => Ok(()),
            },
        }
    }

    fn write(&mut self, number: u8, seed: u8) -> Answer {
        let Some(at) = self.pick(number, |thing| thing.kind.is_memory()) else {
            return Ok(());
        };
        let len = self.things[at].contents.len();
        let words = matches!(self.things[at].guard, Guard::Words(_) | Guard::One(_));
        let word_seed = u32::from(seed) << 7;
        let bytes = if words {
            word_pattern(word_seed, len)
        } else {
            pattern(seed, len)
        };
        let place = self.things[at].context;
        let thing = &mut self.things[at];
        let context = self.places[place].context.as_ref();
        let on_host = matches!(thing.guard, Guard::Pinned(_) | Guard::Registered(_));
        let open = context.is_some() || self.places[place].kept_open;
        let expected = if open || on_host {
            Expected::Success
        } else {
            Expected::Closed
        };
        if let Some(result) = thing.guard.write(context, &bytes)
            && expect("write", result, expected)?.is_some()
        {
            thing.contents = bytes;
            thing.seed = words.then_some(word_seed);
        }
        let thing = &self.things[at];
        self.check_contents(thing)
    }

    fn go(&mut self, number: u8, close: bool) -> Answer {
        match self.pick(number, |_| true) {
            Some(at) => self.drop_thing(at, close),
            None => Ok(()),
        }
    }

    /// The guard is kept where nothing uses it any more: for the crate that is as good as
    /// `mem::forget`, and the host's memory does not run out over millions of programs. It is dropped
    /// at the end.
    fn forget(&mut self, number: u8) {
        if let Some(at) = self.pick(number, |_| true) {
            self.things[at].forgotten = true;
            self.outcome.forgotten += 1;
        }
    }

    fn rename(&mut self, number: u8, label: u8) {
        let Some(at) = self.pick(number, |_| true) else {
            return;
        };
        let name = name_label(label);
        let mut thing = self.things.remove(at);
        thing.guard = thing.guard.named(name);
        self.renamed(thing.context, thing.key, name);
        self.things.insert(at, thing);
    }

    fn synchronize(&mut self, number: u8) -> Answer {
        let Some(at) = self.pick_stream(number) else {
            return match self.pick_context(number).map(|at| &self.places[at].context) {
                Some(Some(context)) => Ok(context.synchronize()?),
                _ => Ok(()),
            };
        };
        let thing = &self.things[at];
        let Guard::Stream(stream) = &thing.guard else {
            unreachable!("picked as a stream");
        };
        let expected = self.expected(thing);
        expect("synchronize", stream.synchronize(), expected)?;
        if let Some(idle) = expect("is_idle", stream.is_idle(), expected)? {
            ensure_eq("a stream that was waited for is idle", idle, true)?;
        }
        Ok(())
    }

    fn expected(&self, thing: &Thing) -> Expected {
        if self.is_open(thing.context) {
            Expected::Success
        } else {
            Expected::Closed
        }
    }

    fn with_event(
        &mut self,
        event: u8,
        stream: u8,
        work: impl FnOnce(&Event, &Stream) -> cuguard::Result<()>,
    ) -> Answer {
        let event = self.pick(event, |thing| thing.kind == Kind::Event);
        let (Some(event), Some(stream)) = (event, self.pick_stream(stream)) else {
            return Ok(());
        };
        let (event, stream) = (&self.things[event], &self.things[stream]);
        let expected = if event.context == stream.context {
            self.expected(event)
        } else {
            Expected::WrongContext
        };
        let (Guard::Event(mark), Guard::Stream(on)) = (&event.guard, &stream.guard) else {
            unreachable!("picked as such");
        };
        if expect("event and stream", work(mark, on), expected)?.is_some() {
            mark.synchronize()?;
            ensure_eq("an event that was waited for", mark.is_complete()?, true)?;
        }
        Ok(())
    }

    fn order_after(&mut self, stream: u8, other: u8) -> Answer {
        let (Some(one), Some(other)) = (self.pick_stream(stream), self.pick_stream(other)) else {
            return Ok(());
        };
        let (one, other) = (&self.things[one], &self.things[other]);
        let expected = if one.context == other.context {
            self.expected(one)
        } else {
            Expected::WrongContext
        };
        let (Guard::Stream(first), Guard::Stream(second)) = (&one.guard, &other.guard) else {
            unreachable!("picked as streams");
        };
        expect("order_after", first.order_after(second), expected).map(drop)
    }

    fn record_stream(&mut self, number: u8, stream: u8) -> Answer {
        let memory = self.pick(number, |thing| matches!(thing.guard, Guard::Bytes(_)));
        let (Some(memory), Some(stream)) = (memory, self.pick_stream(stream)) else {
            return Ok(());
        };
        let (memory, stream) = (&self.things[memory], &self.things[stream]);
        let expected = if memory.context == stream.context {
            self.expected(memory)
        } else {
            Expected::WrongContext
        };
        let (Guard::Bytes(buffer), Guard::Stream(on)) = (&memory.guard, &stream.guard) else {
            unreachable!("picked as such");
        };
        expect("record_stream", buffer.record_stream(on), expected).map(drop)
    }

    fn wrong_length(&mut self, number: u8) -> Answer {
        let fits = |thing: &Thing| matches!(thing.guard, Guard::Bytes(_) | Guard::Words(_));
        let Some(at) = self.pick(number, fits) else {
            return Ok(());
        };
        let too_long = vec![0xEE; self.things[at].contents.len() + 4];
        if let Some(result) = self.things[at].guard.write(None, &too_long) {
            expect("a copy that does not fit", result, Expected::WrongLength)?;
        }
        self.check_contents(&self.things[at])
    }

    fn set_level(&mut self, number: u8, byte: u8) {
        let Some(place) = self.pick_context(number) else {
            return;
        };
        let level = level(byte, &self.options);
        if let Some(context) = &self.places[place].context {
            context.set_level(level);
            self.places[place].registry.level = level;
        }
    }
}
