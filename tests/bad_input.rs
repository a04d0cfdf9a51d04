//! Input that makes no sense, at the entries that other tests leave out: each is refused with words
//! that name what was given and what would do, nothing panics, and nothing is left behind.
//!
//! Other places have the rest: tests/guards.rs (sizes that overflow), tests/scope.rs (lengths and
//! ranges in scopes), tests/modules (PTX on a real GPU), crates/driver/tests/loader.rs
//! (`CUGUARD_DRIVER`), tests/bad_settings.rs (`LEAK_REPORT`).

use cuguard::report::Report;

use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::report::ReportSettings;
use cuguard::{
    Context, DeviceBox, DeviceBuffer, DriverPool, Error, Event, ManagedBuffer, Module,
    PinnedBuffer, Result, Stream,
};

/// Where things are made.
struct Places {
    context: Context,
    stream: Stream,
    pool: DriverPool,
}

impl Places {
    fn new() -> Result<Self> {
        let context = context()?;
        let (stream, pool) = (Stream::new(&context)?, DriverPool::new(&context)?);
        Ok(Self {
            context,
            stream,
            pool,
        })
    }
}

type Constructor = fn(&Places, usize) -> Result<()>;

/// All that takes a number of elements, here of four bytes each; by the name that errors have.
const CONSTRUCTORS: [(&str, Constructor); 8] = [
    ("DeviceBuffer::zeroed", |at, len| {
        DeviceBuffer::<u32>::zeroed(&at.context, len).map(drop)
    }),
    ("DeviceBuffer::uninitialized", |at, len| {
        // SAFETY: nobody reads it.
        unsafe { DeviceBuffer::<u32>::uninitialized(&at.context, len) }.map(drop)
    }),
    ("DeviceBuffer::zeroed", |at, len| {
        DeviceBuffer::<u32>::zeroed(&at.stream, len).map(drop)
    }),
    ("DeviceBuffer::zeroed", |at, len| {
        DeviceBuffer::<u32>::zeroed(&at.pool.on(&at.stream), len).map(drop)
    }),
    ("DeviceBuffer::uninitialized", |at, len| {
        // SAFETY: nobody reads it.
        unsafe { DeviceBuffer::<u32>::uninitialized(&at.stream, len) }.map(drop)
    }),
    ("PinnedBuffer::zeroed", |at, len| {
        PinnedBuffer::<u32>::zeroed(&at.context, len).map(drop)
    }),
    ("DeviceBuffer::uninitialized", |at, len| {
        // SAFETY: nobody reads it.
        unsafe { DeviceBuffer::<u32>::uninitialized(&at.pool.on(&at.stream), len) }.map(drop)
    }),
    ("ManagedBuffer::zeroed", |at, len| {
        ManagedBuffer::<u32>::zeroed(&at.context, len).map(drop)
    }),
];

/// More bytes than there are addresses: nobody asks the driver.
#[test]
fn sizes_that_overflow_are_named() -> Result<()> {
    const MOST: usize = isize::MAX as usize / 4;
    let turn = turn();
    let at = Places::new()?;
    let before = at.context.live_count();
    for (name, make) in CONSTRUCTORS {
        for len in [usize::MAX, usize::MAX - 1, usize::MAX / 4 + 1, MOST + 1] {
            let error = make(&at, len).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{name}: {len} elements of 4 bytes each exceed the address space")
            );
        }
    }
    assert_eq!(at.context.live_count(), before);
    drop(at);
    turn.all_came_back();
    Ok(())
}

/// There are addresses for it, but no memory.
#[test]
fn sizes_that_nobody_has_are_named() -> Result<()> {
    const MOST: usize = isize::MAX as usize / 4;
    let turn = turn();
    let at = Places::new()?;
    let before = at.context.live_count();
    for (name, make) in CONSTRUCTORS {
        for len in [MOST, MOST - 1, MOST - 1024, 1 << 58, 1 << 44] {
            let error = make(&at, len).unwrap_err();
            let refused = match &error {
                // Rounded up to whole pages there are no addresses for it either.
                Error::SizeOverflow { count, .. } => *count == len && len >= MOST - 1024,
                Error::OutOfHostMemory { bytes, .. } => *bytes == 4 * len as u64,
                Error::OutOfMemory(why) => why.request.bytes == Some(4 * len as u64),
                // A driver may find so large a number wrong as such.
                Error::Driver(error) => {
                    matches!(
                        error.code,
                        CUresult::OUT_OF_MEMORY | CUresult::INVALID_VALUE
                    ) && error.bytes == Some(4 * len as u64)
                }
                _ => false,
            };
            assert!(refused, "{name} {len}: {error}");
            let words = error.to_string();
            let size = words.contains("TiB") || words.contains(&len.to_string());
            assert!(words.starts_with(name) && size, "{len}: {words}");
        }
    }
    // The context is none the worse for it.
    assert_eq!(at.context.live_count(), before);
    for (_, make) in CONSTRUCTORS {
        make(&at, 100)?;
    }
    drop(at);
    turn.all_came_back();
    Ok(())
}

