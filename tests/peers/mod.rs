//! Several devices: copies between contexts in scopes, and peer access. The simulation has two devices here. On a machine
//! with one GPU, copies are between two contexts of it, and tests of peer access are not run.

mod access;
mod access_teardown;
mod copies;
mod page_locked;

use std::sync::Once;
use std::time::Duration;

use crate::support::*;
use cuguard::context::ContextBuilder;
use cuguard::driver::sys::CUresult;
use cuguard::driver::{self, DriverKind, api};
use cuguard::report::ReportSettings;
use cuguard::sim::{self, Config};
use cuguard::{Context, Device, Result};
use cuguard_testing::{Requirement, not_run};

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
fn two_devices() -> Result<Option<(Context, Context)>> {
    if let [first, second, ..] = Device::all()?[..]
        && first.can_access_peer(second)?
        && second.can_access_peer(first)?
    {
        return pair().map(Some);
    }
    not_run(Requirement::TwoDevices, "");
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
