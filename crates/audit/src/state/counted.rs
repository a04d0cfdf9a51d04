//! Resources that are opened several times under one address, and closed as often: memory of another process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use cuguard_registry::{Owner, ResourceKind};

use super::{Taken, insert, put_back, take};

/// How often each was opened. The record is that of the first time.
static OPENED: Mutex<Option<HashMap<u64, u32>>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<HashMap<u64, u32>>> {
    cuguard_sync::lock(&OPENED)
}

/// Records imported memory that was opened.
pub(crate) fn opened(address: u64, bytes: u64, context: u32) {
    let mut opened = lock();
    let uses = opened.get_or_insert_default().entry(address).or_default();
    *uses += 1;
    let is_first = *uses == 1;
    drop(opened);
    if is_first {
        insert(
            ResourceKind::Imported,
            address,
            bytes,
            0,
            Owner::context(context),
        );
    }
}

/// Imported memory that is about to be closed once.
#[derive(Debug)]
pub(crate) struct Closing {
    address: u64,
    /// The record, with the last time.
    taken: Option<Taken>,
}

/// Before imported memory is closed. `None` for memory that was not opened.
pub(crate) fn begin_close(address: u64) -> Option<Closing> {
    let mut opened = lock();
    let map = opened.as_mut()?;
    let uses = map.get_mut(&address)?;
    *uses -= 1;
    let is_last = *uses == 0;
    if is_last {
        map.remove(&address);
    }
    drop(opened);
    let taken = match is_last {
        true => take(&[ResourceKind::Imported], address),
        false => None,
    };
    Some(Closing { address, taken })
}

impl Closing {
    /// The driver refused to close it.
    #[cold]
    pub(crate) fn failed(self) {
        let mut opened = lock();
        *opened
            .get_or_insert_default()
            .entry(self.address)
            .or_default() += 1;
        drop(opened);
        put_back(self.taken);
    }
}

/// Its context was destroyed: all that it opened is closed.
pub(crate) fn forget(address: u64) {
    if let Some(opened) = lock().as_mut() {
        opened.remove(&address);
    }
}