#[test]
fn lengths_that_differ_are_named() -> Result<()> {
    let turn = turn();
    {
        let context = context()?;
        let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
        for len in [0, 2, 4, 1000] {
            let mut values = vec![9; len];
            let into = buffer.copy_from_slice(&values).unwrap_err();
            let from = buffer.copy_to_slice(&mut values).unwrap_err();
            for (name, side, error) in [
                ("copy_from_slice", "source", into),
                ("copy_to_slice", "destination", from),
            ] {
                let words =
                    format!("DeviceBuffer::{name}: the {side} has {len} elements, the buffer 3");
                assert_eq!(error.to_string(), words);
            }
            assert_eq!(values, vec![9; len]);
        }
        assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    }
    turn.all_came_back();
    Ok(())
}

#[test]
fn devices_that_do_not_exist_are_named() {
    let _turn = turn();
    for ordinal in [99, i32::MAX as u32, i32::MAX as u32 + 1, u32::MAX] {
        let primary = Context::new(ordinal).unwrap_err();
        let own = Context::builder()
            .device(ordinal)
            .dedicated()
            .build()
            .unwrap_err();
        for (operation, error) in [("Context::new", primary), ("ContextBuilder::build", own)] {
            let words = error.to_string();
            let expected = format!("{operation}: there is no device {ordinal}; there ");
            assert!(words.starts_with(&expected), "{words}");
        }
    }
}

#[test]
fn text_that_is_no_ptx_is_refused() -> Result<()> {
    let turn = turn();
    let context = context()?;
    for text in ["\0\0", "\0\0\0", ".version\0 6.4\0", "a\n\0b", "\x7f\0ELF"] {
        let error = Module::from_ptx(&context, text).unwrap_err();
        assert!(matches!(error, Error::InteriorNul { .. }), "{error}");
        let words = error.to_string();
        assert!(
            words.starts_with("Module::from_ptx: ") && words.contains("\\0"),
            "{words}"
        );
    }
    // A long text is not repeated as a whole.
    let long = format!("{}\0\0", "// a line of a very long text\n".repeat(10_000));
    let words = Module::from_ptx(&context, &long).unwrap_err().to_string();
    assert!(words.len() < 1000, "{} bytes of message", words.len());
    for text in [
        "",
        " ",
        "hello",
        "\u{feff}.version",
        "//",
        "\0",
        ".version 6.4\0",
        "\x7fELF\0",
    ] {
        let error = Module::from_ptx(&context, text).unwrap_err();
        assert!(error.code().is_some(), "{text:?}: {error}");
        assert!(error.to_string().starts_with("Module::from_ptx"), "{error}");
    }
    assert_eq!(context.live_count(), 0);
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// The manual says that the nearest is taken.
#[test]
fn priorities_beyond_all_are_the_nearest() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let priorities = Stream::priorities(&context)?;
    for (asked, expected) in [
        (i32::MIN, *priorities.start()),
        (i32::MAX, *priorities.end()),
    ] {
        let stream = Stream::builder(&context).priority(asked).build()?;
        assert_eq!(stream.priority()?, expected, "{asked}");
    }
    Ok(())
}

#[test]
fn events_that_tell_no_time_are_named() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (recorded, never) = (Event::new(&context)?, Event::new(&context)?);
    recorded.record(&stream)?;
    stream.synchronize()?;
    let error = recorded.elapsed_since(&never).unwrap_err();
    assert!(
        error.to_string().starts_with("Event::elapsed_since"),
        "{error}"
    );
    let silent = Event::without_timing(&context)?;
    silent.record(&stream)?;
    stream.synchronize()?;
    let error = silent.elapsed_since(&recorded).unwrap_err();
    assert!(
        error.to_string().starts_with("Event::elapsed_since"),
        "{error}"
    );
    Ok(())
}

