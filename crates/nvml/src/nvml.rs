//! NVML: loading it, calling it, and turning what it returns into plain data.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError as WrapperError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml as Wrapper};

use crate::error::NvmlError;
use crate::gpu::{ComputeMode, Gpu, Memory};
use crate::pci::normalize_pci_bus_id;
use crate::process::{Listed, Process, ProcessKind, merge};
use crate::procfs;

/// The name that NVML is installed under. The dynamic linker searches for it.
const SONAME: &str = "libnvidia-ml.so.1";

/// Where it is installed when the dynamic linker does not find it; the folders in which
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

/// How often a list of processes is read that outgrows the buffer allocated for it: processes start
/// between the call that counts them and the call that lists them.
const ATTEMPTS: usize = 4;

/// NVML, loaded and initialized. It can be called from any thread.
///
/// ```
/// use cuguard_nvml::Nvml;
///
/// if let Ok(nvml) = Nvml::get() {
///     println!("driver {:?}", nvml.driver_version());
/// }
/// ```
#[derive(Debug)]
pub struct Nvml {
    wrapper: Wrapper,
    /// The same for all GPUs and for the life of the process.
    driver_version: Option<String>,
}

impl Nvml {
    /// Returns the instance of this process. The first call loads NVML, which takes some milliseconds;
    /// all later ones return the same result, also when it is an error. It is never shut down, so that
    /// nothing runs in it while the process exits.
    ///
    /// # Errors
    ///
    /// As [`Nvml::open`].
    pub fn get() -> Result<&'static Nvml, &'static NvmlError> {
        static NVML: OnceLock<Result<Nvml, NvmlError>> = OnceLock::new();
        NVML.get_or_init(Nvml::open).as_ref()
    }

    /// Loads NVML anew; it is shut down on drop. Call [`Nvml::get`] instead, except in tests and in
    /// programs that must unload it.
    ///
    /// ```
    /// match cuguard_nvml::Nvml::open() {
    ///     Ok(nvml) => println!("{} GPUs", nvml.gpus()?.len()),
    ///     Err(error) => println!("{error}"),
    /// }
    /// # Ok::<(), cuguard_nvml::NvmlError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NvmlError::LibraryMissing`], or [`NvmlError::CallFailed`] where NVML cannot be initialized.
    pub fn open() -> Result<Nvml, NvmlError> {
        let wrapper = load(SONAME)?;
        let driver_version = wrapper.sys_driver_version().ok();
        Ok(Self {
            wrapper,
            driver_version,
        })
    }

    /// The version of the kernel driver, such as `580.159.04`.
    #[must_use]
    pub fn driver_version(&self) -> Option<&str> {
        self.driver_version.as_deref()
    }

    /// Returns all GPUs that NVML shows, in its order.
    ///
    /// ```
    /// # fn main() -> Result<(), cuguard_nvml::NvmlError> {
    /// # let Ok(nvml) = cuguard_nvml::Nvml::get() else { return Ok(()) };
    /// for gpu in nvml.gpus()? {
    ///     println!("{} has {:?}", gpu.pci_bus_id, gpu.memory);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`NvmlError::CallFailed`]. Where only some queries about a GPU fail, their fields are `None`.
    pub fn gpus(&self) -> Result<Vec<Gpu>, NvmlError> {
        let count = self.wrapper.device_count();
        let by_index = |index| self.wrapper.device_by_index(index);
        (0..count.map_err(failed("nvmlDeviceGetCount_v2"))?)
            .map(|i| self.describe(&by_index(i).map_err(failed("nvmlDeviceGetHandleByIndex_v2"))?))
            .collect()
    }

    /// Returns the GPU at a PCI bus id, as CUDA or NVML writes it: `0000:01:00.0` or
    /// `00000000:01:00.0`.
    ///
    /// ```
    /// # fn main() -> Result<(), cuguard_nvml::NvmlError> {
    /// # let Ok(nvml) = cuguard_nvml::Nvml::get() else { return Ok(()) };
    /// use cuguard_nvml::NvmlError;
    ///
    /// let error = nvml.gpu_by_pci("not an id").unwrap_err();
    /// assert!(matches!(error, NvmlError::NoSuchGpu { .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`NvmlError::NoSuchGpu`] or [`NvmlError::CallFailed`].
    pub fn gpu_by_pci(&self, pci_bus_id: &str) -> Result<Gpu, NvmlError> {
        self.describe(&self.device(pci_bus_id)?)
    }

