//! What is written is read; and any file is read without a panic.

mod files;
mod limits;
mod notes;
mod written;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use crate::data::{End, Event, Frame, RecordedKind, Recording, Site, What};
use crate::format::{MIN_CHUNK_SIZE, chunk, header};
use crate::options::{Definitions, Label, Options, Policy, StackDefinition};
use crate::read::ReadError;
use crate::write::{Cursor, Writer};

/// Numbers that mean something that tests can compute.
struct Source;

static FRAMES: [usize; 64] = {
    let mut frames = [0; 64];
    let mut at = 0;
    while at < frames.len() {
        frames[at] = 0x5500_0000_0000 + at * 77;
        at += 1;
    }
    frames
};

impl Definitions for Source {
    fn kinds(&self) -> Vec<RecordedKind> {
        let kind = |index: u8| RecordedKind {
            name: format!("sort {index}"),
            on_device: index.is_multiple_of(2),
            is_memory: index < 4,
        };
        (0..6).map(kind).collect()
    }

    fn stack(&self, id: u32) -> Option<StackDefinition> {
        Some(StackDefinition {
            site: Some(Site {
                file: format!("src/{id}.rs"),
                line: id,
                column: 1,
            }),
            type_name: "f32",
            frames: &FRAMES[..id as usize % FRAMES.len()],
        })
    }

    fn name(&self, id: u32) -> Option<String> {
        Some(format!("name {id}"))
    }
}

/// A file that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cuguard-recording-{}-{number}.cgr", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn options(&self) -> Options {
        Options {
            chunk_size: MIN_CHUNK_SIZE,
            age: Some(0),
            ..Options::new(&self.0)
        }
    }

    fn read(&self) -> Recording {
        Recording::open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn writer(options: &Options) -> &'static Writer {
    Writer::create(options, &Source).unwrap()
}

/// An event with the texts in place of numbers: what a reader must find.
fn resolved(recording: &Recording) -> Vec<(u64, String, String)> {
    let text = |event: &Event| {
        let stack = |index: u32| recording.stacks[index as usize].clone();
        let name = |index: u32| recording.names[index as usize].clone();
        let what = match event.what {
            What::Allocated {
                kind,
                address,
                bytes,
                stack: id,
                stream,
                context,
                label,
            } => format!(
                "+{kind} {address:#x} {bytes} {stream} {context} {:?} {}",
                stack(id).site,
                name(label)
            ),
            What::OutOfMemory {
                bytes,
                stack: id,
                context,
            } => format!("oom {bytes} {context} {:?}", stack(id).site),
            other => format!("{other:?}"),
        };
        (event.time, name(event.thread), what)
    };
    recording.events.iter().map(text).collect()
}

/// What [`resolved`] is expected to return for events that are written.
fn expected(events: &[Event]) -> Vec<(u64, String, String)> {
    let name = |id: u32| {
        if id == 0 {
            String::new()
        } else {
            format!("name {id}")
        }
    };
    let site = |id: u32| {
        let stack = Source.stack(id).filter(|_| id != 0);
        stack.and_then(|stack| stack.site)
    };
    let text = |event: &Event| {
        let what = match event.what {
            What::Allocated {
                kind,
                address,
                bytes,
                stack,
                stream,
                context,
                label,
            } => format!(
                "+{kind} {address:#x} {bytes} {stream} {context} {:?} {}",
                site(stack),
                name(label)
            ),
            What::OutOfMemory {
                bytes,
                stack,
                context,
            } => format!("oom {bytes} {context} {:?}", site(stack)),
            other => format!("{other:?}"),
        };
        (event.time, name(event.thread), what)
    };
    let mut texts: Vec<_> = events.iter().map(text).collect();
    texts.sort();
    texts
}

