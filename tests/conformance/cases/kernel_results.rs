//! What kernels compute: their order on streams, variables, the device's runtime.

use std::ffi::CStr;

use super::kernels::{function, launch, load};
use crate::case::Case;
use crate::driver::*;
use crate::tools::*;

cases! {"kernel_results":
    order_on_streams,
    memory_freed_on_the_stream,
    memory_of_all_kinds,
    variables,
    heap,
    heap_limit,
    printed,
    lanes,
    graphs,
}

pub(crate) const TEXT: &str = include_str!("../kernels.ptx");

/// Launches a kernel whose only parameter has 8 bytes.
fn launch_with(c: &Case, function: CUfunction, mut argument: u64) {
    let result = launch(function, 1, 32, &mut [(&raw mut argument).cast()]);
    c.require("cuLaunchKernel", result);
}

/// Launches `store(to, value)` with 32 threads on a stream.
fn store(c: &Case, function: CUfunction, stream: CUstream, mut to: u64, mut value: u32) {
    let mut list = [(&raw mut to).cast(), (&raw mut value).cast()];
    let (list, none) = (list.as_mut_ptr(), std::ptr::null_mut());
    let result = cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, list, none);
    c.require("cuLaunchKernel", result);
}

fn words(c: &Case, ptr: CUdeviceptr, count: usize) -> Vec<u32> {
    let bytes = read(c, ptr, 4 * count);
    let words = bytes
        .chunks(4)
        .map(|word| word.try_into().unwrap_or_default());
    words.map(u32::from_le_bytes).collect()
}

fn counted_from(first: u32) -> Vec<u32> {
    (first..first + 32).collect()
}

/// Fills, kernels and copies of a stream execute in their order, and those of another after an event.
fn order_on_streams(c: &Case) {
    primary(c);
    let store_kernel = function(c, load(c, TEXT), c"store");
    let (one, two) = (independent(c), independent(c));
    let ptr = alloc(c, 512);
    c.ok("fill", cuMemsetD32Async(ptr, 9, 128, one));
    store(c, store_kernel, one, ptr, 100);
    c.ok("copy", cuMemcpyDtoDAsync_v2(ptr + 256, ptr, 128, one));
    store(c, store_kernel, one, ptr, 200);
    let done = event(c, 0);
    c.ok("record", cuEventRecord(done, one));
    c.ok("wait", cuStreamWaitEvent(two, done, 0));
    c.ok("copy", cuMemcpyDtoDAsync_v2(ptr + 384, ptr, 128, two));
    synchronize(c);
    c.same("the last", words(c, ptr, 32), counted_from(200));
    c.same("beside it", words(c, ptr + 128, 1), vec![9]);
    c.same("the first", words(c, ptr + 256, 32), counted_from(100));
    c.same(
        "the other stream",
        words(c, ptr + 384, 32),
        counted_from(200),
    );
}

/// What is freed on a stream is there for the kernels before.
fn memory_freed_on_the_stream(c: &Case) {
    primary(c);
    let store_kernel = function(c, load(c, TEXT), c"store");
    let (stream, seen) = (independent(c), alloc(c, 384));
    for round in 0..3_u32 {
        let ptr = alloc_async(c, 128, stream);
        store(c, store_kernel, stream, ptr, round * 1000);
        let to = seen + u64::from(round) * 128;
        c.ok("copy", cuMemcpyDtoDAsync_v2(to, ptr, 128, stream));
        free_async(c, ptr, stream);
    }
    wait_for(c, stream);
    for round in 0..3_u32 {
        let found = words(c, seen + u64::from(round) * 128, 32);
        c.same(
            format_args!("round {round}"),
            found,
            counted_from(round * 1000),
        );
    }
}

/// Kernels write to device, stream-ordered, managed, page-locked and registered memory.
fn memory_of_all_kinds(c: &Case) {
    primary(c);
    let store_kernel = function(c, load(c, TEXT), c"store");
    let own = pages(8192);
    c.ok("register", cuMemHostRegister_v2(own.cast(), 8192, 0));
    let mut of_registered = 0;
    let result = cuMemHostGetDevicePointer_v2(&mut of_registered, own.cast(), 0);
    c.ok("cuMemHostGetDevicePointer", result);
    for (name, ptr) in [
        ("device memory", alloc(c, 128)),
        ("stream-ordered memory", alloc_async(c, 128, CUstream::NULL)),
        ("managed memory", managed(c, 128)),
        ("page-locked memory", pinned(c, 128).addr() as u64),
        ("registered memory", of_registered),
    ] {
        store(c, store_kernel, CUstream::NULL, ptr, 7);
        synchronize(c);
        c.same(name, words(c, ptr, 32), counted_from(7));
    }
}