    /// Returns the processes that use a GPU, those that hold most first. Cheaper than
    /// [`gpu_by_pci`](Self::gpu_by_pci).
    ///
    /// ```
    /// # fn main() -> Result<(), cuguard_nvml::NvmlError> {
    /// # let Ok(nvml) = cuguard_nvml::Nvml::get() else { return Ok(()) };
    /// # let Some(gpu) = nvml.gpus()?.into_iter().next() else { return Ok(()) };
    /// for process in nvml.processes(&gpu.pci_bus_id)? {
    ///     println!("{}: {:?} bytes, {:?}", process.pid, process.bytes, process.command);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`gpu_by_pci`](Self::gpu_by_pci), and when none of NVML's lists can be read.
    pub fn processes(&self, pci_bus_id: &str) -> Result<Vec<Process>, NvmlError> {
        processes_on(&self.device(pci_bus_id)?)
    }

    /// Returns the memory of a GPU alone, the fastest query.
    ///
    /// # Errors
    ///
    /// As [`gpu_by_pci`](Self::gpu_by_pci).
    pub fn memory(&self, pci_bus_id: &str) -> Result<Memory, NvmlError> {
        memory_of(&self.device(pci_bus_id)?)
    }

    /// Returns whether a GPU is partitioned into instances (MIG). Memory and processes are those of all
    /// instances together. `false` for a GPU that cannot be partitioned.
    ///
    /// # Errors
    ///
    /// As [`gpu_by_pci`](Self::gpu_by_pci).
    pub fn is_mig_enabled(&self, pci_bus_id: &str) -> Result<bool, NvmlError> {
        match self.device(pci_bus_id)?.mig_mode() {
            Ok(mode) => Ok(mode.current != 0),
            Err(WrapperError::NotSupported) => Ok(false),
            // A library from before there was MIG.
            Err(WrapperError::FailedToLoadSymbol(_) | WrapperError::FunctionNotFound) => Ok(false),
            Err(error) => Err(failed("nvmlDeviceGetMigMode")(error)),
        }
    }

    fn device(&self, pci_bus_id: &str) -> Result<Device<'_>, NvmlError> {
        let no_such_gpu = || NvmlError::NoSuchGpu {
            pci_bus_id: pci_bus_id.to_owned(),
        };
        let id = normalize_pci_bus_id(pci_bus_id).ok_or_else(no_such_gpu)?;
        // As NVML writes it: eight digits of domain.
        let device = self.wrapper.device_by_pci_bus_id(format!("{id:0>16}"));
        device.map_err(|error| match error {
            // Both where there is none and where this process may not see it.
            WrapperError::NotFound | WrapperError::InvalidArg => no_such_gpu(),
            error => failed("nvmlDeviceGetHandleByPciBusId_v2")(error),
        })
    }

    /// Everything that NVML knows about a GPU. Only its PCI bus id and its index are required; any other
    /// query that fails leaves its field empty.
    fn describe(&self, device: &Device<'_>) -> Result<Gpu, NvmlError> {
        let pci = device.pci_info();
        let mode = device.compute_mode().ok();
        let ecc = device.is_ecc_enabled().ok();
        Ok(Gpu {
            index: device.index().map_err(failed("nvmlDeviceGetIndex"))?,
            name: device.name().ok(),
            uuid: device.uuid().ok(),
            driver_version: self.driver_version.clone(),
            memory: memory_of(device).ok(),
            processes: processes_on(device).ok(),
            ecc: ecc.map(|ecc| ecc.currently_enabled),
            mig: device.mig_mode().ok().map(|mode| mode.current != 0),
            compute_mode: mode.and_then(|mode| ComputeMode::from_number(mode.as_c() as i32)),
            persistence: device.is_in_persistent_mode().ok(),
            display: device.is_display_active().ok(),
            ..Gpu::new(&pci.map_err(failed("nvmlDeviceGetPciInfo_v3"))?.bus_id)
        })
    }
}

