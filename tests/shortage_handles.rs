//! Out of memory when a stream, an event, a memory pool or a module is created: the recovery steps run as for an
//! allocation, and the error says the same. (A launch too: `src/scope/launch.rs` tests it.)

use std::fmt::Debug;
use std::panic::Location;
use std::sync::{Arc, Mutex};

use crate::support::room::*;
use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::oom::{Cause, OomPolicy, OutOfMemory, RecoveryStep};
use cuguard::sim::{self, Fault};
use cuguard::{Chunked, Context, DriverPool, Error, Event, Module, ResourceKind, Result, Stream};

/// The driver's function, which refuses once or for good.
fn refusing(function: &str, for_good: bool) -> sim::InjectedFault {
    let fault = Fault::nth_call_of(function, 1).returning(CUresult::OUT_OF_MEMORY);
    let fault = if for_good { fault.sticky() } else { fault };
    sim::inject(fault).expect("there is such a function")
}

/// What was asked for, by the line that follows `line`.
#[track_caller]
fn names(why: &OutOfMemory, operation: &str, kind: ResourceKind, function: &str, line: u32) {
    let asked = &why.request;
    assert_eq!((asked.operation, asked.kind), (operation, Some(kind)));
    assert_eq!((asked.function, asked.bytes), (Some(function), None));
    assert_eq!(
        (asked.code, asked.code_name),
        (2, "CUDA_ERROR_OUT_OF_MEMORY")
    );
    let site = asked.site.expect("a line");
    assert!(site.file.ends_with("shortage_handles.rs"), "{site}");
    assert_eq!(site.line, line + 1, "{site}");
    let steps: Vec<_> = why.recovery.iter().map(|attempt| attempt.step).collect();
    assert_eq!(
        steps,
        [
            RecoveryStep::Callbacks,
            RecoveryStep::Wait,
            RecoveryStep::Trim
        ]
    );
    let text = why.to_text();
    let head = format!("cuguard: out of memory: {operation} requested memory in context ");
    assert!(text.starts_with(&head), "{text}");
    assert!(!text.contains("pieces"), "{text}");
    let line = format!("{operation} on device 0: {function} returned");
    assert!(why.to_string().starts_with(&line), "{why}");
    let json = why.to_json();
    json::check(&json).expect("it is JSON");
    let asked = format!(
        r#""operation":"{operation}","bytes":null,"kind":"{}""#,
        kind.name()
    );
    assert!(json.contains(&asked), "{json}");
}

/// The line that calls this.
#[track_caller]
fn line() -> u32 {
    Location::caller().line()
}

/// Something that is made without a figure: refused for good it fails with a report, refused once it is
/// had after a callback has let go of something. Nothing stays behind.
fn climbs<T: Debug>(
    exported: &str,
    refused: impl Fn(&Context) -> (Result<T>, u32),
    is_named: impl Fn(&OutOfMemory, u32),
    is_had: impl Fn(Result<T>),
) -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = sim::live_counters();
    let fault = refusing(exported, true);
    let (result, line) = refused(&context);
    sim::clear_faults();
    let why = why(result);
    assert_eq!(
        fault.fired(),
        1,
        "without a recovery step that does anything there is one attempt"
    );
    is_named(&why, line);
    assert_eq!(context.live_count(), 0);

    let cache = Arc::new(Mutex::new(Some(take(&context, MIB)?)));
    let told = Arc::new(Mutex::new(Vec::new()));
    let callback = context.release_on_oom({
        let (cache, told) = (cache.clone(), told.clone());
        move |bytes| {
            told.lock().unwrap().push(bytes);
            drop(cache.lock().unwrap().take());
        }
    });
    let fault = refusing(exported, false);
    is_had(refused(&context).0);
    assert_eq!(fault.fired(), 1);
    assert_eq!(*told.lock().unwrap(), [u64::MAX], "nobody knows how much");
    assert!(cache.lock().unwrap().is_none());
    assert_eq!(context.live_count(), 0);
    // Without recovery steps no callback runs, and the error still says why.
    drop(callback);
    let settings = OomPolicy::fail_at_once();
    let strict = Context::builder()
        .dedicated()
        .oom_policy(settings)
        .build()?;
    let asked = strict.release_on_oom(|_| panic!("it is turned off"));
    refusing(exported, false);
    let (result, _) = refused(&strict);
    assert!(
        self::why(result)
            .recovery
            .iter()
            .all(|attempt| !attempt.allowed)
    );
    drop((asked, strict));

    let after = sim::live_counters();
    assert_eq!(after.allocations(), before.allocations());
    assert_eq!(
        (after.streams, after.events, after.pools, after.misuses),
        (before.streams, before.events, before.pools, before.misuses)
    );
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// It was made, and goes.
#[track_caller]
fn made<T: Debug>(result: Result<T>) {
    drop(result.expect("it is had after the callback"));
}

#[test]
fn a_stream() -> Result<()> {
    if !simulated("a_stream") {
        return Ok(());
    }
    let function = "cuStreamCreateWithPriority";
    climbs(
        function,
        |context| {
            let line = line();
            (Stream::new(context), line)
        },
        |why, line| names(why, "Stream::new", ResourceKind::Stream, function, line),
        made,
    )?;
    climbs(
        function,
        |context| {
            let line = line();
            (Stream::builder(context).blocking().build(), line)
        },
        |why, line| names(why, "Stream::new", ResourceKind::Stream, function, line),
        made,
    )
}

