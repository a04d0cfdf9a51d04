//! Peer access: one access for each pair of contexts, however many guards share it.

use cuguard::device::PeerAccess;
use cuguard::driver::api;
use cuguard::driver::sys::{CUcontext, CUresult};
use cuguard::report::Report;
use cuguard::sim::{self, Fault};
use cuguard::{Error, ResourceKind, Result};

use super::{is_enabled, machine, pair, quiet, two_devices};
use crate::support::*;

#[test]
fn access_ends_on_drop() -> Result<()> {
    let _turn = machine();
    let Some((first, second)) = two_devices()? else {
        return Ok(());
    };
    let access = PeerAccess::new(&first, &second)?.with_label("halves");
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
    let Some((first, second)) = two_devices()? else {
        return Ok(());
    };
    let (third, fourth) = pair()?;
    assert_eq!(first.as_raw(), third.as_raw(), "the primary context");
    let one = PeerAccess::new(&first, &second)?;
    let two = PeerAccess::new(&first, &second)?;
    let three = PeerAccess::new(&third, &fourth)?;
    assert_eq!(first.totals(ResourceKind::PeerAccess).count, 2);
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
    let Some((first, second)) = two_devices()? else {
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
