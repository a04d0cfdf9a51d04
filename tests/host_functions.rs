//! Guards dropped inside a stream's host function, where the driver permits no call: they are freed at
//! the next opportunity, and count as live until then.

use std::sync::mpsc::channel;

use cuguard::report::Report;

use crate::support::*;
use cuguard::context::ContextBuilder;
use cuguard::driver::api;
use cuguard::driver::sys::CUresult;
use cuguard::report::ReportSettings;
use cuguard::{
    Context, DeviceBuffer, DriverPool, Error, Event, ManagedBuffer, PinnedBuffer, RegisteredVec,
    Result, Stream, TrackingLevel, sim,
};

const MIB: usize = 1 << 20;

/// Calls `function` in a host function on `stream`, and waits until it has returned; with the driver's
/// own function, as an operation of the crate would free what was dropped.
fn in_host_function(stream: &Stream, current: &Context, function: impl FnOnce() + Send + 'static) {
    let ((go, wait), (say, done)) = (channel(), channel());
    // SAFETY: the context is alive.
    let code = unsafe { api::cuCtxPushCurrent_v2(current.as_raw()) };
    assert!(code.is_success(), "{code}");
    stream
        .add_callback(Box::new(move || {
            wait.recv().unwrap();
            function();
            say.send(()).unwrap();
        }))
        .unwrap();
    // From here on nothing of the crate is called.
    go.send(()).unwrap();
    done.recv().unwrap();
    // The function has returned to the driver when its stream is idle.
    // SAFETY: the stream is alive, and its context was pushed above.
    let code = unsafe { api::cuStreamSynchronize(stream.as_raw()) };
    assert!(code.is_success(), "{code}");
    // SAFETY: pops what was pushed above.
    let code = unsafe { api::cuCtxPopCurrent_v2(std::ptr::null_mut()) };
    assert!(code.is_success(), "{code}");
}

/// One of each kind.
fn resources(context: &Context, stream: &Stream) -> Result<impl Send + 'static> {
    let pool = DriverPool::new(context)?;
    Ok((
        DeviceBuffer::<u8>::zeroed(context, 8 * MIB)?,
        DeviceBuffer::<u8>::zeroed(stream, 8 * MIB)?,
        DeviceBuffer::<u8>::zeroed(&pool.on(stream), 8 * MIB)?,
        pool,
        PinnedBuffer::<u8>::zeroed(context, MIB)?,
        RegisteredVec::new(context, vec![0_u8; MIB])?,
        ManagedBuffer::<u8>::zeroed(context, MIB)?,
        Event::new(context)?,
        // Its stream is not idle when it goes; the other one is.
        Stream::new(context)?,
    ))
}

const COUNT: u64 = 9;

#[test]
fn what_is_dropped_in_a_host_function_is_freed_at_the_next_call() -> Result<()> {
    let turn = turn();
    for builder in [
        Context::builder(),
        Context::builder().dedicated(),
        Context::builder().level(TrackingLevel::Counts),
        Context::builder().free_leaks(false),
    ] {
        // Keeps the primary context alive, so that nothing goes with it.
        let others = context()?;
        let context = builder.build()?;
        let stream = Stream::new(&context)?;
        let before = in_hand(&others)?;
        let resources = resources(&context, &stream)?;
        stream.synchronize()?;
        let live = context.live_bytes();
        assert_eq!(context.live_count(), COUNT + 1);
        in_host_function(&stream, &context, move || drop(resources));

        assert_eq!(context.live_count(), COUNT + 1, "live until it is freed");
        assert_eq!(context.live_bytes(), live);
        let snapshot = context.snapshot();
        let deferred: u64 = snapshot
            .deferred
            .iter()
            .map(|group| group.amount.count)
            .sum();
        // The pool, too: the memory that is from it keeps it. Without a record that is not known.
        let unknown = u64::from(snapshot.level == TrackingLevel::Counts);
        assert_eq!(deferred, COUNT - unknown, "{}", snapshot.display());
        // Any operation is an opportunity, also in another context.
        others.memory()?;
        assert_eq!(context.live_count(), 1, "{}", context.snapshot().display());
        assert_eq!(context.live_bytes(), 0);
        assert!(context.snapshot().deferred.is_empty());
        stream.synchronize()?;
        others.synchronize()?;
        before.all_freed();
        drop(stream);
        context.close()?;
        others.close()?;
        turn.all_came_back();
    }
    Ok(())
}

/// A report file that is removed again.
fn reported(test: &str, builder: ContextBuilder) -> Result<(Context, std::path::PathBuf)> {
    let name = format!("cuguard-host-{}-{test}.json", std::process::id());
    let file = temporary(&name);
    let settings = ReportSettings::json().file(file.to_str().unwrap()).unwrap();
    Ok((builder.report(settings).build()?, file))
}

