//! Contexts, streams, events and modules of other code: owned (`from_raw`) or borrowed (`borrow_raw`), beside `cust` and
//! beside code that calls the driver directly. And the default stream.

mod support;

use std::ptr;

use cuguard::driver::api;
use cuguard::driver::sys::{CUcontext, CUevent, CUmodule, CUresult, CUstream};
use cuguard::report::{Report, ReportSettings};
use cuguard::{Context, Device, DeviceBuffer, Error, Event, Kind, Module, Result, Stream};
use support::*;

const PTX: &str = include_str!("../kernels/saxpy.ptx");

#[track_caller]
fn ok(code: CUresult) {
    assert!(code.is_success(), "{code}");
}

/// A context that other code creates; it is current nowhere afterwards.
fn foreign_context() -> CUcontext {
    Device::count().expect("the driver is initialized");
    let (mut context, mut popped) = (CUcontext::NULL, CUcontext::NULL);
    // SAFETY: both are valid for writes.
    unsafe {
        ok(api::cuCtxCreate_v2(&mut context, 0, 0));
        ok(api::cuCtxPopCurrent_v2(&mut popped));
    }
    assert_eq!(popped, context);
    context
}

/// Runs other code with a context current, and restores what was current before.
fn with_current<T>(context: CUcontext, code: impl FnOnce() -> T) -> T {
    // SAFETY: the tests pass live contexts.
    ok(unsafe { api::cuCtxPushCurrent_v2(context) });
    let value = code();
    let mut popped = CUcontext::NULL;
    // SAFETY: valid for writes.
    ok(unsafe { api::cuCtxPopCurrent_v2(&mut popped) });
    assert_eq!(popped, context, "the stack of contexts");
    value
}

/// Whether a context is alive.
fn is_alive(context: CUcontext) -> bool {
    let mut version = 0;
    // SAFETY: valid for writes; the driver checks the handle.
    unsafe { api::cuCtxGetApiVersion(context, &mut version) }.is_success()
}

fn destroy(context: CUcontext) {
    // SAFETY: the tests pass live contexts of theirs.
    ok(unsafe { api::cuCtxDestroy_v2(context) });
}

fn primary_is_active() -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both are valid for writes.
    ok(unsafe { api::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active) });
    active != 0
}

/// A stream that other code creates in the current context.
fn foreign_stream() -> CUstream {
    let mut stream = CUstream::NULL;
    // SAFETY: valid for writes.
    ok(unsafe { api::cuStreamCreate(&mut stream, 1) });
    stream
}

fn quiet() -> cuguard::context::ContextBuilder {
    Context::builder().report(ReportSettings::off())
}

#[test]
fn a_borrowed_context_is_never_destroyed() -> Result<()> {
    let _turn = turn();
    let handle = foreign_context();
    // SAFETY: it is destroyed at the end of this test.
    let context = unsafe { Context::borrow_raw(handle)? };
    assert_eq!(
        (context.as_raw(), context.device()),
        (handle, Device::new(0)?)
    );
    assert!(!context.snapshot().info.primary);
    let stream = Stream::new(&context)?;
    let buffer = DeviceBuffer::from_slice(&context, &[1_u8, 2, 3])?;
    let ordered = DeviceBuffer::<u8>::zeroed_on(&stream, 100)?;
    assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    assert_eq!(context.live_count(), 3);
    // The context first, and its resources on another thread.
    drop(context);
    std::thread::spawn(|| drop((stream, buffer, ordered)))
        .join()
        .expect("a drop never panics");
    assert!(is_alive(handle));
    destroy(handle);
    Ok(())
}

#[test]
fn close_of_a_borrowed_context_reports_and_frees_what_is_ours() -> Result<()> {
    let _turn = turn();
    let handle = foreign_context();
    let other_stream = with_current(handle, foreign_stream);
    let mut address = 0;
    with_current(handle, || {
        // SAFETY: valid for writes.
        ok(unsafe { api::cuMemAlloc_v2(&mut address, 4096) });
    });
    // SAFETY: it is destroyed at the end of this test.
    let context = unsafe { quiet().build_borrowed(handle)? };
    let before = in_hand(&context)?;
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 32 << 20)?;
    let event = Event::new(&context)?;
    // SAFETY: it outlives the guard.
    let borrowed = unsafe { Stream::borrow_raw(&context, other_stream)? };
    assert_eq!(context.live_count(), 2);
    let text = context.snapshot().display().to_string();
    assert!(text.contains("32 MiB in 1 allocation"), "{text}");
    context.close()?;
    before.all_freed();
    assert!(matches!(buffer.to_vec(), Err(Error::ContextClosed { .. })));
    assert!(matches!(
        borrowed.synchronize(),
        Err(Error::ContextClosed { .. })
    ));
    drop((buffer, event, borrowed));
    // What belongs to other code is as it was.
    with_current(handle, || {
        // SAFETY: both are alive, and of the current context.
        unsafe {
            ok(api::cuStreamSynchronize(other_stream));
            ok(api::cuMemsetD8_v2(address, 1, 4096));
            ok(api::cuMemFree_v2(address));
            ok(api::cuStreamDestroy_v2(other_stream));
        }
    });
    destroy(handle);
    Ok(())
}

