//! Several devices: copies between contexts in scopes, and peer access. The simulation has two devices here. On a machine
//! with one GPU, copies are between two contexts of it, and tests of peer access are not run.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Barrier, Once};
use std::time::Duration;

use cuguard::driver::sys::{CUcontext, CUresult};
use cuguard::driver::{self, DriverKind, api};
use cuguard::report::{Report, ReportSettings};
use cuguard::sim::{self, Config, Fault};
use cuguard::{
    Context, ContextBuilder, Device, DeviceBuffer, Error, Kind, PeerAccess, Result, Stream,
};
use support::*;

/// Two devices in the simulation, on which work takes a while. Before anything else.
fn machine() -> Turn {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if driver::load().expect("a driver").kind() == DriverKind::Simulated {
            let config = Config::new().devices(2).latency(Duration::from_micros(200));
            sim::configure(config).expect("it does not run yet");
        }
    });
    turn()
}

fn quiet() -> ContextBuilder {
    Context::builder().report(ReportSettings::off())
}

/// Contexts of two devices, or of one where there is one only.
fn pair() -> Result<(Context, Context)> {
    let second = match Device::count()? {
        1 => quiet().dedicated(),
        _ => quiet().device(1),
    };
    Ok((quiet().build()?, second.build()?))
}

/// Contexts of two devices that can access each other; if there are none, prints that a test was not run.
fn two_devices(test: &str) -> Result<Option<(Context, Context)>> {
    use std::io::Write;
    if let [first, second, ..] = Device::all()?[..]
        && first.can_access_peer(second)?
        && second.can_access_peer(first)?
    {
        return pair().map(Some);
    }
    let line = format!("NOT RUN: {test} needs two devices that can access each other");
    let _ = writeln!(std::io::stderr(), "{line}");
    Ok(None)
}

/// Whether the driver has the access of `context` to `peer` enabled. Changes nothing.
fn is_enabled(context: &Context, peer: &Context) -> Result<bool> {
    let _current = context.make_current()?;
    // SAFETY: both contexts are alive.
    let code = unsafe { api::cuCtxEnablePeerAccess(peer.as_raw(), 0) };
    if code == CUresult::PEER_ACCESS_ALREADY_ENABLED {
        return Ok(true);
    }
    assert!(code.is_success(), "{code}");
    // SAFETY: enabled above.
    assert!(unsafe { api::cuCtxDisablePeerAccess(peer.as_raw()) }.is_success());
    Ok(false)
}

#[test]
fn copies_in_both_directions() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let before = (in_hand(&first)?, in_hand(&second)?);
    let stream = Stream::new(&first)?;
    let values: Vec<u32> = (0..100_000).collect();
    let there = DeviceBuffer::from_slice(&second, &values)?;
    let mut here = DeviceBuffer::<u32>::zeroed(&first, values.len())?;
    let mut back = DeviceBuffer::<u32>::zeroed(&second, values.len())?;
    stream.scope(|s| {
        let (there, mut back) = (s.bind_peer(&there)?, s.bind_peer_mut(&mut back)?);
        let mut here = s.bind_mut(&mut here)?;
        assert_eq!((there.len(), there.is_empty()), (values.len(), false));
        s.copy_from_peer(&mut here, &there)?;
        s.copy_to_peer(&mut back, &here)
    })?;
    assert_eq!(here.to_vec()?, values);
    assert_eq!(back.to_vec()?, values);
    drop((there, here, back, stream));
    before.0.all_freed();
    before.1.all_freed();
    second.close()?;
    first.close()
}

/// The same without a scope: views of two contexts.
#[test]
fn synchronous_copies() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let from = DeviceBuffer::from_slice(&second, &[1_u8, 2, 3, 4])?;
    let mut to = DeviceBuffer::<u8>::zeroed(&first, 4)?;
    to.slice_mut(1..3)?.copy_from(from.slice(2..)?)?;
    assert_eq!(to.to_vec()?, [0, 3, 4, 0]);
    drop((from, to));
    second.close()?;
    first.close()
}

