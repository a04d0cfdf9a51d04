//! One GPU, as the machine describes it: plain data.

use std::fmt;

use crate::process::Process;

/// One GPU. What the machine does not say is `None`.
///
/// ```
/// use cuguard_machine::{Gpu, Memory, Process};
///
/// let mut gpu = Gpu::new("0000:01:00.0");
/// gpu.memory = Some(Memory { total: 1000, free: 300, reserved: Some(50) });
/// gpu.processes = Some(vec![Process::new(4711).with_bytes(600)]);
/// assert_eq!(gpu.unexplained(), Some(50));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// NVML's number of it. CUDA may number GPUs in another order.
    pub index: u32,
    /// What it is called.
    pub name: Option<String>,
    /// The id that is the same on every machine and after every restart.
    pub uuid: Option<String>,
    /// Where it is on the PCI bus, in the form of [`normal_pci_bus_id`](crate::normal_pci_bus_id).
    pub pci_bus_id: String,
    /// The version of the kernel's driver, such as `580.159.04`.
    pub driver_version: Option<String>,
    /// Its memory.
    pub memory: Option<Memory>,
    /// The processes that use it, the largest first. `None` if NVML would not say; an empty list in
    /// a container may mean the same.
    pub processes: Option<Vec<Process>>,
    /// Whether errors of its memory are corrected.
    pub ecc: Option<bool>,
    /// Whether it is cut into several instances (MIG).
    pub mig: Option<bool>,
    /// Who may use it.
    pub compute_mode: Option<ComputeMode>,
    /// Whether the driver keeps it ready while nobody uses it.
    pub persistence: Option<bool>,
    /// Whether a display is drawn by it.
    pub display: Option<bool>,
}

impl Gpu {
    /// A GPU of which nothing is known but its place.
    ///
    /// ```
    /// let gpu = cuguard_machine::Gpu::new("00000000:01:00.0");
    /// assert_eq!(gpu.pci_bus_id, "0000:01:00.0");
    /// assert_eq!(gpu.memory, None);
    /// ```
    #[must_use]
    pub fn new(pci_bus_id: &str) -> Self {
        Self {
            pci_bus_id: crate::normal_pci_bus_id(pci_bus_id)
                .unwrap_or_else(|| pci_bus_id.to_owned()),
            ..Self::default()
        }
    }

    /// The bytes that somebody uses, that the driver has not reserved, and that no listed process
    /// explains. `None` where memory or processes are not known, or a process is listed without its
    /// bytes.
    ///
    /// A few MiB are nothing: the driver books some of its own. Where it is much, the holder is
    /// one that NVML does not list, such as a process in another container.
    ///
    /// ```
    /// use cuguard_machine::{Gpu, Memory};
    ///
    /// let mut gpu = Gpu::new("0000:01:00.0");
    /// assert_eq!(gpu.unexplained(), None);
    /// gpu.memory = Some(Memory { total: 1000, free: 300, reserved: None });
    /// gpu.processes = Some(Vec::new());
    /// assert_eq!(gpu.unexplained(), Some(700));
    /// ```
    #[must_use]
    pub fn unexplained(&self) -> Option<u64> {
        let used = self.memory?.used();
        let mut explained = 0_u64;
        for process in self.processes.as_ref()? {
            explained = explained.saturating_add(process.bytes?);
        }
        Some(used.saturating_sub(explained))
    }
}

/// The memory of a GPU in bytes: what is free, what the driver reserved for itself, and the rest,
/// which is [used](Self::used).
///
/// ```
/// let memory = cuguard_machine::Memory { total: 1000, free: 300, reserved: Some(50) };
/// assert_eq!(memory.used(), 650);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// What nobody uses.
    pub free: u64,
    /// What driver and firmware keep for themselves, where that is known.
    pub reserved: Option<u64>,
}

impl Memory {
    /// What programs use: all that is neither free nor reserved.
    ///
    /// ```
    /// let memory = cuguard_machine::Memory { total: 10, free: 4, reserved: None };
    /// assert_eq!(memory.used(), 6);
    /// ```
    #[must_use]
    pub fn used(&self) -> u64 {
        self.total
            .saturating_sub(self.free)
            .saturating_sub(self.reserved.unwrap_or(0))
    }
}

/// Who may use a GPU, as an administrator set it.
///
/// ```
/// assert_eq!(cuguard_machine::ComputeMode::Prohibited.to_string(), "prohibited");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ComputeMode {
    /// Everybody.
    #[default]
    Default,
    /// One process at a time.
    Exclusive,
    /// Nobody: no context can be made.
    Prohibited,
}

impl ComputeMode {
    /// From the number that both CUDA and NVML use; `None` for one that is not known.
    ///
    /// ```
    /// use cuguard_machine::ComputeMode;
    ///
    /// assert_eq!(ComputeMode::from_number(2), Some(ComputeMode::Prohibited));
    /// assert_eq!(ComputeMode::from_number(9), None);
    /// ```
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            0 => Some(Self::Default),
            // 1 allowed one thread; drivers have long treated it as one process.
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
