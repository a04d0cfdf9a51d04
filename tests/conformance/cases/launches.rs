//! What a launch checks before the kernel runs.

use std::ffi::CStr;
use std::ptr;

use super::kernels::{function, load};
use super::modules::CODE;
use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"launches":
    dimensions,
    limits_of_the_kernel,
    shared_memory,
    arguments,
    buffers,
    streams,
    clusters,
    cooperative,
    kernels_of_libraries,
    contexts,
    unloaded,
}

/// Starts, and loads the kernels.
fn set_up(c: &Case) -> CUmodule {
    primary(c);
    load(c, CODE)
}

/// Launches on the default stream.
fn launch(
    function: CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    arguments: *mut *mut c_void,
) -> CUresult {
    let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
    let stream = CUstream::NULL;
    cuLaunchKernel(
        function,
        gx,
        gy,
        gz,
        bx,
        by,
        bz,
        shared,
        stream,
        arguments,
        ptr::null_mut(),
    )
}

const ONE: [u32; 3] = [1; 3];

/// A kernel without parameters.
fn empty(c: &Case, module: CUmodule) -> CUfunction {
    function(c, module, c"empty")
}

/// Grids and blocks have limits in each dimension, and blocks a number of threads.
fn dimensions(c: &Case) {
    let module = set_up(c);
    let empty = empty(c, module);
    let none = ptr::null_mut();
    for block in [[1024, 1, 1], [1, 1024, 1], [1, 1, 64], [16, 1, 64]] {
        c.ok(
            format_args!("block {block:?}"),
            launch(empty, ONE, block, 0, none),
        );
    }
    for block in [
        [0, 1, 1],
        [1, 0, 1],
        [1, 1, 0],
        [1025, 1, 1],
        [2000, 1, 1],
        [1, 1025, 1],
        [1, 1, 65],
        [1024, 2, 1],
        [65_536, 65_536, 1],
    ] {
        c.invalid(
            format_args!("block {block:?}"),
            launch(empty, ONE, block, 0, none),
        );
    }
    for grid in [[1 << 20, 1, 1], [1, 65_535, 1]] {
        c.ok(
            format_args!("grid {grid:?}"),
            launch(empty, grid, ONE, 0, none),
        );
    }
    for grid in [
        [0, 1, 1],
        [1, 0, 1],
        [1, 1, 0],
        [1 << 31, 1, 1],
        [u32::MAX, 1, 1],
        [1, 65_536, 1],
        [1, 1, 65_536],
    ] {
        c.invalid(
            format_args!("grid {grid:?}"),
            launch(empty, grid, ONE, 0, none),
        );
    }
    let null = CUfunction::NULL;
    c.expect(
        "no function",
        launch(null, ONE, ONE, 0, none),
        Code::INVALID_HANDLE,
    );
    c.ok("wait", cuCtxSynchronize());
}

/// `.maxntid` limits the threads of a block, `.reqntid` is the block.
fn limits_of_the_kernel(c: &Case) {
    let module = set_up(c);
    let (first, required) = (
        function(c, module, c"first"),
        function(c, module, c"required"),
    );
    let mut bytes = [0_u64; 4];
    let value: *mut c_void = bytes.as_mut_ptr().cast();
    let mut list = [value; 4];
    let list = list.as_mut_ptr();
    for block in [[128, 1, 1], [64, 2, 1], [1, 128, 1], [1, 1, 64]] {
        c.ok(
            format_args!("first {block:?}"),
            launch(first, ONE, block, 0, list),
        );
    }
    c.invalid("first 129", launch(first, ONE, [129, 1, 1], 0, list));
    c.ok("required 32", launch(required, ONE, [32, 1, 1], 0, list));
    for block in [[31, 1, 1], [33, 1, 1], [16, 2, 1], [64, 1, 1]] {
        c.invalid(
            format_args!("required {block:?}"),
            launch(required, ONE, block, 0, list),
        );
    }
    c.ok("wait", cuCtxSynchronize());
}

