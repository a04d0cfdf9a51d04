//! The end of the process while other threads are inside operations: it ends at once, with its exit code, and with a
//! report.
//!
//! Each test runs itself again as a child, in which one thread waits for a gate that nobody opens, while another ends
//! the process.

use std::process::Output;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::{Context, DeviceBuffer, Event, PinnedBuffer, Result, Stream};

const LEN: usize = 1000;

/// A gate opens after 20 seconds: a process that waits for it exceeds this.
const LIMIT: Duration = Duration::from_secs(10);

/// The code that children end with.
const CODE: i32 = 7;

/// Resources of a stream that waits for a gate.
struct Held {
    context: Context,
    stream: Stream,
    event: Event,
    buffer: DeviceBuffer<u32>,
}

impl Held {
    fn new() -> Result<Self> {
        let context = context()?;
        let stream = Stream::new(&context)?;
        let buffer = DeviceBuffer::zeroed(&stream, LEN)?.with_label("held");
        let event = Event::new(&context)?;
        stream.synchronize()?;
        Gate::on(&context, &stream);
        event.record(&stream)?;
        Ok(Self {
            context,
            stream,
            event,
            buffer,
        })
    }
}

/// Ends the process while another thread is inside `operation`, in this function of the driver.
fn exit_while(
    function: &'static str,
    operation: impl FnOnce(Held) -> Result<()> + Send + 'static,
) -> ! {
    let (begin, begun) = channel();
    thread::spawn(move || {
        let held = Held::new().unwrap();
        begin.send(CallsOf::new(function)).unwrap();
        // Nobody opens the gate.
        let result = operation(held);
        eprintln!("the operation returned {result:?}");
    });
    begun.recv().unwrap().wait();
    thread::sleep(Duration::from_millis(50));
    std::process::exit(CODE);
}

/// Runs a test as a child, and returns what it wrote to standard error.
#[track_caller]
fn ends(test: &str, leak_report: &str, code: i32) -> String {
    let variables = [("LEAK_REPORT", leak_report)];
    let Output { status, stderr, .. } = child_within(LIMIT, test, "exits", &variables);
    let err = String::from_utf8_lossy(&stderr).into_owned();
    // A crash has no code.
    assert_eq!(status.code(), Some(code), "{status}\n{err}");
    assert!(!err.contains("the operation returned"), "{err}");
    err
}

/// Without a report, with one, and with one that decides the exit code.
#[track_caller]
fn ends_each_way(test: &str) {
    ends(test, "0", CODE);
    // Without stacks, whose names take long to look up.
    let err = ends(test, "1,level=sites", CODE);
    for words in ["never closed", "stream-ordered memory", "\"held\""] {
        assert!(err.contains(words), "{words}\n{err}");
    }
    ends(test, "1,level=sites,exitcode=23", 23);
}

#[test]
fn while_a_thread_waits_for_a_stream() {
    if part().is_some() {
        exit_while("cuStreamSynchronize", |held| held.stream.synchronize());
    }
    ends_each_way("while_a_thread_waits_for_a_stream");
}

#[test]
fn while_a_thread_waits_for_an_event() {
    if part().is_some() {
        exit_while("cuEventSynchronize", |held| held.event.synchronize());
    }
    ends_each_way("while_a_thread_waits_for_an_event");
}

#[test]
fn while_a_thread_reads_a_buffer() {
    if part().is_some() {
        exit_while("cuMemcpyDtoHAsync_v2", |held| {
            held.buffer.to_vec().map(drop)
        });
    }
    ends_each_way("while_a_thread_reads_a_buffer");
}

#[test]
fn while_a_thread_is_at_the_end_of_a_scope() {
    if part().is_some() {
        exit_while("cuStreamSynchronize", |held| {
            let mut target = PinnedBuffer::<u32>::zeroed(&held.context, LEN).unwrap();
            held.stream.scope(|s| {
                let mut target = s.bind_host_mut(&mut target);
                s.download(&mut target, &s.bind(&held.buffer)?)?;
                Ok(())
            })
        });
    }
    ends_each_way("while_a_thread_is_at_the_end_of_a_scope");
}

#[test]
fn while_a_thread_closes_a_context() {
    const TEST: &str = "while_a_thread_closes_a_context";
    if part().is_some() {
        exit_while("cuCtxSynchronize", |held| held.context.close());
    }
    // Whether a context that is being closed gets a report is left open: it has not ended, and it
    // was not forgotten.
    ends(TEST, "0", CODE);
    ends(TEST, "1", CODE);
}

#[test]
fn while_threads_allocate_and_free() {
    const TEST: &str = "while_threads_allocate_and_free";
    if part().is_some() {
        for _ in 0..4 {
            thread::spawn(|| {
                let context = context().unwrap();
                loop {
                    let stream = Stream::new(&context);
                    let buffer = stream.and_then(|s| DeviceBuffer::<u8>::zeroed(&s, LEN));
                    drop((buffer, DeviceBuffer::from_slice(&context, &[1; LEN])));
                }
            });
        }
        thread::sleep(Duration::from_millis(50));
        std::process::exit(CODE);
    }
    for _ in 0..3 {
        ends(TEST, "0", CODE);
        ends(TEST, "1", CODE);
    }
}
