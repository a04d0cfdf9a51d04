//! Events, modules and memory of other code; handles that are rejected.

use std::ptr;

use cuguard::driver::api;
use cuguard::driver::sys::{CUcontext, CUevent, CUmodule, CUstream};
use cuguard::{Context, DeviceBuffer, Error, Event, Module, ResourceKind, Result, Stream};

use super::{PTX, destroy, foreign_context, foreign_stream, ok, quiet, with_current};
use crate::support::*;

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
    assert_eq!(context.totals(ResourceKind::Event).count, 1);
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
    assert_eq!(context.totals(ResourceKind::Module).count, 1);
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