/// The copy waits for the allocation and the fill on a stream of the other context.
#[test]
fn stream_ordered_memory_and_views() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let (stream, there) = (Stream::new(&first)?, Stream::new(&second)?);
    for round in 0..20_u32 {
        let mut from = DeviceBuffer::<u32>::zeroed_on(&there, 1000)?;
        from.slice_mut(500..)?.fill(round)?;
        let mut to = DeviceBuffer::<u32>::zeroed_on(&stream, 500)?;
        let mut target = DeviceBuffer::<u32>::zeroed_on(&there, 250)?;
        stream.scope(|s| {
            let mut to = s.bind_mut(&mut to)?;
            s.copy_from_peer(&mut to, &s.bind_peer(from.slice(500..)?)?)?;
            let (front, _) = to.split_at(250)?;
            s.copy_to_peer(&mut s.bind_peer_mut(&mut target)?, &front)
        })?;
        assert_eq!(to.to_vec()?, [round; 500]);
        assert_eq!(target.to_vec()?, [round; 250]);
    }
    drop((stream, there));
    second.close()?;
    first.close()
}

#[test]
fn lengths_must_match() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let stream = Stream::new(&first)?;
    let mut there = DeviceBuffer::from_slice(&second, &[1_u8, 2, 3])?;
    let mut here = DeviceBuffer::<u8>::zeroed(&first, 2)?;
    let mut both = |from_peer: bool| {
        stream.scope(|s| {
            let (mut there, mut here) = (s.bind_peer_mut(&mut there)?, s.bind_mut(&mut here)?);
            match from_peer {
                true => s.copy_from_peer(&mut here, &there),
                false => s.copy_to_peer(&mut there, &here),
            }
        })
    };
    let text = |error: Result<()>| error.unwrap_err().to_string();
    assert_eq!(
        [text(both(true)), text(both(false))],
        [
            "Scope::copy_from_peer: the source has 3 elements, the destination 2",
            "Scope::copy_to_peer: the source has 2 elements, the destination 3"
        ]
    );
    assert_eq!(there.to_vec()?, [1, 2, 3]);
    // Memory of another context is no memory of this one.
    let error = stream.scope(|s| s.bind(&there).map(drop)).unwrap_err();
    assert!(matches!(error, Error::WrongContext { .. }), "{error}");
    drop((there, here, stream));
    second.close()?;
    first.close()
}

/// Teardown of the other context waits for the copy, and later copies fail.
#[test]
fn the_other_context_is_closed_within_the_scope() -> Result<()> {
    let _turn = machine();
    // A synchronous free waits for the device, a free in stream order does not.
    for (to_peer, ordered) in [(false, false), (true, false), (false, true), (true, true)] {
        let (first, second) = pair()?;
        let stream = Stream::new(&first)?;
        let mut there = match ordered {
            true => DeviceBuffer::from_slice_on(&Stream::new(&second)?, &[7_u8; 1 << 16])?,
            false => DeviceBuffer::from_slice(&second, &[7_u8; 1 << 16])?,
        };
        let mut here = DeviceBuffer::<u8>::zeroed(&first, 1 << 16)?;
        stream.scope(|s| {
            let (mut there, mut here) = (s.bind_peer_mut(&mut there)?, s.bind_mut(&mut here)?);
            for _ in 0..10 {
                s.copy_from_peer(&mut here, &there)?;
                if to_peer {
                    s.copy_to_peer(&mut there, &here)?;
                }
            }
            second.close()?;
            let late = s.copy_from_peer(&mut here, &there).unwrap_err();
            assert!(matches!(late, Error::ContextClosed { .. }), "{late}");
            Ok(())
        })?;
        assert_eq!(here.to_vec()?, [7; 1 << 16]);
        assert!(matches!(there.to_vec(), Err(Error::ContextClosed { .. })));
        let error = stream.scope(|s| s.bind_peer(&there).map(drop)).unwrap_err();
        assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
        drop((there, here, stream));
        first.close()?;
    }
    Ok(())
}

#[test]
fn the_own_context_is_closed_within_the_scope() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let stream = Stream::new(&first)?;
    let mut there = DeviceBuffer::from_slice(&second, &[0_u8; 1 << 16])?;
    let here = DeviceBuffer::<u8>::from_slice(&first, &[9; 1 << 16])?;
    stream.scope(|s| {
        let mut there = s.bind_peer_mut(&mut there)?;
        let here = s.bind(&here)?;
        s.copy_to_peer(&mut there, &here)?;
        first.close()?;
        let late = s.copy_to_peer(&mut there, &here).unwrap_err();
        assert!(matches!(late, Error::ContextClosed { .. }), "{late}");
        Ok(())
    })?;
    assert_eq!(there.to_vec()?, [9; 1 << 16]);
    drop((here, stream));
    drop(there);
    second.close()
}

