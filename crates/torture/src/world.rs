//! The world that a program lives in: its contexts, its guards, and the model of both.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use cuguard::driver::DriverKind;
use cuguard::report::ReportSettings;
use cuguard::{Context, Kind, Level};

use crate::guard::{Guard, Thing};
use crate::model::{Driver, Home, Key, Record, Registry, outlives_contexts};
use crate::options::Options;
use crate::report;
use crate::run::Outcome;
use crate::wrong::{Answer, Expected, ensure, ensure_eq, expect};

/// Names of label scopes and of things. Few: each is kept for ever.
pub const LABELS: [&str; 5] = ["", "weights", "a/b", "λ \"quoted\"\n", "step"];

/// A context, or what is left of it.
#[derive(Debug)]
pub struct CallSite {
    pub context: Option<Context>,
    /// The context was dropped, and guards keep it open.
    pub kept_open: bool,
    pub home: Home,
    pub free_leaks: bool,
    pub registry: Registry,
    pub report: Option<report::File>,
}

/// Memory that was given away.
#[derive(Debug)]
pub struct Raw {
    pub key: Key,
    pub home: Home,
    pub words: bool,
    pub contents: Vec<u8>,
    pub seed: Option<u32>,
}

/// Where something was made: in a label scope, on a line, on a stream.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub label: u8,
    pub site: &'static Location<'static>,
    pub stream: u64,
}

/// Whether it lives as long as its guard and the memory that came from it.
pub fn is_shared(kind: Kind) -> bool {
    matches!(kind, Kind::Stream | Kind::MemoryPool)
}

/// A stream or a pool of the driver's, which lives as long as its guard and the memory from it.
#[derive(Debug)]
pub struct Flow {
    pub id: u64,
    pub context: usize,
    pub key: Key,
}

#[derive(Debug)]
pub struct World {
    pub options: Options,
    pub simulated: bool,
    pub before: Arc<cuguard::sim::Counters>,
    pub places: Vec<CallSite>,
    pub things: Vec<Thing>,
    pub raws: Vec<Raw>,
    pub flows: Vec<Flow>,
    pub driver: Driver,
    pub outcome: Outcome,
    last_id: u64,
}

/// The calling thread by the name that reports give it.
pub fn thread_name() -> String {
    let thread = std::thread::current();
    match thread.name() {
        Some(name) => name.to_owned(),
        None => format!("{:?}", thread.id()),
    }
}

pub fn level(byte: u8, options: &Options) -> Level {
    match byte % 8 {
        0 => Level::Counts,
        1 if options.stacks => Level::Stacks,
        _ => Level::Sites,
    }
}

impl World {
    pub fn new(options: &Options, before: Arc<cuguard::sim::Counters>) -> Answer<Self> {
        let driver = cuguard::driver::load().map_err(cuguard::Error::from)?;
        let simulated = driver.kind() == DriverKind::Simulated;
        Ok(Self {
            options: options.clone(),
            simulated,
            before,
            places: Vec::new(),
            things: Vec::new(),
            raws: Vec::new(),
            flows: Vec::new(),
            driver: Driver::default(),
            outcome: Outcome::default(),
            last_id: 0,
        })
    }

    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    // ---- Picking, by a number modulo what there is.

    pub fn pick_context(&self, number: u8) -> Option<usize> {
        let open: Vec<_> = (0..self.places.len())
            .filter(|i| self.places[*i].context.is_some())
            .collect();
        (!open.is_empty()).then(|| open[usize::from(number) % open.len()])
    }

    /// The place of a thing in the list.
    pub fn pick(&self, number: u8, fits: impl Fn(&Thing) -> bool) -> Option<usize> {
        let held = |thing: &&Thing| !thing.forgotten && fits(thing);
        let count = self.things.iter().filter(held).count();
        if count == 0 {
            return None;
        }
        let nth = usize::from(number) % count;
        let mut held = (0..self.things.len()).filter(|i| held(&&self.things[*i]));
        held.nth(nth)
    }

    pub fn pick_stream(&self, number: u8) -> Option<usize> {
        self.pick(number, |thing| thing.kind == Kind::Stream)
    }

    /// On a real GPU a context takes a third of a second, so most steps that make or end one do
    /// nothing.
    pub fn spares_contexts(&self) -> bool {
        !self.simulated && !self.outcome.steps.is_multiple_of(16)
    }

    pub fn context_of(&self, thing: &Thing) -> Option<&Context> {
        self.places[thing.context].context.as_ref()
    }