/// More than 48 KiB of shared memory needs the program's consent.
fn shared_memory(c: &Case) {
    let module = set_up(c);
    let (empty, shared) = (empty(c, module), function(c, module, c"with_shared"));
    let none = ptr::null_mut();
    c.ok("49152", launch(empty, ONE, ONE, 49_152, none));
    c.invalid("49153", launch(empty, ONE, ONE, 49_153, none));
    let mut ptr = alloc(c, 4096);
    let mut list = [(&raw mut ptr).cast()];
    c.ok(
        "47104 and 2048",
        launch(shared, ONE, ONE, 47_104, list.as_mut_ptr()),
    );
    c.invalid(
        "47105 and 2048",
        launch(shared, ONE, ONE, 47_105, list.as_mut_ptr()),
    );
    let dynamic = function_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    for limit in [100_000, 1000] {
        c.ok("set a limit", cuFuncSetAttribute(empty, dynamic, limit));
        let limit = limit.unsigned_abs();
        c.ok(
            format_args!("{limit} then"),
            launch(empty, ONE, ONE, limit, none),
        );
        c.invalid("one more", launch(empty, ONE, ONE, limit + 1, none));
    }
    c.ok("wait", cuCtxSynchronize());
}

/// A kernel with parameters needs arguments.
fn arguments(c: &Case) {
    let module = set_up(c);
    let two = function(c, module, c"two");
    let (mut ptr, mut number) = (alloc(c, 4096), 5_u32);
    let mut list = [(&raw mut ptr).cast(), (&raw mut number).cast()];
    c.ok("two arguments", launch(two, ONE, ONE, 0, list.as_mut_ptr()));
    c.invalid("none", launch(two, ONE, ONE, 0, ptr::null_mut()));
    c.ok(
        "none of none",
        launch(empty(c, module), ONE, ONE, 0, ptr::null_mut()),
    );
    c.ok("wait", cuCtxSynchronize());
}

/// All arguments in one buffer.
fn buffers(c: &Case) {
    let module = set_up(c);
    let (two, empty) = (function(c, module, c"two"), empty(c, module));
    let mut ptr = alloc(c, 4096);
    let mut buffer = [0_u8; 64];
    buffer[..8].copy_from_slice(&ptr.to_ne_bytes());
    let from: *mut c_void = buffer.as_mut_ptr().cast();
    let key = ptr::without_provenance_mut::<c_void>;
    let (end, pointer, size) = (key(0), key(1), key(2));
    let extra = |function, list: &mut [*mut c_void], parameters| {
        let (stream, extra) = (CUstream::NULL, list.as_mut_ptr());
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, extra)
    };
    let none = ptr::null_mut();
    let mut len = 12_usize;
    let len_at: *mut c_void = (&raw mut len).cast();
    c.ok(
        "12 bytes",
        extra(two, &mut [pointer, from, size, len_at, end], none),
    );
    c.ok(
        "the size first",
        extra(two, &mut [size, len_at, pointer, from, end], none),
    );
    let want = Code::LAUNCH_OUT_OF_RESOURCES;
    c.expect(
        "12 of none",
        extra(empty, &mut [pointer, from, size, len_at, end], none),
        want,
    );
    for bytes in [13_usize, 16, 5000] {
        let mut len = bytes;
        let mut list = [pointer, from, size, (&raw mut len).cast(), end];
        c.expect(
            format_args!("{bytes} bytes"),
            extra(two, &mut list, none),
            want,
        );
    }
    let mut nothing = 0_usize;
    let mut list = [pointer, from, size, (&raw mut nothing).cast(), end];
    c.invalid("no bytes", extra(two, &mut list, none));
    c.invalid("no size", extra(two, &mut [pointer, from, end], none));
    c.invalid("no buffer", extra(two, &mut [size, len_at, end], none));
    c.invalid("an unknown key", extra(two, &mut [key(9), from, end], none));
    c.invalid("an empty list", extra(two, &mut [end], none));
    c.ok(
        "an empty list for no parameters",
        extra(empty, &mut [end], none),
    );
    let mut number = 5_u32;
    let mut list = [(&raw mut ptr).cast(), (&raw mut number).cast()];
    let parameters = list.as_mut_ptr();
    c.ok(
        "an empty list and arguments",
        extra(two, &mut [end], parameters),
    );
    let mut both = [pointer, from, size, len_at, end];
    c.invalid("both", extra(two, &mut both, parameters));
    c.ok("wait", cuCtxSynchronize());
}