#[test]
fn an_event() -> Result<()> {
    if !simulated("an_event") {
        return Ok(());
    }
    let function = "cuEventCreate";
    climbs(
        function,
        |context| {
            let line = line();
            (Event::new(context), line)
        },
        |why, line| names(why, "Event::new", ResourceKind::Event, function, line),
        made,
    )?;
    climbs(
        function,
        |context| {
            let line = line();
            (Event::without_timing(context), line)
        },
        |why, line| {
            names(
                why,
                "Event::without_timing",
                ResourceKind::Event,
                function,
                line,
            )
        },
        made,
    )
}

#[test]
fn a_memory_pool() -> Result<()> {
    if !simulated("a_memory_pool") {
        return Ok(());
    }
    let function = "cuMemPoolCreate";
    climbs(
        function,
        |context| {
            let line = line();
            (DriverPool::new(context), line)
        },
        |why, line| {
            names(
                why,
                "DriverPool::new",
                ResourceKind::MemoryPool,
                function,
                line,
            )
        },
        made,
    )
}

#[test]
fn a_module() -> Result<()> {
    if !simulated("a_module") {
        return Ok(());
    }
    const SPIN: &str = include_str!("../kernels/spin.ptx");
    const IMAGE: &[u8] = b".version 6.4\n.target sm_52\n.address_size 64\0";
    let function = "cuModuleLoadDataEx";
    climbs(
        function,
        |context| {
            let line = line();
            (Module::from_ptx(context, SPIN), line)
        },
        |why, line| {
            names(
                why,
                "Module::from_ptx",
                ResourceKind::Module,
                function,
                line,
            )
        },
        made,
    )?;
    climbs(
        function,
        |context| {
            let line = line();
            // SAFETY: PTX with a NUL at its end.
            let module = unsafe { Module::from_image(context, IMAGE) };
            (module, line)
        },
        |why, line| {
            names(
                why,
                "Module::from_image",
                ResourceKind::Module,
                function,
                line + 1,
            )
        },
        made,
    )
}

/// Where the device is full of the program's data, that is the cause, and nobody is told to ask for a
/// smaller stream.
#[test]
fn a_stream_on_a_full_device() -> Result<()> {
    let turn = turn();
    if !simulated("a_stream_on_a_full_device") {
        return Ok(());
    }
    let context = context()?;
    let data = leave(&context, 0)?;
    refusing("cuStreamCreateWithPriority", false);
    let why = why(Stream::new(&context));
    let bytes = data.len() as u64;
    let cause = Cause::OwnData {
        bytes,
        grows: false,
    };
    assert_eq!(why.causes(), [cause], "{why:#}");
    let text = why.to_text();
    assert!(text.contains("  - free some of it\n"), "{text}");
    drop((data, context));
    turn.all_came_back();
    Ok(())
}

/// Where nearly all of the device is free, nobody is blamed for the rest.
#[test]
fn a_stream_on_an_empty_device() -> Result<()> {
    let turn = turn();
    if !simulated("a_stream_on_an_empty_device") {
        return Ok(());
    }
    let context = context()?;
    refusing("cuStreamCreateWithPriority", false);
    let why = why(Stream::new(&context));
    let free = context.memory()?.free;
    assert_eq!(why.causes(), [Cause::FreeButRefused { free }], "{why:#}");
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// Other errors of these calls are what they were.
#[test]
fn other_refusals_do_not_climb() -> Result<()> {
    let _turn = turn();
    if !simulated("other_refusals_do_not_climb") {
        return Ok(());
    }
    let context = context()?;
    let callback = context.release_on_oom(|_| panic!("it is not info memory"));
    let refuse = |function: &str| {
        let fault = Fault::nth_call_of(function, 1).returning(CUresult::NOT_PERMITTED);
        sim::inject(fault).expect("there is such a function");
    };
    let refused = |error: Error| {
        assert!(matches!(error, Error::Driver(_)), "{error}");
        assert_eq!(error.code(), Some(CUresult::NOT_PERMITTED));
    };
    refuse("cuStreamCreateWithPriority");
    refused(Stream::new(&context).unwrap_err());
    refuse("cuEventCreate");
    refused(Event::new(&context).unwrap_err());
    refuse("cuMemPoolCreate");
    refused(DriverPool::new(&context).unwrap_err());
    refuse("cuModuleLoadDataEx");
    refused(Module::from_ptx(&context, "").unwrap_err());
    drop(callback);
    Ok(())
}

/// As long as pieces can be made smaller, nobody is asked to give up memory for a stream either.
#[test]
fn a_stream_of_chunked_work_makes_its_pieces_smaller() -> Result<()> {
    let _turn = turn();
    if !simulated("a_stream_of_chunked_work_makes_its_pieces_smaller") {
        return Ok(());
    }
    let context = context()?;
    let callback = context.release_on_oom(|_| panic!("pieces can be smaller"));
    refusing("cuStreamCreateWithPriority", false);
    let mut values = vec![1_u8; 10_000];
    let chunked = Chunked::new(&context).piece_bytes(4000).min_piece_bytes(40);
    let summary = chunked.update(&mut values, |s, mut piece| s.fill(&mut piece.data, 2))?;
    assert_eq!(summary.halved, 1);
    assert!(values.iter().all(|value| *value == 2));
    drop(callback);
    context.close()
}
