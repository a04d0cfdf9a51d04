//! NVML: loading it, asking it, and making plain data of its answers.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use nvml_wrapper::enum_wrappers::device::ComputeMode as NvmlComputeMode;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use crate::gpu::{ComputeMode, Gpu, Memory};
use crate::pci::PciId;
use crate::process::{Listed, Process, ProcessKind, merge};
use crate::procfs;
use crate::unknown::Unknown;

/// The name that NVML is installed under. The system's loader looks for it.
const SONAME: &str = "libnvidia-ml.so.1";

/// Where it is found when the system's loader does not find it; the same folders in which
/// `cuguard-driver` looks for a CUDA driver.
const PLACES: &[&str] = &[
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
];

/// How often a list of processes is asked for that outgrows the room made for it: others come and go
/// while NVML counts.
const ATTEMPTS: usize = 4;

/// NVML, loaded and initialised. It may be asked from any thread.
///
/// ```
/// use cuguard_machine::Machine;
///
/// if let Ok(machine) = Machine::get() {
///     println!("driver {:?}", machine.driver_version());
/// }
/// ```
#[derive(Debug)]
pub struct Machine {
    nvml: Nvml,
    /// The same for all GPUs and for the life of the process.
    driver_version: Option<String>,
}

impl Machine {
    /// The one of this process. The first call loads NVML, which takes some milliseconds; all later
    /// ones answer the same at once, also when the answer is that there is none. It is never shut
    /// down: what a process's end does not call cannot crash there.
    ///
    /// ```
    /// use cuguard_machine::Machine;
    ///
    /// let (first, second) = (Machine::get(), Machine::get());
    /// assert_eq!(first.is_ok(), second.is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Machine::open`].
    pub fn get() -> Result<&'static Machine, &'static Unknown> {
        static MACHINE: OnceLock<Result<Machine, Unknown>> = OnceLock::new();
        MACHINE.get_or_init(Machine::open).as_ref()
    }

    /// Loads NVML anew; it is shut down when the answer goes. [`Machine::get`] is the better choice
    /// for all but tests and programs that must let go of it.
    ///
    /// ```
    /// match cuguard_machine::Machine::open() {
    ///     Ok(machine) => println!("{} GPUs", machine.gpus()?.len()),
    ///     Err(unknown) => println!("{unknown}"),
    /// }
    /// # Ok::<(), cuguard_machine::Unknown>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unknown::LibraryMissing`], or what NVML says when it is initialised.
    pub fn open() -> Result<Machine, Unknown> {
        let nvml = load(SONAME)?;
        let driver_version = nvml.sys_driver_version().ok();
        Ok(Self {
            nvml,
            driver_version,
        })
    }

    /// The version of the kernel's driver, such as `580.159.04`.
    ///
    /// ```
    /// let version = cuguard_machine::Machine::get().ok().and_then(|m| m.driver_version());
    /// println!("driver {}", version.unwrap_or("unknown"));
    /// ```
    #[must_use]
    pub fn driver_version(&self) -> Option<&str> {
        self.driver_version.as_deref()
    }

    /// All GPUs that NVML shows, in its order.
    ///
    /// ```
    /// # fn main() -> Result<(), cuguard_machine::Unknown> {
    /// # let Ok(machine) = cuguard_machine::Machine::get() else { return Ok(()) };
    /// for gpu in machine.gpus()? {
    ///     println!("{} has {:?}", gpu.pci_bus_id, gpu.memory);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What NVML says. A GPU that has an answer to some questions only is described as far as it
    /// has.
    pub fn gpus(&self) -> Result<Vec<Gpu>, Unknown> {
        let count = self
            .nvml
            .device_count()
            .map_err(|error| refused("nvmlDeviceGetCount_v2", &error))?;
        (0..count)
            .map(|index| {
                let device = self
                    .nvml
                    .device_by_index(index)
                    .map_err(|error| refused("nvmlDeviceGetHandleByIndex_v2", &error))?;
                self.describe(&device)
            })
            .collect()
    }

    /// The GPU at a place of the PCI bus, as CUDA or NVML writes it: `0000:01:00.0` or
    /// `00000000:01:00.0`.
    ///
    /// ```
    /// # fn main() -> Result<(), cuguard_machine::Unknown> {
    /// # let Ok(machine) = cuguard_machine::Machine::get() else { return Ok(()) };
    /// use cuguard_machine::Unknown;
    ///
    /// let error = machine.gpu_by_pci("not an id").unwrap_err();
    /// assert!(matches!(error, Unknown::NoSuchGpu { .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unknown::NoSuchGpu`], or what NVML says.
    pub fn gpu_by_pci(&self, pci_bus_id: &str) -> Result<Gpu, Unknown> {
        self.describe(&self.device(pci_bus_id)?)
    }

