//! The processes that use memory of a device, from NVML or the simulated GPU.

use cuguard_driver::DriverKind;
#[cfg(feature = "nvml")]
use cuguard_driver::result::device;
#[cfg(feature = "nvml")]
use cuguard_nvml::{Nvml, NvmlError, Process};

use crate::core::ContextState;
use cuguard_report::oom::{ProcessUse, Processes};

/// The processes that use memory of a context's device, the largest first.
pub(super) fn processes_of(state: &ContextState) -> Processes {
    // Inside the gate, so that the process does not exit meanwhile.
    let Some(inside) = state.try_enter() else {
        return Processes::Unknown("the context was closed, or the process is ending".to_owned());
    };
    let mut processes = processes(state.device);
    drop(inside);
    if let Processes::Known(list) = &mut processes {
        add_own(state, list);
    }
    processes
}

/// The same for a device. The caller is inside a gate.
pub(super) fn processes(device: u32) -> Processes {
    let driver = match cuguard_driver::load() {
        Ok(driver) => driver,
        Err(error) => return Processes::Unknown(error.to_string()),
    };
    let mut processes = match driver.kind() {
        DriverKind::Simulated => simulated(device),
        _ => nvml(device),
    };
    if let Processes::Known(list) = &mut processes {
        list.sort_by_key(largest_first);
    }
    processes
}

fn largest_first(process: &ProcessUse) -> impl Ord + use<> {
    (std::cmp::Reverse(process.bytes), process.pid)
}

/// On a simulated GPU this process uses all that the simulated other processes do not. (NVML lists it itself.)
fn add_own(state: &ContextState, list: &mut [ProcessUse]) {
    let driver = cuguard_driver::load();
    if !driver.is_ok_and(|driver| driver.kind() == DriverKind::Simulated) {
        return;
    }
    let others = list.iter().filter_map(|process| process.bytes);
    let others = others.fold(0, u64::saturating_add);
    let own = super::probe::memory(state)
        .map(|(free, total)| total.saturating_sub(free).saturating_sub(others));
    for process in list.iter_mut().filter(|process| process.own) {
        process.bytes = own;
    }
    list.sort_by_key(largest_first);
}

#[cfg(feature = "sim")]
fn simulated(device: u32) -> Processes {
    let others = cuguard_sim::other_processes(device).into_iter();
    let others = others.map(|process| ProcessUse {
        pid: process.pid,
        name: Some(process.name),
        bytes: Some(process.bytes),
        own: false,
    });
    // `add_own` fills in how much this process uses.
    let own = ProcessUse {
        pid: std::process::id(),
        own: true,
        ..ProcessUse::default()
    };
    Processes::Known(others.chain([own]).collect())
}

#[cfg(not(feature = "sim"))]
fn simulated(_device: u32) -> Processes {
    Processes::Unknown("the GPU is simulated".to_owned())
}

#[cfg(feature = "nvml")]
fn nvml(device: u32) -> Processes {
    if is_mig(device) {
        let reason = "the card is cut into instances (MIG), and NVML lists the processes of all";
        return Processes::Unknown(reason.to_owned());
    }
    let to_use = |process: Process| ProcessUse {
        pid: process.pid,
        name: process.command.or(process.name),
        bytes: process.bytes,
        own: process.own,
    };
    let listed = query(device, |machine, id| machine.processes(id));
    listed.map_or_else(Processes::Unknown, |listed| {
        Processes::Known(listed.into_iter().map(to_use).collect())
    })
}

/// Whether a device is a MIG instance: NVML's numbers are for the whole card.
#[cfg(feature = "nvml")]
fn is_mig(device: u32) -> bool {
    query(device, |machine, id| machine.is_mig_enabled(id)).unwrap_or(false)
}

/// Queries NVML about a device; fails with the reason in words.
#[cfg(feature = "nvml")]
fn query<T>(
    device: u32,
    query: impl FnOnce(&Nvml, &str) -> Result<T, NvmlError>,
) -> Result<T, String> {
    let mut id = [0; 32];
    let id = device::pci_bus_id(device as i32, &mut id).map_err(|error| error.to_string())?;
    let machine = Nvml::get().map_err(ToString::to_string)?;
    query(machine, &id.to_string_lossy()).map_err(|unknown| unknown.to_string())
}

/// The free memory of a device without a context. The caller is inside a gate.
#[cfg(feature = "nvml")]
pub(super) fn free(device: u32) -> Option<u64> {
    let driver = cuguard_driver::load().ok()?;
    if driver.kind() == DriverKind::Simulated || is_mig(device) {
        return None;
    }
    let memory = query(device, |machine, id| machine.memory(id));
    memory.ok().map(|memory| memory.free)
}

#[cfg(not(feature = "nvml"))]
pub(super) fn free(_device: u32) -> Option<u64> {
    None
}

#[cfg(not(feature = "nvml"))]
fn nvml(_device: u32) -> Processes {
    Processes::Unknown("cuguard was built without its feature `nvml`".to_owned())
}
