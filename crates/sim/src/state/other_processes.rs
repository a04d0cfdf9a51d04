//! Other processes that use memory of a simulated device. The pages that they use are not free, and
//! no call of this process releases them.

use super::lock::lock;
use super::start::start;
use crate::memory::{OtherProcess, to_pages};
use crate::process::is_forked;

/// Why other processes cannot be set.
///
/// ```
/// use cuguard_sim::{OtherProcess, set_other_processes};
///
/// let error = set_other_processes(0, [OtherProcess::new(4711, "trainer", 1 << 50)]).unwrap_err();
/// assert!(error.to_string().contains("device 0"), "{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OtherProcessError {
    /// They use more memory than this process leaves free.
    #[error(
        "other processes cannot use {requested} bytes on device {device} of the simulated GPU: \
         this process leaves {free} of its {total} bytes"
    )]
    NotEnoughMemory {
        /// The device.
        device: u32,
        /// The bytes that they were to use, in whole pages; saturates at `u64::MAX`.
        requested: u64,
        /// The bytes that this process does not use.
        free: u64,
        /// All bytes of the device.
        total: u64,
    },
    /// There is no such device.
    #[error("the simulated GPU has no device {device}; it has {count}")]
    NoSuchDevice {
        /// The requested device.
        device: u32,
        /// How many there are.
        count: u32,
    },
    /// The simulated driver cannot be started, or this process was forked.
    #[error("the simulated GPU does not run in this process")]
    NotRunning,
}

/// Replaces the list of other processes that use memory of a device. Each uses whole pages, so that
/// `cuMemGetInfo` reports less free memory, and allocations and new contexts find less. Memory that
/// a pool of this process has reserved is not free for them.
///
/// It can be called at any time. It starts the simulated driver, as `cuInit` does, so call
/// [`configure`](crate::configure) before.
/// [`Counters::device_bytes_in_use`](crate::Counters::device_bytes_in_use) does not include other
/// processes.
///
/// ```
/// use cuguard_sim::{OtherProcess, PAGE, other_processes, set_other_processes};
///
/// set_other_processes(0, [
///     OtherProcess::new(4711, "trainer", 1 << 30),
///     OtherProcess::new(4712, "viewer", 1),
/// ])?;
/// assert_eq!(other_processes(0)[1].bytes, PAGE);
/// set_other_processes(0, [])?;
/// assert!(other_processes(0).is_empty());
/// # Ok::<(), cuguard_sim::OtherProcessError>(())
/// ```
///
/// # Errors
///
/// [`OtherProcessError`] if they use more than this process leaves, or there is no such device; the
/// list is unchanged then.
pub fn set_other_processes(
    device: u32,
    processes: impl IntoIterator<Item = OtherProcess>,
) -> Result<(), OtherProcessError> {
    // Without the lock: the program's iterator may call the driver.
    let mut processes: Vec<_> = processes.into_iter().collect();
    for process in &mut processes {
        process.bytes = to_pages(process.bytes).unwrap_or(u64::MAX);
    }
    let requested = processes
        .iter()
        .fold(0_u64, |sum, process| sum.saturating_add(process.bytes));
    // In a forked child, a thread of the parent may have held the lock.
    if is_forked() || start().is_err() {
        return Err(OtherProcessError::NotRunning);
    }
    let mut state = lock();
    let count = state.devices.len() as u32;
    let Some(device_state) = state.devices.get_mut(device as usize) else {
        return Err(OtherProcessError::NoSuchDevice { device, count });
    };
    let memory = &mut device_state.memory;
    let (total, free) = (memory.total, memory.total - memory.used);
    if requested > free {
        return Err(OtherProcessError::NotEnoughMemory {
            device,
            requested,
            free,
            total,
        });
    }
    memory.other_processes = processes;
    Ok(())
}

/// The other processes that use memory of a device, in the order in which they were set, each with
/// its bytes in whole pages. Empty if there is no such device, or the simulated driver does not run.
///
/// ```
/// assert!(cuguard_sim::other_processes(0).is_empty());
/// ```
#[must_use]
pub fn other_processes(device: u32) -> Vec<OtherProcess> {
    // In a forked child, a thread of the parent may have held the lock.
    if is_forked() {
        return Vec::new();
    }
    let state = lock();
    let device = state.devices.get(device as usize);
    device.map_or_else(Vec::new, |device| device.memory.other_processes.clone())
}
