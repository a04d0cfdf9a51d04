//! What is known of a process beside its events, and the origin of times.

use super::*;
use crate::data::Found;
use crate::format::{Bytes, u32_at};
use crate::note::Note;

/// Events at 10 to 40 ns of a recording that began when the process had run for 1 µs.
fn noted(scratch: &Scratch, age: u64) -> Recording {
    let options = Options {
        age: Some(age),
        ..scratch.options()
    };
    let writer = writer(&options);
    let mut cursor = Cursor::new(writer);
    cursor.record(&allocated(10, 0x1000), None);
    let what = What::OutOfMemory {
        bytes: 1 << 40,
        stack: 9,
        context: 1,
    };
    for time in [20, 30] {
        let failed = Event {
            time,
            thread: 7,
            what,
        };
        cursor.record(&failed, None);
        let text = format!("why: {time}\n").repeat(1000);
        writer.notes(7, Note::diagnosis(time, 7, &text).into_iter());
    }
    let found = [(0, true), (5, false), (6, true)].map(|(kind, lost)| {
        Note::Found(Found {
            kind,
            address: 0x1000,
            context: 1,
            lost,
        })
    });
    writer.notes(0, found.into_iter());
    for time in [35, 38] {
        writer.notes(0, std::iter::once(Note::ExitBegins { time }));
    }
    let work = [(20, 7), (30, 9)].map(|(time, count)| Note::Work { time, count });
    writer.notes(0, work.into_iter());
    drop(cursor);
    writer.exit(0);
    scratch.read()
}

#[test]
fn diagnoses_and_what_a_search_found_are_read() {
    let scratch = Scratch::new();
    let recording = noted(&scratch, 0);
    assert_eq!(recording.problems, [""; 0]);
    let diagnoses: Vec<_> = recording
        .diagnoses
        .iter()
        .map(|one| {
            let thread = &*recording.names[one.thread as usize];
            (one.time, thread, one.text.len(), &one.text[..8])
        })
        .collect();
    assert_eq!(
        diagnoses,
        [
            (20, "name 7", 8000, "why: 20\n"),
            (30, "name 7", 8000, "why: 30\n")
        ]
    );
    // There is no seventh kind.
    let found: Vec<_> = recording
        .found
        .iter()
        .map(|one| (one.kind, one.lost))
        .collect();
    assert_eq!(found, [(0, true), (5, false)]);
}

#[test]
fn times_count_from_the_start_of_the_program() {
    let (old, scratch) = (Scratch::new(), Scratch::new());
    let of_before = noted(&old, 0);
    let recording = noted(&scratch, 1000);
    assert_eq!((of_before.begin, recording.begin), (0, 1000));
    let exits = (of_before.exit_begins, recording.exit_begins);
    assert_eq!(exits, (Some(35), Some(1035)));
    assert_eq!(recording.work, [(1020, 7), (1030, 9)]);
    let times = |recording: &Recording| -> Vec<u64> {
        let events = recording.events.iter().map(|event| event.time);
        events
            .chain(recording.diagnoses.iter().map(|one| one.time))
            .collect()
    };
    assert_eq!(times(&of_before), [10, 20, 30, 20, 30]);
    assert_eq!(times(&recording), [1010, 1020, 1030, 1020, 1030]);
    assert_eq!(recording.end, End::Exit { time: 1000 });
    // Written when the recording began.
    let bytes = std::fs::read(&scratch.0).unwrap();
    let written = crate::meta::decode(&bytes).unwrap().started;
    assert_eq!(recording.meta.started, written - 1000);
}

/// A reader of before knows three kinds of chunks and no notes: it must find all else where it was.
#[test]
fn notes_are_in_chunks_of_their_own() {
    let scratch = Scratch::new();
    let with_notes = noted(&scratch, 0);
    let mut bytes = std::fs::read(&scratch.0).unwrap();
    let size = MIN_CHUNK_SIZE as usize;
    let mut notes = 0;
    for at in (size..bytes.len()).step_by(size) {
        if u32_at(&bytes, at + chunk::KIND) == Some(chunk::NOTES) {
            notes += 1;
            bytes[at + chunk::KIND] = 77;
        }
    }
    assert!(notes > 1, "16 kB of text are in {notes} chunks");
    let without = Recording::read(&bytes).unwrap();
    assert_eq!(without.problems.len(), notes, "{:?}", without.problems);
    let problem = &without.problems[0];
    assert!(
        problem.ends_with("a chunk of an unknown kind (77)"),
        "{problem}"
    );
    let all_else = Recording {
        diagnoses: Vec::new(),
        found: Vec::new(),
        exit_begins: None,
        work: Vec::new(),
        problems: without.problems.clone(),
        ..with_notes
    };
    assert_eq!(without, all_else);
}

proptest! {
    #![proptest_config(cuguard_testing::property_config!())]

    #[test]
    fn any_bytes_are_notes_or_none(bytes: Vec<u8>) {
        let mut from = Bytes::new(&bytes);
        while !from.is_empty() && Note::decode(&mut from).is_some() {}
    }
}

/// An interpreter that ended while the program went on.
#[test]
fn the_exit_begins_after_the_last_allocation() {
    for (allocated_at, begins) in [(20, 25), (30, 35), (40, 35)] {
        let scratch = Scratch::new();
        let writer = writer(&scratch.options());
        let mut cursor = Cursor::new(writer);
        cursor.record(&allocated(10, 0x1000), None);
        cursor.record(&allocated(allocated_at, 0x2000), None);
        for time in [35, 25] {
            writer.notes(0, std::iter::once(Note::ExitBegins { time }));
        }
        drop(cursor);
        writer.exit(0);
        assert_eq!(scratch.read().exit_begins, Some(begins), "{allocated_at}");
    }
}
