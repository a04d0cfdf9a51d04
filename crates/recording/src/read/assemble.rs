//! Puts a recording together: definitions get indexes, events their order and their labels.

use std::collections::HashMap;

use super::chunks::{self, Raw};
use super::error::ReadError;
use crate::data::{Diagnosis, Embedded, End, Event, Frame, RecordedKind, Recording, Stack, What};
use crate::definition::Definition;
use crate::note::Note;

/// Reads a recording, with the events up to a time.
pub(super) fn read(bytes: &[u8], until: u64) -> Result<Recording, ReadError> {
    let mut raw = chunks::read(bytes)?;
    raw.events.retain(|event| event.time <= until);
    raw.labels.retain(|(time, ..)| *time <= until);
    let mut recording = Recording {
        meta: raw.meta.clone(),
        stacks: vec![Stack::default()],
        names: vec![String::new()],
        dropped: raw.dropped,
        complete_from: raw.complete_from,
        lost: raw.lost,
        sample: raw.sample,
        begin: raw.begin,
        ..Recording::default()
    };
    let mut numbers = Numbers::default();
    numbers.define(&mut recording, raw.definitions);
    recording.problems.extend(raw.problems);
    note_missing(&mut recording);

    let Raw {
        mut events,
        labels,
        notes,
        ..
    } = Raw {
        events: raw.events,
        labels: raw.labels,
        notes: raw.notes,
        ..Raw::default()
    };
    numbers.translate(&mut recording, &mut events);
    if !events.is_sorted_by_key(|event| event.time) {
        events.sort_by_key(|event| event.time);
    }
    // A process that was killed while an allocation became an event has it in both places.
    events
        .dedup_by(|second, first| first == second && matches!(first.what, What::Allocated { .. }));
    recording.events = events;
    numbers.note(&mut recording, notes, until);
    apply_labels(&mut recording, labels, &numbers);
    Ok(recording)
}

/// That of an interpreter begins before that of the process. An interpreter that ends while the program goes on is not an exit: memory
/// is allocated after it.
fn exit_begins(recording: &Recording, mut times: Vec<u64>) -> Option<u64> {
    times.sort_unstable();
    let is_allocated = |event: &&Event| match event.what {
        What::Allocated { kind, .. } => recording
            .kinds
            .get(usize::from(kind))
            .is_some_and(|kind| kind.is_memory),
        _ => false,
    };
    let last = recording.events.iter().rev().find(is_allocated);
    let last = last.map_or(0, |event| event.time);
    let first = times.iter().find(|time| **time >= last);
    first.or(times.last()).copied()
}

fn note_missing(recording: &mut Recording) {
    let (dropped, lost) = (recording.dropped, recording.lost);
    if lost != 0 {
        recording.problems.push(format!(
            "events that were not written: {lost}; the file could not grow, or a signal handler interrupted the recording"
        ));
    }
    if dropped == 0 {
        return;
    }
    let what = match recording.complete_from {
        0 => format!("the size limit left out {dropped} events of short-lived allocations"),
        time => format!(
            "the size limit dropped {dropped} events; none is missing from {:.3} s on",
            time as f64 / 1e9
        ),
    };
    recording.problems.push(what);
}

/// The indexes of what the process had numbers for.
#[derive(Debug, Default)]
struct Numbers {
    names: HashMap<u32, u32>,
    /// The index of each name.
    texts: HashMap<String, u32>,
    stacks: HashMap<u32, u32>,
}

impl Numbers {
    fn define(&mut self, recording: &mut Recording, definitions: Vec<Definition>) {
        let foreign: HashMap<u64, Frame> = definitions.iter().filter_map(foreign).collect();
        let mut symbols: HashMap<u64, usize> = HashMap::new();
        for definition in definitions {
            match definition {
                Definition::Name { id, text } => {
                    // A label that was freed and is used again has another number.
                    let index = *self.texts.entry(text.clone()).or_insert_with(|| {
                        recording.names.push(text);
                        recording.names.len() as u32 - 1
                    });
                    self.names.entry(id).or_insert(index);
                }
                Definition::Kind { index, kind } => {
                    let index = usize::from(index);
                    fill_kinds(&mut recording.kinds, index);
                    recording.kinds[index] = kind;
                }
                Definition::Module(module) => recording.modules.push(module),
                Definition::Foreign { .. } => {}
                Definition::Stack {
                    id,
                    site,
                    type_name,
                    frames,
                } => {
                    let index = recording.stacks.len() as u32;
                    if *self.stacks.entry(id).or_insert(index) == index {
                        let frame = |address: u64| {
                            let known = foreign.get(&address).cloned();
                            known.unwrap_or(Frame::Native(address))
                        };
                        recording.stacks.push(Stack {
                            site,
                            type_name,
                            frames: frames.into_iter().map(frame).collect(),
                            // Those before it, until all are known.
                            later_modules: recording.modules.len() as u32,
                        });
                    }
                }
                Definition::Symbol(symbol) => add_symbol(recording, &mut symbols, symbol),
                Definition::Exit { time } => recording.end = End::Exit { time },
                Definition::Stopped { time, why } => {
                    let seconds = time as f64 / 1e9;
                    let problem = format!(
                        "the recording ends at {seconds:.3} s, before the process did: {why}"
                    );
                    recording.problems.push(problem);
                }
            }
        }
        let all = recording.modules.len() as u32;
        // The first stack, which is unknown, is in none.
        for stack in recording.stacks.iter_mut().skip(1) {
            stack.later_modules = all - stack.later_modules;
        }
    }

