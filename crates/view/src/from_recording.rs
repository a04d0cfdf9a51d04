//! A run out of a recording: events become allocations with a begin and an end, stack traces become names.

use std::collections::HashMap;

use cuguard_recording::{Diagnosis, End, Event, Found, Recording, What};

use crate::alive::{Alive, Key};
use crate::call_sites::{CallSites, MOST_BYTES};
use crate::resolver::Resolver;
use crate::run::{Allocation, FOREVER, Fate, Mark, MarkKind, Origin, RecordedKind, Run};

/// Kinds that belong to the device or to the process and outlive the context that they were created in.
const OUTLIVE_CONTEXTS: [&str; 9] = [
    "stream_ordered",
    "memory_pool",
    "physical",
    "mapped",
    "imported",
    "address_range",
    "graph",
    "graph_exec",
    "library",
];

impl Run {
    /// Pairs allocations with their frees, and resolves stack traces. Never fails: what does not fit together is listed in
    /// [`Run::problems`].
    ///
    /// - A free without an allocation is left out: its size is unknown.
    /// - An allocation before [`Recording::complete_from`] whose end is not recorded is left out: it may have been freed.
    /// - An allocation at an address that is in use ends the older one, if that is not left out: its free was not recorded.
    /// - What a context had ends with it, but for kinds that belong to the device or the process. It was not freed:
    ///   [`Allocation::leaked`].
    /// - A free that failed, after which the resource is live again, is recorded as a new allocation, and shown so.
    ///
    /// ```
    /// use cuguard_recording::{Event, RecordedKind, Recording, Stack, What};
    /// use cuguard_view::{FOREVER, Offsets, Run};
    ///
    /// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
    /// let allocated = What::Allocated { kind: 0, address: 0x7000, bytes: 512, stack: 0, stream: 0, context: 1, label: 0 };
    /// let recording = Recording {
    ///     kinds: vec![device],
    ///     stacks: vec![Stack::default()],
    ///     names: vec![String::new()],
    ///     events: vec![Event { time: 5, thread: 0, what: allocated }],
    ///     ..Recording::default()
    /// };
    /// let run = Run::from_recording(recording, &mut Offsets::default());
    /// assert_eq!((run.allocations[0].bytes, run.allocations[0].end), (512, FOREVER));
    /// ```
    #[must_use]
    pub fn from_recording(recording: Recording, resolver: &mut dyn Resolver) -> Self {
        let found = CallSites::new(&recording.stacks, resolver, MOST_BYTES);
        let mut events = recording.events;
        if !events.is_sorted_by_key(|event| event.time) {
            events.sort_by_key(|event| event.time);
        }
        let last = events.last().map_or(0, |event| event.time);
        let (end, exited) = match recording.end {
            End::Exit { time } => (time.max(last), true),
            End::Open => (last, false),
        };
        let mut run = Self {
            command: recording.meta.command,
            pid: recording.meta.pid,
            host: recording.meta.host,
            rank: recording.meta.rank,
            origin: match recording.begin {
                0 => Origin::Recording,
                _ => Origin::Program,
            },
            started: recording.meta.started,
            begin: recording.begin,
            end,
            exit_begins: recording.exit_begins,
            work: recording.work,
            exited,
            kinds: recording.kinds,
            sites: found.sites,
            names: recording.names,
            problems: recording.problems,
            sample: recording.sample,
            ..Self::default()
        };
        if run.names.is_empty() {
            run.names.push(String::new());
        }
        if found.left_out != 0 {
            run.problems.push(format!(
                "{} shown without frames: all call sites together have more than {}",
                count(found.left_out, "stack trace is", "stack traces are"),
                cuguard_report::ByteSize(MOST_BYTES as u64),
            ));
        }
        let mut pairing = Pairing::new(run, found.numbers);
        pairing.complete_from = recording.complete_from;
        pairing.diagnoses = recording
            .diagnoses
            .into_iter()
            .map(|Diagnosis { time, thread, text }| ((time, thread), text))
            .collect();
        pairing.reserve(&events);
        for event in &events {
            pairing.event(event);
        }
        pairing.failures_without_event();
        for found in &recording.found {
            pairing.found(found);
        }
        pairing.finish()
    }
}

