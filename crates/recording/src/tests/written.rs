//! Files that are written while they are read: at each step of a reader the process records more.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::*;
use crate::read::written::{self, Source as Again};

/// A file. Something happens before one of the reads.
struct Interrupted<'a> {
    file: File,
    reads_before: Cell<u32>,
    happens: RefCell<Option<Box<dyn FnOnce() + 'a>>>,
}

impl Again for Interrupted<'_> {
    fn length(&self) -> io::Result<u64> {
        Again::length(&self.file)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.reads_before.get() {
            0 => {
                if let Some(happens) = self.happens.take() {
                    happens();
                }
            }
            more => self.reads_before.set(more - 1),
        }
        // A chunk by two steps.
        let part = bytes.len().min(MIN_CHUNK_SIZE as usize / 2);
        FileExt::read_at(&self.file, &mut bytes[..part], offset)
    }
}

impl Interrupted<'_> {
    /// As `std::fs::read` does it, by smaller steps.
    fn first_copy(&self) -> Vec<u8> {
        let mut bytes = vec![0; Again::length(&self.file).unwrap() as usize];
        let mut offset = 0;
        loop {
            let read = self.read_at(&mut bytes[offset..], offset as u64);
            match read.unwrap() {
                // The file may become shorter.
                0 => break,
                read => offset += read,
            }
        }
        bytes.truncate(offset);
        bytes
    }
}

/// Two threads that free what the other one allocated. None of it is short-lived.
struct Threads {
    cursors: [Cursor; 2],
    written: Vec<Event>,
}

impl Threads {
    fn new(options: &Options) -> Self {
        let writer = writer(options);
        Self {
            cursors: [Cursor::new(writer), Cursor::new(writer)],
            written: Vec::new(),
        }
    }

    fn record(&mut self, count: u64) {
        const STEP: u64 = 150_000_000;
        let begin = self.written.len() as u64 / 2;
        for number in begin..begin + count {
            let (time, thread) = (1 + number * 2 * STEP, (number % 3 % 2) as usize);
            let by = |event: Event, thread: usize| Event {
                thread: 7 + thread as u32,
                ..event
            };
            // One in three is freed by its own thread.
            let other = (thread + usize::from(!number.is_multiple_of(3))) % 2;
            let events = [
                (by(allocated(time, number << 9), thread), None),
                (by(freed(time + STEP, number << 9), other), Some(time)),
            ];
            for (event, created) in events {
                self.cursors[event.thread as usize - 7].record(&event, created);
                self.written.push(event);
            }
        }
    }
}

/// Reads a file. Pairs of events are recorded before every eleventh read, in turn, and between the first copy and the second one, or
/// not.
/// Returns how many reads there are.
fn interrupt_reads(options: impl Fn(&Scratch) -> Options, before: u64, more: u64) -> u32 {
    let mut at = 0;
    while [false, true].map(|twice| interrupt_read(&options, before, more, at, twice)) != [false; 2]
    {
        // A prime number: of each chunk another read is interrupted.
        at += 11;
    }
    at
}

/// Returns whether there are so many reads.
fn interrupt_read(
    options: impl Fn(&Scratch) -> Options,
    before: u64,
    more: u64,
    at: u32,
    twice: bool,
) -> bool {
    let scratch = Scratch::new();
    let mut threads = Threads::new(&options(&scratch));
    threads.record(before);
    let threads = RefCell::new(threads);
    let file = Interrupted {
        file: File::open(&scratch.0).unwrap(),
        reads_before: Cell::new(at),
        happens: RefCell::new(Some(Box::new(|| threads.borrow_mut().record(more)))),
    };
    let first = file.first_copy();
    if twice {
        threads.borrow_mut().record(more);
    }
    let recording = written::read(&file, first).unwrap();
    // All events up to the last, from the first complete moment on.
    let last = recording.events.last().unwrap().time;
    let is_complete = |time: u64| (recording.complete_from..=last).contains(&time);
    let mut read = resolved(&recording);
    let written = &threads.borrow().written;
    let all: HashSet<_> = expected(written).into_iter().collect();
    assert!(
        read.iter().all(|event| all.contains(event)),
        "at read {at}, {twice}"
    );
    read.retain(|(time, ..)| is_complete(*time));
    let mut wanted = written.clone();
    wanted.retain(|event| is_complete(event.time));
    let is_read = read == expected(&wanted);
    assert!(is_read, "at read {at}, {twice}, up to {last}");
    let of_limit = |problem: &String| problem.contains("the size limit");
    assert!(
        recording.problems.iter().all(of_limit),
        "at read {at}, {twice}: {:?}",
        recording.problems
    );
    assert!(last >= written[2 * before as usize - 1].time);
    assert!(wanted.len() > 200, "at read {at}: {}", wanted.len());
    file.happens.borrow().is_none()
}