    pub fn is_open(&self, place: usize) -> bool {
        self.places[place].context.is_some() || self.places[place].kept_open
    }

    // ---- Contexts.

    pub fn open(&mut self, own: bool, level: Level, free_leaks: bool) -> Answer {
        let number = self.places.len();
        let mut builder = Context::builder().level(level).free_leaks(free_leaks);
        if own {
            builder = builder.dedicated();
        }
        let mut report = None;
        if self.options.reports {
            let file = report::File::new()?;
            builder = builder.report(file.settings()?);
            report = Some(file);
        } else {
            builder = builder.report(ReportSettings::silent());
        }
        let context = builder.build()?;
        let home = if own {
            self.driver.own_contexts += 1;
            Home::Own(number)
        } else {
            self.driver.primary_holders += 1;
            Home::Primary
        };
        self.places.push(CallSite {
            context: Some(context),
            kept_open: false,
            home,
            free_leaks,
            registry: Registry::new(level),
            report,
        });
        Ok(())
    }

    /// What a close could not free and nothing else would: it has no record, or the context was
    /// told to leave things alone, and it does not go with the driver's context either.
    pub fn would_be_lost(&self, thing: &Thing, place: usize) -> bool {
        let Some(key) = thing.key else { return false };
        let at = &self.places[place];
        let lost = |key: Key| !(at.free_leaks && at.registry.is_recorded(key));
        // Memory may be the last to hold its pool.
        let pool = self.flows.iter().find(|flow| Some(flow.id) == thing.pool);
        thing.context == place
            && outlives_contexts(thing.kind)
            && (lost(key) || pool.is_some_and(|pool| lost(pool.key)))
    }

    /// Closes a context, which first saves what would be lost for good; or drops it, and then it is
    /// open until its last guard is dropped.
    pub fn end(&mut self, place: usize, close: bool) -> Answer {
        while close
            && let Some(i) =
                (0..self.things.len()).find(|i| self.would_be_lost(&self.things[*i], place))
        {
            self.drop_thing(i, false)?;
        }
        let Some(context) = self.places[place].context.take() else {
            return Ok(());
        };
        self.places[place].registry.check(&context)?;
        if close {
            context.close()?;
            return self.ended(place);
        }
        drop(context);
        self.places[place].kept_open = true;
        self.settle_place(place)
    }

    /// A context that was dropped is torn down with its last guard.
    pub fn settle_place(&mut self, place: usize) -> Answer {
        let guards = || self.things.iter().any(|thing| thing.context == place);
        if self.places[place].kept_open && !guards() {
            return self.ended(place);
        }
        Ok(())
    }

    /// A context was torn down: what the model makes of it.
    pub fn ended(&mut self, place: usize) -> Answer {
        let at = &mut self.places[place];
        at.kept_open = false;
        if let Some(report) = at.report.take() {
            report.check(&at.registry)?;
        }
        let (home, free_leaks) = (at.home, at.free_leaks);
        let freed = |key: Key, at: &CallSite| {
            free_leaks && at.registry.records.get(&key).is_some_and(|r| !r.escaped)
        };
        for key in at.registry.records.keys() {
            if freed(*key, at) {
                self.driver.alive.remove(key);
            }
        }
        let at = &self.places[place];
        for thing in self.things.iter_mut().filter(|t| t.context == place) {
            let let_go = thing.key.is_none_or(|key| freed(key, at));
            thing.kept_by_driver = home == Home::Primary && !let_go;
        }
        let gone = match home {
            Home::Own(_) => {
                self.driver.own_contexts -= 1;
                true
            }
            Home::Primary => {
                self.driver.primary_holders -= 1;
                self.driver.primary_holders == 0
            }
        };
        if gone {
            self.driver.end(home);
            self.raws
                .retain(|raw| raw.home != home || outlives_contexts(raw.key.0));
        }
        // Their guards are inert, and the streams with them.
        self.flows.retain(|flow| flow.context != place);
        Ok(())
    }

    // ---- Things.

    /// Enters what was just made into the model.
    pub fn entered(
        &mut self,
        place: usize,
        key: Key,
        bytes: usize,
        type_name: &'static str,
        source: Source,
    ) {
        let record = Record {
            bytes: bytes as u64,
            escaped: false,
            type_name,
            scope: Some(scope_label(source.label)).filter(|label| !label.is_empty()),
            name: None,
            site: Some(source.site),
            thread: Some(thread_name()),
            stream: source.stream,
        };
        let at = &mut self.places[place];
        at.registry.insert(key, record);
        self.driver.alive.insert(key, (bytes as u64, at.home));
        self.outcome.allocations += 1;
        self.outcome.bytes += bytes as u64;
    }

