//! What is current on a thread: guards do their work there whatever it is, and leave it as it was.
//!
//! Three sorts of threads: one with no context, one with another context, and one whose context
//! somebody else has destroyed. There a driver refuses whatever is asked without the right context
//! (the conformance suite has measured it), so a free that forgot to make it current is noticed.

use std::thread;

use cuguard::report::Report;

use crate::support::*;
use cuguard::driver::api;
use cuguard::driver::sys::CUcontext;
use cuguard::{
    Context, DeviceBox, DeviceBuffer, DriverPool, Event, ManagedBuffer, PinnedBuffer,
    RegisteredVec, ResourceKind, Result, Stream,
};

const MIB: usize = 1 << 20;

fn current() -> CUcontext {
    let mut current = CUcontext::NULL;
    // SAFETY: the variable can be written to.
    let code = unsafe { api::cuCtxGetCurrent(&mut current) };
    assert!(code.is_success(), "{code}");
    current
}

/// Makes a context current that is then destroyed by another thread.
fn make_a_dead_one_current() -> CUcontext {
    let mut dead = CUcontext::NULL;
    // SAFETY: the variable can be written to; nobody else knows the context.
    let code = unsafe { api::cuCtxCreate_v2(&mut dead, 0, 0) };
    assert!(code.is_success(), "{code}");
    let handle = dead.0;
    let destroyer = thread::spawn(move || {
        // SAFETY: made above, and nothing is in it.
        let code = unsafe { api::cuCtxDestroy_v2(CUcontext(handle)) };
        assert!(code.is_success(), "{code}");
    });
    destroyer.join().unwrap();
    assert_eq!(current(), dead);
    dead
}

/// Runs `body` on a thread of each sort. Each time what is current afterwards is what was before.
fn on_each_sort_of_thread(other: &Context, body: impl Fn(&str) + Sync) {
    let check = |sort: &str, expected: CUcontext| {
        body(sort);
        assert_eq!(current(), expected, "{sort}");
    };
    thread::scope(|scope| {
        let none = scope.spawn(|| check("no context", CUcontext::NULL));
        none.join().unwrap();
        let another = scope.spawn(|| {
            let _bound = other.make_current().unwrap();
            check("another context", other.as_raw());
        });
        another.join().unwrap();
        let dead = scope.spawn(|| check("a dead context", make_a_dead_one_current()));
        dead.join().unwrap();
    });
}

/// Makes a thing on each sort of thread, uses it there, and drops it there; and one more that was
/// made on this thread. What is current is looked at after each step.
fn everywhere<T: Send>(
    kind: ResourceKind,
    make: impl Fn(&Context) -> Result<T> + Sync,
    mut used: impl FnMut(&mut T, &Context) -> Result<()> + Clone + Send + Sync,
) -> Result<()> {
    let turn = turn();
    let (context, other) = (context()?, Context::builder().dedicated().build()?);
    // So that what it costs to make one is paid.
    drop(make(&context)?);
    let before = in_hand(&context)?;
    let brought = std::sync::Mutex::new(Vec::new());
    for _ in 0..3 {
        let mut thing = make(&context)?;
        used(&mut thing, &context)?;
        brought.lock().unwrap().push(thing);
    }
    on_each_sort_of_thread(&other, |sort| {
        let here = current();
        let same = |step: &str| assert_eq!(current(), here, "{kind}, {sort}: {step}");
        let mut thing = make(&context).unwrap_or_else(|error| panic!("{kind}, {sort}: {error}"));
        same("make");
        let result = (used.clone())(&mut thing, &context);
        result.unwrap_or_else(|error| panic!("{kind}, {sort}: {error}"));
        same("use");
        drop(thing);
        same("drop");
        let thing = brought.lock().unwrap().pop().unwrap();
        drop(thing);
        same("drop of one from elsewhere");
    });
    assert_eq!(context.totals(kind).count, 0, "{kind}");
    let snapshot = context.snapshot();
    assert!(
        snapshot.failed_frees.is_empty(),
        "{kind}\n{}",
        snapshot.display()
    );
    context.synchronize()?;
    before.all_freed();
    drop((context, other));
    turn.all_came_back();
    Ok(())
}

#[test]
fn device_memory_leaves_what_is_current() -> Result<()> {
    everywhere(
        ResourceKind::Device,
        |context| DeviceBuffer::from_slice(context, &vec![7_u8; 32 * MIB]),
        |buffer, _| {
            buffer.copy_from_slice(&vec![8; 32 * MIB])?;
            assert_eq!(buffer.to_vec()?, vec![8; 32 * MIB]);
            Ok(())
        },
    )?;
    everywhere(
        ResourceKind::Device,
        |context| DeviceBox::new(context, &1_u64),
        |one, _| {
            one.set(&2)?;
            assert_eq!(one.get()?, 2);
            Ok(())
        },
    )
}

#[test]
fn pinned_memory_leaves_what_is_current() -> Result<()> {
    everywhere(
        ResourceKind::Pinned,
        |context| PinnedBuffer::<u8>::zeroed(context, 4096),
        |buffer, _| {
            buffer[0] = 1;
            Ok(())
        },
    )
}

#[test]
fn registered_memory_leaves_what_is_current() -> Result<()> {
    everywhere(
        ResourceKind::Registered,
        |context| RegisteredVec::new(context, vec![7_u8; 4096]),
        |buffer, _| {
            buffer[0] = 1;
            Ok(())
        },
    )
}