#[test]
fn a_close_frees_what_was_dropped_in_a_host_function() -> Result<()> {
    let turn = turn();
    let others = context()?;
    let before = in_hand(&others)?;
    let (context, file) = reported("close", Context::builder())?;
    let stream = Stream::new(&context)?;
    let resources = resources(&context, &stream)?;
    in_host_function(&stream, &context, move || drop(resources));
    drop(stream);
    context.close()?;
    others.synchronize()?;
    before.all_freed();
    let report = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    assert!(report.contains(r#""leaked":false"#), "{report}");
    others.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn the_last_resource_of_a_dropped_context() -> Result<()> {
    let turn = turn();
    let others = context()?;
    let host = Stream::new(&others)?;
    let before = in_hand(&others)?;
    let context = context()?;
    let stream = Stream::new(&context)?;
    let resources = resources(&context, &stream)?;
    drop((context, stream));
    in_host_function(&host, &others, move || drop(resources));
    if simulated("the count of contexts") {
        assert!(sim::counters().streams > 1, "nothing was freed yet");
    }
    others.synchronize()?;
    others.synchronize()?;
    before.all_freed();
    drop(host);
    others.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_context_dropped_or_closed_in_a_host_function() -> Result<()> {
    let turn = turn();
    let others = context()?;
    let host = Stream::new(&others)?;
    let before = in_hand(&others)?;
    for close in [false, true] {
        let context = Context::builder().dedicated().build()?;
        let empty = DeviceBuffer::<u8>::from_slice(&context, &[])?;
        let (say, said) = channel();
        in_host_function(&host, &others, move || {
            let result = match close {
                true => context.close(),
                false => {
                    drop(context);
                    Ok(())
                }
            };
            say.send(result).unwrap();
            drop(empty);
        });
        let result = said.recv().unwrap();
        match close {
            true => {
                let error = result.unwrap_err();
                assert_eq!(error.code(), Some(CUresult::NOT_PERMITTED));
                let why = "inside a host function of a stream no CUDA call is permitted, and the \
                           context is torn down later";
                assert!(error.to_string().ends_with(why), "{error}");
            }
            false => result?,
        }
        others.memory()?;
        before.all_freed();
    }
    drop(host);
    others.close()?;
    turn.all_came_back();
    Ok(())
}

/// `close` returns the error, and frees later all the same.
#[test]
fn closing_a_guard_in_a_host_function_fails_and_is_deferred() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let before = in_hand(&context)?;
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 8 * MIB)?;
    let ordered = DeviceBuffer::<u8>::zeroed(&stream, 8 * MIB)?;
    let pinned = PinnedBuffer::<u8>::zeroed(&context, MIB)?;
    let registered = RegisteredVec::new(&context, vec![1_u8; MIB])?;
    stream.synchronize()?;
    let (say, said) = channel();
    in_host_function(&stream, &context, move || {
        let results = [
            buffer.close(),
            ordered.close(),
            pinned.close(),
            registered.into_vec().map(drop),
        ];
        say.send(results).unwrap();
    });
    for result in said.recv().unwrap() {
        let error = result.unwrap_err();
        assert_eq!(error.code(), Some(CUresult::NOT_PERMITTED), "{error}");
        let why = "inside a host function of a stream no CUDA call is permitted";
        assert!(error.to_string().ends_with(why), "{error}");
        assert!(matches!(error, Error::Driver(_)), "{error}");
    }
    stream.synchronize()?;
    stream.synchronize()?;
    assert_eq!(context.live_bytes(), 0);
    before.all_freed();
    assert!(context.snapshot().failed_frees.is_empty());
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// Nothing is called after that, so nothing is freed; and nothing leaked.
#[test]
fn what_waits_to_be_freed_at_exit_is_no_leak() {
    const TEST: &str = "what_waits_to_be_freed_at_exit_is_no_leak";
    if part().is_some() {
        let context = std::mem::ManuallyDrop::new(context().unwrap());
        let stream = std::mem::ManuallyDrop::new(Stream::new(&context).unwrap());
        let work = Stream::new(&context).unwrap();
        let resources = resources(&context, &work).unwrap();
        in_host_function(&stream, &context, move || drop((resources, work)));
        std::process::exit(0);
    }
    for setting in ["json", "json,level=counts"] {
        let output = child(TEST, "exit", &[("LEAK_REPORT", setting)]);
        let (_, err) = succeeded(&output);
        let line = err.lines().find(|line| line.starts_with('{')).unwrap();
        json::check(line).unwrap();
        // The one stream was forgotten, and nothing else.
        let leaks = line.split(r#""leaks":"#).nth(1).unwrap();
        let leaks = leaks.split(r#","escaped":"#).next().unwrap();
        assert_eq!(leaks.matches(r#""kind":""#).count(), 1, "{line}");
        assert!(leaks.contains(r#""kind":"stream","#), "{line}");
    }
}
