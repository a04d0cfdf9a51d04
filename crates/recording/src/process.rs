//! The recording of the process: at most one.
//!
//! ```text
//!            start              exit, fork, error
//!     off ──────────► on ──────────────────────► off for good
//! ```

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use cuguard_sync::process::is_forked;

use crate::data::{Embedded, Event, Found};
use crate::format::cut;
use crate::note::Note;
use crate::options::{Definitions, Label, Options, StartError};
use crate::write::{self, Cursor, Writer};

/// Whether events are recorded.
static ON: AtomicBool = AtomicBool::new(false);

/// The recording. It stays when recording ends: threads may be within it.
static WRITER: OnceLock<&'static Writer> = OnceLock::new();

/// For threads whose own cursor is dropped already.
static SHARED: Mutex<Option<Cursor>> = Mutex::new(None);

thread_local! {
    static CURSOR: RefCell<Own> = const { RefCell::new(Own(None)) };
    /// Whether the thread is within this crate, and may hold its locks. Never dropped.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// The cursor of a thread.
struct Own(Option<Cursor>);

impl Drop for Own {
    fn drop(&mut self) {
        let cursor = self.0.take();
        // A signal handler calls `exit` while the thread is within this crate: it may hold the lock that a cursor needs.
        let Some(_busy) = Busy::enter() else {
            return std::mem::forget(cursor);
        };
        drop(cursor);
    }
}

/// While this exists, a signal handler on the same thread records nothing: it would wait for a lock that its own thread
/// holds.
struct Busy;

impl Busy {
    /// `None` in a signal handler that interrupts the thread within this crate.
    #[inline]
    fn enter() -> Option<Self> {
        // Not `then_some`, which would drop a value where the thread is busy.
        let entered = match BUSY.replace(true) {
            true => None,
            false => Some(Self),
        };
        // The compiler does not move what follows before this.
        compiler_fence(Ordering::SeqCst);
        entered
    }
}

impl Drop for Busy {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        BUSY.set(false);
    }
}

/// Whether events are recorded: one load, for hot paths.
///
/// ```
/// assert!(!cuguard_recording::is_on());
/// ```
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Starts the recording of this process. `definitions` says what the numbers in events mean. Where the file should be replaced
/// and cannot be, standard error names the one that is written.
///
/// # Errors
/// There is one recording a process; the file cannot be created, or exists and is not a recording; this is a forked child.
pub fn start(options: &Options, definitions: &'static dyn Definitions) -> Result<(), StartError> {
    static STARTING: Mutex<()> = Mutex::new(());
    if is_forked() {
        return Err(StartError::Forked);
    }
    let _starting = STARTING.lock();
    if let Some(writer) = WRITER.get() {
        return Err(StartError::Already(writer.path().to_owned()));
    }
    let writer = Writer::create(options, definitions)?;
    if options.replace && writer.path() != options.path {
        let (wanted, path) = (options.path.display(), writer.path().display());
        // Standard error may be closed.
        let _ = writeln!(
            std::io::stderr(),
            "cuguard: {wanted} is in use or cannot be replaced; the recording is {path}"
        );
    }
    if WRITER.set(writer).is_ok() {
        // The child shares the mapped file: it would overwrite what this process records.
        write::on_fork(forked);
        ON.store(true, Ordering::Release);
    }
    Ok(())
}

extern "C" fn forked() {
    write::forked::mark();
    turn_off();
    if let Some(writer) = WRITER.get() {
        writer.release_in_child();
    }
}

fn turn_off() {
    ON.store(false, Ordering::Release);
}

/// The file that this process records into, or did.
///
/// ```
/// assert_eq!(cuguard_recording::path(), None);
/// ```
#[must_use]
pub fn path() -> Option<&'static Path> {
    WRITER.get().map(|writer| writer.path())
}

/// The recording, if it is on.
#[inline]
fn writer() -> Option<&'static Writer> {
    match is_on() && !is_forked() {
        true => WRITER.get().copied(),
        false => None,
    }
}