/// Pools take any number for a threshold, as the driver does.
#[test]
fn pools_take_any_number() -> Result<()> {
    let turn = turn();
    {
        let at = Places::new()?;
        for bytes in [0, 1, u64::MAX / 2, u64::MAX] {
            at.pool.set_release_threshold(bytes)?;
        }
        at.pool.trim_to(usize::MAX)?;
        at.pool.trim_to(0)?;
        at.pool.set_release_threshold(0)?;
    }
    turn.all_came_back();
    Ok(())
}

/// The error says which two, and of which contexts.
#[test]
fn things_of_two_contexts_do_not_mix() -> Result<()> {
    #[track_caller]
    fn wrong<T>(one: &Places, two: &Places, result: Result<T>, words: [&str; 3]) {
        let Err(error) = result else {
            panic!("{words:?}: mixed")
        };
        let of = |at: &Places| at.context.snapshot().info.context;
        let [operation, first, second] = words;
        assert_eq!(
            error.to_string(),
            format!(
                "{operation}: {first} belongs to context {}, {second} to context {}",
                of(one),
                of(two)
            )
        );
        assert!(matches!(error, Error::WrongContext { .. }));
    }
    let turn = turn();
    {
        let (one, two) = (Places::new()?, Places::new()?);
        let wrong = |result, words| wrong(&one, &two, result, words);
        let (near, far) = (&one.stream, &two.stream);

        let given = "the argument `context`";
        let mut managed = ManagedBuffer::<u8>::zeroed(&one.context, 10)?;
        let seen = managed.as_slice(&two.context).map(drop);
        wrong(seen, ["ManagedBuffer::as_slice", "the buffer", given]);
        let seen = managed.as_mut_slice(&two.context).map(drop);
        wrong(seen, ["ManagedBuffer::as_mut_slice", "the buffer", given]);
        let taken = DeviceBuffer::<u8>::zeroed(&one.pool.on(far), 10).map(drop);
        wrong(taken, ["DeviceBuffer::zeroed", "the pool", "the stream"]);

        for buffer in [
            DeviceBuffer::<u8>::zeroed(&one.context, 10)?,
            DeviceBuffer::<u8>::zeroed(near, 10)?,
        ] {
            let used = buffer.record_stream(far);
            wrong(
                used,
                ["DeviceBuffer::record_stream", "the buffer", "the stream"],
            );
        }
        let other = DeviceBuffer::<u8>::zeroed(&two.context, 10)?;
        let bound = near.scope(|s| s.bind(&other).map(drop));
        wrong(bound, ["Scope::bind", "the scope's stream", "the memory"]);

        let waits = ["the stream that waits", "the stream that it waits for"];
        let ordered = near.order_after(far);
        wrong(ordered, ["Stream::order_after", waits[0], waits[1]]);
        let (event, theirs) = (Event::new(&one.context)?, Event::new(&two.context)?);
        let recorded = event.record(far);
        wrong(recorded, ["Event::record", "the event", "the stream"]);
        let waited = near.scope(|s| s.wait(&theirs));
        wrong(waited, ["Scope::wait", "the stream", "the event"]);
        let elapsed = event.elapsed_since(&theirs).map(drop);
        let events = ["the later event", "the earlier event"];
        wrong(elapsed, ["Event::elapsed_since", events[0], events[1]]);
    }
    turn.all_came_back();
    Ok(())
}

/// An error names the function that the program called, not one behind it.
#[test]
fn errors_name_what_was_called() -> Result<()> {
    let _turn = turn();
    let (at, others) = (Places::new()?, Places::new()?);
    let buffer = DeviceBuffer::<u8>::zeroed(&at.stream, 10)?;
    let mut boxed = DeviceBox::new(&at.context, &1_u32)?;
    let error = buffer.record_stream(&others.stream).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("DeviceBuffer::record_stream: ")
    );
    let error = at.stream.order_after(&others.stream).unwrap_err();
    assert!(error.to_string().starts_with("Stream::order_after: "));

    let Places {
        context, stream, ..
    } = at;
    context.close()?;
    let closed = "the context was closed";
    let error = buffer.record_stream(&stream).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("DeviceBuffer::record_stream: {closed}")
    );
    let error = stream.scope(|s| s.bind(&buffer).map(drop)).unwrap_err();
    assert_eq!(error.to_string(), format!("Scope::bind: {closed}"));
    let error = boxed.set(&2).unwrap_err();
    assert_eq!(error.to_string(), format!("DeviceBox::set: {closed}"));
    let error = boxed.get().unwrap_err();
    assert_eq!(error.to_string(), format!("DeviceBox::get: {closed}"));
    let error = boxed.close().unwrap_err();
    assert_eq!(error.to_string(), format!("DeviceBox::close: {closed}"));

    if simulated("errors_name_what_was_called") {
        use cuguard::sim::{Fault, clear_faults, inject};
        inject(Fault::nth_call_of("cuMemcpyHtoD_v2", 1)).unwrap();
        let error = DeviceBox::new(&others.context, &1_u32).unwrap_err();
        clear_faults();
        let words = error.to_string();
        assert!(
            words.starts_with("DeviceBox::new of 4 B on device 0: "),
            "{words}"
        );
    }
    Ok(())
}

