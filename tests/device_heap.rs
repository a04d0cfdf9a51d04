//! The limit of the device heap: set, rounded, put back; and what a kernel gets of it.

use std::io::Write as _;

use crate::support::*;
use cuguard::context::DeviceHeap;
use cuguard::driver::api;
use cuguard::driver::sys::{CUresult, limit};
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBox, Error, Module, Result, Stream};

const MIB: u64 = 1 << 20;
const HEAP: &str = include_str!("../kernels/heap.ptx");

/// A context of its own: the limits of the primary one may be other code's.
fn own() -> Result<Context> {
    Context::builder().dedicated().build()
}

/// Other code changes the limit.
fn set_behind_its_back(context: &Context, bytes: u64) {
    let _bound = context.make_current().unwrap();
    // SAFETY: a context is current.
    let code = unsafe { api::cuCtxSetLimit(limit::MALLOC_HEAP_SIZE, bytes as usize) };
    assert!(code.is_success(), "{code}");
}

#[test]
fn it_is_put_back_by_close_and_by_drop() -> Result<()> {
    let _turn = turn();
    let context = own()?;
    let default = DeviceHeap::current(&context)?;
    assert_eq!(default, 8 * MIB);
    let heap = DeviceHeap::limit(&context, 64 * MIB)?;
    assert_eq!((heap.bytes(), heap.previous()), (64 * MIB, default));
    assert_eq!(DeviceHeap::current(&context)?, 64 * MIB);
    heap.close()?;
    assert_eq!(DeviceHeap::current(&context)?, default);
    // On another thread, where the context is not current.
    let heap = DeviceHeap::limit(&context, 32 * MIB)?;
    std::thread::scope(|threads| {
        threads.spawn(move || drop(heap));
    });
    assert_eq!(DeviceHeap::current(&context)?, default);
    DeviceHeap::limit(&context, 32 * MIB)?.keep();
    assert_eq!(DeviceHeap::current(&context)?, 32 * MIB);
    // A limit is nothing that could leak.
    assert_eq!(context.live_count(), 0);
    context.close()
}

#[test]
fn it_tells_what_the_driver_made_of_it() -> Result<()> {
    let _turn = turn();
    let context = own()?;
    let heap = DeviceHeap::limit(&context, 9 * MIB + 5)?;
    assert!(heap.bytes() > 9 * MIB + 5, "rounded up: {}", heap.bytes());
    assert_eq!(heap.bytes(), DeviceHeap::current(&context)?);
    heap.close()?;
    // There is a least size.
    let heap = DeviceHeap::limit(&context, 0)?;
    assert!(heap.bytes() > 0);
    heap.close()?;
    assert_eq!(DeviceHeap::current(&context)?, 8 * MIB);
    context.close()
}

#[test]
fn contexts_have_limits_of_their_own() -> Result<()> {
    let _turn = turn();
    let (one, two) = (own()?, own()?);
    let heap = DeviceHeap::limit(&one, 64 * MIB)?;
    assert_eq!(DeviceHeap::current(&two)?, 8 * MIB);
    heap.close()?;
    one.close()?;
    two.close()
}

#[test]
fn guards_go_from_the_inside_out() -> Result<()> {
    let _turn = turn();
    let context = own()?;
    let outer = DeviceHeap::limit(&context, 16 * MIB)?;
    let inner = DeviceHeap::limit(&context, 32 * MIB)?;
    assert_eq!(inner.previous(), 16 * MIB);
    inner.close()?;
    assert_eq!(DeviceHeap::current(&context)?, 16 * MIB);
    outer.close()?;
    assert_eq!(DeviceHeap::current(&context)?, 8 * MIB);
    // In the wrong order: the first leaves alone what is the other's.
    let outer = DeviceHeap::limit(&context, 16 * MIB)?;
    let inner = DeviceHeap::limit(&context, 32 * MIB)?;
    let error = outer.close().unwrap_err();
    assert_eq!(
        error.to_string(),
        "DeviceHeap::close: the limit is 32 MiB now, and was set to 16 MiB: it is left as it is"
    );
    assert_eq!(DeviceHeap::current(&context)?, 32 * MIB);
    inner.close()?;
    assert_eq!(DeviceHeap::current(&context)?, 16 * MIB);
    // Other code counts too.
    let heap = DeviceHeap::limit(&context, 64 * MIB)?;
    set_behind_its_back(&context, 48 * MIB);
    assert!(matches!(heap.close(), Err(Error::LimitChanged { .. })));
    let heap = DeviceHeap::limit(&context, 64 * MIB)?;
    set_behind_its_back(&context, 40 * MIB);
    drop(heap);
    assert_eq!(DeviceHeap::current(&context)?, 40 * MIB);
    context.close()
}

