//! Other processes, which hold memory of a simulated device as they do of a real one.
//!
//! They are a list for each device, and nothing but a list: the pages that they hold are missing
//! from what is free, and no call of this process gives them back.

use crate::lock::lock;
use crate::machine;
use crate::physical::to_pages;

/// A process beside this one that holds memory of a device; see [`set_other_processes`].
///
/// ```
/// let trainer = cuguard_sim::OtherProcess::new(4711, "trainer", 3 << 30);
/// assert_eq!((trainer.pid, trainer.bytes), (4711, 3 << 30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherProcess {
    /// Its number.
    pub pid: u32,
    /// What it is called.
    pub name: String,
    /// The bytes of device memory that it holds.
    pub bytes: u64,
}

impl OtherProcess {
    /// A process with this number and name that holds so many bytes.
    #[must_use]
    pub fn new(pid: u32, name: impl Into<String>, bytes: u64) -> Self {
        Self {
            pid,
            name: name.into(),
            bytes,
        }
    }
}

/// Other processes that a device cannot have.
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
    /// They hold more than there is.
    #[error(
        "other processes cannot hold {asked} bytes on device {device} of the simulated GPU: {free} \
         of its {total} bytes are not in use by this one"
    )]
    NotEnough {
        /// The device.
        device: u32,
        /// The bytes that they were to hold, in whole pages; `u64::MAX` for more than that.
        asked: u64,
        /// The bytes that are left for other processes.
        free: u64,
        /// All bytes of the device.
        total: u64,
    },
    /// There is no such device.
    #[error("the simulated GPU has no device {device}; it has {count}")]
    NoSuchDevice {
        /// The device that was asked for.
        device: u32,
        /// How many there are.
        count: u32,
    },
    /// The simulated machine cannot be started, or belongs to the parent of this forked process.
    #[error("the simulated GPU does not run in this process")]
    NotRunning,
}

/// Sets which other processes hold memory of a device: those of before are gone, and an empty list
/// leaves none. Each takes whole pages, so that less is free (`cuMemGetInfo` tells), and allocations
/// and new contexts find less. Memory that a pool of this process only hoards is not free.
///
/// It can be called at any time, with and without contexts. Where the simulated machine does not
/// run yet it is started, as by `cuInit`, so [`configure`](crate::configure) comes first.
/// [`Counters::device_bytes_in_use`](crate::Counters::device_bytes_in_use) counts what this process
/// uses, without the others.
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
/// [`OtherProcessError`], with the numbers, where they hold more than this process leaves; then
/// nothing changes.
pub fn set_other_processes(
    device: u32,
    processes: impl IntoIterator<Item = OtherProcess>,
) -> Result<(), OtherProcessError> {
    // Not under the lock: the iterator is the program's, and may call the driver.
    let mut processes: Vec<_> = processes.into_iter().collect();
    for process in &mut processes {
        process.bytes = to_pages(process.bytes).unwrap_or(u64::MAX);
    }
    let asked = processes
        .iter()
        .fold(0_u64, |sum, process| sum.saturating_add(process.bytes));
    // A forked child must not wait for a lock that a thread of its parent may have held.
    if machine::is_forked() || machine::start().is_err() {
        return Err(OtherProcessError::NotRunning);
    }
    let mut machine = lock();
    let count = machine.devices.len() as u32;
    let Some(on) = machine.devices.get_mut(device as usize) else {
        return Err(OtherProcessError::NoSuchDevice { device, count });
    };
    let (total, free) = (on.memory.total, on.memory.total - on.memory.used);
    if asked > free {
        return Err(OtherProcessError::NotEnough {
            device,
            asked,
            free,
            total,
        });
    }
    on.memory.others = asked;
    on.others = processes;
    Ok(())
}

/// The other processes that hold memory of a device, in the order in which they were set, each with
/// its bytes in whole pages. Empty where there is no such device, or the simulated machine does not
/// run.
///
/// ```
/// assert!(cuguard_sim::other_processes(0).is_empty());
/// ```
#[must_use]
pub fn other_processes(device: u32) -> Vec<OtherProcess> {
    // As above.
    if machine::is_forked() {
        return Vec::new();
    }
    let machine = lock();
    let on = machine.devices.get(device as usize);
    on.map_or_else(Vec::new, |on| on.others.clone())
}