/// Labels may have anything in them; the report stays in one piece.
#[test]
fn labels_of_any_text_are_told_safely() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let long = "x".repeat(1 << 20);
    let labels = [
        "",
        "two\nlines",
        "\x1b[31mred",
        "nul\0",
        "\"quoted\\",
        "ünï\u{202e}",
        &long,
    ];
    let mut kept = Vec::new();
    for label in labels {
        kept.push(DeviceBuffer::<u8>::zeroed(&context, 10)?.with_label(label));
    }
    let snapshot = context.snapshot();
    json::check(&snapshot.to_json()).unwrap();
    let text = snapshot.to_text(&ReportSettings::text());
    assert!(!text.contains(['\x1b', '\0']), "{:.2000}", text);
    assert!(!text.contains("two\nlines"), "{:.2000}", text);
    Ok(())
}

/// Wider than any driver promises to align memory.
#[derive(Clone, Copy)]
#[repr(C, align(8192))]
struct Wide([u8; 8192]);

// SAFETY: bytes and nothing else.
unsafe impl cust::memory::DeviceCopy for Wide {}
// SAFETY: as above.
unsafe impl bytemuck::Zeroable for Wide {}

/// The host gets slices of managed memory, and a slice must be aligned for its type.
#[test]
fn managed_memory_is_aligned_for_its_type_or_refused() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let mut kept = Vec::new();
    let mut refused = 0;
    for round in 0..16 {
        // Blocks in between, so that addresses vary.
        let between = ManagedBuffer::<u8>::zeroed(&context, 4096)?;
        let live = context.live_count();
        let wide = match round % 2 {
            0 => ManagedBuffer::<Wide>::zeroed(&context, 1),
            _ => ManagedBuffer::from_slice(&context, &[Wide([7; 8192])]),
        };
        match wide {
            Ok(buffer) => {
                assert!(buffer.as_slice(&context)?.as_ptr().is_aligned());
                kept.push((between, Some(buffer)));
            }
            Err(error) => {
                let text = error.to_string();
                for words in ["ManagedBuffer::", "Wide", "8192", "0x"] {
                    assert!(text.contains(words), "{words}: {text}");
                }
                assert_eq!(context.live_count(), live, "nothing stays");
                refused += 1;
                kept.push((between, None));
            }
        }
    }
    // The simulated GPU aligns to pages of 4096 bytes.
    if simulated("the count of refusals in managed_memory_is_aligned_for_its_type_or_refused") {
        assert!(refused > 0);
    }
    // No values need no memory, and memory of the host is allocated as the type needs it.
    assert!(
        ManagedBuffer::<Wide>::zeroed(&context, 0)?
            .as_slice(&context)?
            .is_empty()
    );
    let pinned = PinnedBuffer::<Wide>::zeroed(&context, 1)?;
    assert!(pinned.as_ptr().is_aligned());
    drop((kept, pinned));
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// The driver promises managed memory that nobody has. The host would write to it until the system
/// ends the process.
#[test]
fn managed_memory_is_no_more_than_the_host_has() -> Result<()> {
    const BYTES: usize = 16 << 40;
    let turn = turn();
    let context = Context::new(0)?;
    // SAFETY: a new mapping, which is only read, and of which no page is taken before it is. The
    // system promises as much to anybody, so it is there.
    let values: &[u8] = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        std::slice::from_raw_parts(start.cast(), BYTES)
    };
    for (name, made) in [
        ("zeroed", ManagedBuffer::<u8>::zeroed(&context, BYTES)),
        ("from_slice", ManagedBuffer::from_slice(&context, values)),
    ] {
        let error = made.unwrap_err();
        assert!(error.is_out_of_memory());
        let words = error.to_string();
        let begin = format!(
            "ManagedBuffer::{name}: cannot allocate 16 TiB of host memory; this process can have "
        );
        assert!(words.starts_with(&begin), "{words}");
    }
    assert_eq!(context.live_count(), 0);
    // The context is none the worse for it.
    ManagedBuffer::<u8>::zeroed(&context, 4096)?.close()?;
    drop(context);
    turn.all_came_back();
    Ok(())
}
