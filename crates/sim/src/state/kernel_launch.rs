//! The work of a launch: executes a kernel, and reports its failure.

use std::fmt::Write;
use std::sync::Arc;

use cuguard_ptx::{FaultKind, LaunchError};
use cuguard_sys::CUresult;

use super::driver_state::DriverState;
use super::kernel_memory::{KernelMemory, WORKSPACE};
use super::lock::lock;
use crate::code::Image;
use crate::config::{Order, PAGE};
use crate::handle::Id;
use crate::memory::{MemoryBlock, host_page, is_device_address};
use crate::result::DriverResult;
use crate::streams::Run;
use crate::{copy_engine, stderr};

/// A kernel with all that it is launched with.
#[derive(Debug)]
pub(crate) struct KernelLaunch {
    pub(crate) image: Arc<Image>,
    /// The number of the kernel in the image.
    pub(crate) kernel: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    pub(crate) cooperative: bool,
    /// As the kernel reads them.
    pub(crate) arguments: Vec<u8>,
    /// The addresses of the image's variables.
    pub(crate) variables: Vec<u64>,
}

impl DriverState {
    /// The work of a launch in a context. `blocks` are the memory of its arguments; `None` if the kernel is only in
    /// compiled code.
    pub(crate) fn kernel_work(
        &mut self,
        context: Id,
        launch: KernelLaunch,
        blocks: Vec<Arc<MemoryBlock>>,
    ) -> Option<Run> {
        launch.image.program.as_ref()?;
        self.launches += 1;
        let device = self.device_of(context);
        let memory = KernelMemory::new(self.launches, context, device, blocks);
        let order = match self.config.order {
            Order::Sequential => cuguard_ptx::Order::Sequential,
            Order::Random { seed } => cuguard_ptx::Order::Random(seed),
        };
        let steps = self.config.steps.unwrap_or(u64::MAX);
        let run = copy_engine::kernel(move || launch.run(&memory, order, steps));
        Some(Box::new(run))
    }

    /// Where an address is that is in no memory, and whether a real device may not notice an access: it does where nothing is
    /// mapped.
    fn describe_address(&self, address: u64, launch: u64) -> Option<(String, bool)> {
        let mut pending = self.pending_frees.values();
        if let Some(freed) = pending.find(|own| own.freed_after < launch && own.contains(address)) {
            let what = format!("in memory at {:#x} that was freed on a stream", freed.base);
            return Some((what, true));
        }
        if is_device_address(address) {
            if let Some(start) = self.map.find_freed(address) {
                return Some((format!("in memory at {start:#x} that was freed"), true));
            }
        } else if let Some(start) = self.quarantine.find(address, 1) {
            return Some((format!("in host memory at {start:#x} that was freed"), true));
        }
        let in_heap = |heap: &Arc<_>| crate::memory::Heap::contains(heap, address);
        let mut contexts = self.contexts.values();
        if contexts.any(|own| own.heap.as_ref().is_some_and(in_heap)) {
            let what = "in the device heap, and in nothing that malloc returned";
            return Some((what.to_owned(), true));
        }
        let page = match is_device_address(address) {
            true => PAGE,
            false => host_page() as u64,
        };
        let [below, above] = self.map.neighbors(address);
        // Memory is mapped in whole pages.
        let shares_page = |other: u64| other / page == address / page;
        let allocation =
            |size: u64, base: u64| format!("the allocation of {size} bytes at {base:#x}");
        if let Some(below) = below {
            let (size, base) = (below.size, below.base);
            if below.contains(address) {
                return Some((
                    format!("across the end of {}", allocation(size, base)),
                    true,
                ));
            }
            let distance = address - below.end();
            if shares_page(below.end() - 1) {
                let what = format!(
                    "{distance} bytes after the end of {}",
                    allocation(size, base)
                );
                return Some((what, true));
            }
            // A kernel that ran off the end, further than one page.
            if is_device_address(address) && distance < PAGE {
                let what = format!(
                    "{distance} bytes after the end of {}",
                    allocation(size, base)
                );
                return Some((what, false));
            }
        }
        let above = above?;
        let (size, base) = (above.size, above.base);
        let what = format!("{} bytes before {}", base - address, allocation(size, base));
        shares_page(base).then_some((what, true))
    }
}

impl KernelLaunch {
    /// Executes the kernel.
    fn run(self, memory: &KernelMemory, order: cuguard_ptx::Order, max_steps: u64) -> DriverResult {
        let (Some(program), Some(kernel)) =
            (&self.image.program, self.image.kernels.get(self.kernel))
        else {
            return Ok(());
        };
        let launch = cuguard_ptx::Launch {
            kernel: &kernel.name.to_string_lossy(),
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            dynamic_shared: self.shared,
            arguments: &self.arguments,
            variables: &self.variables,
            workspace: if self.cooperative { WORKSPACE } else { 0 },
            order,
            // A shuffled order is the same each time on one thread alone.
            workers: match order {
                cuguard_ptx::Order::Sequential => 0,
                cuguard_ptx::Order::Random(_) => 1,
            },
            max_steps,
            cancel: None,
        };
        let result = program.launch(&launch, memory, memory);
        memory.end();
        result
            .map(drop)
            .map_err(|error| report(&error, memory.launch()))
    }
}

/// The sticky error of a failed kernel, as measured on a real device.
fn code_of(kind: &FaultKind) -> CUresult {
    match kind {
        FaultKind::OutOfBounds { .. } | FaultKind::StackOverflow => CUresult::ILLEGAL_ADDRESS,
        // `free` of what `malloc` did not return.
        FaultKind::Undefined(what) if what.starts_with("free") => CUresult::ILLEGAL_ADDRESS,
        FaultKind::Misaligned { .. } => CUresult::MISALIGNED_ADDRESS,
        FaultKind::Assertion(_) => CUresult::ASSERT,
        FaultKind::InvalidTarget(_) => CUresult::ILLEGAL_INSTRUCTION,
        FaultKind::StepLimit(_) => CUresult::LAUNCH_TIMEOUT,
        _ => CUresult::LAUNCH_FAILED,
    }
}

/// Prints why a kernel failed. What a real device may not notice is misuse.
fn report(error: &LaunchError, launch: u64) -> CUresult {
    let code = code_of(&error.kind);
    let mut what = format!("kernel {error}");
    let mut is_misuse = false;
    if let FaultKind::OutOfBounds {
        address,
        size,
        space: "global",
        ..
    } = error.kind
    {
        let state = lock();
        let last = address.saturating_add(u64::from(size).saturating_sub(1));
        let described = state.describe_address(address, launch);
        let described = described.or_else(|| state.describe_address(last, launch));
        if let Some((place, unnoticed)) = described {
            // A string takes all that is written to it.
            let _ = write!(what, ": {place}");
            is_misuse = unnoticed;
        }
    }
    if is_misuse {
        return lock().misuse(code, what);
    }
    stderr::print_line(&format!("{what}: {}", code.name().unwrap_or("an error")));
    code
}
