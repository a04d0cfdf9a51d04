//! The state of a running program: its contexts, its resources, and the model of both.

use std::sync::Arc;

use cuguard::driver::DriverKind;
use cuguard::report::ReportSettings;
use cuguard::{Context, ResourceKind, TrackingLevel};

use crate::guard::Guard;
use crate::mismatch::{Check, Expected, Stop, ensure, ensure_eq, expect};
use crate::mode::Mode;
use crate::model::{Driver, DriverContext, Key, Record, Registry, outlives_contexts};
use crate::outcome::Outcome;
use crate::report;
use crate::resource::Resource;

/// Labels of scopes and resources. Few: the crate interns each for the life of the process.
const LABELS: [&str; 5] = ["", "weights", "a/b", "λ \"quoted\"\n", "step"];

/// A context, open or ended.
#[derive(Debug)]
pub struct ContextSlot {
    pub context: Option<Context>,
    /// Whether the context was dropped, and guards keep it open.
    pub kept_open: bool,
    pub driver_context: DriverContext,
    pub free_leaks: bool,
    pub registry: Registry,
    pub report: Option<report::File>,
}

/// Memory that was released with `into_raw`.
#[derive(Debug)]
pub struct Raw {
    pub key: Key,
    pub driver_context: DriverContext,
    pub words: bool,
    pub contents: Vec<u8>,
    pub seed: Option<u32>,
}

/// Streams and pools live as long as their guard and the memory allocated from them.
pub fn is_shared(kind: ResourceKind) -> bool {
    matches!(kind, ResourceKind::Stream | ResourceKind::MemoryPool)
}

/// A stream or a pool of the driver.
#[derive(Debug)]
pub struct SharedHandle {
    pub id: u64,
    pub slot: usize,
    pub key: Key,
}

#[derive(Debug)]
pub struct World {
    pub mode: Mode,
    pub simulated: bool,
    /// The simulated driver's counters before the program.
    pub before: Arc<cuguard::sim::Counters>,
    pub slots: Vec<ContextSlot>,
    pub resources: Vec<Resource>,
    pub raws: Vec<Raw>,
    pub shared: Vec<SharedHandle>,
    pub driver: Driver,
    pub outcome: Outcome,
    last_id: u64,
}

pub fn level(byte: u8, mode: Mode) -> TrackingLevel {
    match byte % 8 {
        0 => TrackingLevel::Counts,
        1 if mode == Mode::Thorough => TrackingLevel::Stacks,
        _ => TrackingLevel::Sites,
    }
}

/// The label scope of a number.
pub fn scope_label(label: u8) -> &'static str {
    LABELS[usize::from(label & 15) % LABELS.len()]
}

/// The resource's own label of a number.
pub fn name_label(label: u8) -> &'static str {
    LABELS[usize::from(label >> 4) % LABELS.len()]
}

/// Picks one of the items by a number modulo their count.
pub fn pick_from<T>(number: u8, mut items: impl Iterator<Item = T> + Clone) -> Check<T> {
    let at = usize::from(number).checked_rem(items.clone().count());
    let item = at.and_then(|at| items.nth(at));
    item.ok_or(Stop::NothingFits)
}

impl World {
    pub fn new(mode: Mode, before: Arc<cuguard::sim::Counters>) -> Check<Self> {
        let driver = cuguard::driver::load().map_err(cuguard::Error::from)?;
        Ok(Self {
            mode,
            simulated: driver.kind() == DriverKind::Simulated,
            before,
            slots: Vec::new(),
            resources: Vec::new(),
            raws: Vec::new(),
            shared: Vec::new(),
            driver: Driver::default(),
            outcome: Outcome::default(),
            last_id: 0,
        })
    }

    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The index of an open context.
    pub fn pick_context(&self, number: u8) -> Check<usize> {
        let open = |slot: &usize| self.slots[*slot].context.is_some();
        pick_from(number, (0..self.slots.len()).filter(open))
    }

    /// The index of a resource.
    pub fn pick(&self, number: u8, fits: impl Fn(&Resource) -> bool) -> Check<usize> {
        let fits = |at: &usize| !self.resources[*at].forgotten && fits(&self.resources[*at]);
        pick_from(number, (0..self.resources.len()).filter(&fits))
    }

    pub fn pick_stream(&self, number: u8) -> Check<usize> {
        self.pick(number, |resource| resource.kind == ResourceKind::Stream)
    }

    /// The index of a stream or a pool of an open context.
    pub fn pick_open(&self, number: u8, kind: ResourceKind) -> Check<usize> {
        self.pick(number, |one| one.kind == kind && self.is_open(one.slot))
    }

