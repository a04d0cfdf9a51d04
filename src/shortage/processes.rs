//! Which processes hold memory of a device: NVML knows, and for a simulated GPU the simulation.

#[cfg(feature = "nvml")]
use std::ffi::CStr;

use cuguard_driver::DriverKind;
#[cfg(feature = "nvml")]
use cuguard_driver::api;
#[cfg(feature = "nvml")]
use cuguard_machine::{Machine, Process};

#[cfg(any(feature = "nvml", feature = "sim"))]
use crate::oom::ProcessUse;
use crate::oom::Processes;

/// The processes that hold memory of a device, the largest first.
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
        list.sort_by_key(|process| (std::cmp::Reverse(process.bytes), process.pid));
    }
    processes
}

#[cfg(feature = "sim")]
fn simulated(device: u32) -> Processes {
    let others = cuguard_sim::other_processes(device).into_iter();
    let others = others.map(|process| {
        let mut one = ProcessUse::new(process.pid, process.bytes);
        one.name = Some(process.name);
        one
    });
    Processes::Known(others.collect())
}

#[cfg(not(feature = "sim"))]
fn simulated(_device: u32) -> Processes {
    Processes::Unknown("the GPU is simulated".to_owned())
}

#[cfg(feature = "nvml")]
fn nvml(device: u32) -> Processes {
    let mut id = [0; 32];
    // SAFETY: the array has as many bytes as is said.
    let code = unsafe { api::cuDeviceGetPCIBusId(id.as_mut_ptr(), id.len() as i32, device as i32) };
    if !code.is_success() {
        return Processes::Unknown(format!("cuDeviceGetPCIBusId answered {code}"));
    }
    let id = id.map(|letter| letter as u8);
    let id = CStr::from_bytes_until_nul(&id).unwrap_or_default();
    let listed = match Machine::get() {
        Ok(machine) => machine.processes(&id.to_string_lossy()),
        Err(unknown) => return Processes::Unknown(unknown.to_string()),
    };
    match listed {
        Ok(listed) => Processes::Known(listed.into_iter().map(to_use).collect()),
        Err(unknown) => Processes::Unknown(unknown.to_string()),
    }
}

#[cfg(feature = "nvml")]
fn to_use(process: Process) -> ProcessUse {
    let mut one = ProcessUse::new(process.pid, 0);
    one.name = process.command.or(process.name);
    one.bytes = process.bytes;
    one.own = process.own;
    one
}

#[cfg(not(feature = "nvml"))]
fn nvml(_device: u32) -> Processes {
    Processes::Unknown("cuguard was built without its feature `nvml`".to_owned())
}
