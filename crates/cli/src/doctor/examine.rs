//! Collects the facts. Only this file, `measure` and `live_pools` call cuguard, NVML or the system.

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use cuguard::driver::result::{self, CallError, device};
use cuguard::driver::sys::{CUresult, device_attribute};
use cuguard::driver::{DriverKind, LoadError};
use cuguard_nvml::{ComputeMode, Gpu, Nvml, NvmlError, Process};

use super::facts::{Driver, Facts, GpuFacts};
use super::failure::{Reason, Surroundings, describe};
use super::{live_pools, measure};

/// Examines one GPU, or all. A recent measurement of an earlier round is reused; nothing is measured unless
/// `probe` is set.
pub(super) fn examine(
    wanted: Option<u32>,
    probe: bool,
    earlier: Option<&Facts>,
) -> Result<Facts, Reason> {
    let driver = cuguard::driver::load().map_err(|error| match error {
        LoadError::NoDriver { tried, .. } => Reason::NoDriver {
            tried: tried.iter().map(ToString::to_string).collect(),
        },
        other => Reason::BadChoice {
            text: other.to_string(),
        },
    })?;
    let simulated = driver.kind() == DriverKind::Simulated;
    let count = result::init().and_then(|()| device::count());
    let count = match count {
        Ok(0) => return Err(Reason::NoGpu),
        Ok(count) => count,
        // A simulated machine may have no GPU, as a real one.
        Err(CallError { code, .. }) if simulated && code != CUresult::NO_DEVICE => {
            let text = describe(code);
            return Err(Reason::Simulated { text });
        }
        Err(CallError { function, code }) => return Err(Reason::Refused { function, code }),
    };
    let ordinals = match wanted {
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
    let gpus: Vec<GpuFacts> = ordinals
        .map(|ordinal| {
            let earlier =
                earlier.and_then(|facts| facts.gpus.iter().find(|gpu| gpu.ordinal == ordinal));
            gpu(ordinal, simulated, machine, probe, earlier)
        })
        .collect();
    // With --device the others do not matter.
    let unseen = match (wanted, machine) {
        (None, Some(machine)) => unseen(machine, &gpus),
        _ => Vec::new(),
    };
    let version = driver.version();
    Ok(Facts {
        driver: Driver {
            simulated,
            path: driver.path().map(|path| path.display().to_string()),
            cuda: version.map(|(major, minor)| format!("{major}.{minor}")),
            version: machine.and_then(Nvml::driver_version).map(str::to_owned),
        },
        without_nvml: nvml.err(),
        sees_all_processes: cuguard_nvml::sees_all_processes(),
        gpus,
        unseen,
        visible_devices: visible_devices(),
        pools: live_pools::find(),
    })
}

/// The facts about one GPU. NVML is queried first, before our own context takes memory.
fn gpu(
    ordinal: u32,
    simulated: bool,
    machine: Option<&Nvml>,
    probe: bool,
    earlier: Option<&GpuFacts>,
) -> GpuFacts {
    let pci = string(|buffer| device::pci_bus_id(ordinal as i32, buffer));
    let described = machine.zip(pci.as_ref());
    let described = described.map(|(machine, pci)| machine.gpu_by_pci(pci));
    let (described, not_described) = match described.transpose() {
        Ok(gpu) => (gpu, None),
        Err(unknown) => (None, Some(unknown.to_string())),
    };
    let mut gpu = described.unwrap_or_else(|| Gpu::new(pci.as_deref().unwrap_or_default()));
    if simulated {
        gpu.processes = simulated_processes(ordinal);
    }
    let attribute = |attribute| device::attribute(attribute, ordinal as i32).ok();
    gpu.ecc = gpu
        .ecc
        .or_else(|| attribute(device_attribute::ECC_ENABLED).map(|on| on != 0));
    gpu.compute_mode = gpu
        .compute_mode
        .or_else(|| attribute(device_attribute::COMPUTE_MODE).and_then(ComputeMode::from_number));
    // A CUDA device is one MIG instance; NVML's figures are those of the whole card.
    if gpu.mig == Some(true) {
        gpu.memory = None;
    }
    let total = device::total_mem(ordinal as i32).unwrap_or(0) as u64;
    let free = || Some(machine?.memory(pci.as_deref()?).ok()?.free);
    let earlier = earlier.map(|earlier| &earlier.probe);
    let probe = measure::probe(&mut gpu, (ordinal, total), probe, earlier, free);
    GpuFacts {
        ordinal,
        name: string(|buffer| device::name(ordinal as i32, buffer))
            .or_else(|| gpu.name.clone())
            .unwrap_or_else(|| "a GPU without a name".to_owned()),
        total,
        machine: gpu,
        not_described,
        probe,
    }
}

/// The other processes that the simulated GPU is configured with.
fn simulated_processes(ordinal: u32) -> Option<Vec<Process>> {
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

/// GPUs that NVML lists and CUDA does not.
fn unseen(machine: &Nvml, gpus: &[GpuFacts]) -> Vec<Gpu> {
    let mut all = machine.gpus().unwrap_or_default();
    all.retain(|one| {
        let seen = |gpu: &GpuFacts| gpu.machine.pci_bus_id == one.pci_bus_id;
        !gpus.iter().any(seen)
    });
    all
}

/// The string that a driver function writes into a buffer.
fn string(query: impl FnOnce(&mut [u8]) -> result::Result<&CStr>) -> Option<String> {
    let mut buffer = [0; 256];
    let text = query(&mut buffer).ok()?;
    Some(text.to_string_lossy().into_owned())
}

fn visible_devices() -> Option<String> {
    let value = std::env::var_os("CUDA_VISIBLE_DEVICES")?;
    Some(value.to_string_lossy().into_owned())
}

/// What the system shows without a driver.
pub(super) fn surroundings() -> Surroundings {
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

/// How many NVIDIA GPUs the PCI bus has: display controllers by NVIDIA, not audio devices or bridges.
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

/// The version in a line such as `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1  Mon …`.
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
    fn the_kernel_version_is_parsed() {
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
    fn gpus_are_counted_without_audio_devices() {
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