fn any_what() -> impl Strategy<Value = What> {
    let address = prop_oneof![
        (0..64_u64).prop_map(|n| 0x7f00_0000_0000 + n * 512),
        any::<u64>()
    ];
    let small = || 0..40_u32;
    prop_oneof![
        6 => (0..6_u8, address.clone(), any::<u64>(), small(), any::<u64>(), small(), small()).prop_map(
            |(kind, address, bytes, stack, stream, context, label)| What::Allocated {
                kind,
                address,
                bytes,
                stack,
                stream: stream % 3,
                context,
                label,
            }
        ),
        6 => (0..6_u8, address.clone(), small()).prop_map(|(kind, address, context)| What::Freed { kind, address, context }),
        1 => (0..6_u8, address, small()).prop_map(|(kind, address, context)| What::Reclaimed { kind, address, context }),
        1 => (small(), small()).prop_map(|(context, device)| What::ContextCreated { context, device }),
        1 => small().prop_map(|context| What::ContextEnded { context }),
        1 => (any::<u64>(), small(), small())
            .prop_map(|(bytes, stack, context)| What::OutOfMemory { bytes, stack, context }),
    ]
}

fn any_events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    // Times differ, so that the order is known; threads without a name have a high bit.
    let event = (1..1_000_000_u64, 0..3_u32, any_what());
    proptest::collection::vec(event, 0..most).prop_map(|events| {
        let mut now = 0;
        let threads = [7, 8, 1 << 31 | 9];
        let mut next = |(step, thread, what): (u64, u32, What)| {
            now += step;
            Event {
                time: now,
                thread: threads[thread as usize],
                what,
            }
        };
        events.into_iter().map(&mut next).collect()
    })
}

/// Writes events, those of each thread with a cursor of its own, and reads the file.
fn round_trip(events: &[Event], options: &Options, scratch: &Scratch) -> Recording {
    let writer = writer(options);
    let mut cursors: BTreeMap<u32, Cursor> = BTreeMap::new();
    // When each was allocated.
    let mut alive = BTreeMap::new();
    for event in events {
        let cursor = cursors.entry(event.thread);
        let created = match event.what {
            What::Freed { kind, address, .. } => alive.remove(&(kind, address)),
            What::Allocated { kind, address, .. } => alive.insert((kind, address), event.time),
            _ => None,
        };
        let cursor = cursor.or_insert_with(|| Cursor::new(writer));
        cursor.record(event, created);
    }
    drop(cursors);
    writer.exit(u64::MAX);
    scratch.read()
}

proptest! {
    #![proptest_config(cuguard_testing::property_config!(48))]

    #[test]
    fn events_of_threads_are_read_as_they_were_written(events in any_events(1500)) {
        let scratch = Scratch::new();
        let recording = round_trip(&events, &scratch.options(), &scratch);
        prop_assert_eq!(&recording.problems, &Vec::<String>::new());
        let mut read = resolved(&recording);
        prop_assert!(read.is_sorted_by_key(|(time, ..)| *time));
        read.sort();
        prop_assert_eq!(read, expected(&events));
        prop_assert_eq!(recording.kinds, Source.kinds());
        prop_assert_ne!(recording.end, End::Open);
    }

    #[test]
    fn broken_files_are_read_without_a_panic(
        events in any_events(400),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60),
    ) {
        let scratch = Scratch::new();
        round_trip(&events, &scratch.options(), &scratch);
        let whole = std::fs::read(&scratch.0).unwrap();
        let mut broken = whole.clone();
        for (place, byte) in flips {
            // Not in the unused bytes behind the meta data and the records, where nothing is read.
            let at = place.index(broken.len());
            broken[at / 16 * 16 % whole.len()] = byte;
            broken[at] ^= byte;
            if let Ok(recording) = Recording::read(&broken) {
                check_indexes(&recording);
            }
        }
    }
}

/// All indexes are valid, whatever was in the file.
fn check_indexes(recording: &Recording) {
    let (names, stacks) = (recording.names.len() as u32, recording.stacks.len() as u32);
    let kinds = recording.kinds.len();
    for event in &recording.events {
        assert!(event.thread < names);
        match event.what {
            What::Allocated {
                kind, stack, label, ..
            } => {
                assert!(stack < stacks && label < names && usize::from(kind) < kinds.max(1));
            }
            What::OutOfMemory { stack, .. } => assert!(stack < stacks),
            What::Freed { kind, .. } => assert!(usize::from(kind) < kinds.max(1)),
            _ => {}
        }
    }
}

fn allocated(time: u64, address: u64) -> Event {
    Event {
        time,
        thread: 7,
        what: What::Allocated {
            kind: 0,
            address,
            bytes: 4096,
            stack: 3,
            stream: 0,
            context: 1,
            label: 0,
        },
    }
}