#[test]
fn all_events_up_to_a_moment_are_read() {
    let reads = interrupt_reads(Scratch::options, 800, 800);
    assert!(reads > 50, "{reads}");
}

#[test]
fn what_the_limit_drops_meanwhile_is_known() {
    let limit = 16 * u64::from(MIN_CHUNK_SIZE);
    let options = |scratch: &Scratch| scratch.options().limit(limit, Policy::Last);
    let reads = interrupt_reads(options, 3000, 700);
    assert!(reads > 50, "{reads}");
}

/// The chunk for events is before the pending one in the file, and so is what leaves a slot.
#[test]
fn allocations_that_leave_their_slots_meanwhile_are_read() {
    let limit = 8 * u64::from(MIN_CHUNK_SIZE);
    let mut at = 0;
    loop {
        let scratch = Scratch::new();
        let writer = writer(&scratch.options().limit(limit, Policy::Aggregate));
        let mut cursor = Cursor::new(writer);
        let mut times = 1..;
        let mut record = |count| {
            for time in times.by_ref().take(count) {
                cursor.record(&allocated(time, time << 9), None);
            }
        };
        let has_pending = || {
            let bytes = std::fs::read(&scratch.0).unwrap();
            let mut chunks = bytes.chunks(MIN_CHUNK_SIZE as usize).skip(1);
            chunks.any(|bytes| bytes[chunk::KIND] == chunk::PENDING as u8)
        };
        record(1500);
        while !has_pending() {
            record(50);
        }
        record(50);
        let first = std::fs::read(&scratch.0).unwrap();
        let known = Recording::read(&first).unwrap().events.len();
        record(1);
        let file = Interrupted {
            file: File::open(&scratch.0).unwrap(),
            reads_before: Cell::new(at),
            happens: RefCell::new(Some(Box::new(|| record(200)))),
        };
        let recording = written::read(&file, first).unwrap();
        let times = recording.events.iter().map(|event| event.time);
        assert!(times.eq(1..=known as u64), "at read {at}");
        if file.happens.borrow().is_some() {
            break;
        }
        at += 3;
    }
    assert!(at > 50, "{at}");
}

#[test]
fn a_recording_that_ends_meanwhile_is_read_to_its_end() {
    let mut at = 0;
    loop {
        let scratch = Scratch::new();
        let writer = writer(&scratch.options());
        let mut cursor = Cursor::new(writer);
        let (mut first, last) = (pairs(100), pairs(200).split_off(200));
        // The end is in a chunk of definitions behind that of the first events.
        for (event, id) in first.iter_mut().zip(1..) {
            if let What::Allocated { stack, .. } = &mut event.what {
                *stack = id;
            }
        }
        first.iter().for_each(|event| cursor.record(event, None));
        let file = Interrupted {
            file: File::open(&scratch.0).unwrap(),
            reads_before: Cell::new(at),
            happens: RefCell::new(Some(Box::new(|| {
                last.iter().for_each(|event| cursor.record(event, None));
                writer.exit(u64::MAX);
            }))),
        };
        let copied = file.first_copy();
        let recording = written::read(&file, copied).unwrap();
        let has_ended = recording.end != End::Open;
        let count = if has_ended { 400 } else { 200 };
        assert_eq!(recording.events.len(), count, "at read {at}");
        if file.happens.borrow().is_some() {
            break;
        }
        at += 1;
    }
    assert!(at > 10, "{at}");
}