/// A launch is on a stream of the function's context.
fn streams(c: &Case) {
    let module = set_up(c);
    let empty = empty(c, module);
    let own = stream(c, 0);
    let launch = |stream| {
        let none = ptr::null_mut();
        cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, none, ptr::null_mut())
    };
    c.ok("a stream", launch(own));
    c.ok("the legacy default stream", launch(CUstream::LEGACY));
    c.ok("the thread's own", launch(CUstream::PER_THREAD));
    c.ok("wait", cuCtxSynchronize());
}

fn launch_ex(
    function: CUfunction,
    grid: u32,
    block: u32,
    attributes: &mut [CUlaunchAttribute],
) -> CUresult {
    let config = CUlaunchConfig {
        gridDimX: grid,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: block,
        blockDimY: 1,
        blockDimZ: 1,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
        ..CUlaunchConfig::default()
    };
    cuLaunchKernelEx(&config, function, ptr::null_mut(), ptr::null_mut())
}

fn launch_attribute(id: u32, set: impl FnOnce(&mut CUlaunchAttribute)) -> [CUlaunchAttribute; 1] {
    // SAFETY: a plain C struct, for which zeros are a value.
    let mut attribute: CUlaunchAttribute = unsafe { std::mem::zeroed() };
    attribute.id = id;
    set(&mut attribute);
    [attribute]
}

/// A cluster divides the grid, and has at most 8 blocks, or 16 where the kernel allows it.
fn clusters(c: &Case) {
    let module = set_up(c);
    let empty = empty(c, module);
    let dimension = launch_attribute_id::CLUSTER_DIMENSION;
    for (grid, x, want) in [
        (2, 2, Code::SUCCESS),
        (16, 8, Code::SUCCESS),
        (1, 2, Code::INVALID_CLUSTER_SIZE),
        (16, 16, Code::INVALID_CLUSTER_SIZE),
        (2, 0, Code::INVALID_CLUSTER_SIZE),
    ] {
        let mut cluster = launch_attribute(dimension, |attribute| {
            attribute.value.clusterDim = CUstreamAttrValue_clusterDim { x, y: 1, z: 1 };
        });
        let result = launch_ex(empty, grid, 1, &mut cluster);
        c.expect(
            format_args!("clusters of {x} in a grid of {grid}"),
            result,
            want,
        );
    }
    let allowed = function_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
    c.ok("allow more", cuFuncSetAttribute(empty, allowed, 1));
    for (x, want) in [
        (12, Code::SUCCESS),
        (16, Code::SUCCESS),
        (32, Code::INVALID_CLUSTER_SIZE),
    ] {
        let mut cluster = launch_attribute(dimension, |attribute| {
            attribute.value.clusterDim = CUstreamAttrValue_clusterDim { x, y: 1, z: 1 };
        });
        let result = launch_ex(empty, 96, 1, &mut cluster);
        c.expect(format_args!("clusters of {x}, allowed"), result, want);
    }
    c.ok("no attribute", launch_ex(empty, 1, 1, &mut []));
    c.ok(
        "one to ignore",
        launch_ex(empty, 1, 1, &mut launch_attribute(0, |_| ())),
    );
    c.invalid(
        "an unknown one",
        launch_ex(empty, 1, 1, &mut launch_attribute(999, |_| ())),
    );
    let none = ptr::null_mut();
    c.invalid(
        "no config",
        cuLaunchKernelEx(ptr::null(), empty, none, ptr::null_mut()),
    );
    let result = launch_ex(CUfunction::NULL, 1, 1, &mut []);
    c.expect("no function", result, Code::INVALID_HANDLE);
    c.ok("wait", cuCtxSynchronize());
}

