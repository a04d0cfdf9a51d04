//! A driver that fails at the end of a context: nothing is lost, nothing panics, and the report has it.

use crate::support::stderr_log;
use cuguard::report::Report;

use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{
    Context, DeviceBuffer, DriverPool, Event, ManagedBuffer, Module, PinnedBuffer, RegisteredVec,
    Result, Stream,
};

/// One of each kind that the simulated GPU has, forgotten.
fn forget_all(context: &Context) -> Result<()> {
    let stream = Stream::new(context)?;
    std::mem::forget(DeviceBuffer::<u8>::zeroed(context, 1000)?.with_label("plain"));
    std::mem::forget(DeviceBuffer::<u8>::zeroed(&stream, 2000)?);
    std::mem::forget(PinnedBuffer::<u8>::zeroed(context, 3000)?);
    std::mem::forget(ManagedBuffer::<u8>::zeroed(context, 4000)?);
    std::mem::forget(RegisteredVec::new(context, vec![0_u8; 5000])?);
    std::mem::forget(Event::new(context)?);
    std::mem::forget(stream);
    Ok(())
}

/// What teardown could not free is in the report, with the driver's word and the place that made
/// it, and sets the exit code.
#[test]
fn frees_that_teardown_is_refused_are_in_the_report() {
    const TEST: &str = "frees_that_teardown_is_refused_are_in_the_report";
    if !simulated(TEST) {
        return;
    }
    if let Some(function) = part() {
        let context = Context::new(0).unwrap();
        forget_all(&context).unwrap();
        let fault = Fault::nth_call_of(function, 1).returning(CUresult::INVALID_HANDLE);
        sim::inject(fault).unwrap();
        let error = context.close().unwrap_err();
        assert_eq!(error.code(), Some(CUresult::INVALID_HANDLE), "{error}");
        sim::clear_faults();
        // Whatever the exit code will be, this is the end of the test.
        std::process::exit(0);
    }
    for function in [
        "cuMemFree_v2",
        "cuMemFreeAsync",
        "cuMemHostUnregister",
        "cuEventDestroy_v2",
        "cuStreamDestroy_v2",
    ] {
        let output = child(TEST, function, &[("LEAK_REPORT", "1,exitcode=23")]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(23), "{err}");
        let name = function.trim_end_matches("_v2");
        let told = format!("{name} returned CUDA_ERROR_INVALID_HANDLE (400)");
        assert!(err.contains(&told), "{told}\n{err}");
        assert_eq!(err.matches("forget_all").count(), 8, "{err}");
    }
}

/// The driver does not let teardown make the context current: nothing can be freed, and everything
/// is told.
#[test]
fn a_context_that_cannot_be_made_current_is_told() -> Result<()> {
    let _turn = turn();
    if !simulated("a_context_that_cannot_be_made_current_is_told") {
        return Ok(());
    }
    let context = Context::builder().dedicated().build()?;
    forget_all(&context)?;
    sim::inject(Fault::nth_call_of("cuCtxPushCurrent_v2", 1).sticky()).unwrap();
    let error = context.close().unwrap_err();
    sim::clear_faults();
    assert!(error.to_string().contains("cuCtxPushCurrent"), "{error}");
    Ok(())
}

/// Contexts that are bound to a thread at the same time may be unbound in any order.
#[test]
fn bound_contexts_go_in_any_order() -> Result<()> {
    let turn = turn();
    {
        let (one, two) = (Context::new(0)?, Context::builder().dedicated().build()?);
        let first = one.make_current()?;
        let second = two.make_current()?;
        drop(first);
        let mut current = cuguard::driver::sys::CUcontext::NULL;
        // SAFETY: the variable can be written to.
        let code = unsafe { cuguard::driver::api::cuCtxGetCurrent(&mut current) };
        assert!(code.is_success());
        assert_eq!(current, two.as_raw());
        drop(second);
        // SAFETY: as above.
        let code = unsafe { cuguard::driver::api::cuCtxGetCurrent(&mut current) };
        assert!(code.is_success());
        assert_ne!(current, two.as_raw());
        assert_ne!(current, one.as_raw());
    }
    turn.all_came_back();
    Ok(())
}

