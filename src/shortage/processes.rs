//! Which processes hold memory of a device: NVML knows, and for a simulated GPU the simulation.

use cuguard_driver::DriverKind;

use crate::oom::{ProcessUse, Processes};

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
fn nvml(_device: u32) -> Processes {
    Processes::Unknown("not yet".to_owned())
}

#[cfg(not(feature = "nvml"))]
fn nvml(_device: u32) -> Processes {
    Processes::Unknown("cuguard was built without its feature `nvml`".to_owned())
}