/// All blocks of a cooperative launch run at the same time.
fn cooperative(c: &Case) {
    let module = set_up(c);
    let empty = empty(c, module);
    let launch = |function, grid, block| {
        let (stream, none) = (CUstream::NULL, ptr::null_mut());
        cuLaunchCooperativeKernel(function, grid, 1, 1, block, 1, 1, 0, stream, none)
    };
    let (multiprocessors, blocks) = (132, 32);
    c.ok("one block", launch(empty, 1, 1));
    c.ok(
        "as many as there is room for",
        launch(empty, multiprocessors * blocks, 1),
    );
    let want = Code::COOPERATIVE_LAUNCH_TOO_LARGE;
    c.expect(
        "one more",
        launch(empty, multiprocessors * blocks + 1, 1),
        want,
    );
    c.expect("large blocks", launch(empty, 100_000, 1024), want);
    c.expect(
        "no function",
        launch(CUfunction::NULL, 1, 1),
        Code::INVALID_HANDLE,
    );
    let mut attribute = launch_attribute(launch_attribute_id::COOPERATIVE, |attribute| {
        attribute.value.cooperative = 1;
    });
    c.ok("as an attribute", launch_ex(empty, 1, 1, &mut attribute));
    c.expect(
        "too many",
        launch_ex(empty, 1_000_000, 1, &mut attribute),
        want,
    );
    c.ok("wait", cuCtxSynchronize());
}

/// A kernel of a library is launched by its own handle, in the current context.
fn kernels_of_libraries(c: &Case) {
    set_up(c);
    let text = std::ffi::CString::new(CODE).unwrap_or_default();
    let mut library = CUlibrary::NULL;
    let (null, values) = (ptr::null_mut(), ptr::null_mut());
    let (more, more_values) = (ptr::null_mut(), ptr::null_mut());
    let code = text.as_ptr().cast();
    let result = cuLibraryLoadData(&mut library, code, null, values, 0, more, more_values, 0);
    c.require("cuLibraryLoadData", result);
    let find = |name: &CStr| {
        let mut kernel = CUkernel::NULL;
        let result = cuLibraryGetKernel(&mut kernel, library, name.as_ptr());
        c.require("cuLibraryGetKernel", result);
        CUfunction(kernel.0)
    };
    let empty = find(c"empty");
    c.ok("launch", launch(empty, ONE, ONE, 0, ptr::null_mut()));
    c.ok("wait", cuCtxSynchronize());
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    let result = launch(empty, ONE, ONE, 0, ptr::null_mut());
    c.expect("without a context", result, Code::INVALID_CONTEXT);
}

/// A function is launched in its own context, also if none is current.
fn contexts(c: &Case) {
    let module = set_up(c);
    let empty = empty(c, module);
    let none = ptr::null_mut();
    create(c);
    let result = launch(empty, ONE, ONE, 0, none);
    c.expect("with another context", result, Code::INVALID_HANDLE);
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    c.ok("without a context", launch(empty, ONE, ONE, 0, none));
}

/// A function of a module that was unloaded cannot be launched.
fn unloaded(c: &Case) {
    let module = set_up(c);
    let empty = empty(c, module);
    c.ok("unload", cuModuleUnload(module));
    let result = launch(empty, ONE, ONE, 0, ptr::null_mut());
    c.expect("launch", result, Code::INVALID_HANDLE);
}
