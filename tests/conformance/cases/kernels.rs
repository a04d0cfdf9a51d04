//! Kernels that run.

use std::ffi::{CStr, CString};
use std::time::Instant;

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"kernels":
    old_ptx_loads,
    modules,
    unload_twice,
    fill_and_check,
    saxpy,
    spin,
    device_heap,
}

const PATTERN: &str = include_str!("../../../kernels/pattern.ptx");
const SAXPY: &str = include_str!("../../../kernels/saxpy.ptx");
pub(crate) const SPIN: &str = include_str!("../../../kernels/spin.ptx");
pub(crate) const FAULT: &str = include_str!("../../../kernels/fault.ptx");
const HEAP: &str = include_str!("../../../kernels/heap.ptx");

/// The result of loading a module.
pub(crate) fn load_result(module: &mut CUmodule, ptx: &str) -> CUresult {
    let text = CString::new(ptx).unwrap_or_default();
    cuModuleLoadData(module, text.as_ptr().cast())
}

/// Loads a module.
pub(crate) fn load(c: &Case, ptx: &str) -> CUmodule {
    let mut module = CUmodule::NULL;
    c.require("cuModuleLoadData", load_result(&mut module, ptx));
    module
}

/// Finds a kernel in a module.
pub(crate) fn function(c: &Case, module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = CUfunction::NULL;
    let result = cuModuleGetFunction(&mut function, module, name.as_ptr());
    c.require("cuModuleGetFunction", result);
    function
}

/// Launches a kernel on the default stream. Each argument is the address of a value.
pub(crate) fn launch(
    function: CUfunction,
    blocks: u32,
    threads: u32,
    arguments: &mut [*mut c_void],
) -> CUresult {
    let (none, list) = (std::ptr::null_mut(), arguments.as_mut_ptr());
    cuLaunchKernel(
        function,
        blocks,
        1,
        1,
        threads,
        1,
        1,
        0,
        CUstream::NULL,
        list,
        none,
    )
}

fn number(c: &Case, ptr: CUdeviceptr) -> u64 {
    let bytes = read(c, ptr, 8);
    u64::from_le_bytes(bytes.try_into().unwrap_or_default())
}

/// Row: PTX of version 6.4 for sm_52 loads and runs.
fn old_ptx_loads(c: &Case) {
    for (name, ptx) in [
        ("pattern", PATTERN),
        ("saxpy", SAXPY),
        ("spin", SPIN),
        ("heap", HEAP),
        ("fault", FAULT),
    ] {
        c.yes(
            format_args!("{name} is of version 6.4"),
            ptx.starts_with(".version 6.4\n"),
        );
        c.yes(
            format_args!("{name} is for sm_52"),
            ptx.contains(".target sm_52\n"),
        );
        primary(c);
        let module = load(c, ptx);
        c.ok(format_args!("unload {name}"), cuModuleUnload(module));
    }
}

/// A module is PTX or a binary; what it holds is found by name.
fn modules(c: &Case) {
    primary(c);
    let mut module = CUmodule::NULL;
    c.expect(
        "load nonsense",
        load_result(&mut module, "nonsense"),
        Code::INVALID_IMAGE,
    );
    c.invalid("load null", cuModuleLoadData(&mut module, std::ptr::null()));
    let module = load(c, PATTERN);
    let (mut function, mut ptr, mut bytes) = (CUfunction::NULL, 0, 0);
    let result = cuModuleGetFunction(&mut function, module, c"nope".as_ptr());
    c.expect("a kernel that is not there", result, Code::NOT_FOUND);
    let result = cuModuleGetFunction(&mut function, module, c"fill_pattern".as_ptr());
    c.ok("a kernel that is there", result);
    let result = cuModuleGetGlobal_v2(&mut ptr, &mut bytes, module, c"nope".as_ptr());
    c.expect("a variable that is not there", result, Code::NOT_FOUND);
    c.ok("unload", cuModuleUnload(module));
}

/// To unload a module twice is INVALID_HANDLE.
fn unload_twice(c: &Case) {
    primary(c);
    let module = load(c, SPIN);
    c.ok("unload", cuModuleUnload(module));
    c.expect("unload again", cuModuleUnload(module), Code::INVALID_HANDLE);
}