    /// The processes that use a GPU, those that hold most first. Less work than
    /// [`gpu_by_pci`](Self::gpu_by_pci).
    ///
    /// ```
    /// # fn main() -> Result<(), cuguard_machine::Unknown> {
    /// # let Ok(machine) = cuguard_machine::Machine::get() else { return Ok(()) };
    /// # let Some(gpu) = machine.gpus()?.into_iter().next() else { return Ok(()) };
    /// for process in machine.processes(&gpu.pci_bus_id)? {
    ///     println!("{}: {:?} bytes, {:?}", process.pid, process.bytes, process.command);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`gpu_by_pci`](Self::gpu_by_pci), and when NVML refuses all of its lists.
    pub fn processes(&self, pci_bus_id: &str) -> Result<Vec<Process>, Unknown> {
        self.processes_on(&self.device(pci_bus_id)?)
    }

    /// The memory of a GPU alone, the quickest question.
    ///
    /// ```
    /// # fn main() -> Result<(), cuguard_machine::Unknown> {
    /// # let Ok(machine) = cuguard_machine::Machine::get() else { return Ok(()) };
    /// # let Some(gpu) = machine.gpus()?.into_iter().next() else { return Ok(()) };
    /// println!("{} bytes are free", machine.memory(&gpu.pci_bus_id)?.free);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`gpu_by_pci`](Self::gpu_by_pci).
    pub fn memory(&self, pci_bus_id: &str) -> Result<Memory, Unknown> {
        memory_of(&self.device(pci_bus_id)?)
    }

    /// Whether a GPU is cut into several instances (MIG). Memory and processes are told for all of them
    /// together. One that cannot be cut is not.
    ///
    /// ```
    /// # fn main() -> Result<(), cuguard_machine::Unknown> {
    /// # let Ok(machine) = cuguard_machine::Machine::get() else { return Ok(()) };
    /// # let Some(gpu) = machine.gpus()?.into_iter().next() else { return Ok(()) };
    /// if machine.is_cut(&gpu.pci_bus_id)? {
    ///     println!("several instances share {}", gpu.pci_bus_id);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`gpu_by_pci`](Self::gpu_by_pci).
    pub fn is_cut(&self, pci_bus_id: &str) -> Result<bool, Unknown> {
        match self.device(pci_bus_id)?.mig_mode() {
            Ok(mode) => Ok(mode.current != 0),
            Err(NvmlError::NotSupported) => Ok(false),
            // A library from before there was MIG.
            Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => Ok(false),
            Err(error) => Err(refused("nvmlDeviceGetMigMode", &error)),
        }
    }

    fn device(&self, pci_bus_id: &str) -> Result<Device<'_>, Unknown> {
        let nowhere = || Unknown::NoSuchGpu {
            pci_bus_id: pci_bus_id.to_owned(),
        };
        let id = PciId::parse(pci_bus_id).ok_or_else(nowhere)?;
        self.nvml
            .device_by_pci_bus_id(id.for_nvml())
            .map_err(|error| match error {
                // It says so of a place that has none, and of one that may not be seen.
                NvmlError::NotFound | NvmlError::InvalidArg => nowhere(),
                error => refused("nvmlDeviceGetHandleByPciBusId_v2", &error),
            })
    }

    /// Everything that NVML says of a GPU. Only its place must be known; a question without an
    /// answer leaves a field empty.
    fn describe(&self, device: &Device<'_>) -> Result<Gpu, Unknown> {
        let pci = device
            .pci_info()
            .map_err(|error| refused("nvmlDeviceGetPciInfo_v3", &error))?;
        let mut gpu = Gpu::new(&pci.bus_id);
        gpu.index = device
            .index()
            .map_err(|error| refused("nvmlDeviceGetIndex", &error))?;
        gpu.name = device.name().ok();
        gpu.uuid = device.uuid().ok();
        gpu.driver_version = self.driver_version.clone();
        gpu.memory = memory_of(device).ok();
        gpu.processes = self.processes_on(device).ok();
        gpu.ecc = device
            .is_ecc_enabled()
            .ok()
            .map(|ecc| ecc.currently_enabled);
        gpu.mig = device.mig_mode().ok().map(|mode| mode.current != 0);
        gpu.compute_mode = device.compute_mode().ok().map(|mode| match mode {
            NvmlComputeMode::Default => ComputeMode::Default,
            NvmlComputeMode::ExclusiveThread | NvmlComputeMode::ExclusiveProcess => {
                ComputeMode::Exclusive
            }
            NvmlComputeMode::Prohibited => ComputeMode::Prohibited,
        });
        gpu.persistence = device.is_in_persistent_mode().ok();
        gpu.display = device.is_display_active().ok();
        Ok(gpu)
    }

    fn processes_on(&self, device: &Device<'_>) -> Result<Vec<Process>, Unknown> {
        let compute = list(|| device.running_compute_processes());
        let graphics = list(|| device.running_graphics_processes());
        let mps = list(|| device.mps_running_compute_processes());
        // Not every GPU draws and not every driver knows of MPS. Where nothing at all is said, an
        // empty list would be a lie.
        if let (Err(error), Err(_), Err(_)) = (&compute, &graphics, &mps) {
            return Err(refused("nvmlDeviceGetComputeRunningProcesses_v3", error));
        }
        let mut processes = merge(&[
            (ProcessKind::Compute, compute.unwrap_or_default()),
            (ProcessKind::Graphics, graphics.unwrap_or_default()),
            (ProcessKind::Mps, mps.unwrap_or_default()),
        ]);
        procfs::describe(&mut processes);
        Ok(processes)
    }
}