/// Calls `use_it` with the cursor of the thread, or with the one that all threads share.
#[inline]
fn with_cursor(writer: &'static Writer, use_it: impl Fn(&mut Cursor)) {
    let Some(_busy) = Busy::enter() else {
        return writer.lose_event();
    };
    let own = CURSOR.try_with(|cursor| {
        match cursor.try_borrow_mut() {
            Ok(mut cursor) => use_it(cursor.0.get_or_insert_with(|| Cursor::new(writer))),
            // Not reached, as the thread was not busy.
            Err(_) => writer.lose_event(),
        }
    });
    if own.is_err() {
        with_shared_cursor(writer, use_it);
    }
    if writer.has_failed() {
        turn_off();
    }
}

/// How long a thread waits for the cursor that threads share, before its event counts as lost.
const PATIENCE: Duration = Duration::from_secs(1);

#[cold]
fn with_shared_cursor(writer: &'static Writer, use_it: impl Fn(&mut Cursor)) {
    // With a limit, as threads end here. It is held for less than a microsecond, but the holder may be preempted.
    let until = Instant::now() + PATIENCE;
    loop {
        match SHARED.try_lock() {
            Ok(mut cursor) => return use_it(cursor.get_or_insert_with(|| Cursor::new(writer))),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::yield_now(),
            Err(_) => break,
        }
    }
    writer.lose_event();
}

/// Records an event. Its time is that of [`cuguard_sync::clock`], its numbers are those of [`Definitions`]. Does nothing
/// while [`is_on`] returns `false`.
///
/// Call it after the driver allocated and before it frees: addresses are reused.
///
/// ```
/// use cuguard_recording::{Event, What, record};
///
/// let what = What::Freed { kind: 0, address: 0x7f00_0000_0000, context: 1 };
/// record(&Event { time: cuguard_sync::clock::nanoseconds(), thread: 1, what });
/// ```
#[inline(never)]
pub fn record(event: &Event) {
    if let Some(writer) = writer() {
        let event = Event {
            time: writer.since_begin(event.time),
            ..*event
        };
        with_cursor(writer, |cursor| cursor.record(&event, None));
    }
}

/// [`record`] for a [`What::Freed`](crate::What::Freed) of something whose allocation has the time `created`: by the
/// policy [`Aggregate`](crate::Policy::Aggregate) both may be left out.
///
/// ```
/// use cuguard_recording::{Event, What, record_freed};
///
/// let what = What::Freed { kind: 0, address: 0x7f00_0000_0000, context: 1 };
/// record_freed(&Event { time: 2, thread: 1, what }, 1);
/// ```
#[inline(never)]
pub fn record_freed(event: &Event, created: u64) {
    if let Some(writer) = writer() {
        let event = Event {
            time: writer.since_begin(event.time),
            ..*event
        };
        let created = Some(writer.since_begin(created));
        with_cursor(writer, |cursor| cursor.record(&event, created));
    }
}

/// Records a name for something alive, in place of the label that it has.
#[cold]
pub fn record_label(label: &Label) {
    if let Some(writer) = writer() {
        let label = Label {
            time: writer.since_begin(label.time),
            created: writer.since_begin(label.created),
            ..*label
        };
        with_cursor(writer, |cursor| cursor.label(&label));
    }
}

/// Notes in the file that one resource in `one_in` is recorded, and the others are not: readers know that the figures are those of
/// samples. Where it is called again, the larger number counts. Does nothing while [`is_on`] returns `false`.
///
/// ```
/// cuguard_recording::note_sampling(100);
/// ```
pub fn note_sampling(one_in: u32) {
    if let Some(writer) = writer() {
        writer.note_sampling(one_in);
    }
}

/// The addresses in all stacks so far, in order, if [`Options::keep_addresses`] is set. None in a signal handler that
/// interrupts the recording of an event.
#[must_use]
pub fn addresses() -> Vec<u64> {
    let Some(_busy) = Busy::enter() else {
        return Vec::new();
    };
    writer().map(Writer::addresses).unwrap_or_default()
}

