//! The manual, in chapters. `scripts/guide.py` writes `docs/guide` from the same sources, for code hosts.
//!
//! | chapter | about |
//! |---|---|
//! | [`set_up`] | dependencies, `CUGUARD_DRIVER`, stack traces with lines |
//! | [`guards`] | who owns what, drop and close, raw addresses, what is safe |
//! | [`streams_and_scopes`] | asynchronous work, stream-ordered memory, host functions, data larger than memory |
//! | [`pools`] | memory pools without fragmentation: when to use one, which work they must know of |
//! | [`kernels`] | modules, launches, typed kernels, occupancy, CUDA C++ at run time |
//! | [`devices_and_interop`] | devices, peers, contexts and streams of other code, libraries |
//! | [`leak_reports`] | `LEAK_REPORT`, snapshots, levels, suppressions |
//! | [`recordings`] | the whole run in a file: the peak, timelines, flame graphs, traces, differences; metrics of a running program |
//! | [`any_cuda_program`] | `cuguard run`: programs that do not use the crate |
//! | [`out_of_memory`] | the diagnosis, recovery steps, common questions |
//! | [`testing_without_a_gpu`] | the simulated GPU and its faults |
//! | [`coming_from_cust`] | the same operations side by side |
//! | [`coming_from_cudarc`] | the same for `cudarc` |
//! | [`which_tool`] | for which problem: cuguard, compute-sanitizer, Nsight Systems, PyTorch's snapshot, `nvidia-smi` |
//! | [`limits`] | what the crate cannot see or prevent |

#[allow(unused_imports, reason = "links in the chapters resolve in this scope")]
use crate::{
    code::*,
    context::*,
    device::*,
    graph::*,
    memory::*,
    oom::{Cause, OomPolicy, OutOfMemory},
    report::{Report, ReportSettings},
    snapshot::Snapshot,
    stream::*,
    *,
};

macro_rules! chapters {
    ($($name:ident $file:literal)*) => {
        $(
            #[doc = include_str!(concat!("guide/", $file))]
            pub mod $name {}
        )*
    };
}

chapters! {
    set_up "set-up.md"
    guards "guards.md"
    streams_and_scopes "streams-and-scopes.md"
    pools "pools.md"
    kernels "kernels.md"
    devices_and_interop "devices-and-interop.md"
    leak_reports "leak-reports.md"
    recordings "recordings.md"
    any_cuda_program "any-cuda-program.md"
    out_of_memory "out-of-memory.md"
    testing_without_a_gpu "testing-without-a-gpu.md"
    coming_from_cust "coming-from-cust.md"
    coming_from_cudarc "coming-from-cudarc.md"
    which_tool "which-tool.md"
    limits "limits.md"
}
