//! One GPU, as NVML describes it: plain data.

use std::fmt;

use crate::pci::normalize_pci_bus_id;
use crate::process::Process;

/// One GPU. What NVML does not know is `None`.
///
/// ```
/// use cuguard_nvml::{Gpu, Memory, Process};
///
/// let mut gpu = Gpu::new("0000:01:00.0");
/// gpu.memory = Some(Memory { total: 1000, free: 300, reserved: Some(50) });
/// gpu.processes = Some(vec![Process::new(4711).with_bytes(600)]);
/// assert_eq!(gpu.unexplained(), Some(50));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// NVML's index. CUDA may number GPUs in another order.
    pub index: u32,
    /// The product name.
    pub name: Option<String>,
    /// The id that stays the same on every machine and after every restart.
    pub uuid: Option<String>,
    /// The PCI bus id, in the form of [`normalize_pci_bus_id`].
    pub pci_bus_id: String,
    /// The version of the kernel driver, such as `580.159.04`.
    pub driver_version: Option<String>,
    /// Its memory.
    pub memory: Option<Memory>,
    /// The processes that use it, the largest first. `None` if NVML does not list them; in a container an
    /// empty list may mean the same.
    pub processes: Option<Vec<Process>>,
    /// Whether its memory has error correction (ECC) on.
    pub ecc: Option<bool>,
    /// Whether it is partitioned into instances (MIG).
    pub mig: Option<bool>,
    /// Which processes may use it.
    pub compute_mode: Option<ComputeMode>,
    /// Whether persistence mode is on: the driver keeps it initialized while no process uses it.
    pub persistence: Option<bool>,
    /// Whether a display is active on it.
    pub display: Option<bool>,
}

impl Gpu {
    /// A GPU of which only the PCI bus id is known.
    #[must_use]
    pub fn new(pci_bus_id: &str) -> Self {
        Self {
            pci_bus_id: normalize_pci_bus_id(pci_bus_id).unwrap_or_else(|| pci_bus_id.to_owned()),
            ..Self::default()
        }
    }

    /// The bytes in use that are neither reserved by the driver nor held by a listed process. `None` where
    /// memory or processes are not known, or a process is listed without its bytes.
    ///
    /// A few MiB are normal: the driver uses some itself. If it is much, the holder is a process that
    /// NVML does not list, such as one in another container.
    #[must_use]
    pub fn unexplained(&self) -> Option<u64> {
        let mut held = self.processes.as_ref()?.iter().map(|process| process.bytes);
        let held = held.try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)))?;
        Some(self.memory?.used().saturating_sub(held))
    }
}

/// The memory of a GPU in bytes: what is free, what the driver reserves, and the rest, which is
/// [used](Self::used).
///
/// ```
/// let memory = cuguard_nvml::Memory { total: 1000, free: 300, reserved: Some(50) };
/// assert_eq!(memory.used(), 650);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All memory.
    pub total: u64,
    /// What is not in use.
    pub free: u64,
    /// What driver and firmware reserve, where that is known.
    pub reserved: Option<u64>,
}

impl Memory {
    /// What processes use: all that is neither free nor reserved.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.total
            .saturating_sub(self.free)
            .saturating_sub(self.reserved.unwrap_or(0))
    }
}

/// Which processes may use a GPU, as an administrator set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ComputeMode {
    /// All.
    #[default]
    Default,
    /// One process at a time.
    Exclusive,
    /// None: no context can be created.
    Prohibited,
}

impl ComputeMode {
    /// Converts the number that both CUDA and NVML use; `None` for an unknown one.
    ///
    /// ```
    /// use cuguard_nvml::ComputeMode;
    ///
    /// assert_eq!(ComputeMode::from_number(2), Some(ComputeMode::Prohibited));
    /// assert_eq!(ComputeMode::from_number(9), None);
    /// ```
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            0 => Some(Self::Default),
            // 1 is exclusive to one thread; drivers have long treated it as exclusive to one process.
            1 | 3 => Some(Self::Exclusive),
            2 => Some(Self::Prohibited),
            _ => None,
        }
    }
}

impl fmt::Display for ComputeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Exclusive => "exclusive",
            Self::Prohibited => "prohibited",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(memory: Option<Memory>, processes: Option<Vec<Process>>) -> Gpu {
        Gpu {
            memory,
            processes,
            ..Gpu::new("0000:01:00.0")
        }
    }

    const MEMORY: Memory = Memory {
        total: 1000,
        free: 300,
        reserved: Some(100),
    };

    #[test]
    fn what_the_processes_do_not_use_is_unexplained() {
        let processes = vec![
            Process::new(1).with_bytes(400),
            Process::new(2).with_bytes(150),
        ];
        assert_eq!(gpu(Some(MEMORY), Some(processes)).unexplained(), Some(50));
        assert_eq!(gpu(Some(MEMORY), Some(Vec::new())).unexplained(), Some(600));
    }

    #[test]
    fn what_is_not_known_is_never_guessed() {
        let unknown = vec![Process::new(1).with_bytes(400), Process::new(2)];
        assert_eq!(gpu(Some(MEMORY), Some(unknown)).unexplained(), None);
        assert_eq!(gpu(Some(MEMORY), None).unexplained(), None);
        assert_eq!(gpu(None, Some(Vec::new())).unexplained(), None);
    }

    #[test]
    fn figures_that_do_not_agree_give_zero_not_a_panic() {
        let much = vec![
            Process::new(1).with_bytes(u64::MAX),
            Process::new(2).with_bytes(1),
        ];
        assert_eq!(gpu(Some(MEMORY), Some(much)).unexplained(), Some(0));
        let odd = Memory {
            total: 1,
            free: 2,
            reserved: Some(3),
        };
        assert_eq!(odd.used(), 0);
    }

    #[test]
    fn compute_modes_by_number() {
        let modes = [0, 1, 2, 3, 4, -1].map(ComputeMode::from_number);
        let exclusive = Some(ComputeMode::Exclusive);
        let (open, closed) = (Some(ComputeMode::Default), Some(ComputeMode::Prohibited));
        assert_eq!(modes, [open, exclusive, closed, exclusive, None, None]);
    }
}