/// Two contexts that copy to each other and are closed at the same time do not wait for each other.
#[test]
fn both_are_closed_at_once() -> Result<()> {
    let _turn = machine();
    for _ in 0..30 {
        let (first, second) = pair()?;
        let buffers = (
            DeviceBuffer::<u8>::zeroed(&first, 1 << 16)?,
            DeviceBuffer::<u8>::zeroed(&second, 1 << 16)?,
        );
        let streams = (Stream::new(&first)?, Stream::new(&second)?);
        let mut targets = (
            DeviceBuffer::<u8>::zeroed(&first, 1 << 16)?,
            DeviceBuffer::<u8>::zeroed(&second, 1 << 16)?,
        );
        let barrier = Barrier::new(2);
        let side = |context: Context,
                    stream: &Stream,
                    from: &DeviceBuffer<u8>,
                    to: &mut DeviceBuffer<u8>| {
            stream.scope(|s| {
                let (from, mut to) = (s.bind_peer(from)?, s.bind_mut(to)?);
                for _ in 0..3 {
                    s.copy_from_peer(&mut to, &from)?;
                }
                barrier.wait();
                context.close()
            })
        };
        let (one, two) = std::thread::scope(|scope| {
            let other = scope.spawn(|| side(second, &streams.1, &buffers.0, &mut targets.1));
            let one = side(first, &streams.0, &buffers.1, &mut targets.0);
            (one, other.join().expect("no panic"))
        });
        one?;
        two?;
    }
    Ok(())
}

