//! Streams of other code, and the default stream.

use cuguard::driver::api;
use cuguard::driver::sys::CUstream;
use cuguard::report::Report;
use cuguard::{Context, DeviceBuffer, Event, ResourceKind, Result, Stream};

use super::{foreign_stream, ok, quiet, with_current};
use crate::support::*;

#[test]
fn an_owned_stream_is_recorded_and_destroyed() -> Result<()> {
    let _turn = turn();
    let context = quiet().build()?;
    let before = in_hand(&context)?;
    let handle = with_current(context.as_raw(), foreign_stream);
    let line = line!() + 2;
    // SAFETY: created above, and destroyed by nothing else.
    let stream = unsafe { Stream::from_raw(&context, handle)? }.with_label("adopted");
    assert_eq!(
        (stream.as_raw(), context.totals(ResourceKind::Stream).count),
        (handle, 1)
    );
    let snapshot = context.snapshot();
    let text = snapshot.display().to_string();
    assert!(
        text.contains("adopted") && text.contains(&format!("streams.rs:{line}")),
        "{text}"
    );
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
    stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 3))?;
    // The stream is destroyed with its last buffer.
    drop(stream);
    assert_eq!(context.totals(ResourceKind::Stream).count, 1);
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
    let stream = unsafe { Stream::borrow_raw(&context, handle)? }.with_label("ignored");
    assert_eq!(context.live_count(), 0);
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
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
    let borrowed = unsafe { Stream::borrow_raw(&context, owner.as_raw())? }.with_label("borrowed");
    let buffer = DeviceBuffer::<u8>::zeroed(&borrowed, 100)?;
    drop(borrowed);
    let snapshot = context.snapshot();
    let group = snapshot
        .live
        .iter()
        .find(|group| group.kind == ResourceKind::Stream);
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
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
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
        let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
        stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 7))?;
        assert_eq!(buffer.to_vec()?, [7; 1000]);
        let event = Event::new(&first)?;
        event.record(&stream)?;
        stream.wait_for(&event)?;
        event.synchronize()?;
        // On a thread without a context, and here.
        let other = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
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
        let mut buffer = DeviceBuffer::<u8>::zeroed(stream, 10)?;
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