/// Adds the names of functions, for machines without the program.
pub fn embed_symbols(symbols: impl IntoIterator<Item = Embedded>) {
    if let Some(writer) = writer() {
        // Collected first: resolving may allocate and record.
        let symbols: Vec<Embedded> = symbols.into_iter().collect();
        let Some(_busy) = Busy::enter() else {
            return;
        };
        writer.symbols(symbols.into_iter());
    }
}

/// The most bytes of a diagnosis.
const DIAGNOSIS: usize = 64 << 10;

/// Adds why an allocation failed. `event` is the [out-of-memory event](crate::What::OutOfMemory) as it was recorded. Does nothing while
/// [`is_on`] returns `false`, and in a signal handler that interrupts the recording of an event.
///
/// ```
/// use cuguard_recording::{Event, What, record, record_diagnosis};
///
/// let what = What::OutOfMemory { bytes: 1 << 40, stack: 0, context: 1 };
/// let event = Event { time: cuguard_sync::clock::nanoseconds(), thread: 1, what };
/// record(&event);
/// record_diagnosis(&event, "why: the request is larger than the device");
/// ```
#[cold]
pub fn record_diagnosis(event: &Event, text: &str) {
    if let Some(writer) = writer() {
        let Some(_busy) = Busy::enter() else {
            return;
        };
        let time = writer.since_begin(event.time);
        let (text, _) = cut(text, DIAGNOSIS);
        let notes = Note::diagnosis(time, event.thread, text);
        writer.notes(event.thread, notes.into_iter());
    }
}

/// Adds what a search at the end of the process found of what is not freed. The numbers are those of the events of
/// allocations. Does nothing while [`is_on`] returns `false`, and in a signal handler that interrupts the recording of an
/// event.
///
/// ```
/// use cuguard_recording::{Found, record_found};
///
/// record_found([Found { kind: 0, address: 0x7f00_0000_0000, context: 1, lost: true }]);
/// ```
#[cold]
pub fn record_found(found: impl IntoIterator<Item = Found>) {
    if let Some(writer) = writer() {
        let Some(_busy) = Busy::enter() else {
            return;
        };
        writer.notes(0, found.into_iter().map(Note::Found));
    }
}

/// The exit of the process begins, at this time of [`cuguard_sync::clock`]: `main` returned, or `exit` was called. The
/// recording goes on. Where it is called again, the first call after the last allocation counts. Does nothing while
/// [`is_on`] returns `false`, and in a signal handler that interrupts the recording of an event.
///
/// ```
/// cuguard_recording::record_exit_begins(cuguard_sync::clock::nanoseconds());
/// ```
#[cold]
pub fn record_exit_begins(time: u64) {
    if let Some(writer) = writer() {
        let Some(_busy) = Busy::enter() else {
            return;
        };
        let time = writer.since_begin(time);
        writer.notes(0, std::iter::once(Note::ExitBegins { time }));
    }
}

/// Adds how many operations there had been that are no events, such as kernel launches, at times of [`cuguard_sync::clock`]. They count for
/// what grows. Does nothing while [`is_on`] returns `false`, and in a signal handler that interrupts the recording of an event.
///
/// ```
/// cuguard_recording::record_work([(cuguard_sync::clock::nanoseconds(), 1000)]);
/// ```
#[cold]
pub fn record_work(counts: impl IntoIterator<Item = (u64, u64)>) {
    if let Some(writer) = writer() {
        let Some(_busy) = Busy::enter() else {
            return;
        };
        let note = |(time, count)| Note::Work {
            time: writer.since_begin(time),
            count,
        };
        writer.notes(0, counts.into_iter().map(note));
    }
}

/// The process exits, at this time of [`cuguard_sync::clock`]: the recording ends. In a signal handler that interrupts the
/// recording of an event, the end is not written.
pub fn note_exit(time: u64) {
    if let Some(writer) = writer() {
        turn_off();
        let Some(_busy) = Busy::enter() else {
            return;
        };
        writer.exit(time);
    }
}

/// The name of this machine, for the names of files.
///
/// ```
/// assert!(!cuguard_recording::host().contains('\n'));
/// ```
#[must_use]
pub fn host() -> String {
    write::host()
}