/// Opens NVML by its name, then in the usual places.
fn load(name: &str) -> Result<Nvml, Unknown> {
    let mut reason = None;
    let by_name = std::iter::once(name);
    for library in by_name.chain(PLACES.iter().copied()) {
        let path = Path::new(library);
        // To open a pipe would take until somebody writes to it.
        if path.is_absolute() && !path.is_file() {
            continue;
        }
        match Nvml::builder().lib_path(OsStr::new(library)).init() {
            Ok(nvml) => return Ok(nvml),
            // What the loader said of the first, which it looks for everywhere, tells most.
            Err(NvmlError::LibloadingError(error)) => {
                reason.get_or_insert_with(|| error.to_string());
            }
            Err(error) => return Err(refused("nvmlInit_v2", &error)),
        }
    }
    Err(Unknown::LibraryMissing {
        reason: reason.unwrap_or_else(|| "it was not found".to_owned()),
    })
}

fn refused(function: &'static str, error: &NvmlError) -> Unknown {
    Unknown::Refused {
        function,
        reason: error.to_string(),
    }
}

fn memory_of(device: &Device<'_>) -> Result<Memory, Unknown> {
    let memory = device
        .memory_info()
        .map_err(|error| refused("nvmlDeviceGetMemoryInfo_v2", &error))?;
    Ok(Memory {
        total: memory.total,
        free: memory.free,
        reserved: Some(memory.reserved),
    })
}

fn list(ask: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>) -> Result<Vec<Listed>, NvmlError> {
    let mut answer = ask();
    for _ in 1..ATTEMPTS {
        if !matches!(answer, Err(NvmlError::InsufficientSize(_))) {
            break;
        }
        answer = ask();
    }
    let listed = |process: ProcessInfo| Listed {
        pid: process.pid,
        bytes: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    };
    Ok(answer?.into_iter().map(listed).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The lists and the places are the only parts that run without NVML.
    #[test]
    fn a_list_that_outgrows_its_room_is_asked_for_again() {
        let asked = Cell::new(0);
        let process = ProcessInfo {
            pid: 7,
            used_gpu_memory: UsedGpuMemory::Unavailable,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let answer = list(|| {
            asked.set(asked.get() + 1);
            match asked.get() {
                1 => Err(NvmlError::InsufficientSize(None)),
                _ => Ok(vec![process.clone()]),
            }
        });
        let expected = Listed {
            pid: 7,
            bytes: None,
        };
        assert_eq!(answer.unwrap(), [expected]);
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn a_list_that_always_outgrows_its_room_ends() {
        let asked = Cell::new(0);
        let answer = list(|| {
            asked.set(asked.get() + 1);
            Err(NvmlError::InsufficientSize(None))
        });
        assert!(answer.is_err());
        assert_eq!(asked.get(), ATTEMPTS);
    }

    #[test]
    fn what_nvml_refuses_is_told_in_its_words() {
        let unknown = refused("nvmlDeviceGetCount_v2", &NvmlError::NoPermission);
        let text = unknown.to_string();
        assert!(text.contains("nvmlDeviceGetCount_v2"), "{text}");
        assert!(text.contains("permission"), "{text}");
    }

    #[test]
    fn many_threads_get_the_same_answer() {
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(Machine::get)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        for answer in &answers {
            match (answer, &answers[0]) {
                (Ok(one), Ok(other)) => assert!(std::ptr::eq(*one, *other)),
                (Err(one), Err(other)) => assert!(std::ptr::eq(*one, *other)),
                _ => panic!("some threads have NVML, others have not"),
            }
        }
    }
}
