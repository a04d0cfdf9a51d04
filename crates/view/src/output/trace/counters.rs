//! Counter tracks: live bytes by device, by kind and by function.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use super::events::{Event, Process, tid};
use crate::by::By;
use crate::keys::Keys;
use crate::look::Frames;
use crate::run::{Allocation, MarkKind, Run};
use crate::sweep::Sweep;
use crate::timeline::{Memory, timeline};

/// How many functions have a series of their own.
const FUNCTIONS: usize = 10;

/// A counter track with several series, which add up to all memory that it is of.
struct Counter {
    name: String,
    series: Vec<String>,
    live: Vec<u64>,
    /// What the last event had.
    shown: Option<Vec<u64>>,
}

impl Counter {
    fn new(name: impl Into<String>, series: Vec<String>) -> Self {
        Self {
            name: name.into(),
            live: vec![0; series.len()],
            series,
            shown: None,
        }
    }

    fn change(&mut self, index: usize, bytes: u64, begins: bool) {
        let live = &mut self.live[index];
        *live = match begins {
            true => live.wrapping_add(bytes),
            false => live.wrapping_sub(bytes),
        };
    }

    /// Adds an event where anything has changed; at the end in any case, so that the curve reaches it.
    fn show(&mut self, process: &mut Process<'_>, time: u64, is_end: bool) {
        if self.series.is_empty() || (self.shown.as_ref() == Some(&self.live) && !is_end) {
            return;
        }
        let values = self.series.iter().zip(&self.live);
        let values: Map<String, Value> = values
            .map(|(name, live)| (name.clone(), json!(live)))
            .collect();
        let tid = tid(process.pid, 0);
        let event = Event {
            phase: "C",
            name: &self.name,
            more: &[("cat", json!("memory")), ("tid", json!(tid))],
            arguments: values,
        };
        process.add(time, event);
        self.shown = Some(self.live.clone());
    }
}

/// Adds the counters of a run, at all changes or at so many moments: those of the highest use.
pub(super) fn add(process: &mut Process<'_>, run: &Run, most: usize) {
    let has_device_memory = run.allocations.iter().any(|it| run.device_bytes(it) != 0);
    let memory = match has_device_memory {
        true => Memory::Device,
        false => Memory::All,
    };
    let devices = Devices::of(run);
    let kinds = Keys::new(run, By::Kind, Frames::Program);
    let by_kind: BTreeSet<u8> = run
        .allocations
        .iter()
        .filter(|it| run.amount(it).bytes != 0)
        .map(|it| it.kind)
        .collect();
    let kind_index: HashMap<u8, usize> = by_kind.iter().copied().zip(0..).collect();
    let kind_names = by_kind.iter().map(|kind| kinds.name((*kind).into()));
    let functions = Functions::of(run, memory, FUNCTIONS);
    let of_functions = match memory {
        Memory::Device => "device memory by function",
        Memory::All => "live bytes by function",
    };
    let mut by_device = Counter::new("device memory", devices.names.clone());
    let mut by_kind = Counter::new("live bytes by kind", kind_names.collect());
    let mut by_function = Counter::new(of_functions, functions.names.clone());
    let moments = moments(run, memory, most);
    let begin = run.begin.min(moments.first().copied().unwrap_or(u64::MAX));
    let mut sweep = Sweep::new(run);
    for time in std::iter::once(begin).chain(moments).chain([run.end]) {
        while sweep.next_time().is_some_and(|next| next <= time) {
            sweep.step(|allocation, begins| {
                let (of_device, all) = (run.device_bytes(allocation), run.amount(allocation).bytes);
                if let Some(index) = kind_index.get(&allocation.kind) {
                    by_kind.change(*index, all, begins);
                }
                if of_device != 0 {
                    by_device.change(devices.index(allocation), of_device, begins);
                }
                let bytes = if memory == Memory::Device {
                    of_device
                } else {
                    all
                };
                if bytes != 0 {
                    by_function.change(functions.index(allocation), bytes, begins);
                }
            });
        }
        for counter in [&mut by_device, &mut by_kind, &mut by_function] {
            counter.show(process, time, time == run.end);
        }
    }
}

/// The moments that are shown, in order: all changes, or where those are more than `most`, the highest of each part of the run.
fn moments(run: &Run, memory: Memory, most: usize) -> Vec<u64> {
    let mut times = Vec::new();
    let mut sweep = Sweep::new(run);
    while let Some(time) = sweep.step(|_, _| {}) {
        if times.len() == most {
            return timeline(run, most, By::Kind, memory, 0).times;
        }
        times.push(time);
    }
    times
}

/// The devices of a run.
struct Devices {
    names: Vec<String>,
    /// From the number of a context to the index of its device.
    of_context: HashMap<u32, usize>,
    /// That of memory which no context owns: of a device that is not recorded, unless there is only one.
    otherwise: usize,
}

impl Devices {
    fn of(run: &Run) -> Self {
        let created = run.marks.iter().filter_map(|mark| match mark.kind {
            MarkKind::ContextCreated { context, device } => Some((context, device)),
            _ => None,
        });
        let device_of: BTreeMap<u32, u32> = created.collect();
        let devices: BTreeSet<u32> = device_of.values().copied().collect();
        let index: HashMap<u32, usize> = devices.iter().copied().zip(0..).collect();
        let mut names: Vec<_> = devices
            .iter()
            .map(|device| format!("device {device}"))
            .collect();
        let of_context: HashMap<u32, usize> = device_of
            .iter()
            .map(|(context, device)| (*context, index[device]))
            .collect();
        let has_other = run
            .allocations
            .iter()
            .any(|it| run.device_bytes(it) != 0 && !of_context.contains_key(&it.context));
        let otherwise = if names.len() == 1 { 0 } else { names.len() };
        if has_other && otherwise == names.len() {
            names.push("device not recorded".to_owned());
        }
        Self {
            names,
            of_context,
            otherwise,
        }
    }

    fn index(&self, allocation: &Allocation) -> usize {
        let known = self.of_context.get(&allocation.context);
        known.copied().unwrap_or(self.otherwise)
    }
}

/// The functions that hold most, and the sum of all others.
struct Functions<'r> {
    keys: Keys<'r>,
    names: Vec<String>,
    index: HashMap<u64, usize>,
}

impl<'r> Functions<'r> {
    fn of(run: &'r Run, memory: Memory, most: usize) -> Self {
        let keys = Keys::new(run, By::Function, Frames::Program);
        let largest = timeline(run, 1, By::Function, memory, most).series;
        let mut index = HashMap::new();
        let mut names: Vec<String> = Vec::new();
        for series in largest {
            if let Some(site) = series.site {
                let site = Allocation {
                    site,
                    ..Allocation::default()
                };
                index.insert(keys.of(&site), names.len());
            }
            names.push(match series.site {
                Some(_) => series.name,
                None => format!("{} others", series.groups),
            });
        }
        Self { keys, names, index }
    }

    fn index(&self, allocation: &Allocation) -> usize {
        let known = self.index.get(&self.keys.of(allocation));
        known.copied().unwrap_or(self.names.len().saturating_sub(1))
    }
}