    /// On a real GPU a context takes a third of a second, so most steps that create or end one do
    /// nothing.
    pub fn spares_contexts(&self) -> bool {
        !self.simulated && !self.outcome.steps.is_multiple_of(16)
    }

    pub fn context_of(&self, resource: &Resource) -> Option<&Context> {
        self.slots[resource.slot].context.as_ref()
    }

    pub fn open_contexts(&self) -> impl Iterator<Item = (&Context, &Registry)> {
        let slots = self.slots.iter();
        slots.filter_map(|slot| Some((slot.context.as_ref()?, &slot.registry)))
    }

    pub fn is_open(&self, slot: usize) -> bool {
        self.slots[slot].context.is_some() || self.slots[slot].kept_open
    }

    /// What an access to a resource returns.
    pub fn expected(&self, resource: &Resource) -> Expected {
        if resource.guard.is_on_host() || self.is_open(resource.slot) {
            Expected::Success
        } else {
            Expected::Closed
        }
    }

    /// What an operation on two resources returns.
    pub fn expected_of(&self, one: &Resource, other: &Resource) -> Expected {
        if one.slot == other.slot {
            self.expected(one)
        } else {
            Expected::WrongContext
        }
    }

    pub fn open(&mut self, own: bool, level: TrackingLevel, free_leaks: bool) -> Check {
        let report = (self.mode == Mode::Thorough).then(report::File::new);
        let settings = match &report {
            Some(file) => file.settings()?,
            None => ReportSettings::silent(),
        };
        let builder = Context::builder()
            .level(level)
            .free_leaks(free_leaks)
            .report(settings);
        let builder = if own { builder.dedicated() } else { builder };
        let context = builder.build()?;
        let driver_context = if own {
            self.driver.own_contexts += 1;
            DriverContext::Own(self.slots.len())
        } else {
            self.driver.primary_holders += 1;
            DriverContext::Primary
        };
        self.slots.push(ContextSlot {
            context: Some(context),
            kept_open: false,
            driver_context,
            free_leaks,
            registry: Registry::new(level),
            report,
        });
        Ok(())
    }

    /// Whether closing the context would leak the resource for good: `close` does not free it, as it has
    /// no record or `free_leaks` is off, and it outlives the driver's context.
    pub fn would_leak(&self, resource: &Resource, slot: usize) -> bool {
        let Some(key) = resource.key else {
            return false;
        };
        let at = &self.slots[slot];
        let lost = |key: Key| !(at.free_leaks && at.registry.records.contains_key(&key));
        // Memory may be the last to hold its pool.
        let pool = self
            .shared
            .iter()
            .find(|pool| Some(pool.id) == resource.pool);
        resource.slot == slot
            && outlives_contexts(resource.kind)
            && (lost(key) || pool.is_some_and(|pool| lost(pool.key)))
    }

    /// Closes a context, after dropping what would leak for good; or drops it, and then it is open until
    /// its last guard is dropped.
    pub fn end(&mut self, slot: usize, close: bool) -> Check {
        while close
            && let Some(i) = self
                .resources
                .iter()
                .position(|one| self.would_leak(one, slot))
        {
            self.drop_resource(i, false)?;
        }
        let Some(context) = self.slots[slot].context.take() else {
            return Ok(());
        };
        self.slots[slot].registry.check(&context)?;
        if close {
            context.close()?;
            return self.ended(slot);
        }
        drop(context);
        self.slots[slot].kept_open = true;
        self.end_unused(slot)
    }

    /// A dropped context is torn down with its last guard.
    pub fn end_unused(&mut self, slot: usize) -> Check {
        let mut resources = self.resources.iter();
        if self.slots[slot].kept_open && !resources.any(|resource| resource.slot == slot) {
            return self.ended(slot);
        }
        Ok(())
    }

