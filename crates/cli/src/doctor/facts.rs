//! The facts: plain data, without judgement.

use std::time::{Duration, Instant};

use cuguard::driver::sys::CUresult;
use cuguard_nvml::{Gpu, Process};
use serde::{Deserialize, Serialize};

/// The facts about the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) driver: Driver,
    /// Why NVML is not available; `None` where it is.
    pub(super) without_nvml: Option<String>,
    /// Whether all processes of the machine are visible; not so in a container.
    pub(super) sees_all_processes: Option<bool>,
    /// The GPUs that CUDA lists, or the one of `--device`.
    pub(super) gpus: Vec<GpuFacts>,
    /// GPUs that NVML lists and CUDA does not.
    pub(super) unseen: Vec<Gpu>,
    /// The value of `CUDA_VISIBLE_DEVICES`.
    pub(super) visible_devices: Option<String>,
    /// Pools of cuguard in processes of this user that can be asked.
    pub(super) pools: Vec<PoolFacts>,
}

/// A pool of cuguard in a process, as it is in the JSON report and in the reply of the process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct PoolFacts {
    #[serde(default)]
    pub(super) process: u32,
    /// The command line of the process.
    #[serde(default)]
    pub(super) command: String,
    /// The device ordinal, as the process sees it.
    pub(super) device: u32,
    pub(super) number: u64,
    pub(super) label: Option<String>,
    pub(super) held_bytes: u64,
    pub(super) used_bytes: u64,
    pub(super) idle_bytes: u64,
    pub(super) page_count: u64,
    pub(super) pinned_page_count: u64,
}

/// The CUDA driver, as it is in the JSON report.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Driver {
    pub(super) simulated: bool,
    /// The library's file.
    pub(super) path: Option<String>,
    /// The version of the kernel module.
    pub(super) version: Option<String>,
    /// The newest CUDA that it supports, major and minor.
    pub(super) cuda: Option<String>,
}

/// One GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuFacts {
    /// The CUDA device ordinal.
    pub(super) ordinal: u32,
    pub(super) name: String,
    /// Total memory, by CUDA.
    pub(super) total: u64,
    /// NVML's description, completed by the CUDA driver's. Its memory is as before a context was
    /// created, unless [`own_context_counts`](Self::own_context_counts).
    pub(super) machine: Gpu,
    /// Why NVML, though available, does not describe this GPU.
    pub(super) not_described: Option<String>,
    pub(super) probe: Probe,
}

impl GpuFacts {
    /// The measurement, unless it is outdated.
    pub(super) fn measured(&self) -> Option<&Measured> {
        match &self.probe {
            Probe::Measured(measured) if !measured.outdated => Some(measured),
            _ => None,
        }
    }

    /// The processes that hold the memory in `machine.memory`, where known. With MIG, NVML lists the
    /// processes of all instances, and CUDA has the memory of one.
    pub(super) fn holders(&self) -> Option<&[Process]> {
        if self.machine.mig == Some(true) {
            return None;
        }
        self.machine.processes.as_deref()
    }

    /// Whether the used memory includes a context of this command, of unknown cost.
    pub(super) fn own_context_counts(&self) -> bool {
        matches!(self.probe, Probe::Skipped { own_context: true })
    }

    /// The bytes in use that no listed process explains, where known.
    pub(super) fn unexplained(&self) -> Option<u64> {
        self.holders()?;
        // No list contains our own context.
        if self.own_context_counts() {
            return None;
        }
        self.machine.unexplained()
    }
}

/// The result of creating a context and measuring in it.
#[derive(Clone, Debug)]
pub(super) enum Probe {
    /// Nothing was measured: `--probe` was not given.
    Skipped {
        /// Whether a context was created to read free memory.
        own_context: bool,
    },
    /// No context could be created, or it could not be used.
    Refused {
        /// cuguard's error message.
        text: String,
        /// The driver's code, where the driver returned one.
        code: Option<CUresult>,
    },
    Measured(Measured),
}

impl Default for Probe {
    fn default() -> Self {
        Self::Skipped { own_context: false }
    }
}

/// A measurement in a context of this command.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// The device memory that the context takes.
    pub(super) context_cost: Option<u64>,
    /// Free memory beside it.
    pub(super) free: u64,
    /// The largest block that could be allocated.
    pub(super) largest: u64,
    /// Free memory before the context was created.
    pub(super) free_before: u64,
    /// The other processes on the GPU at that time.
    pub(super) other_pids: Vec<u32>,
    pub(super) taken: Instant,
    /// The time since: zero in the round that measured.
    pub(super) age: Duration,
    /// Whether the GPU has changed since.
    pub(super) outdated: bool,
}