#[test]
fn an_owned_context_is_destroyed_at_teardown() -> Result<()> {
    let _turn = turn();
    for close in [true, false] {
        let handle = foreign_context();
        // SAFETY: created above, and destroyed by nothing else.
        let context = unsafe { Context::from_raw(handle)? };
        assert!(!context.snapshot().info.primary);
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 100)?;
        drop(buffer);
        assert!(is_alive(handle));
        match close {
            true => context.close()?,
            false => drop(context),
        }
        if simulated("whether a destroyed context is alive") {
            assert!(!is_alive(handle));
        }
    }
    Ok(())
}

/// The primary context, which other code retained: one reference is released, not more.
#[test]
fn an_owned_primary_context_is_released_once() -> Result<()> {
    let _turn = turn();
    Device::count()?;
    let mut handle = CUcontext::NULL;
    // SAFETY: valid for writes.
    unsafe {
        ok(api::cuDevicePrimaryCtxRetain(&mut handle, 0));
        ok(api::cuDevicePrimaryCtxRetain(&mut handle, 0));
    }
    // SAFETY: owns one of the two references.
    let context = unsafe { Context::from_raw(handle)? };
    assert!(context.snapshot().info.primary);
    drop(DeviceBuffer::<u8>::zeroed(&context, 100)?);
    context.close()?;
    assert!(primary_is_active());
    // SAFETY: the other one.
    ok(unsafe { api::cuDevicePrimaryCtxRelease_v2(0) });
    assert!(!primary_is_active());
    Ok(())
}

#[test]
fn a_borrowed_context_of_cust() -> Result<()> {
    let _turn = turn();
    cust::init(cust::CudaFlags::empty())?;
    let device = cust::device::Device::get_device(0)?;
    let theirs = cust::context::Context::new(device)?;
    let slice = [1.5_f32, 2.5];
    let their_buffer = cust::memory::DeviceBuffer::from_slice(&slice)?;
    let mut handle = CUcontext::NULL;
    // SAFETY: valid for writes.
    ok(unsafe { api::cuCtxGetCurrent(&mut handle) });
    // SAFETY: `theirs` retains it until the end of this test.
    let context = unsafe { quiet().build_borrowed(handle)? };
    assert!(context.snapshot().info.primary);
    // Their memory, on our stream.
    let address = their_buffer.as_device_ptr().as_raw();
    // SAFETY: two values, in use nowhere else until `view` is dropped.
    let view = unsafe { DeviceBuffer::<f32>::borrow_raw(&context, address, 2) };
    let mut ours = DeviceBuffer::<f32>::zeroed(&context, 2)?;
    let stream = Stream::new(&context)?;
    stream.scope(|s| s.copy(&mut s.bind_mut(&mut ours)?, &s.bind(&view)?))?;
    assert_eq!(ours.to_vec()?, slice);
    assert_eq!(
        context.totals(Kind::Device).count,
        1,
        "the view is not recorded"
    );
    drop(view);
    // Our buffer leaks into the close; theirs stays.
    context.close()?;
    drop((ours, stream));
    use cust::memory::CopyDestination;
    let mut read = [0.0; 2];
    their_buffer.copy_to(&mut read)?;
    assert_eq!(read, slice);
    drop(their_buffer);
    assert!(primary_is_active());
    drop(theirs);
    assert!(!primary_is_active(), "the only reference was cust's");
    Ok(())
}