#[test]
fn a_panic_in_the_scope() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let stream = Stream::new(&first)?;
    let there = DeviceBuffer::from_slice(&second, &[3_u8; 1 << 16])?;
    let mut here = DeviceBuffer::<u8>::zeroed(&first, 1 << 16)?;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.scope(|s| -> Result<()> {
            s.copy_from_peer(&mut s.bind_mut(&mut here)?, &s.bind_peer(&there)?)?;
            panic!("in the scope")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(here.to_vec()?, [3; 1 << 16]);
    drop((there, here, stream));
    second.close()?;
    first.close()
}

#[test]
fn access_ends_on_drop() -> Result<()> {
    let _turn = machine();
    let Some((first, second)) = two_devices("access_ends_on_drop")? else {
        return Ok(());
    };
    let access = PeerAccess::new(&first, &second)?.named("halves");
    assert_eq!(
        (access.device(), access.peer()),
        (first.device(), second.device())
    );
    assert_eq!((first.live_count(), second.live_count()), (1, 0));
    assert!(is_enabled(&first, &second)?);
    assert!(!is_enabled(&second, &first)?, "one direction only");
    let text = first.snapshot().display().to_string();
    assert!(
        text.contains("1 peer access") && text.contains("halves"),
        "{text}"
    );
    drop(access);
    assert!(!is_enabled(&first, &second)?);
    PeerAccess::new(&first, &second)?.close()?;
    assert!(!is_enabled(&first, &second)?);
    assert_eq!(first.live_count(), 0);
    second.close()?;
    first.close()
}

/// Several guards, also of other `Context`s on the same primary contexts, share one access.
#[test]
fn guards_of_one_pair_share_the_access() -> Result<()> {
    let _turn = machine();
    let Some((first, second)) = two_devices("guards_of_one_pair_share_the_access")? else {
        return Ok(());
    };
    let (third, fourth) = pair()?;
    assert_eq!(first.as_raw(), third.as_raw(), "the primary context");
    let one = PeerAccess::new(&first, &second)?;
    let two = PeerAccess::new(&first, &second)?;
    let three = PeerAccess::new(&third, &fourth)?;
    assert_eq!(first.totals(Kind::PeerAccess).count, 2);
    for guard in [one, two] {
        guard.close()?;
        assert!(is_enabled(&first, &second)?);
    }
    // A guard that leaks in one `Context` ends with it, and not for the others.
    std::mem::forget(PeerAccess::new(&first, &second)?);
    first.close()?;
    assert!(is_enabled(&third, &fourth)?);
    drop(three);
    assert!(!is_enabled(&third, &fourth)?);
    drop((second, fourth));
    third.close()
}

/// Access that other code enabled stays enabled.
#[test]
fn access_of_other_code_stays() -> Result<()> {
    let _turn = machine();
    let Some((first, second)) = two_devices("access_of_other_code_stays")? else {
        return Ok(());
    };
    let call = |function: unsafe fn(CUcontext) -> CUresult| -> Result<()> {
        let _current = first.make_current()?;
        // SAFETY: both contexts are alive.
        let code = unsafe { function(second.as_raw()) };
        assert!(code.is_success(), "{code}");
        Ok(())
    };
    // SAFETY: as the caller ensures.
    call(|peer| unsafe { api::cuCtxEnablePeerAccess(peer, 0) })?;
    drop(PeerAccess::new(&first, &second)?);
    assert!(is_enabled(&first, &second)?);
    // Other code disables what a guard enabled: the guard has nothing to do any more.
    // SAFETY: as the caller ensures.
    call(|peer| unsafe { api::cuCtxDisablePeerAccess(peer) })?;
    let access = PeerAccess::new(&first, &second)?;
    // SAFETY: as the caller ensures.
    call(|peer| unsafe { api::cuCtxDisablePeerAccess(peer) })?;
    access.close()?;
    assert!(first.snapshot().failed_frees.is_empty());
    second.close()?;
    first.close()
}

#[test]
fn contexts_of_one_device() -> Result<()> {
    let _turn = machine();
    let (first, other) = (quiet().build()?, quiet().dedicated().build()?);
    for (one, two) in [(&first, &other), (&first, &first)] {
        let error = PeerAccess::new(one, two).unwrap_err();
        assert_eq!(
            error.to_string(),
            "PeerAccess::new: both contexts are on device 0; peer access is between two devices"
        );
    }
    other.close()?;
    first.close()
}

#[test]
fn a_device_that_cannot_be_reached() -> Result<()> {
    if !simulated("a_device_that_cannot_be_reached") {
        return Ok(());
    }
    let _turn = machine();
    let (first, second) = pair()?;
    let fault = Fault::nth_call_of("cuCtxEnablePeerAccess", 1);
    let fault = sim::inject(fault.returning(CUresult::PEER_ACCESS_UNSUPPORTED)).unwrap();
    let error = PeerAccess::new(&first, &second).unwrap_err();
    drop(fault);
    assert_eq!(
        error.to_string(),
        "PeerAccess::new: device 0 cannot access the memory of device 1; copies between them are possible"
    );
    assert!(matches!(
        error,
        Error::NoPeerAccess {
            device: 0,
            peer: 1,
            ..
        }
    ));
    // Any other error is the driver's.
    for (function, code) in [
        ("cuCtxEnablePeerAccess", CUresult::TOO_MANY_PEERS),
        ("cuDeviceCanAccessPeer", CUresult::UNKNOWN),
    ] {
        let fault = sim::inject(Fault::nth_call_of(function, 1).returning(code)).unwrap();
        let error = PeerAccess::new(&first, &second).unwrap_err();
        drop(fault);
        assert_eq!(error.code(), Some(code));
        assert!(
            error
                .to_string()
                .starts_with("PeerAccess::new on device 0: "),
            "{error}"
        );
    }
    assert_eq!(first.live_count(), 0);
    second.close()?;
    first.close()
}

/// In any order, on any thread: the guard keeps both contexts open.
#[test]
fn contexts_are_dropped_first() -> Result<()> {
    let _turn = machine();
    let Some((first, second)) = two_devices("contexts_are_dropped_first")? else {
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
    let Some((first, second)) = two_devices("close_of_the_context_with_the_access")? else {
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
    let Some((first, second)) = two_devices("close_of_the_context_that_is_accessed")? else {
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
    let name = "both_contexts_of_an_access_are_closed_at_once";
    let Some(kept) = two_devices(name)? else {
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
            .any(|group| group.allocated.kind == Kind::PeerAccess);
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
    let Some((first, second)) = two_devices("dropped_in_a_host_function")? else {
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

/// Each thread works on its own device.
#[test]
fn one_context_for_each_device() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    std::thread::scope(|scope| {
        for context in [&first, &second] {
            scope.spawn(move || -> Result<()> {
                let stream = Stream::new(context)?;
                for value in 0..20_u8 {
                    let mut buffer = DeviceBuffer::<u8>::zeroed_on(&stream, 10_000)?;
                    stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, value))?;
                    assert_eq!(buffer.to_vec()?, [value; 10_000]);
                }
                Ok(())
            });
        }
    });
    assert_eq!((first.live_count(), second.live_count()), (0, 0));
    second.close()?;
    first.close()
}