#[test]
fn managed_memory_leaves_what_is_current() -> Result<()> {
    everywhere(
        ResourceKind::Managed,
        |context| ManagedBuffer::<u8>::zeroed(context, 32 * MIB),
        |buffer, context| {
            buffer.as_mut_slice(context)?[0] = 1;
            assert_eq!(buffer.as_slice(context)?[..2], [1, 0]);
            Ok(())
        },
    )
}

#[test]
fn streams_leave_what_is_current() -> Result<()> {
    everywhere(ResourceKind::Stream, Stream::new, |stream, context| {
        let mut buffer = DeviceBuffer::<u8>::zeroed(context, 100)?;
        stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 7))?;
        assert_eq!(buffer.to_vec()?, [7; 100]);
        assert!(stream.is_idle()?);
        stream.synchronize()
    })
}

#[test]
fn events_leave_what_is_current() -> Result<()> {
    everywhere(ResourceKind::Event, Event::new, |event, context| {
        let stream = Stream::new(context)?;
        event.record(&stream)?;
        event.synchronize()?;
        assert!(event.is_complete()?);
        Ok(())
    })
}

#[test]
fn memory_pools_leave_what_is_current() -> Result<()> {
    everywhere(ResourceKind::MemoryPool, DriverPool::new, |pool, _| {
        pool.set_release_threshold(0)?;
        assert_eq!(pool.used_bytes()?, 0);
        pool.trim_to(0)
    })
}

/// Stream-ordered memory needs no current context, only none that is dead, to be had; it is freed
/// with a dead one too.
#[test]
fn stream_ordered_memory_leaves_what_is_current() -> Result<()> {
    let turn = turn();
    let (context, other) = (context()?, Context::builder().dedicated().build()?);
    let stream = Stream::new(&context)?;
    let before = in_hand(&context)?;
    let make = || DeviceBuffer::<u8>::zeroed(&stream, 32 * MIB);
    let brought = std::sync::Mutex::new(vec![make()?, make()?, make()?]);
    on_each_sort_of_thread(&other, |sort| {
        let here = current();
        let same = |step: &str| assert_eq!(current(), here, "{sort}: {step}");
        let mut buffer = brought.lock().unwrap().pop().unwrap();
        buffer.copy_from_slice(&vec![8; 32 * MIB]).unwrap();
        same("write");
        assert_eq!(buffer.to_vec().unwrap(), vec![8; 32 * MIB]);
        same("read");
        drop(buffer);
        same("drop");
        if sort != "a dead context" {
            drop(make().unwrap());
            same("make and drop");
        }
    });
    assert_eq!(context.totals(ResourceKind::StreamOrdered).count, 0);
    let snapshot = context.snapshot();
    assert!(snapshot.failed_frees.is_empty(), "{}", snapshot.display());
    stream.synchronize()?;
    before.all_freed();
    drop((stream, context, other));
    turn.all_came_back();
    Ok(())
}

/// Contexts as such: making, looking, closing.
#[test]
fn contexts_leave_what_is_current() -> Result<()> {
    let turn = turn();
    let (context, other) = (context()?, Context::builder().dedicated().build()?);
    on_each_sort_of_thread(&other, |sort| {
        let here = current();
        let same = |step: &str| assert_eq!(current(), here, "{sort}: {step}");
        context.synchronize().unwrap();
        context.memory().unwrap();
        same("use");
        for builder in [Context::builder(), Context::builder().dedicated()] {
            let fresh = builder.build().unwrap();
            same("make");
            std::mem::forget(DeviceBuffer::<u8>::zeroed(&fresh, 100).unwrap());
            fresh.close().unwrap();
            same("close");
        }
        let bound = context.make_current().unwrap();
        assert_eq!(current(), context.as_raw());
        drop(bound);
        same("bind");
    });
    drop((context, other));
    turn.all_came_back();
    Ok(())
}

/// One thread makes things of every kind, another one, where nothing is current, drops them.
#[test]
fn things_of_every_kind_are_freed_by_a_thread_that_did_not_make_them() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let stream = Stream::new(&context)?;
    let pool = DriverPool::new(&context)?;
    let things = (
        DeviceBuffer::<u8>::zeroed(&context, 32 * MIB)?,
        DeviceBuffer::<u8>::zeroed(&stream, 32 * MIB)?,
        DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 32 * MIB)?,
        PinnedBuffer::<u8>::zeroed(&context, 4096)?,
        RegisteredVec::new(&context, vec![0_u8; 4096])?,
        ManagedBuffer::<u8>::zeroed(&context, 32 * MIB)?,
        (Event::new(&context)?, pool, stream),
    );
    assert_eq!(context.live_count(), 9);
    thread::spawn(move || drop(things)).join().unwrap();
    assert_eq!(context.live_count(), 0);
    let snapshot = context.snapshot();
    assert!(snapshot.failed_frees.is_empty(), "{}", snapshot.display());
    context.synchronize()?;
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// A guard was forgotten and its context closed on another thread: the context is not made current again.
#[test]
fn a_destroyed_context_is_not_put_back() -> Result<()> {
    let _turn = turn();
    let outer = context()?;
    let inner = Context::builder().dedicated().build()?;
    let guard = outer.make_current()?;
    std::mem::forget(inner.make_current()?);
    thread::scope(|threads| threads.spawn(|| inner.close()).join().unwrap())?;
    drop(guard);
    assert_eq!(current(), CUcontext::NULL);
    Ok(())
}