/// A context that the driver does not take back costs memory: that is not a clean end.
#[test]
fn a_context_that_is_not_taken_back_is_told() {
    const TEST: &str = "a_context_that_is_not_taken_back_is_told";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        let context = Context::builder().dedicated().build().unwrap();
        sim::inject(Fault::nth_call_of("cuCtxDestroy_v2", 1)).unwrap();
        drop(context);
        sim::clear_faults();
        return;
    }
    let output = child(TEST, "child", &[("LEAK_REPORT", "1,exitcode=23")]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(23), "{err}");
    assert!(
        err.contains("not released: cuCtxDestroy returned CUDA_ERROR_UNKNOWN (999)"),
        "{err}"
    );
}

/// To know whether it is the primary context, a borrowed one has that retained and released: where the driver refuses, the
/// reference is released with the context.
#[test]
fn a_primary_context_that_is_not_released_at_first_is_released_later() -> Result<()> {
    if !simulated("a_primary_context_that_is_not_released_at_first_is_released_later") {
        return Ok(());
    }
    let turn = turn();
    for is_primary in [true, false] {
        let owner = Context::new(0)?;
        let other = Context::builder().dedicated().build()?;
        let lender = if is_primary { &owner } else { &other };
        let refused = sim::inject(Fault::nth_call_of("cuDevicePrimaryCtxRelease_v2", 1)).unwrap();
        // SAFETY: the lender is dropped after it.
        let borrowed = unsafe { Context::borrow_raw(lender.as_raw())? };
        assert_eq!(refused.fired(), 1);
        let buffer = DeviceBuffer::<u8>::zeroed(&borrowed, 100)?;
        drop(buffer);
        borrowed.close()?;
        drop((owner, other));
    }
    turn.all_came_back();
    Ok(())
}

/// The same where the driver refuses again: `close` returns the error, and the report has it.
#[test]
fn a_primary_context_that_is_never_released_is_told() {
    const TEST: &str = "a_primary_context_that_is_never_released_is_told";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        let owner = Context::builder().dedicated().build().unwrap();
        let primary = Context::new(0).unwrap();
        let release = Fault::nth_call_of("cuDevicePrimaryCtxRelease_v2", 1).sticky();
        sim::inject(release).unwrap();
        // SAFETY: the owner is dropped after it.
        let borrowed = unsafe { Context::borrow_raw(owner.as_raw()).unwrap() };
        let error = borrowed.close().unwrap_err().to_string();
        assert!(error.contains("cuDevicePrimaryCtxRelease"), "{error}");
        sim::clear_faults();
        primary.close().unwrap();
        return;
    }
    let output = child(TEST, "child", &[("LEAK_REPORT", "1,exitcode=23")]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(23), "{err}");
    assert!(
        err.contains("not released: cuDevicePrimaryCtxRelease returned CUDA_ERROR_UNKNOWN (999)"),
        "{err}"
    );
}

/// A drop cannot return the error of its teardown. It is logged, and the teardown is not repeated.
#[test]
fn a_dropped_context_that_cannot_be_released_is_logged() {
    const TEST: &str = "a_dropped_context_that_cannot_be_released_is_logged";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        stderr_log::log_errors();
        let context = Context::builder().dedicated().build().unwrap();
        sim::inject(Fault::nth_call_of("cuCtxDestroy_v2", 1)).unwrap();
        drop(context);
        sim::clear_faults();
        // An operation that runs what was deferred.
        let other = Context::new(0).unwrap();
        drop(DeviceBuffer::from_slice(&other, &[1_u8]).unwrap());
        assert_eq!(sim::counters().calls_of("cuCtxDestroy_v2"), 1);
        return;
    }
    let output = child(TEST, "child", &[]);
    succeeded(&output);
    let err = String::from_utf8_lossy(&output.stderr);
    let logged = err
        .matches("logged: cuguard: Context::drop on device 0: cuCtxDestroy returned")
        .count();
    assert_eq!(logged, 1, "{err}");
}

/// The memory of a guard comes back also where its context could not be made current.
#[test]
fn memory_is_freed_whatever_is_current() -> Result<()> {
    let turn = turn();
    if !simulated("memory_is_freed_whatever_is_current") {
        return Ok(());
    }
    {
        let context = context()?;
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 8 << 20)?;
        let before = free_bytes();
        sim::inject(Fault::nth_call_of("cuCtxPushCurrent_v2", 1).sticky()).unwrap();
        drop(buffer);
        sim::clear_faults();
        assert_eq!(free_bytes(), before + (8 << 20));
        assert!(context.snapshot().is_clean());
    }
    turn.all_came_back();
    Ok(())
}