#[test]
fn an_owned_stream_is_recorded_and_destroyed() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let before = in_hand(&context)?;
    let handle = with_current(context.as_raw(), foreign_stream);
    let line = line!() + 2;
    // SAFETY: created above, and destroyed by nothing else.
    let stream = unsafe { Stream::from_raw(&context, handle)? }.named("adopted");
    assert_eq!(
        (stream.as_raw(), context.totals(Kind::Stream).count),
        (handle, 1)
    );
    let snapshot = context.snapshot();
    let text = snapshot.display().to_string();
    assert!(
        text.contains("adopted") && text.contains(&format!("interop.rs:{line}")),
        "{text}"
    );
    let mut buffer = DeviceBuffer::<u8>::zeroed_on(&stream, 100)?;
    stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 3))?;
    // The stream is destroyed with its last buffer.
    drop(stream);
    assert_eq!(context.totals(Kind::Stream).count, 1);
    assert_eq!(buffer.to_vec()?, [3; 100]);
    drop(buffer);
    assert_eq!(context.live_count(), 0);
    context.synchronize()?;
    before.all_freed();
    context.close()
}

#[test]
fn a_borrowed_stream_is_neither_recorded_nor_destroyed() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let handle = with_current(context.as_raw(), foreign_stream);
    // SAFETY: it outlives the guard and its buffers.
    let stream = unsafe { Stream::borrow_raw(&context, handle)? }.named("ignored");
    assert_eq!(context.live_count(), 0);
    let buffer = DeviceBuffer::<u8>::zeroed_on(&stream, 100)?;
    let event = Event::new(&context)?;
    event.record(&stream)?;
    drop(stream);
    assert_eq!(buffer.to_vec()?, [0; 100]);
    drop(buffer);
    event.synchronize()?;
    // SAFETY: as above.
    let again = unsafe { Stream::borrow_raw(&context, handle)? };
    again.close()?;
    // SAFETY: alive; no guard of it is left.
    unsafe {
        ok(api::cuStreamSynchronize(handle));
        ok(api::cuStreamDestroy_v2(handle));
    }
    drop(event);
    context.close()
}

/// A guard that borrows another guard's stream changes nothing about its record.
#[test]
fn a_borrow_of_a_recorded_stream_leaves_its_record() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let owner = Stream::new(&context)?;
    // SAFETY: `owner` outlives it and its buffer.
    let borrowed = unsafe { Stream::borrow_raw(&context, owner.as_raw())? }.named("borrowed");
    let buffer = DeviceBuffer::<u8>::zeroed_on(&borrowed, 100)?;
    drop(borrowed);
    let snapshot = context.snapshot();
    let group = snapshot
        .live
        .iter()
        .find(|group| group.kind == Kind::Stream);
    assert!(!group.expect("the owner's record").kept);
    drop(buffer);
    assert!(owner.is_idle().is_ok());
    drop(owner);
    context.close()
}

#[test]
fn a_stream_is_released_and_owned_again() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let stream = Stream::new(&context)?;
    let handle = stream.as_raw();
    let buffer = DeviceBuffer::<u8>::zeroed_on(&stream, 100)?;
    let stream = stream.into_raw().expect_err("a buffer shares it");
    assert_eq!(stream.as_raw(), handle);
    drop(buffer);
    assert_eq!(stream.into_raw().expect("no buffer is left"), handle);
    let snapshot = context.snapshot();
    assert!(snapshot.live.is_empty(), "{}", snapshot.display());
    // SAFETY: released above.
    let stream = unsafe { Stream::from_raw(&context, handle)? };
    assert_eq!(context.live_count(), 1);
    stream.close()?;
    context.close()
}

#[test]
fn handles_of_other_contexts_and_null_are_rejected() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let other = foreign_context();
    let stream = with_current(other, foreign_stream);
    // SAFETY: alive; the calls fail.
    let errors = unsafe {
        [
            Stream::from_raw(&context, stream).map(drop),
            Stream::borrow_raw(&context, stream).map(drop),
        ]
    };
    for error in errors.map(Result::unwrap_err) {
        let text = error.to_string();
        assert!(
            matches!(error, Error::ForeignHandle { device: 0, .. }),
            "{text}"
        );
        assert!(
            text.contains("the stream does not belong to context"),
            "{text}"
        );
    }
    // SAFETY: null handles, which are rejected.
    let errors = unsafe {
        [
            (
                "Context::from_raw",
                Context::from_raw(CUcontext::NULL).map(drop),
            ),
            (
                "Context::borrow_raw",
                Context::borrow_raw(CUcontext::NULL).map(drop),
            ),
            (
                "Stream::from_raw",
                Stream::from_raw(&context, CUstream::NULL).map(drop),
            ),
            (
                "Stream::from_raw",
                Stream::from_raw(&context, CUstream::LEGACY).map(drop),
            ),
            (
                "Stream::from_raw",
                Stream::from_raw(&context, CUstream::PER_THREAD).map(drop),
            ),
            (
                "Event::from_raw",
                Event::from_raw(&context, CUevent::NULL).map(drop),
            ),
            (
                "Event::borrow_raw",
                Event::borrow_raw(&context, CUevent::NULL).map(drop),
            ),
            (
                "Module::from_raw",
                Module::from_raw(&context, CUmodule::NULL).map(drop),
            ),
            (
                "Module::borrow_raw",
                Module::borrow_raw(&context, CUmodule::NULL).map(drop),
            ),
        ]
    };
    for (operation, result) in errors {
        let error = result.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::NullHandle { .. }), "{text}");
        let expected = match operation {
            "Stream::from_raw" => {
                "the stream is a default stream, which cannot be owned; see Stream::default_stream"
            }
            "Event::from_raw" | "Event::borrow_raw" => "the event is a null handle",
            "Module::from_raw" | "Module::borrow_raw" => "the module is a null handle",
            _ => "the context is a null handle",
        };
        assert_eq!(text, format!("{operation}: {expected}"));
    }
    assert_eq!(context.live_count(), 0);
    destroy(other);
    context.close()
}