    /// Adds notes, but those of events after a time.
    fn note(&self, recording: &mut Recording, notes: Vec<Note>, until: u64) {
        let mut exits = Vec::new();
        for note in notes {
            match note {
                Note::Diagnosis { time, thread, part } => {
                    let thread = self.names.get(&thread).copied().unwrap_or_default();
                    let own = |last: &&mut Diagnosis| (last.time, last.thread) == (time, thread);
                    match recording.diagnoses.last_mut().filter(own) {
                        Some(last) => last.text.push_str(&part),
                        None if time <= until => recording.diagnoses.push(Diagnosis {
                            time,
                            thread,
                            text: part,
                        }),
                        None => {}
                    }
                }
                Note::Found(found) if usize::from(found.kind) < recording.kinds.len() => {
                    recording.found.push(found);
                }
                Note::Found(_) => {}
                Note::ExitBegins { time } => exits.push(time),
                Note::Work { time, count } => recording.work.push((time, count)),
            }
        }
        recording.exit_begins = exit_begins(recording, exits);
        recording.work.sort_unstable();
        recording.diagnoses.sort_by_key(|diagnosis| diagnosis.time);
    }

    /// Replaces the numbers of the process in events by indexes.
    fn translate(&self, recording: &mut Recording, events: &mut [Event]) {
        let (mut unknown_stacks, mut unknown_names) = (0_u64, 0_u64);
        let mut kinds = 0;
        let mut stack = |id: &mut u32| {
            let index = if *id == 0 {
                Some(&0)
            } else {
                self.stacks.get(id)
            };
            unknown_stacks += u64::from(index.is_none());
            *id = index.copied().unwrap_or_default();
        };
        let mut name = |id: &mut u32| {
            let index = if *id == 0 {
                Some(&0)
            } else {
                self.names.get(id)
            };
            unknown_names += u64::from(index.is_none());
            *id = index.copied().unwrap_or_default();
        };
        for event in events {
            name(&mut event.thread);
            match &mut event.what {
                What::Allocated {
                    kind,
                    stack: id,
                    label,
                    ..
                } => {
                    stack(id);
                    name(label);
                    kinds = kinds.max(*kind);
                }
                What::Freed { kind, .. } | What::Reclaimed { kind, .. } => {
                    kinds = kinds.max(*kind);
                }
                What::OutOfMemory { stack: id, .. } => stack(id),
                What::ContextCreated { .. } | What::ContextEnded { .. } => {}
            }
        }
        if kinds > 0 || !recording.kinds.is_empty() {
            fill_kinds(&mut recording.kinds, kinds.into());
        }
        for (count, what) in [(unknown_stacks, "call sites"), (unknown_names, "names")] {
            if count > 0 {
                let problem = format!("{count} events refer to {what} that are not in the file");
                recording.problems.push(problem);
            }
        }
    }
}

fn foreign(definition: &Definition) -> Option<(u64, Frame)> {
    match definition {
        Definition::Foreign {
            address,
            function,
            file,
            line,
        } => Some((
            *address,
            Frame::Foreign {
                function: function.as_str().into(),
                file: file.as_str().into(),
                line: *line,
            },
        )),
        _ => None,
    }
}

fn add_symbol(recording: &mut Recording, known: &mut HashMap<u64, usize>, symbol: Embedded) {
    let index = recording.symbols.len();
    if *known.entry(symbol.address).or_insert(index) == index {
        recording.symbols.push(symbol);
    }
}

/// Kinds that the file does not define have a number for a name.
fn fill_kinds(kinds: &mut Vec<RecordedKind>, last: usize) {
    for index in kinds.len()..=last {
        kinds.push(RecordedKind {
            name: format!("kind {index}"),
            ..RecordedKind::default()
        });
    }
}

/// Gives allocations the names that they got while they were alive. The last one counts.
fn apply_labels(
    recording: &mut Recording,
    mut labels: Vec<(u64, u8, u64, u32)>,
    numbers: &Numbers,
) {
    if labels.is_empty() {
        return;
    }
    labels.sort_by_key(|(time, ..)| *time);
    let mut alive: HashMap<(u8, u64), usize> = HashMap::new();
    let mut labels = labels.into_iter().peekable();
    // One more turn than there are events, for labels after the last.
    for at in 0..=recording.events.len() {
        let time = recording
            .events
            .get(at)
            .map_or(u64::MAX, |event| event.time);
        // An allocation that has the time of its label comes first.
        while let Some((_, kind, address, label)) =
            labels.next_if(|(named, ..)| *named < time || time == u64::MAX)
        {
            let index = alive.get(&(kind, address));
            let event = index.and_then(|index| recording.events.get_mut(*index));
            if let Some(event) = event
                && let What::Allocated { label: own, .. } = &mut event.what
            {
                *own = numbers.names.get(&label).copied().unwrap_or_default();
            }
        }
        match recording.events.get(at).map(|event| event.what) {
            Some(What::Allocated { kind, address, .. }) => {
                alive.insert((kind, address), at);
            }
            Some(What::Freed { kind, address, .. } | What::Reclaimed { kind, address, .. }) => {
                alive.remove(&(kind, address));
            }
            _ => {}
        }
    }
}