#[test]
fn a_driver_that_refuses_leaves_it_as_it_was() -> Result<()> {
    let _turn = turn();
    if !simulated("a_driver_that_refuses_leaves_it_as_it_was") {
        return Ok(());
    }
    let context = own()?;
    let refuse = |function, nth| {
        let fault = Fault::nth_call_of(function, nth).returning(CUresult::INVALID_VALUE);
        sim::inject(fault).unwrap();
    };
    for (function, nth) in [
        ("cuCtxGetLimit", 1),
        ("cuCtxSetLimit", 1),
        ("cuCtxGetLimit", 2),
    ] {
        refuse(function, nth);
        let error = DeviceHeap::limit(&context, 64 * MIB).unwrap_err();
        assert_eq!(error.code(), Some(CUresult::INVALID_VALUE), "{error}");
        assert!(
            error.to_string().starts_with("DeviceHeap::limit"),
            "{error}"
        );
        assert_eq!(DeviceHeap::current(&context)?, 8 * MIB, "{function}");
    }
    // What cannot be put back stays; to drop does not panic.
    for close in [true, false] {
        let heap = DeviceHeap::limit(&context, 64 * MIB)?;
        refuse("cuCtxSetLimit", 1);
        if close {
            let error = heap.close().unwrap_err();
            assert!(
                error.to_string().starts_with("DeviceHeap::close"),
                "{error}"
            );
        } else {
            drop(heap);
        }
        sim::clear_faults();
        assert_eq!(DeviceHeap::current(&context)?, 64 * MIB);
        set_behind_its_back(&context, 8 * MIB);
    }
    context.close()
}

/// Has 16384 threads take 4 KiB each, and keep it: how many got it, and how many did not.
fn allocate_in_kernel(context: &Context) -> Result<(u64, u64)> {
    let module = Module::from_ptx(context, HEAP)?;
    let kernel = module.function("heap_allocate")?;
    let stream = Stream::new(context)?;
    let (mut granted, mut refused) = (
        DeviceBox::new(context, &0_u64)?,
        DeviceBox::new(context, &0_u64)?,
    );
    stream.scope(|s| {
        let (granted, refused) = (s.bind_mut(&mut granted)?, s.bind_mut(&mut refused)?);
        let (bytes, keep) = (4096_u64, 1_u32);
        // SAFETY: these are the kernel's parameters; it writes the two counts.
        unsafe { s.launch(&kernel, (64, 256), &[&bytes, &keep, &granted, &refused]) }
    })?;
    Ok((granted.get()?, refused.get()?))
}

#[test]
fn a_kernel_gets_what_the_heap_has() -> Result<()> {
    let turn = turn();
    // 64 MiB of a heap of 8: some of the threads get nothing, and nothing fails.
    let context = own()?;
    let (granted, refused) = allocate_in_kernel(&context)?;
    assert_eq!(granted + refused, 64 * 256);
    assert!(refused > 0 && granted > 0, "{granted} {refused}");
    assert_eq!(context.live_count(), 0, "what the kernel keeps is nobody's");
    context.close()?;
    // With a larger heap all of them get theirs.
    let context = own()?;
    let heap = DeviceHeap::limit(&context, 256 * MIB)?;
    assert_eq!(allocate_in_kernel(&context)?, (64 * 256, 0));
    // The documentation says that the limit cannot be changed now. Whatever the driver does, the
    // answer and the limit agree.
    let closed = heap.close();
    let now = DeviceHeap::current(&context)?;
    let _ = writeln!(
        std::io::stderr(),
        "after a launch the limit is put back with {closed:?}, and is {} MiB",
        now / MIB
    );
    match closed {
        Ok(()) => assert_eq!(now, 8 * MIB),
        Err(error) => {
            assert_eq!(error.code(), Some(CUresult::INVALID_VALUE), "{error}");
            assert_eq!(now, 256 * MIB);
        }
    }
    context.close()?;
    turn.all_came_back();
    Ok(())
}
