//! What scopes bind beside plain buffers, scopes within scopes, and stream-ordered memory that is
//! given away and taken back.

use crate::support;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cuguard::report::Report;

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::{
    Context, DeviceBuffer, Error, ManagedBuffer, PinnedBuffer, RegisteredVec, ResourceKind, Result,
    Stream,
};

const LEN: usize = 10_000;

#[test]
fn from_raw_on_keeps_the_record_and_frees_on_the_stream() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut buffer = DeviceBuffer::<u32>::zeroed(&home, LEN)?.with_label("travels");
    let line = line!() - 1;
    buffer.copy_from_slice(&[7; LEN])?;
    let address = buffer.into_raw();
    let snapshot = context.snapshot();
    let [group] = &snapshot.escaped[..] else {
        panic!("{}", snapshot.display());
    };
    assert_eq!(group.kind, ResourceKind::StreamOrdered);
    assert_eq!(group.streams, [home.as_raw().0 as u64]);
    let totals = context.totals(ResourceKind::StreamOrdered);

    // SAFETY: given away above; the copy was waited for, so any stream knows of it.
    let buffer = unsafe { DeviceBuffer::<u32>::from_raw_on(&other, address, LEN) };
    let snapshot = context.snapshot();
    assert!(snapshot.escaped.is_empty(), "{}", snapshot.display());
    let back: Vec<_> = snapshot
        .live
        .iter()
        .filter(|group| group.kind == ResourceKind::StreamOrdered)
        .collect();
    let [group] = back[..] else {
        panic!("{}", snapshot.display());
    };
    assert_eq!(group.label.as_deref(), Some("travels"));
    let site = group.origin.site.unwrap();
    assert_eq!((site.line, group.type_name), (line, "u32"));
    // Nothing was made anew.
    assert_eq!(context.totals(ResourceKind::StreamOrdered), totals);
    assert_eq!(buffer.to_vec()?, [7; LEN]);

    // Freed in the order of the stream that it was taken back on.
    let gate = Gate::on(&context, &other);
    drop(buffer);
    assert!(home.is_idle()? && !other.is_idle()?);
    gate.open();
    assert_eq!(context.totals(ResourceKind::StreamOrdered).count, 0);
    drop((home, other));
    context.synchronize()?;
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn from_raw_on_adopts_what_other_code_allocated() -> Result<()> {
    use cuguard::driver::api;
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let stream = Stream::new(&context)?;
    let mut address = 0;
    let bound = context.make_current()?;
    // SAFETY: the variable can be written to, and the stream is alive.
    let code = unsafe { api::cuMemAllocAsync(&mut address, LEN, stream.as_raw()) };
    assert!(code.is_success(), "{code}");
    drop(bound);
    // SAFETY: allocated above; any bytes are values, once they are written.
    let mut buffer = unsafe { DeviceBuffer::<u8>::from_raw_on(&stream, address, LEN) };
    assert_eq!(
        context.totals(ResourceKind::StreamOrdered).bytes,
        LEN as u64,
        "it is in the registry from now on"
    );
    buffer.copy_from_slice(&[3; LEN])?;
    assert_eq!(buffer.to_vec()?, [3; LEN]);
    drop((buffer, stream));
    assert_eq!(context.live_count(), 0);
    context.synchronize()?;
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn managed_memory_is_bound_like_a_buffer() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let stream = Stream::new(&context)?;
    let numbers: Vec<u32> = (0..LEN as u32).collect();
    let registered = RegisteredVec::new(&context, numbers.clone())?;
    let mut managed = ManagedBuffer::<u32>::zeroed(&context, LEN)?;
    let mut device = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    let mut output = PinnedBuffer::<u32>::zeroed(&context, LEN)?;
    stream.scope(|s| {
        let mut shared = s.bind_mut(&mut managed)?;
        assert_eq!(shared.len(), LEN);
        s.upload(&mut shared, &s.bind_host(&registered))?;
        let mut device = s.bind_mut(&mut device)?;
        s.copy(&mut device, &shared)?;
        s.download(&mut s.bind_host_mut(&mut output), &shared)?;
        let (mut front, _) = shared.split_at(2)?;
        s.fill(&mut front, 9)
    })?;
    assert_eq!(*output, numbers);
    assert_eq!(device.to_vec()?, numbers);
    // The host sees what the scope's work wrote.
    let seen = managed.as_slice(&context)?;
    assert_eq!((&seen[..2], &seen[2..]), (&[9, 9][..], &numbers[2..]));
    // To be read only, it can be bound more than once.
    stream.scope(|s| {
        let (one, two) = (s.bind(&managed)?, s.bind(&managed)?);
        s.download(&mut s.bind_host_mut(&mut output), &one)?;
        assert_eq!(two.len(), LEN);
        Ok(())
    })?;
    assert_eq!(output[..3], [9, 9, 2]);
    drop((managed, device, output, registered, stream));
    assert_eq!(context.live_count(), 0);
    // A real driver keeps memory of its own, now more and now less, once the device has worked on
    // managed memory.
    let simulated = simulated("the count of free bytes in managed_memory_is_bound_like_a_buffer");
    if simulated {
        before.all_freed();
    }
    context.close()?;
    if simulated {
        turn.all_came_back();
    }
    Ok(())
}