/// Variables have their values, kernels see what the host writes and the other way around, and each module has its own.
fn variables(c: &Case) {
    primary(c);
    let module = load(c, TEXT);
    let kernel = function(c, module, c"variables");
    let address = |name: &CStr| {
        let (mut ptr, mut bytes) = (0, 0);
        let result = cuModuleGetGlobal_v2(&mut ptr, &mut bytes, module, name.as_ptr());
        c.require("cuModuleGetGlobal", result);
        ptr
    };
    let (counter, table) = (address(c"counter"), address(c"table"));
    let seen = alloc(c, 12);
    let run = |kernel| {
        let mut argument = seen;
        let result = launch(kernel, 1, 1, &mut [(&raw mut argument).cast()]);
        c.require("cuLaunchKernel", result);
        words(c, seen, 3)
    };
    c.same("the table", words(c, table, 4), vec![1, 20, 300, 4000]);
    let stored = words(c, address(c"where"), 2);
    let stored = u64::from(stored[0]) | u64::from(stored[1]) << 32;
    c.yes("a variable has the address of another", stored == counter);
    c.same("first", run(kernel), vec![7, 7, 5]);
    c.same("then", run(kernel), vec![307, 307, 6]);
    c.ok("set the counter", cuMemsetD32_v2(counter, 50, 1));
    c.ok("set the table", cuMemsetD32_v2(table, 2, 4));
    c.same("what the host wrote", run(kernel), vec![50, 50, 7]);
    c.same("the counter", words(c, counter, 1), vec![52]);
    let other = function(c, load(c, TEXT), c"variables");
    c.same("of another module", run(other), vec![7, 7, 5]);
}

/// What one kernel allocates another reads and frees.
fn heap(c: &Case) {
    primary(c);
    let module = load(c, TEXT);
    let (keep, take) = (function(c, module, c"keep"), function(c, module, c"take"));
    let ptr = alloc(c, 16);
    for _ in 0..3 {
        let mut argument = ptr;
        for kernel in [keep, take] {
            let result = launch(kernel, 1, 1, &mut [(&raw mut argument).cast()]);
            c.require("cuLaunchKernel", result);
        }
        c.same("what was kept", words(c, ptr + 8, 1), vec![7]);
    }
}

/// The size of the heap is fixed once a kernel that allocates was launched.
fn heap_limit(c: &Case) {
    primary(c);
    let module = load(c, TEXT);
    let heap = limit::MALLOC_HEAP_SIZE;
    c.ok("before", cuCtxSetLimit(heap, 16 * MIB));
    launch_with(c, function(c, module, c"keep"), alloc(c, 16));
    synchronize(c);
    c.invalid("afterwards", cuCtxSetLimit(heap, 32 * MIB));
    let mut bytes = 0;
    c.ok("get", cuCtxGetLimit(&mut bytes, heap));
    c.same("it is", bytes, 16 * MIB);
}

/// `printf` returns the number of its arguments.
fn printed(c: &Case) {
    primary(c);
    let kernel = function(c, load(c, TEXT), c"printed");
    let ptr = alloc(c, 4);
    launch_with(c, kernel, ptr);
    c.same("vprintf returns", words(c, ptr, 1), vec![1]);
}

/// Lanes read registers of other lanes.
fn lanes(c: &Case) {
    primary(c);
    let kernel = function(c, load(c, TEXT), c"lanes");
    let ptr = alloc(c, 128);
    launch_with(c, kernel, ptr);
    let expected = (0..32).map(|lane| if lane < 16 { 2 * lane + 16 } else { lane });
    c.same("sums", words(c, ptr, 32), expected.collect::<Vec<u32>>());
}

/// Kernels that a capture records run at each launch of the graph, with the arguments of the capture.
fn graphs(c: &Case) {
    primary(c);
    let store_kernel = function(c, load(c, TEXT), c"store");
    let (stream, ptr) = (independent(c), alloc(c, 256));
    let mode = stream_capture_mode::GLOBAL;
    c.ok("begin", cuStreamBeginCapture_v2(stream, mode));
    store(c, store_kernel, stream, ptr, 3);
    c.ok("copy", cuMemcpyDtoDAsync_v2(ptr + 128, ptr, 128, stream));
    store(c, store_kernel, stream, ptr, 4);
    let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
    c.ok("end", cuStreamEndCapture(stream, &mut graph));
    let result = cuGraphInstantiateWithFlags(&mut exec, graph, 0);
    c.ok("instantiate", result);
    for _ in 0..2 {
        c.ok("clear", cuMemsetD8_v2(ptr, 0, 256));
        synchronize(c);
        c.ok("launch", cuGraphLaunch(exec, stream));
        wait_for(c, stream);
        c.same("the first", words(c, ptr + 128, 32), counted_from(3));
        c.same("the second", words(c, ptr, 32), counted_from(4));
    }
}
