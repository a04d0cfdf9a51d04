//! What the driver's pools hold and no allocation uses, for the figures of the running process.
//!
//! The driver alone knows it, and the thread that serves figures does not call the driver: it could be waiting for the device.
//! So whoever asks for figures gets those of the first recorded call after the last request, and has the next such call query
//! them again. Where nothing asks, a call reads one flag.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::real::queries;
use crate::shortage;
use crate::state::contexts;

/// Whether the figures were asked for since they were queried.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Bytes by device. Not held while the driver is called.
static KNOWN: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());

/// Has the next call of the program query the figures.
pub(crate) fn ask() {
    ASKED.store(true, Relaxed);
}

/// The figures as of the last query, by device.
pub(crate) fn known() -> Vec<(u32, u64)> {
    let known = cuguard_sync::lock(&KNOWN);
    known
        .iter()
        .map(|(device, bytes)| (*device, *bytes))
        .collect()
}

/// At the end of a recorded call that succeeded: queries the figures, if they were asked for. Where a call fails, the driver may
/// refuse queries too, as in a host function.
#[inline]
pub(crate) fn refresh() {
    if ASKED.load(Relaxed) {
        query();
    }
}

#[cold]
#[inline(never)]
fn query() {
    // Nothing calls the driver once the process exits. One thread is enough.
    if contexts::is_exiting() || !ASKED.swap(false, Relaxed) {
        return;
    }
    let devices = contexts::devices().into_iter();
    let cached: Vec<_> = queries::beside_captures(|| {
        let known = devices.filter_map(|device| {
            let ordinal = u32::try_from(device).ok()?;
            Some((ordinal, shortage::cached_on(device)?))
        });
        known.collect()
    });
    // A device that the driver says nothing about keeps its last figure.
    cuguard_sync::lock(&KNOWN).extend(cached);
}