fn freed(time: u64, address: u64) -> Event {
    Event {
        time,
        thread: 7,
        what: What::Freed {
            kind: 0,
            address,
            context: 1,
        },
    }
}

fn named(time: u64, address: u64, label: u32) -> Label {
    Label {
        time,
        thread: 7,
        kind: 0,
        address,
        created: 0,
        label,
    }
}

/// Pairs of an allocation and its free.
fn pairs(count: u64) -> Vec<Event> {
    let pair = |n| [allocated(n * 10, n << 9), freed(n * 10 + 5, n << 9)];
    (1..=count).flat_map(pair).collect()
}

#[test]
fn every_truncation_is_read_up_to_where_it_is_cut() {
    let scratch = Scratch::new();
    let events = pairs(400);
    round_trip(&events, &scratch.options(), &scratch);
    let whole = std::fs::read(&scratch.0).unwrap();
    let mut counts = Vec::new();
    for length in 0..whole.len() {
        match Recording::read(&whole[..length]) {
            Ok(recording) => {
                check_indexes(&recording);
                let read = recording.events.len();
                assert!(
                    recording
                        .events
                        .iter()
                        .zip(&events)
                        .all(|(a, b)| a.time == b.time)
                );
                counts.push(read);
            }
            Err(ReadError::Empty) => assert_eq!(length, 0),
            Err(ReadError::Foreign { .. }) => assert!(length < header::VERSION),
            Err(ReadError::Header(_)) => assert!(length < header::DROPPED),
            Err(error) => panic!("{length}: {error}"),
        }
    }
    assert!(counts.is_sorted() && counts.last() == Some(&events.len()));
}

#[test]
fn stacks_have_their_frames_and_modules_those_of_this_program() {
    let scratch = Scratch::new();
    let recording = round_trip(&pairs(1), &scratch.options(), &scratch);
    let stack = &recording.stacks[1];
    let frames: Vec<Frame> = FRAMES[..3]
        .iter()
        .map(|frame| Frame::Native(*frame as u64))
        .collect();
    assert_eq!((stack.type_name.as_str(), &stack.frames), ("f32", &frames));
    let own = std::env::current_exe().unwrap();
    let here = check_indexes as fn(&Recording) as usize as u64;
    let module = recording
        .modules
        .iter()
        .find(|module| module.path == own.to_str().unwrap());
    let module = module.unwrap();
    assert!((module.start..module.end).contains(&here) && module.bias <= module.start);
    assert_eq!(recording.meta.pid, std::process::id());
    assert!(
        recording
            .meta
            .command
            .contains(own.file_name().unwrap().to_str().unwrap())
    );
    assert!(recording.meta.started > 0);
}

#[test]
fn a_label_applies_to_what_is_alive() {
    let scratch = Scratch::new();
    let writer = writer(&scratch.options());
    let mut cursor = Cursor::new(writer);
    cursor.record(&allocated(1, 0x1000), None);
    cursor.label(&named(2, 0x1000, 5));
    cursor.label(&named(3, 0x1000, 6));
    cursor.record(&freed(4, 0x1000), None);
    cursor.record(&allocated(5, 0x1000), None);
    cursor.label(&named(6, 0x2000, 5));
    cursor.record(&allocated(7, 0x3000), None);
    cursor.label(&named(7, 0x3000, 5));
    drop(cursor);
    let recording = scratch.read();
    let label = |event: &Event| match event.what {
        What::Allocated { label, .. } => Some(recording.names[label as usize].as_str()),
        _ => None,
    };
    let labels: Vec<_> = recording.events.iter().filter_map(label).collect();
    assert_eq!(labels, ["name 6", "", "name 5"]);
}

#[test]
fn short_threads_share_a_chunk() {
    let scratch = Scratch::new();
    let writer = writer(&scratch.options());
    for number in 0..500 {
        let mut cursor = Cursor::new(writer);
        cursor.record(&allocated(number, number << 9), None);
    }
    writer.exit(u64::MAX);
    assert_eq!(scratch.read().events.len(), 500);
    let length = std::fs::metadata(&scratch.0).unwrap().len();
    assert!(length < 10 * u64::from(MIN_CHUNK_SIZE), "{length}");
}