    /// Updates the model after a context was torn down.
    pub fn ended(&mut self, slot: usize) -> Check {
        let at = &mut self.slots[slot];
        at.kept_open = false;
        if let Some(report) = at.report.take() {
            report.check(&at.registry)?;
        }
        let driver_context = at.driver_context;
        let at = &self.slots[slot];
        let records = &at.registry.records;
        let freed =
            |key: &Key| at.free_leaks && records.get(key).is_some_and(|record| !record.escaped);
        self.driver.alive.retain(|key, _| !freed(key));
        for resource in self.resources.iter_mut().filter(|one| one.slot == slot) {
            let freed = resource.key.is_none_or(|key| freed(&key));
            resource.kept_by_driver = driver_context == DriverContext::Primary && !freed;
        }
        let destroyed = match driver_context {
            DriverContext::Own(_) => {
                self.driver.own_contexts -= 1;
                true
            }
            DriverContext::Primary => {
                self.driver.primary_holders -= 1;
                self.driver.primary_holders == 0
            }
        };
        if destroyed {
            self.driver.end(driver_context);
            let slots = &self.slots;
            let ended = |one: &&mut Resource| slots[one.slot].driver_context == driver_context;
            for resource in self.resources.iter_mut().filter(ended) {
                resource.kept_by_driver = false;
            }
            self.raws
                .retain(|raw| raw.driver_context != driver_context || outlives_contexts(raw.key.0));
        }
        // Their guards are inert.
        self.shared.retain(|handle| handle.slot != slot);
        Ok(())
    }

    /// Adds a new resource to the model.
    pub fn created(&mut self, slot: usize, key: Key, record: Record) {
        self.outcome.allocations += 1;
        self.outcome.bytes += record.bytes;
        let at = &mut self.slots[slot];
        self.driver
            .alive
            .insert(key, (record.bytes, at.driver_context));
        at.registry.insert(key, record);
    }

    /// Removes what was freed from the model, if its context is open.
    pub fn freed(&mut self, slot: usize, key: Key) {
        if self.is_open(slot) {
            self.slots[slot].registry.remove(key);
            self.driver.alive.remove(&key);
        }
    }

    /// Updates the model after a guard was dropped or closed.
    pub fn dropped(&mut self, slot: usize, key: Option<Key>) -> Check {
        if let Some(key) = key
            && !is_shared(key.0)
        {
            self.freed(slot, key);
        }
        self.drop_unused_shared();
        self.end_unused(slot)
    }

    /// Streams and pools are destroyed when nothing holds them.
    pub fn drop_unused_shared(&mut self) {
        let resources = &self.resources;
        let held = |id: u64| resources.iter().any(|one| one.id == id || one.holds(id));
        let unused: Vec<_> = self
            .shared
            .extract_if(.., |handle| !held(handle.id))
            .collect();
        for handle in unused {
            self.freed(handle.slot, handle.key);
        }
    }

    pub fn drop_resource(&mut self, index: usize, close: bool) -> Check {
        let resource = self.resources.remove(index);
        let (slot, key) = (resource.slot, resource.key);
        if close {
            let held = || self.resources.iter().any(|other| other.holds(resource.id));
            let expected = match &resource.guard {
                // The vector comes back even after its context was closed.
                Guard::Registered(_) if !resource.kept_by_driver => Expected::Success,
                _ if self.is_open(slot) || key.is_none() || held() => Expected::Success,
                _ => Expected::Closed,
            };
            expect("close", resource.guard.close(), expected)?;
        } else {
            drop(resource.guard);
        }
        self.dropped(slot, key)
    }

    /// Compares the contents of a resource with the model's.
    pub fn check_contents(&self, resource: &Resource) -> Check {
        let Some(result) = resource.guard.read(self.context_of(resource)) else {
            return Ok(());
        };
        if let Some(bytes) = expect("read", result, self.expected(resource))? {
            ensure(bytes == resource.contents, || {
                let mut pairs = bytes.iter().zip(&resource.contents);
                let at = pairs.position(|(one, other)| one != other);
                let (kind, len) = (resource.kind, resource.contents.len());
                format!("the contents of {kind:?} differ from byte {at:?} of {len} on")
            })?;
        }
        Ok(())
    }

    /// Compares everything but contents.
    pub fn check(&self) -> Check {
        let mut contexts = self.open_contexts();
        contexts.try_for_each(|(context, registry)| registry.check(context))?;
        match self.simulated {
            true => self.driver.check(&self.before),
            false => Ok(()),
        }
    }

    /// Compares the live totals.
    pub fn check_figures(&self) -> Check {
        let mut contexts = self.open_contexts();
        contexts.try_for_each(|(context, registry)| registry.check_figures(context))
    }

    pub fn check_all_contents(&self) -> Check {
        let mut resources = self.resources.iter();
        resources.try_for_each(|resource| self.check_contents(resource))?;
        let lost = self.resources.iter().filter(|resource| {
            let known = |id| self.shared.iter().any(|handle| handle.id == id);
            self.is_open(resource.slot) && resource.stream.is_some_and(|id| !known(id))
        });
        ensure_eq("resources whose stream the model lost", lost.count(), 0)
    }
}