#[test]
fn events_of_other_code() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let stream = Stream::new(&context)?;
    let create = |flags| {
        with_current(context.as_raw(), || {
            let mut event = CUevent::NULL;
            // SAFETY: valid for writes.
            ok(unsafe { api::cuEventCreate(&mut event, flags) });
            event
        })
    };
    let (timed, untimed) = (create(0), create(2));
    // SAFETY: the first is owned by nothing else, the second outlives its guard.
    let (owned, borrowed) = unsafe {
        (
            Event::from_raw(&context, timed)?,
            Event::borrow_raw(&context, untimed)?,
        )
    };
    assert_eq!(context.totals(Kind::Event).count, 1);
    owned.record(&stream)?;
    borrowed.record(&stream)?;
    borrowed.synchronize()?;
    owned.synchronize()?;
    assert!(owned.is_complete()? && borrowed.is_complete()?);
    stream.wait_for(&borrowed)?;
    let error = owned.elapsed_since(&borrowed).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("without timing, or was never recorded"),
        "{error}"
    );
    borrowed.close()?;
    let handle = owned.into_raw();
    assert_eq!(handle, timed);
    // SAFETY: both are alive, and no guard of them is left.
    unsafe {
        ok(api::cuEventDestroy_v2(timed));
        ok(api::cuEventDestroy_v2(untimed));
    }
    drop(stream);
    context.close()
}

#[test]
fn modules_of_other_code() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let image = std::ffi::CString::new(PTX).expect("no NUL");
    let load = || {
        with_current(context.as_raw(), || {
            let mut module = CUmodule::NULL;
            // SAFETY: valid for writes; NUL-terminated PTX.
            ok(unsafe { api::cuModuleLoadData(&mut module, image.as_ptr().cast()) });
            module
        })
    };
    let (first, second) = (load(), load());
    // SAFETY: the first is owned by nothing else, the second outlives its guard.
    let (owned, borrowed) = unsafe {
        (
            Module::from_raw(&context, first)?,
            Module::borrow_raw(&context, second)?,
        )
    };
    assert_eq!(context.totals(Kind::Module).count, 1);
    assert!(owned.function("saxpy").is_ok() && borrowed.function("saxpy").is_ok());
    drop(borrowed);
    assert_eq!(owned.into_raw(), first);
    with_current(context.as_raw(), || {
        // SAFETY: both are loaded, and no guard of them is left.
        unsafe {
            ok(api::cuModuleUnload(first));
            ok(api::cuModuleUnload(second));
        }
    });
    context.close()
}

/// What is owned and never dropped is freed at teardown, what is borrowed is not.
#[test]
fn teardown_frees_what_is_owned() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let keeper = Context::new(0)?; // the primary context outlives the close
    let before = in_hand(&keeper)?;
    let (owned, borrowed) = with_current(context.as_raw(), || (foreign_stream(), foreign_stream()));
    // SAFETY: nothing else destroys the first; the second outlives the guard.
    unsafe {
        std::mem::forget(Stream::from_raw(&context, owned)?);
        std::mem::forget(Stream::borrow_raw(&context, borrowed)?);
    }
    context.close()?;
    with_current(keeper.as_raw(), || {
        // SAFETY: alive, and no guard of it is used any more.
        ok(unsafe { api::cuStreamDestroy_v2(borrowed) });
    });
    before.all_freed();
    keeper.close()
}

