//! Finds out. Only this file and `measure` call cuguard, NVML or the system.

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use cuguard::driver::sys::{CUresult, device_attribute};
use cuguard::driver::{DriverKind, LoadError, api};
use cuguard_nvml::{ComputeMode, Gpu, Nvml, NvmlError, Process};

use super::facts::{Driver, Facts, GpuFacts};
use super::failure::{Failure, Reason, Surroundings, codes};
use super::measure::{self, Measuring};

/// Examines one GPU, or all. What an earlier round measured is taken over where it is not old.
pub(super) fn examine(
    device: Option<u32>,
    measuring: Measuring,
    earlier: Option<&Facts>,
) -> Result<Facts, Failure> {
    look(device, measuring, earlier).map_err(|reason| Failure {
        reason,
        surroundings: surroundings(),
    })
}

fn look(
    device: Option<u32>,
    measuring: Measuring,
    earlier: Option<&Facts>,
) -> Result<Facts, Reason> {
    let driver = cuguard::driver::load().map_err(|error| match error {
        LoadError::NoDriver { tried, .. } => Reason::NoDriver {
            tried: tried.iter().map(ToString::to_string).collect(),
        },
        other => Reason::BadChoice {
            words: other.to_string(),
        },
    })?;
    let simulated = driver.kind() == DriverKind::Simulated;
    let count = device_count().map_err(|reason| match reason {
        // One of no devices starts, and is what a machine without a GPU is.
        Reason::Refused { words, code, .. } if simulated && code != codes::NO_DEVICE => {
            Reason::Simulated { words }
        }
        other => other,
    })?;
    let wanted = match device {
        Some(ordinal) if ordinal >= count => return Err(Reason::NoSuchGpu { ordinal, count }),
        Some(ordinal) => ordinal..ordinal + 1,
        None => 0..count,
    };
    let nvml = if simulated {
        Err("it does not describe a simulated GPU".to_owned())
    } else {
        Nvml::get().map_err(NvmlError::to_string)
    };
    let machine = nvml.as_ref().ok().copied();
    let gpus: Vec<GpuFacts> = wanted
        .map(|ordinal| {
            let earlier =
                earlier.and_then(|facts| facts.gpus.iter().find(|gpu| gpu.ordinal == ordinal));
            gpu(ordinal, simulated, machine, measuring, earlier)
        })
        .collect();
    // Where one GPU was asked for, the others are nobody's business.
    let unseen = match (device, machine) {
        (None, Some(machine)) => unseen(machine, &gpus),
        _ => Vec::new(),
    };
    Ok(Facts {
        driver: Driver {
            simulated,
            path: driver.path().map(|path| path.display().to_string()),
            cuda: driver.version(),
            version: machine.and_then(Nvml::driver_version).map(str::to_owned),
        },
        without_nvml: nvml.err(),
        sees_all_processes: cuguard_nvml::sees_all_processes(),
        gpus,
        unseen,
        visible_devices: visible_devices(),
    })
}

/// Starts the driver and counts its devices.
fn device_count() -> Result<u32, Reason> {
    let refused = |function, code: CUresult| match code {
        CUresult::SUCCESS => Ok(()),
        code => Err(Reason::Refused {
            function,
            code: code.0,
            words: match code.text() {
                Some(text) => format!("{code}: {text}"),
                None => code.to_string(),
            },
        }),
    };
    // SAFETY: may be called at any time, and again.
    refused("cuInit", unsafe { api::cuInit(0) })?;
    let mut count = 0;
    // SAFETY: the variable can be written to.
    refused("cuDeviceGetCount", unsafe {
        api::cuDeviceGetCount(&mut count)
    })?;
    match u32::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Reason::NoGpu),
    }
}

/// Everything about one GPU. NVML is asked first: what it says must not contain our own context.
fn gpu(
    ordinal: u32,
    simulated: bool,
    machine: Option<&Nvml>,
    measuring: Measuring,
    earlier: Option<&GpuFacts>,
) -> GpuFacts {
    let pci = pci_bus_id(ordinal);
    let described = match (machine, &pci) {
        (Some(machine), Some(pci)) => Some(machine.gpu_by_pci(pci)),
        _ => None,
    };
    let (described, not_described) = match described {
        Some(Ok(gpu)) => (Some(gpu), None),
        Some(Err(unknown)) => (None, Some(unknown.to_string())),
        None => (None, None),
    };
    let mut gpu = described.unwrap_or_else(|| Gpu::new(pci.as_deref().unwrap_or_default()));
    gpu.processes = processes_of(simulated, ordinal, gpu.processes);
    gpu.ecc = gpu
        .ecc
        .or_else(|| attribute(ordinal, device_attribute::ECC_ENABLED).map(|on| on != 0));
    gpu.compute_mode = gpu.compute_mode.or_else(|| {
        attribute(ordinal, device_attribute::COMPUTE_MODE).and_then(ComputeMode::from_number)
    });
    // An instance of a GPU that is cut into pieces is a device to CUDA; NVML's figures here are
    // those of the whole card.
    if gpu.mig == Some(true) {
        gpu.memory = None;
    }
    let total = total_memory(ordinal);
    let free = || Some(machine?.memory(pci.as_deref()?).ok()?.free);
    let earlier = earlier.map(|earlier| &earlier.probe);
    let probe = measure::probe(&mut gpu, (ordinal, total), measuring, earlier, free);
    GpuFacts {
        ordinal,
        name: device_name(ordinal)
            .or_else(|| gpu.name.clone())
            .unwrap_or_else(|| "a GPU without a name".to_owned()),
        total,
        machine: gpu,
        not_described,
        probe,
    }
}