impl Allocation {
    fn end_unfreed(&mut self, time: u64) {
        (self.end, self.leaked) = (time, true);
    }
}

fn count(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The state while events are paired.
struct Pairing {
    run: Run,
    /// From the number of a stack to that of its call site.
    numbers: Vec<u32>,
    /// By kind.
    outlives: Vec<bool>,
    alive: Alive,
    /// Before this time, events may be missing.
    complete_from: u64,
    /// Why allocations failed, by time and thread.
    diagnoses: HashMap<(u64, u32), String>,
    unmatched_frees: u64,
    reused: u64,
    unknown_references: u64,
    too_many: u64,
}

impl Pairing {
    fn new(run: Run, numbers: Vec<u32>) -> Self {
        let outlives = |kind: &RecordedKind| OUTLIVE_CONTEXTS.contains(&kind.name.as_str());
        Self {
            outlives: run.kinds.iter().map(outlives).collect(),
            run,
            numbers,
            alive: Alive::default(),
            complete_from: 0,
            diagnoses: HashMap::new(),
            unmatched_frees: 0,
            reused: 0,
            unknown_references: 0,
            too_many: 0,
        }
    }

    /// Growing a vector of ten million allocations would need its size twice.
    fn reserve(&mut self, events: &[Event]) {
        let is_allocation = |event: &&Event| matches!(event.what, What::Allocated { .. });
        let allocations = events.iter().filter(is_allocation).count();
        self.run.allocations.reserve_exact(allocations);
    }

    fn event(&mut self, event: &Event) {
        let time = event.time;
        match event.what {
            What::Allocated {
                kind,
                address,
                bytes,
                stack,
                stream,
                context,
                label,
            } => {
                let Ok(index) = u32::try_from(self.run.allocations.len()) else {
                    self.too_many += 1;
                    return;
                };
                let allocation = Allocation {
                    start: time,
                    end: FOREVER,
                    address,
                    bytes,
                    stream,
                    site: self.site(stack),
                    thread: self.name(event.thread),
                    label: self.name(label),
                    context,
                    kind: self.kind(kind),
                    leaked: false,
                    fate: Fate::Unknown,
                };
                let key = (allocation.kind, address);
                let outlives = self.outlives[usize::from(key.0)];
                if let Some(older) = self.alive.insert(context, outlives, key, index) {
                    let older = &mut self.run.allocations[older as usize];
                    // Of one from before, the free may be missing: it is left out at the end.
                    if older.start >= self.complete_from {
                        older.end = time;
                        self.reused += 1;
                    }
                }
                self.run.allocations.push(allocation);
            }
            What::Freed {
                kind,
                address,
                context,
            } => {
                let key = (self.kind(kind), address);
                match self.remove(context, key) {
                    Some(index) => self.run.allocations[index as usize].end = time,
                    None => self.unmatched_frees += 1,
                }
            }
            What::Reclaimed {
                kind,
                address,
                context,
            } => {
                let key = (self.kind(kind), address);
                match self.remove(context, key) {
                    Some(index) => self.run.allocations[index as usize].end_unfreed(time),
                    None => self.unmatched_frees += 1,
                }
            }
            What::ContextCreated { context, device } => {
                self.mark(time, MarkKind::ContextCreated { context, device });
            }
            What::ContextEnded { context } => {
                self.end_context(context, time);
                self.mark(time, MarkKind::ContextEnded { context });
            }
            What::OutOfMemory { bytes, stack, .. } => {
                let site = self.site(stack);
                let thread = self.name(event.thread);
                let diagnosis = self.diagnoses.remove(&(time, event.thread));
                self.mark(
                    time,
                    MarkKind::OutOfMemory {
                        bytes,
                        site,
                        thread,
                        diagnosis: diagnosis.unwrap_or_default(),
                    },
                );
            }
        }
    }

    /// The size limit drops events and no diagnoses.
    fn failures_without_event(&mut self) {
        for ((time, thread), diagnosis) in std::mem::take(&mut self.diagnoses) {
            let thread = self.name(thread);
            let kind = MarkKind::OutOfMemory {
                bytes: 0,
                site: 0,
                thread,
                diagnosis,
            };
            self.mark(time, kind);
        }
        self.run.marks.sort_by_key(|mark| mark.time);
        let last = self.run.marks.last().map_or(0, |mark| mark.time);
        self.run.end = self.run.end.max(last);
    }

    /// What a search at the end found of what is alive.
    fn found(&mut self, found: &Found) {
        let key = (self.kind(found.kind), found.address);
        if let Some(index) = self.remove(found.context, key) {
            self.run.allocations[index as usize].fate = match found.lost {
                true => Fate::Lost,
                false => Fate::Reachable,
            };
        }
    }

    fn mark(&mut self, time: u64, kind: MarkKind) {
        self.run.marks.push(Mark { time, kind });
    }

    fn remove(&mut self, context: u32, key: Key) -> Option<u32> {
        let outlives = self.outlives[usize::from(key.0)];
        self.alive.remove(context, outlives, key)
    }

    fn end_context(&mut self, context: u32, time: u64) {
        // 0 is what has no context.
        if context == 0 {
            return;
        }
        for index in self.alive.end_context(context) {
            let allocation = &mut self.run.allocations[index as usize];
            // Of an older one the free may be missing: it is left out at the end.
            if allocation.start >= self.complete_from {
                allocation.end_unfreed(time);
            }
        }
    }

    fn site(&mut self, stack: u32) -> u32 {
        let site = self.numbers.get(stack as usize).copied();
        self.unknown_references += u64::from(site.is_none() && stack != 0);
        site.unwrap_or(0)
    }

    fn name(&mut self, name: u32) -> u32 {
        let is_known = (name as usize) < self.run.names.len();
        self.unknown_references += u64::from(!is_known);
        if is_known { name } else { 0 }
    }

    /// A kind that the recording does not define is added, without memory.
    fn kind(&mut self, kind: u8) -> u8 {
        while self.run.kinds.len() <= usize::from(kind) {
            let name = format!("unknown_{}", self.run.kinds.len());
            self.run.kinds.push(RecordedKind {
                name,
                ..RecordedKind::default()
            });
            self.outlives.push(false);
            self.unknown_references += 1;
        }
        kind
    }

    /// Leaves out what may have been freed.
    fn leave_unknown_out(&mut self) {
        let allocations = &mut self.run.allocations;
        let before = allocations.len();
        let from = self.complete_from;
        // What a search found at the end was not freed.
        allocations.retain(|allocation| {
            let is_known = allocation.end != FOREVER || allocation.fate != Fate::Unknown;
            is_known || allocation.start >= from
        });
        let unknown = (before - allocations.len()) as u64;
        if unknown != 0 {
            let what = count(unknown, "allocation is", "allocations are");
            let seconds = from as f64 / 1e9;
            let why = "the free may be among the events that the size limit dropped";
            let problem = format!("{what} left out, from before {seconds:.3} s: {why}");
            self.run.problems.push(problem);
        }
    }

    fn finish(mut self) -> Run {
        self.leave_unknown_out();
        for (number, one, many) in [
            (
                self.unmatched_frees,
                "free has no allocation: it was allocated before the recording began, or its event is lost",
                "frees have no allocation: they were allocated before the recording began, or their events are lost",
            ),
            (
                self.reused,
                "address was allocated again without a free",
                "addresses were allocated again without a free",
            ),
            (
                self.unknown_references,
                "event refers to a stack, name or kind that is not in the recording",
                "events refer to stacks, names or kinds that are not in the recording",
            ),
            (
                self.too_many,
                "allocation is left out: there are more than 4294967295",
                "allocations are left out: there are more than 4294967295",
            ),
        ] {
            if number != 0 {
                self.run.problems.push(count(number, one, many));
            }
        }
        self.run
    }
}
