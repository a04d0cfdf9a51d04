//! Peer access whose contexts are dropped or closed, or whose end the driver refuses.

use std::sync::Barrier;

use cuguard::device::PeerAccess;
use cuguard::driver::api;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{Context, Error, ResourceKind, Result, Stream};

use super::{is_enabled, machine, pair, quiet, two_devices};
use crate::support::*;

/// In any order, on any thread: the guard keeps both contexts open.
#[test]
fn contexts_are_dropped_first() -> Result<()> {
    let _turn = machine();
    let Some((first, second)) = two_devices()? else {
        return Ok(());
    };
    let keeper = pair()?; // keeps the primary contexts alive
    let access = PeerAccess::new(&first, &second)?;
    drop((first, second));
    assert!(is_enabled(&keeper.0, &keeper.1)?);
    std::thread::spawn(|| drop(access))
        .join()
        .expect("no panic");
    assert!(!is_enabled(&keeper.0, &keeper.1)?);
    Ok(())
}

/// The context with the access is closed: a leak, and it ends.
#[test]
fn close_of_the_context_with_the_access() -> Result<()> {
    let _turn = machine();
    let Some((first, second)) = two_devices()? else {
        return Ok(());
    };
    let keeper = pair()?;
    let access = PeerAccess::new(&first, &second)?;
    first.close()?;
    assert!(!is_enabled(&keeper.0, &keeper.1)?);
    let error = access.close().unwrap_err();
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    second.close()
}

/// The context that is accessed is closed: the access ends, and the guard turns inert.
#[test]
fn close_of_the_context_that_is_accessed() -> Result<()> {
    let _turn = machine();
    let Some((first, second)) = two_devices()? else {
        return Ok(());
    };
    let keeper = pair()?;
    let access = PeerAccess::new(&first, &second)?;
    second.close()?;
    assert!(!is_enabled(&keeper.0, &keeper.1)?);
    assert_eq!(first.live_count(), 1, "the guard");
    access.close()?;
    let snapshot = first.snapshot();
    assert!(snapshot.live.is_empty() && snapshot.failed_frees.is_empty());
    // A context of its own, which is destroyed.
    let second = quiet().device(1).dedicated().build()?;
    let access = PeerAccess::new(&first, &second)?;
    second.close()?;
    drop(access);
    assert!(first.snapshot().failed_frees.is_empty());
    first.close()
}

/// A refused call is in the report, and nothing panics.
#[test]
fn the_driver_refuses_to_end_it() -> Result<()> {
    if !simulated("the_driver_refuses_to_end_it") {
        return Ok(());
    }
    let _turn = machine();
    let (first, second) = pair()?;
    let refuse = || {
        let fault = Fault::nth_call_of("cuCtxDisablePeerAccess", 1);
        sim::inject(fault.returning(CUresult::UNKNOWN)).unwrap()
    };
    for close in [true, false] {
        let access = PeerAccess::new(&first, &second)?;
        let fault = refuse();
        match close {
            true => assert_eq!(access.close().unwrap_err().code(), Some(CUresult::UNKNOWN)),
            false => drop(access),
        }
        drop(fault);
        // It is enabled still, as if other code had done it, and stays.
        drop(PeerAccess::new(&first, &second)?);
        assert!(is_enabled(&first, &second)?);
        let _current = first.make_current()?;
        // SAFETY: both contexts are alive.
        assert!(unsafe { api::cuCtxDisablePeerAccess(second.as_raw()) }.is_success());
    }
    let failed = first.snapshot().failed_frees;
    assert_eq!(
        failed
            .iter()
            .map(|group| group.allocated.amount.count)
            .sum::<u64>(),
        2
    );
    assert_eq!(first.live_count(), 0);
    second.close()?;
    first.close()
}

/// A capture of other code may prohibit the call: it is repeated in a mode in which the capture does not, by the guard or
/// by the teardown of the other context.
#[test]
fn access_ends_during_a_capture() -> Result<()> {
    if !simulated("access_ends_during_a_capture") {
        return Ok(());
    }
    let _turn = machine();
    for dropped in [true, false] {
        let (first, second) = pair()?;
        let other = quiet().device(1).build()?; // the same driver context as `second`
        let access = PeerAccess::new(&first, &second)?;
        let fault = Fault::nth_call_of("cuCtxDisablePeerAccess", 1);
        let fault = fault.returning(CUresult::STREAM_CAPTURE_UNSUPPORTED);
        let fault = sim::inject(fault).unwrap();
        let late = match dropped {
            true => {
                drop(access);
                None
            }
            false => {
                second.close()?;
                Some(access)
            }
        };
        assert_eq!(fault.fired(), 1);
        assert!(!is_enabled(&first, &other)?, "dropped: {dropped}");
        drop(late);
        assert!(first.snapshot().failed_frees.is_empty());
        assert_eq!(first.live_count(), 0);
    }
    Ok(())
}

