//! What was found out: plain data, without a word of judgement.

use std::time::{Duration, Instant};

use cuguard_nvml::{Gpu, Process};

/// All that was found out about the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) driver: Driver,
    /// Why NVML says nothing; `None` where it answers.
    pub(super) without_nvml: Option<String>,
    /// Whether all processes of the machine can be seen from here; not so in a container.
    pub(super) sees_all_processes: Option<bool>,
    /// The GPUs that CUDA shows, or the one that was asked for.
    pub(super) gpus: Vec<GpuFacts>,
    /// GPUs that NVML shows and CUDA does not.
    pub(super) unseen: Vec<Gpu>,
    /// What `CUDA_VISIBLE_DEVICES` is set to.
    pub(super) visible_devices: Option<String>,
}

/// The CUDA driver.
#[derive(Clone, Debug, Default)]
pub(super) struct Driver {
    pub(super) simulated: bool,
    /// The library's file.
    pub(super) path: Option<String>,
    /// The newest CUDA that it supports, major and minor.
    pub(super) cuda: Option<(u32, u32)>,
    /// The version of the kernel's part.
    pub(super) version: Option<String>,
}

/// One GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuFacts {
    /// CUDA's number of it.
    pub(super) ordinal: u32,
    pub(super) name: String,
    /// All memory that CUDA has of it.
    pub(super) total: u64,
    /// What NVML says of it, completed by what the CUDA driver says. Its memory is as it was before
    /// a context was made, but [see](Self::own_context_counts).
    pub(super) machine: Gpu,
    /// Why NVML does not describe this GPU, though it answers.
    pub(super) not_described: Option<String>,
    pub(super) probe: Probe,
}

impl GpuFacts {
    /// What was measured, where it is about the GPU as it is now.
    pub(super) fn measured(&self) -> Option<&Measured> {
        match &self.probe {
            Probe::Measured(measured) if !measured.outdated => Some(measured),
            _ => None,
        }
    }

    /// The processes that hold the memory whose figures these are, where that is known. Of a card
    /// in pieces (MIG) NVML lists the processes of all pieces, and CUDA has the memory of one.
    pub(super) fn holders(&self) -> Option<&[Process]> {
        if self.machine.mig == Some(true) {
            return None;
        }
        self.machine.processes.as_deref()
    }

    /// Whether a context of this command, of unknown cost, is part of the memory that is used.
    pub(super) fn own_context_counts(&self) -> bool {
        matches!(self.probe, Probe::Skipped { asked: true })
    }

    /// The bytes that are in use and that no listed process explains, where that can be said.
    pub(super) fn unexplained(&self) -> Option<u64> {
        self.holders()?;
        // No list explains what our own context takes.
        if self.own_context_counts() {
            return None;
        }
        self.machine.unexplained()
    }
}

/// What came of the attempt to make a context and measure in it.
#[derive(Clone, Debug)]
pub(super) enum Probe {
    /// Nothing was measured: `--probe` was not given.
    Skipped {
        /// Whether a context was made to read what is free.
        asked: bool,
    },
    /// No context could be made, or it could not be used.
    Refused {
        /// cuguard's words.
        words: String,
        /// The driver's code, where it was the driver that refused.
        code: Option<u32>,
    },
    Measured(Measured),
}

impl Default for Probe {
    fn default() -> Self {
        Self::Skipped { asked: false }
    }
}

/// What was measured in a context of our own.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// What the context took from the device's memory.
    pub(super) context_cost: Option<u64>,
    /// What was free beside it.
    pub(super) free: u64,
    /// The largest block that the driver gave.
    pub(super) largest: u64,
    /// What was free before, without our context.
    pub(super) found: u64,
    /// The other processes that were on the GPU then, by number.
    pub(super) beside: Vec<u32>,
    /// When that was.
    pub(super) taken: Instant,
    /// How long ago: zero in the round that measured.
    pub(super) age: Duration,
    /// Whether the GPU has changed since, so that this says nothing about it as it is now.
    pub(super) outdated: bool,
}