#[test]
fn an_event_of_our_own_that_is_not_destroyed_is_told() -> Result<()> {
    let _turn = turn();
    if !simulated("an_event_of_our_own_that_is_not_destroyed_is_told") {
        return Ok(());
    }
    let context = context()?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    sim::inject(Fault::nth_call_of("cuEventDestroy_v2", 1)).unwrap();
    assert!(one.order_after(&other).is_err());
    sim::clear_faults();
    assert_eq!(context.snapshot().failed_frees.len(), 1);
    Ok(())
}

/// A program that reads the report compares names: they have no number in them, wherever they are.
#[test]
fn codes_of_failed_frees_have_their_plain_names() -> Result<()> {
    const TEST: &str = "codes_of_failed_frees_have_their_plain_names";
    if !simulated(TEST) {
        return Ok(());
    }
    let name = "CUDA_ERROR_INVALID_HANDLE";
    let refuse = |function, code| {
        sim::inject(Fault::nth_call_of(function, 1).returning(code)).unwrap();
    };
    if part().is_some() {
        let context = Context::new(0)?;
        std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 1000)?);
        refuse("cuMemFree_v2", CUresult::INVALID_HANDLE);
        assert!(context.close().is_err());
        return Ok(());
    }
    let _turn = turn();
    let context = context()?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    refuse("cuEventDestroy_v2", CUresult::INVALID_HANDLE);
    assert!(one.order_after(&other).is_err());
    for code in [CUresult::INVALID_HANDLE, CUresult(54321)] {
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
        refuse("cuMemFree_v2", code);
        drop(buffer);
    }
    let snapshot = context.snapshot();
    let mut told: Vec<_> = snapshot
        .failed_frees
        .iter()
        .map(|free| (free.function, free.code, free.code_name))
        .collect();
    told.sort();
    let expected = [
        ("cuEventDestroy", 400, name),
        ("cuMemFree", 400, name),
        // Nobody knows a name for it.
        ("cuMemFree", 54321, ""),
    ];
    assert_eq!(told, expected);
    let text = snapshot.display().to_string();
    assert!(text.contains(&format!("cuMemFree returned {name} (400);")));
    assert!(text.contains("cuMemFree returned error 54321;"), "{text}");
    // What teardown could not free.
    let output = child(TEST, "json", &[("LEAK_REPORT", "json")]);
    let json = String::from_utf8_lossy(&output.stderr);
    let told = format!("\"code\":400,\"code_name\":\"{name}\"");
    assert!(json.contains(&told), "{json}");
    Ok(())
}

/// More values than the host has room for are an error; the process goes on.
#[test]
fn a_copy_that_the_host_has_no_room_for_is_an_error() -> Result<()> {
    const TEST: &str = "a_copy_that_the_host_has_no_room_for_is_an_error";
    if !simulated(TEST) {
        return Ok(());
    }
    if part().is_some() {
        let context = Context::new(0)?;
        // SAFETY: nobody reads it.
        let buffer = unsafe { DeviceBuffer::<u8>::uninitialized(&context, 2 << 30)? };
        let module = Module::from_ptx(
            &context,
            ".version 6.4\n.target sm_52\n.address_size 64\n.visible .global .align 4 .b8 table[1610612736];",
        )?;
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        let most = pages * page + (1 << 30);
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: the limit is read during the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        let error = buffer.to_vec().unwrap_err();
        assert_eq!(
            error.to_string(),
            "DeviceBuffer::to_vec: cannot allocate 2 GiB of host memory"
        );
        assert!(error.is_out_of_memory());
        let error = module.global::<u8>("table")?.to_vec().unwrap_err();
        assert_eq!(
            error.to_string(),
            "Global::to_vec: cannot allocate 1.50 GiB of host memory"
        );
        buffer.close()?;
        module.close()?;
        return context.close();
    }
    succeeded(&child(TEST, "limited", &[]));
    Ok(())
}

#[test]
fn host_memory_that_cannot_be_had_is_an_error() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let error = PinnedBuffer::<u8>::zeroed(&context, 1 << 47).unwrap_err();
    let begin =
        "PinnedBuffer::zeroed: cannot allocate 128 TiB of host memory; this process can have ";
    let words = error.to_string();
    assert!(
        words.starts_with(begin) && words.ends_with(" at most"),
        "{words}"
    );
    Ok(())
}

