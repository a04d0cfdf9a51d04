//! Files that exist, are in use, are broken or are of another version.

use super::*;

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
    // It is not a recording.
    let error = Writer::create(&scratch.options(), &Source).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("it exists and is not a recording"),
        "{error}"
    );
    assert_eq!(std::fs::read(&scratch.0).unwrap(), b"mine");
    // One that is empty, and one of a process that was killed as it began.
    for old in [&b""[..], &[0; 4096]] {
        let scratch = Scratch::new();
        std::fs::write(&scratch.0, old).unwrap();
        assert_eq!(writer(&scratch.options()).path(), scratch.0);
        assert!(scratch.read().events.is_empty());
    }
}

/// At the boundary of a chunk, too.
#[test]
fn a_file_that_was_cut_off_says_so() {
    let scratch = Scratch::new();
    writer(&scratch.options());
    let bytes = std::fs::read(&scratch.0).unwrap();
    assert_eq!(scratch.read().problems, [""; 0]);
    let size = u32::from_le_bytes(bytes[header::CHUNK_SIZE..][..4].try_into().unwrap());
    std::fs::write(&scratch.0, &bytes[..size as usize]).unwrap();
    let problems = scratch.read().problems;
    let expected = format!("the file was cut off: {size} of ");
    assert!(
        problems
            .iter()
            .any(|problem| problem.starts_with(&expected)),
        "{problems:?}"
    );
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
            "cannot record into /dev/null: it exists and is not a regular file",
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