#[test]
fn managed_memory_of_another_context_is_refused() -> Result<()> {
    let turn = turn();
    let (context, own) = (context()?, Context::builder().dedicated().build()?);
    // Two owners of one primary context are two contexts, each with its own end.
    let twin = support::context()?;
    let stream = Stream::new(&context)?;
    for other in [&own, &twin] {
        let mut managed = ManagedBuffer::from_slice(other, &[1_u32, 2, 3])?;
        let wrong = |error: Error| matches!(error, Error::WrongContext { .. });
        let error = stream.scope(|s| s.bind(&managed).map(drop)).unwrap_err();
        assert!(wrong(error));
        let error = stream.scope(|s| s.bind_mut(&mut managed).map(drop));
        assert!(wrong(error.unwrap_err()));
        assert!(wrong(managed.as_slice(&context).unwrap_err()));
        assert!(wrong(managed.as_mut_slice(&context).unwrap_err()));
        assert_eq!(managed.as_slice(other)?, [1, 2, 3]);
    }
    drop(stream);
    for context in [context, own, twin] {
        context.close()?;
    }
    turn.all_came_back();
    Ok(())
}

#[test]
fn managed_memory_of_a_closed_context_is_refused() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let managed = ManagedBuffer::from_slice(&context, &[1_u32, 2, 3])?;
    context.close()?;
    let error = stream.scope(|s| s.bind(&managed).map(drop)).unwrap_err();
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    Ok(())
}

/// A scope within a scope, each with a copy in flight; the inner one panics while both are.
#[test]
fn a_panic_in_an_inner_scope_waits_for_both_streams() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let (outer, inner) = (Stream::new(&context)?, Stream::new(&context)?);
    let source = DeviceBuffer::from_slice(&context, &[7_u32; LEN])?;
    let mut outer_target = PinnedBuffer::<u32>::zeroed(&context, LEN)?;
    let mut inner_target = PinnedBuffer::<u32>::zeroed(&context, LEN)?;
    // A real driver calls one host function at a time, so the gate that opens first comes first.
    let inner_gate = Gate::on(&context, &inner);
    thread::sleep(Duration::from_millis(50));
    let outer_gate = Gate::on(&context, &outer);
    let (in_outer, in_inner) = (AtomicBool::new(true), AtomicBool::new(true));
    /// Tells when the unwinding passes by.
    struct Leaves<'a>(&'a AtomicBool);
    impl Drop for Leaves<'_> {
        fn drop(&mut self) {
            self.0.store(false, Ordering::SeqCst);
        }
    }
    thread::scope(|threads| {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _leaves = Leaves(&in_outer);
            outer.scope(|o| {
                o.download(&mut o.bind_host_mut(&mut outer_target), &o.bind(&source)?)?;
                let _leaves = Leaves(&in_inner);
                inner.scope(|i| {
                    i.download(&mut i.bind_host_mut(&mut inner_target), &i.bind(&source)?)?;
                    threads.spawn(|| {
                        let pause = || thread::sleep(Duration::from_millis(100));
                        pause();
                        let waits = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
                        let inner_waited = waits(&in_inner);
                        inner_gate.open();
                        let inner_ended = soon(|| !waits(&in_inner));
                        pause();
                        let outer_waited = waits(&in_outer) && inner_ended;
                        outer_gate.open();
                        assert!(inner_waited, "the inner scope did not wait");
                        assert!(outer_waited, "the outer scope did not wait");
                    });
                    resume_unwind(Box::new("on purpose")) as Result<()>
                })
            })
        }));
        let panic = unwound.unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    });
    assert!(inner_gate.is_open() && outer_gate.is_open());
    assert_eq!(*inner_target, [7; LEN]);
    assert_eq!(*outer_target, [7; LEN]);
    // Both go on as before.
    for stream in [&outer, &inner] {
        stream.scope(|s| {
            let mut target = s.bind_host_mut(&mut inner_target);
            s.download(&mut target, &s.bind(&source)?)
        })?;
    }
    drop((source, outer_target, inner_target, outer, inner));
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// Memory that was given away keeps its pool, and has it again when it comes back.
#[test]
fn memory_of_a_pool_that_is_given_away_keeps_the_pool() -> Result<()> {
    let turn = turn();
    {
        let context = context()?;
        let before = in_hand(&context)?;
        let stream = Stream::new(&context)?;
        let pool = cuguard::DriverPool::new(&context)?;
        let buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?;
        drop(pool);
        let address = buffer.into_raw();
        assert_eq!(context.totals(ResourceKind::MemoryPool).count, 1);
        // SAFETY: the address and length of a buffer of this stream, given away above.
        let buffer = unsafe { DeviceBuffer::<u8>::from_raw_on(&stream, address, 1000) };
        assert_eq!(buffer.to_vec()?, [0; 1000]);
        assert_eq!(context.totals(ResourceKind::MemoryPool).count, 1);
        drop(buffer);
        assert_eq!(context.totals(ResourceKind::MemoryPool).count, 0);
        drop(stream);
        context.synchronize()?;
        before.all_freed();
        context.close()?;
    }
    turn.all_came_back();
    Ok(())
}