fn processes_on(device: &Device<'_>) -> Result<Vec<Process>, NvmlError> {
    let compute = list(|| device.running_compute_processes());
    let graphics = list(|| device.running_graphics_processes());
    let mps = list(|| device.mps_running_compute_processes());
    // Not every GPU supports graphics and not every driver MPS. Where all lists fail, an empty list
    // would be wrong.
    if let (Err(_), Err(_)) = (&graphics, &mps)
        && let Err(error) = compute
    {
        return Err(failed("nvmlDeviceGetComputeRunningProcesses_v3")(error));
    }
    let mut processes = merge(&[
        (ProcessKind::Compute, compute.unwrap_or_default()),
        (ProcessKind::Graphics, graphics.unwrap_or_default()),
        (ProcessKind::Mps, mps.unwrap_or_default()),
    ]);
    procfs::describe(&mut processes);
    Ok(processes)
}

/// Opens NVML by its name, then in the usual places.
fn load(name: &str) -> Result<Wrapper, NvmlError> {
    let mut reason = None;
    let by_name = std::iter::once(name);
    for library in by_name.chain(PLACES.iter().copied()) {
        let path = Path::new(library);
        // Opening a pipe would block until there is a writer.
        if path.is_absolute() && !path.is_file() {
            continue;
        }
        match Wrapper::builder().lib_path(OsStr::new(library)).init() {
            Ok(nvml) => return Ok(nvml),
            // The first message is the most informative: that search covers all of the system's folders.
            Err(WrapperError::LibloadingError(error)) => {
                reason.get_or_insert_with(|| error.to_string());
            }
            Err(error) => return Err(failed("nvmlInit_v2")(error)),
        }
    }
    Err(NvmlError::LibraryMissing {
        reason: reason.unwrap_or_else(|| "it was not found".to_owned()),
    })
}

fn failed(function: &'static str) -> impl Fn(WrapperError) -> NvmlError {
    move |error| NvmlError::CallFailed {
        function,
        reason: error.to_string(),
    }
}

fn memory_of(device: &Device<'_>) -> Result<Memory, NvmlError> {
    let memory = device.memory_info();
    let memory = memory.map_err(failed("nvmlDeviceGetMemoryInfo_v2"))?;
    Ok(Memory {
        total: memory.total,
        free: memory.free,
        reserved: Some(memory.reserved),
    })
}

fn list(
    read: impl Fn() -> Result<Vec<ProcessInfo>, WrapperError>,
) -> Result<Vec<Listed>, WrapperError> {
    let mut attempts = (1..ATTEMPTS).map(|_| read());
    let fits = |result: &Result<_, _>| !matches!(result, Err(WrapperError::InsufficientSize(_)));
    let result = attempts.find(fits).unwrap_or_else(&read);
    let bytes = |memory| match memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    let listed = |process: ProcessInfo| (process.pid, bytes(process.used_gpu_memory));
    Ok(result?.into_iter().map(listed).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_list_that_outgrows_its_buffer_is_read_again() {
        let calls = Cell::new(0);
        let process = ProcessInfo {
            pid: 7,
            used_gpu_memory: UsedGpuMemory::Unavailable,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let result = list(|| {
            calls.set(calls.get() + 1);
            match calls.get() {
                1 => Err(WrapperError::InsufficientSize(None)),
                _ => Ok(vec![process.clone()]),
            }
        });
        assert_eq!(result.unwrap(), [(7, None)]);
        assert_eq!(calls.get(), 2);
    }

    #[test]
    fn a_list_that_always_outgrows_its_buffer_fails() {
        let calls = Cell::new(0);
        let result = list(|| {
            calls.set(calls.get() + 1);
            Err(WrapperError::InsufficientSize(None))
        });
        assert!(result.is_err());
        assert_eq!(calls.get(), ATTEMPTS);
    }

    #[test]
    fn an_error_has_the_function_and_the_message() {
        let error = failed("nvmlDeviceGetCount_v2")(WrapperError::NoPermission);
        let text = error.to_string();
        assert!(text.contains("nvmlDeviceGetCount_v2"), "{text}");
        assert!(text.contains("permission"), "{text}");
    }

    #[test]
    fn all_threads_get_the_same_result() {
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(Nvml::get)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        for result in &results {
            match (result, &results[0]) {
                (Ok(one), Ok(other)) => assert!(std::ptr::eq(*one, *other)),
                (Err(one), Err(other)) => assert!(std::ptr::eq(*one, *other)),
                _ => panic!("some threads have NVML, others have not"),
            }
        }
    }
}