/// A pattern that a kernel wrote is what the host computes, and another kernel finds it right.
fn fill_and_check(c: &Case) {
    primary(c);
    let module = load(c, PATTERN);
    let (fill, check) = (
        function(c, module, c"fill_pattern"),
        function(c, module, c"check_pattern"),
    );
    let (mut words, mut mismatches) = (alloc(c, 4 << 20), alloc(c, 8));
    let (mut count, mut seed) = (1_u64 << 20, 0x1234_5678_u32);
    c.require("fill", cuMemsetD8_v2(mismatches, 0, 8));
    let words_argument = (&raw mut words).cast();
    let count_argument = (&raw mut count).cast();
    let seed_argument = (&raw mut seed).cast();
    let mut arguments = [words_argument, count_argument, seed_argument];
    c.ok("fill", launch(fill, 64, 256, &mut arguments));
    let written = read(c, words, 4 << 20);
    let right = written.chunks(4).enumerate().all(|(index, bytes)| {
        let want = (index as u32).wrapping_mul(2_654_435_761) ^ seed;
        bytes == want.to_le_bytes()
    });
    c.yes("every word is the pattern's", right);
    let counter = (&raw mut mismatches).cast();
    let mut arguments = [words_argument, count_argument, seed_argument, counter];
    c.ok("check", launch(check, 64, 256, &mut arguments));
    c.same("mismatches", number(c, mismatches), 0);
    c.require("damage", cuMemsetD8_v2(words + 4000, 0xee, 12));
    c.ok("check again", launch(check, 64, 256, &mut arguments));
    c.same("mismatches then", number(c, mismatches), 3);
}

/// y = a x + y for a million numbers.
fn saxpy(c: &Case) {
    primary(c);
    let module = load(c, SAXPY);
    let saxpy = function(c, module, c"saxpy");
    let numbers: Vec<u8> = (0..1 << 20)
        .flat_map(|i| (i as f32).to_le_bytes())
        .collect();
    let (mut x, mut y) = (alloc(c, numbers.len()), alloc(c, numbers.len()));
    write(c, x, &numbers);
    write(c, y, &numbers);
    let (mut factor, mut count) = (3.0_f32, 1_u64 << 20);
    let mut arguments = [
        (&raw mut factor).cast(),
        (&raw mut x).cast(),
        (&raw mut y).cast(),
        (&raw mut count).cast(),
    ];
    c.ok("launch", launch(saxpy, 64, 256, &mut arguments));
    let result = read(c, y, numbers.len());
    let right = result
        .chunks(4)
        .enumerate()
        .all(|(index, bytes)| bytes == (index as f32 * 4.0).to_le_bytes());
    c.yes("every number is right", right);
}

/// A kernel runs on while the host goes on, and a wait waits for it.
fn spin(c: &Case) {
    primary(c);
    let module = load(c, SPIN);
    let spin = function(c, module, c"spin");
    let mut nanoseconds = 300_000_000_u64;
    let begin = Instant::now();
    c.ok(
        "launch",
        launch(spin, 1, 1, &mut [(&raw mut nanoseconds).cast()]),
    );
    c.expect(
        "query at once",
        cuStreamQuery(CUstream::NULL),
        Code::NOT_READY,
    );
    c.yes("the launch did not wait", begin.elapsed().as_millis() < 250);
    c.ok("wait", cuCtxSynchronize());
    c.yes("that took 300 ms", begin.elapsed().as_millis() >= 290);
}

/// A kernel allocates from the device heap; what does not fit gets no memory, and no error.
fn device_heap(c: &Case) {
    primary(c);
    c.ok(
        "heap of 32 MiB",
        cuCtxSetLimit(limit::MALLOC_HEAP_SIZE, 32 * MIB),
    );
    let module = load(c, HEAP);
    let allocate = function(c, module, c"heap_allocate");
    let (mut granted, mut refused) = (alloc(c, 8), alloc(c, 8));
    let mut run = |c: &Case, threads: u32, mut bytes: u64, mut keep: u32| {
        c.require("fill", cuMemsetD8_v2(granted, 0, 8));
        c.require("fill", cuMemsetD8_v2(refused, 0, 8));
        let mut arguments = [
            (&raw mut bytes).cast(),
            (&raw mut keep).cast(),
            (&raw mut granted).cast(),
            (&raw mut refused).cast(),
        ];
        c.require("launch", launch(allocate, 1, threads, &mut arguments));
        synchronize(c);
        (number(c, granted), number(c, refused))
    };
    c.same(
        "32 threads ask for 1000 bytes",
        run(c, 32, 1000, 0),
        (32, 0),
    );
    c.same("one thread asks for 1 GiB", run(c, 1, 1 << 30, 0), (0, 1));
    let (first, _) = run(c, 8, 8 << 20, 1);
    c.yes("of 8 threads that keep 8 MiB some get it", first >= 1);
    c.yes("and some do not", first < 8);
    c.ok("nothing is broken", cuCtxSynchronize());
}