/// Memory on the default stream: its handle means the default stream of the *current* context.
#[test]
fn the_default_stream_is_that_of_its_context() -> Result<()> {
    let _turn = turn();
    let (first, second) = (quiet().dedicated().build()?, quiet().dedicated().build()?);
    let before = in_hand(&first)?;
    let stream = Stream::default_stream(&first)?;
    assert_eq!((stream.as_raw(), first.live_count()), (CUstream::LEGACY, 0));
    for current in [None, Some(&second), Some(&first)] {
        let _current = current.map(Context::make_current).transpose()?;
        let mut buffer = DeviceBuffer::<u32>::zeroed_on(&stream, 1000)?;
        stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 7))?;
        assert_eq!(buffer.to_vec()?, [7; 1000]);
        let event = Event::new(&first)?;
        event.record(&stream)?;
        stream.wait_for(&event)?;
        event.synchronize()?;
        // On a thread without a context, and here.
        let other = DeviceBuffer::<u32>::zeroed_on(&stream, 1000)?;
        std::thread::scope(|scope| scope.spawn(|| drop(buffer)).join()).expect("no panic");
        other.close()?;
        stream.synchronize()?;
        assert!(stream.is_idle()?);
        drop(event);
    }
    assert_eq!((first.live_count(), second.live_count()), (0, 0));
    drop(stream);
    first.synchronize()?;
    before.all_freed();
    second.close()?;
    first.close()
}

/// Handle 0 is the same stream.
#[test]
fn the_null_handle_is_the_default_stream() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    // SAFETY: default streams live as long as their context; used on this thread alone.
    let streams = unsafe {
        [
            Stream::borrow_raw(&context, CUstream::NULL)?,
            Stream::borrow_raw(&context, CUstream::PER_THREAD)?,
        ]
    };
    assert_eq!(
        streams.each_ref().map(Stream::as_raw),
        [CUstream::LEGACY, CUstream::PER_THREAD]
    );
    for stream in &streams {
        let mut buffer = DeviceBuffer::<u8>::zeroed_on(stream, 10)?;
        stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 1))?;
        assert_eq!(buffer.to_vec()?, [1; 10]);
        stream.synchronize()?;
    }
    drop(streams);
    context.close()
}

/// `cust` and this crate on the same stream: the work of one is ordered after that of the other.
#[test]
fn work_of_cust_on_the_default_stream_is_in_order() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let _current = context.make_current()?;
    let stream = Stream::default_stream(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 1 << 20)?;
    let mut read = vec![0_u8; 1 << 20];
    stream.scope(|s| {
        let mut data = s.bind_mut(&mut buffer)?;
        s.fill(&mut data, 9)?;
        let address = data.as_device_ptr().as_raw();
        // Other code, on the default stream too, which the scope did not wait for yet.
        // SAFETY: as many bytes on both sides; synchronous.
        ok(unsafe { api::cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), address, read.len()) });
        Ok(())
    })?;
    assert!(read.iter().all(|byte| *byte == 9));
    drop((buffer, stream));
    drop(_current);
    context.close()
}

/// Memory of other code behind a borrowed buffer is not freed, whatever happens to the buffer.
#[test]
fn borrowed_memory_is_not_freed() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let mut address = 0;
    with_current(context.as_raw(), || {
        // SAFETY: valid for writes; the block has as many bytes.
        unsafe {
            ok(api::cuMemAlloc_v2(&mut address, 4096));
            ok(api::cuMemsetD8_v2(address, 5, 4096));
            ok(api::cuCtxSynchronize());
        }
    });
    // SAFETY: 4096 initialized bytes, which outlive the buffers.
    let borrow = || unsafe { DeviceBuffer::<u8>::borrow_raw(&context, address, 4096) };
    assert_eq!(borrow().to_vec()?, [5; 4096]);
    borrow().close()?;
    assert_eq!(borrow().into_raw(), address);
    let mut buffer = borrow();
    buffer.copy_from_slice(&[6; 4096])?;
    assert_eq!(context.live_count(), 0);
    drop(buffer);
    let mut read = [0_u8; 4096];
    with_current(context.as_raw(), || {
        // SAFETY: as many bytes on both sides.
        unsafe {
            ok(api::cuMemcpyDtoH_v2(
                ptr::from_mut(&mut read).cast(),
                address,
                4096,
            ));
            ok(api::cuMemFree_v2(address));
        }
    });
    assert_eq!(read, [6; 4096]);
    context.close()
}