/// The processes that hold memory of a GPU; `None` where nobody knows. `listed` is what NVML says.
fn processes_of(
    simulated: bool,
    ordinal: u32,
    listed: Option<Vec<Process>>,
) -> Option<Vec<Process>> {
    if !simulated {
        return listed;
    }
    // It pretends some where it is told to.
    let others = cuguard::sim::other_processes(ordinal).into_iter();
    let others: Vec<_> = others
        .map(|other| {
            let mut process = Process::new(other.pid).with_bytes(other.bytes);
            process.name = Some(other.name);
            process
        })
        .collect();
    (!others.is_empty()).then_some(others)
}

/// GPUs that NVML shows and CUDA does not.
fn unseen(machine: &Nvml, gpus: &[GpuFacts]) -> Vec<Gpu> {
    let mut all = machine.gpus().unwrap_or_default();
    all.retain(|one| {
        let seen = |gpu: &GpuFacts| gpu.machine.pci_bus_id == one.pci_bus_id;
        !gpus.iter().any(seen)
    });
    all
}

/// A text that a function of the driver writes into a buffer.
fn text(fill: impl FnOnce(&mut [std::ffi::c_char; 256]) -> CUresult) -> Option<String> {
    let mut buffer = [0; 256];
    let code = fill(&mut buffer);
    let bytes = buffer.map(|letter| letter as u8);
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy();
    code.is_success().then(|| text.into_owned())
}

fn device_name(ordinal: u32) -> Option<String> {
    // SAFETY: the buffer has as many bytes as is said.
    text(|buffer| unsafe {
        api::cuDeviceGetName(buffer.as_mut_ptr(), buffer.len() as i32, ordinal as i32)
    })
}

fn pci_bus_id(ordinal: u32) -> Option<String> {
    // SAFETY: the buffer has as many bytes as is said.
    text(|buffer| unsafe {
        api::cuDeviceGetPCIBusId(buffer.as_mut_ptr(), buffer.len() as i32, ordinal as i32)
    })
}

fn total_memory(ordinal: u32) -> u64 {
    let mut bytes = 0;
    // SAFETY: the variable can be written to.
    let code = unsafe { api::cuDeviceTotalMem_v2(&mut bytes, ordinal as i32) };
    if code.is_success() { bytes as u64 } else { 0 }
}

fn attribute(ordinal: u32, attribute: u32) -> Option<i32> {
    let mut value = 0;
    // SAFETY: the variable can be written to.
    let code = unsafe { api::cuDeviceGetAttribute(&mut value, attribute, ordinal as i32) };
    code.is_success().then_some(value)
}

fn visible_devices() -> Option<String> {
    let value = std::env::var_os("CUDA_VISIBLE_DEVICES")?;
    Some(value.to_string_lossy().into_owned())
}

/// What the system shows of GPUs without a driver.
fn surroundings() -> Surroundings {
    let marks = ["/.dockerenv", "/run/.containerenv"];
    Surroundings {
        container: marks.iter().any(|mark| Path::new(mark).exists())
            || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        pci_gpus: pci_gpus(Path::new("/sys/bus/pci/devices")),
        kernel_driver: fs::read_to_string("/proc/driver/nvidia/version")
            .ok()
            .map(|text| kernel_version(&text)),
        visible_devices: visible_devices(),
    }
}

/// How many NVIDIA GPUs the PCI bus has: devices by NVIDIA that display or compute, not their sound
/// or bridges.
fn pci_gpus(folder: &Path) -> Option<usize> {
    let is = |device: &Path, file: &str, start: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|text| text.starts_with(start))
    };
    let devices = fs::read_dir(folder).ok()?.flatten();
    let gpus = devices.filter(|device| {
        let device = device.path();
        is(&device, "vendor", "0x10de") && is(&device, "class", "0x03")
    });
    Some(gpus.count())
}

/// The version in a text such as `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1  Mon …`.
fn kernel_version(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let version = line
        .split_whitespace()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.'));
    version.unwrap_or("of unknown version").to_owned()
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_kernel_tells_its_version() {
        for (text, version) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Mon Jan\nGCC version: 12.3\n",
                "580.159.04",
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.1  Release Build\n",
                "570.1",
            ),
            ("", "of unknown version"),
        ] {
            assert_eq!(kernel_version(text), version);
        }
    }

    #[test]
    fn gpus_are_counted_without_their_sound() {
        let name = format!("cuguard-doctor-{}-pci", std::process::id());
        let folder = std::env::temp_dir().join(name);
        for (device, vendor, class) in [
            ("gpu", "0x10de\n", "0x030200\n"),
            ("sound", "0x10de\n", "0x040300\n"),
            ("other", "0x1002\n", "0x030000\n"),
        ] {
            let device = folder.join(device);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("vendor"), vendor).unwrap();
            fs::write(device.join("class"), class).unwrap();
        }
        assert_eq!(pci_gpus(&folder), Some(1));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(pci_gpus(&folder), None);
    }
}
