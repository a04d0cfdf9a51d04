//! Contexts of other code.

use cuguard::driver::api;
use cuguard::driver::sys::CUcontext;
use cuguard::report::Report;
use cuguard::{Context, Device, DeviceBuffer, Error, Event, ResourceKind, Result, Stream};

use super::{
    destroy, foreign_context, foreign_stream, is_alive, ok, primary_is_active, quiet, with_current,
};
use crate::support::*;

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
    let ordered = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
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
        context.totals(ResourceKind::Device).count,
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
