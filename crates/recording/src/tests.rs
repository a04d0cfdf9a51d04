//! What is written is read; and any file is read without a panic.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use crate::data::{End, Event, Frame, Kind, Recording, Site, What};
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
    fn kinds(&self) -> Vec<Kind> {
        let kind = |index: u8| Kind {
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
    #![proptest_config(ProptestConfig::with_cases(48))]

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

#[test]
fn the_last_events_are_kept() {
    let scratch = Scratch::new();
    let limit = 16 * u64::from(MIN_CHUNK_SIZE);
    let options = scratch.options().limit(limit, Policy::Last);
    let events = pairs(50_000);
    let recording = round_trip(&events, &options, &scratch);
    assert!(std::fs::metadata(&scratch.0).unwrap().len() <= limit);
    let kept = recording.events.len();
    assert_eq!(kept as u64 + recording.dropped, events.len() as u64);
    assert!(kept > 3000, "{kept}");
    let times = |events: &[Event]| events.iter().map(|event| event.time).collect::<Vec<_>>();
    assert_eq!(
        times(&recording.events),
        times(&events[events.len() - kept..])
    );
    assert!(
        recording.problems[0].contains("dropped"),
        "{:?}",
        recording.problems
    );
    // What the first events defined is still known.
    let What::Allocated { stack, .. } = recording.events.iter().find_map(as_allocation).unwrap()
    else {
        unreachable!()
    };
    assert_eq!(recording.stacks[stack as usize].frames.len(), 3);
}

fn as_allocation(event: &Event) -> Option<What> {
    matches!(event.what, What::Allocated { .. }).then_some(event.what)
}

#[test]
fn beyond_the_limit_short_lived_allocations_are_left_out() {
    let scratch = Scratch::new();
    let limit = 8 * u64::from(MIN_CHUNK_SIZE);
    let options = scratch.options().limit(limit, Policy::Aggregate);
    let mut events = pairs(100_000);
    // One in a thousand stays.
    events.retain(|event| match event.what {
        What::Freed { address, .. } => (address >> 9) % 1000 != 0,
        _ => true,
    });
    let recording = round_trip(&events, &options, &scratch);
    assert!(std::fs::metadata(&scratch.0).unwrap().len() <= 2 * limit);
    assert_eq!(
        recording.events.len() as u64 + recording.dropped,
        events.len() as u64
    );
    assert!(recording.dropped > 100_000);
    let mut alive = BTreeMap::new();
    for event in &recording.events {
        match event.what {
            What::Allocated { address, .. } => alive.insert(address, event.time),
            What::Freed { address, .. } => alive.remove(&address),
            _ => None,
        };
    }
    let expected: BTreeMap<u64, u64> = (1..=100).map(|n| ((n * 1000) << 9, n * 10_000)).collect();
    assert_eq!(alive, expected);
}

/// Thread 7 allocates, 2 frees and allocates the address again, 7 frees it.
#[test]
fn beyond_the_limit_an_address_may_cross_threads() {
    let scratch = Scratch::new();
    let limit = 8 * u64::from(MIN_CHUNK_SIZE);
    let options = scratch.options().limit(limit, Policy::Aggregate);
    let mut events = pairs(10_000);
    let address = 0x7f00_0000_0000;
    let by = |event: Event, thread| Event { thread, ..event };
    // The second thread is beyond the limit, too, from its second event on.
    events.push(by(allocated(200_000, 0x1000), 2));
    let crossing = [
        by(allocated(200_010, address), 7),
        by(freed(200_020, address), 2),
        by(allocated(200_030, address), 2),
        by(freed(200_040, address), 7),
    ];
    events.extend(crossing);
    let recording = round_trip(&events, &options, &scratch);
    let is_crossing = |event: &&Event| match event.what {
        What::Allocated { address: at, .. } | What::Freed { address: at, .. } => at == address,
        _ => false,
    };
    let times = recording.events.iter().filter(is_crossing);
    let times: Vec<u64> = times.map(|event| event.time).collect();
    assert_eq!(times, [200_010, 200_020, 200_030, 200_040]);
}

#[test]
fn aggregation_ends_at_twice_the_limit() {
    let scratch = Scratch::new();
    let limit = 8 * u64::from(MIN_CHUNK_SIZE);
    let options = scratch.options().limit(limit, Policy::Aggregate);
    let events: Vec<Event> = (1..50_000).map(|n| allocated(n, n << 9)).collect();
    let recording = round_trip(&events, &options, &scratch);
    assert!(std::fs::metadata(&scratch.0).unwrap().len() <= 3 * limit);
    assert!(
        recording
            .problems
            .iter()
            .any(|problem| problem.contains("size limit is reached"))
    );
    assert_eq!(recording.end, End::Open);
}

#[test]
fn a_chunk_of_garbage_is_skipped() {
    let scratch = Scratch::new();
    let events = pairs(2000);
    let whole = round_trip(&events, &scratch.options(), &scratch);
    let mut bytes = std::fs::read(&scratch.0).unwrap();
    let size = MIN_CHUNK_SIZE as usize;
    let is_events = |at: &usize| bytes[at + chunk::KIND] == chunk::EVENTS as u8;
    let at = (size..bytes.len())
        .step_by(size)
        .filter(is_events)
        .nth(1)
        .unwrap();
    bytes[at..at + size].fill(0xff);
    let recording = Recording::read(&bytes).unwrap();
    assert_eq!(recording.problems.len(), 1, "{:?}", recording.problems);
    // All of that chunk, and none of others.
    let read = |event: &&Event| recording.events.contains(event);
    let lost: Vec<usize> = (0..whole.events.len())
        .filter(|at| !read(&&whole.events[*at]))
        .collect();
    assert!(lost.len() > 500 && lost.last().unwrap() - lost[0] == lost.len() - 1);
    assert_eq!(recording.events.len() + lost.len(), whole.events.len());
}

#[test]
fn files_in_use_are_left_alone() {
    let scratch = Scratch::new();
    let first = writer(&scratch.options());
    Cursor::new(first).record(&allocated(1, 0x1000), None);
    // Locks belong to an open file, so a second one in this process is as one of another process.
    let second = writer(&scratch.options());
    let other = Scratch(second.path().to_owned());
    let expected = format!("{}.{}", scratch.0.display(), std::process::id());
    assert_eq!(other.0.to_str(), Some(expected.as_str()));
    assert_eq!(
        (scratch.read().events.len(), other.read().events.len()),
        (1, 0)
    );
    // Nor is that one removed.
    let third = writer(&scratch.options());
    let third = Scratch(third.path().to_owned());
    assert_eq!(third.0.to_str(), Some(format!("{expected}-2").as_str()));
    assert!(other.read().events.is_empty() && third.read().events.is_empty());
}

/// A process that executes another program keeps its id, and its lock ends.
#[test]
fn an_earlier_recording_of_the_process_is_left_alone() {
    let (first, second) = (Scratch::new(), Scratch::new());
    round_trip(&pairs(1), &first.options(), &first);
    std::fs::copy(&first.0, &second.0).unwrap();
    let other = writer(&second.options());
    let other = Scratch(other.path().to_owned());
    assert_ne!(other.0, second.0);
    assert_eq!(
        (second.read().events.len(), other.read().events.len()),
        (2, 0)
    );
}

#[test]
fn the_addresses_of_the_file_are_known() {
    let scratch = Scratch::new();
    writer(&scratch.options());
    let length: usize = crate::mapped_ranges().map(|range| range.len()).sum();
    assert!(length as u64 >= std::fs::metadata(&scratch.0).unwrap().len());
}

#[test]
fn a_file_that_exists_is_replaced_or_kept() {
    let scratch = Scratch::new();
    std::fs::write(&scratch.0, "mine").unwrap();
    let other = writer(&scratch.options().replace(false));
    let other = Scratch(other.path().to_owned());
    assert_ne!(other.0, scratch.0);
    assert_eq!(std::fs::read(&scratch.0).unwrap(), b"mine");
    assert_eq!(writer(&scratch.options()).path(), scratch.0);
    assert!(scratch.read().events.is_empty());
}

#[test]
fn a_path_that_cannot_be_created_is_an_error() {
    for (path, expected) in [
        (
            "/nowhere/at/all.cgr",
            "cannot record into /nowhere/at/all.cgr: No such file",
        ),
        (
            "/dev/null",
            "cannot record into /dev/null: it exists and is no regular file",
        ),
    ] {
        let error = Writer::create(&Options::new(path), &Source).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn other_versions_are_refused() {
    let scratch = Scratch::new();
    round_trip(&[], &scratch.options(), &scratch);
    let mut bytes = std::fs::read(&scratch.0).unwrap();
    bytes[header::VERSION] = 9;
    std::fs::write(&scratch.0, bytes).unwrap();
    let error = Recording::open(&scratch.0).unwrap_err().to_string();
    let expected = format!(
        "{}: a recording in version 9 of the format; this program reads version 1",
        scratch.0.display()
    );
    assert_eq!(error, expected);
}