    /// A thing is gone, by a drop or a close: what the model makes of it.
    pub fn left(&mut self, context: usize, key: Option<Key>) -> Answer {
        if let Some(key) = key
            && self.is_open(context)
            && !is_shared(key.0)
        {
            self.places[context].registry.remove(key);
            self.driver.alive.remove(&key);
        }
        self.settle_flows();
        self.settle_place(context)
    }

    /// Streams and pools go when nobody holds them any more.
    pub fn settle_flows(&mut self) {
        let things = &self.things;
        let held = |flow: &Flow| {
            let id = Some(flow.id);
            things
                .iter()
                .any(|thing| thing.id == flow.id || thing.home == id || thing.pool == id)
        };
        let gone: Vec<_> = self.flows.extract_if(.., |flow| !held(flow)).collect();
        for flow in gone {
            if self.is_open(flow.context) {
                self.places[flow.context].registry.remove(flow.key);
                self.driver.alive.remove(&flow.key);
            }
        }
    }

    pub fn drop_thing(&mut self, index: usize, close: bool) -> Answer {
        let thing = self.things.remove(index);
        if !close {
            drop(thing.guard);
            return self.left(thing.context, thing.key);
        }
        let id = Some(thing.id);
        let shared = is_shared(thing.kind)
            && self
                .things
                .iter()
                .any(|other| other.home == id || other.pool == id);
        let open = self.is_open(thing.context) || thing.key.is_none() || shared;
        let expected = match &thing.guard {
            // The vector comes back also where the context has let go of it.
            Guard::Registered(_) if !thing.kept_by_driver => Expected::Success,
            _ if open => Expected::Success,
            _ => Expected::Closed,
        };
        expect("close", thing.guard.close(), expected)?;
        self.left(thing.context, thing.key)
    }

    /// Compares what a thing holds with what it should.
    pub fn check_contents(&self, thing: &Thing) -> Answer {
        let context = self.context_of(thing);
        let on_host = matches!(thing.guard, Guard::Pinned(_) | Guard::Registered(_));
        let expected = if on_host || self.is_open(thing.context) {
            Expected::Success
        } else {
            Expected::Closed
        };
        let Some(result) = thing.guard.read(context) else {
            return Ok(());
        };
        if let Some(bytes) = expect("read", result, expected)? {
            ensure(bytes == thing.contents, || {
                let at = bytes.iter().zip(&thing.contents).position(|(a, b)| a != b);
                format!(
                    "the contents of {:?} differ from byte {at:?} of {} on",
                    thing.kind,
                    thing.contents.len()
                )
            })?;
        }
        Ok(())
    }

    /// Compares everything but contents.
    pub fn check(&self) -> Answer {
        for place in &self.places {
            if let Some(context) = &place.context {
                place.registry.check(context)?;
            }
        }
        if self.simulated {
            self.driver.check(&self.before)?;
        }
        Ok(())
    }

    /// The cheapest part of it.
    pub fn check_figures(&self) -> Answer {
        for place in &self.places {
            if let Some(context) = &place.context {
                place.registry.check_figures(context)?;
            }
        }
        Ok(())
    }

    pub fn check_all_contents(&self) -> Answer {
        let mut homes: BTreeMap<u64, usize> = BTreeMap::new();
        for thing in &self.things {
            self.check_contents(thing)?;
            *homes.entry(thing.home.unwrap_or(0)).or_default() += 1;
        }
        homes.remove(&0);
        let known = |id: &u64| self.flows.iter().any(|flow| flow.id == *id);
        let lost = homes.keys().filter(|id| !known(id));
        let closed = lost.filter(|id| {
            let home = self.things.iter().find(|t| t.home == Some(**id));
            home.is_some_and(|thing| self.is_open(thing.context))
        });
        ensure_eq("streams that the model lost", closed.count(), 0)
    }
}

/// The label scope of a number, and the name.
pub fn scope_label(label: u8) -> &'static str {
    LABELS[usize::from(label & 15) % LABELS.len()]
}

pub fn name_label(label: u8) -> &'static str {
    LABELS[usize::from(label >> 4) % LABELS.len()]
}