/// A checkpoint sees also what no sample met.
#[test]
fn a_checkpoint_under_sampling() -> Result<()> {
    let _turn = turn();
    let settings = cuguard::report::ReportSettings::off().sample(1000);
    let context = Context::builder().report(settings).build()?;
    let mut kept = Vec::new();
    while context.snapshot().live.is_empty() {
        kept.push(DeviceBuffer::<u8>::zeroed(&context, 10)?);
    }
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cuguard::assert_no_leaks!(context, {
            kept.push(DeviceBuffer::<u8>::zeroed(&context, 10).unwrap());
        });
    }));
    assert!(checked.is_err());
    Ok(())
}

const BREAKS: CUresult = CUresult::ILLEGAL_ADDRESS;

/// The context cannot be made current, and the free succeeds without it: the error is kept all the same.
#[test]
fn an_error_that_breaks_the_context_is_kept_where_the_free_succeeds() -> Result<()> {
    let _turn = turn();
    if !simulated("an_error_that_breaks_the_context_is_kept_where_the_free_succeeds") {
        return Ok(());
    }
    let context = context()?;
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 100)?;
    sim::inject(Fault::nth_call_of("cuCtxPushCurrent_v2", 1).returning(BREAKS)).unwrap();
    drop(buffer);
    sim::clear_faults();
    let snapshot = context.snapshot();
    assert_eq!((context.live_count(), snapshot.failed_frees.len()), (0, 0));
    let broken = snapshot.broken.expect("the error of cuCtxPushCurrent");
    assert_eq!(
        (broken.function, broken.code),
        ("cuCtxPushCurrent", BREAKS.0)
    );
    Ok(())
}

/// Two calls fail, and the error of the first is returned: the second, which breaks the context, is kept.
#[test]
fn an_error_that_breaks_the_context_is_kept_behind_another() -> Result<()> {
    let _turn = turn();
    if !simulated("an_error_that_breaks_the_context_is_kept_behind_another") {
        return Ok(());
    }
    let context = context()?;
    let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let buffer = DeviceBuffer::<u8>::zeroed(&home, 100)?;
    let refuse = |function, code| sim::inject(Fault::nth_call_of(function, 1).returning(code));
    refuse("cuEventRecord", CUresult::INVALID_VALUE).unwrap();
    refuse("cuEventDestroy_v2", BREAKS).unwrap();
    let error = buffer.record_stream(&other).unwrap_err();
    sim::clear_faults();
    assert_eq!(error.code(), Some(CUresult::INVALID_VALUE), "{error}");
    let broken = context
        .snapshot()
        .broken
        .expect("the error of cuEventDestroy");
    assert_eq!((broken.function, broken.code), ("cuEventDestroy", BREAKS.0));
    Ok(())
}

/// Teardown makes the context current at the second attempt: the report has the error of the first.
#[test]
fn an_error_of_teardown_that_a_retry_mends_is_in_the_report() {
    const TEST: &str = "an_error_of_teardown_that_a_retry_mends_is_in_the_report";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        let context = Context::new(0).unwrap();
        std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 1000).unwrap());
        sim::inject(Fault::nth_call_of("cuCtxPushCurrent_v2", 1).returning(BREAKS)).unwrap();
        context.close().unwrap();
        return;
    }
    let output = child(TEST, "child", &[("LEAK_REPORT", "1")]);
    let err = String::from_utf8_lossy(&output.stderr);
    let words = "CUDA_ERROR_ILLEGAL_ADDRESS (700), first returned by cuCtxPushCurrent";
    assert!(err.contains(words), "{err}");
}

/// An empty buffer has no memory of its pool, and keeps it from nothing.
#[test]
fn an_empty_buffer_keeps_no_pool() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (stream, pool) = (Stream::new(&context)?, DriverPool::new(&context)?);
    let empty = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 0)?;
    pool.close()?;
    assert_eq!(context.live_count(), 1, "the stream alone");
    drop(empty);
    Ok(())
}

/// An empty managed buffer asks the driver nothing.
#[test]
fn an_empty_managed_buffer_needs_no_attribute() -> Result<()> {
    let _turn = turn();
    if !simulated("an_empty_managed_buffer_needs_no_attribute") {
        return Ok(());
    }
    let context = context()?;
    sim::inject(Fault::nth_call_of("cuDeviceGetAttribute", 1).sticky()).unwrap();
    let (empty, full) = (
        ManagedBuffer::<u8>::zeroed(&context, 0),
        ManagedBuffer::<u8>::zeroed(&context, 1),
    );
    sim::clear_faults();
    assert!(empty.is_ok() && full.is_err());
    Ok(())
}