/// The teardown of the other context cannot end the access. The guard does not try it again: that context may be
/// destroyed by then.
#[test]
fn teardown_of_the_peer_cannot_end_the_access() -> Result<()> {
    if !simulated("teardown_of_the_peer_cannot_end_the_access") {
        return Ok(());
    }
    let _turn = machine();
    let first = quiet().build()?;
    let second = quiet().device(1).dedicated().build()?;
    let access = PeerAccess::new(&first, &second)?;
    let fault = Fault::nth_call_of("cuCtxDisablePeerAccess", 1).sticky();
    let fault = sim::inject(fault.returning(CUresult::STREAM_CAPTURE_UNSUPPORTED)).unwrap();
    second.close()?;
    let calls = fault.fired();
    assert_ne!(calls, 0);
    drop(access);
    assert_eq!(fault.fired(), calls);
    sim::clear_faults();
    assert_eq!(first.snapshot().failed_frees.len(), 1);
    first.close()
}

/// Both contexts of an access are closed at once, on two threads, while others keep the primary contexts alive: one of them
/// ends the access, whichever comes first.
#[test]
fn both_contexts_of_an_access_are_closed_at_once() -> Result<()> {
    let _turn = machine();
    let Some(kept) = two_devices()? else {
        return Ok(());
    };
    for round in 0..200 {
        let (first, second) = pair()?;
        let access = [
            PeerAccess::new(&first, &second)?,
            PeerAccess::new(&second, &first)?,
        ];
        let start = Barrier::new(2);
        let close = |context: Context| {
            start.wait();
            context.close()
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| close(second));
            close(first)?;
            other.join().expect("no panic")
        })?;
        drop(access);
        for (context, peer) in [(&kept.0, &kept.1), (&kept.1, &kept.0)] {
            assert!(!is_enabled(context, peer)?, "round {round}");
        }
    }
    Ok(())
}

/// The context with the access cannot be made current when the other one is closed: the access stays enabled, and that is
/// recorded.
#[test]
fn access_that_stays_is_recorded() -> Result<()> {
    if !simulated("access_that_stays_is_recorded") {
        return Ok(());
    }
    let _turn = machine();
    let mut stayed = 0;
    for nth in 1..20 {
        let (first, second) = pair()?;
        let other = quiet().device(1).build()?; // the same driver context as `second`
        let access = PeerAccess::new(&first, &second)?;
        let fault = Fault::nth_call_of("cuCtxPushCurrent_v2", nth);
        let fault = sim::inject(fault.returning(CUresult::UNKNOWN)).unwrap();
        let closed = second.close();
        sim::clear_faults();
        drop(access);
        let failed = first.snapshot().failed_frees;
        let recorded = failed
            .iter()
            .any(|group| group.allocated.kind == ResourceKind::PeerAccess);
        let enabled = is_enabled(&first, &other)?;
        assert_eq!(recorded, enabled, "call {nth}: {closed:?}");
        if enabled {
            stayed += 1;
            let _current = first.make_current()?;
            // SAFETY: both contexts are alive.
            assert!(unsafe { api::cuCtxDisablePeerAccess(other.as_raw()) }.is_success());
        }
        if fault.fired() == 0 {
            break;
        }
    }
    assert_ne!(stayed, 0);
    Ok(())
}

/// Inside a host function the driver permits no call: the access ends later.
#[test]
fn dropped_in_a_host_function() -> Result<()> {
    let _turn = machine();
    let Some((first, second)) = two_devices()? else {
        return Ok(());
    };
    let stream = Stream::new(&first)?;
    let access = PeerAccess::new(&first, &second)?;
    {
        let _current = first.make_current()?;
        stream.add_callback(Box::new(move || drop(access)))?;
    }
    stream.synchronize()?;
    // The next operation that may wait for the device runs what was deferred.
    first.synchronize()?;
    assert!(!is_enabled(&first, &second)?);
    drop(stream);
    assert_eq!(first.live_count(), 0);
    second.close()?;
    first.close()
}
