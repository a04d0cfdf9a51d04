//! Launches that are refused, and those that are checked and skipped with `kernels=skip`. In child processes, whose stderr
//! is read.

use std::ffi::{CString, c_void};
use std::process::Output;
use std::ptr;

use crate::common::*;
use cuguard_sys::*;

const CODE: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .entry two(.param .u64 p, .param .f64 x) { ret; }
.visible .entry shape(.param .u64 p, .param .align 8 .b8 shape[8]) { ret; }
.visible .entry empty() { ret; }
";

/// Loads the module and finds its kernel, in a context.
fn kernel() -> (CUmodule, CUfunction) {
    context();
    let text = CString::new(CODE).unwrap();
    let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
    ok(cu::cuModuleLoadData(&mut module, text.as_ptr().cast()));
    let name = c"two".as_ptr();
    ok(cu::cuModuleGetFunction(&mut function, module, name));
    (module, function)
}

fn launch(function: CUfunction, mut ptr: CUdeviceptr, stream: CUstream) -> CUresult {
    // As a number it is in the range of simulated addresses.
    let mut number = 1.0_f64;
    let mut list: [*mut c_void; 2] = [(&raw mut ptr).cast(), (&raw mut number).cast()];
    let extra = ptr::null_mut();
    cu::cuLaunchKernel(
        function,
        1,
        1,
        1,
        1,
        1,
        1,
        0,
        stream,
        list.as_mut_ptr(),
        extra,
    )
}

/// The lines of the simulation on stderr.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = text.lines().filter(|line| line.starts_with("cuguard-sim:"));
    lines.map(str::to_owned).collect()
}

const SKIPPED: &str =
    "cuguard-sim: kernels=skip: kernel launches are checked and skipped; kernels do not run";

/// Code of a real device alone.
const COMPILED: &[u8] = include_bytes!("data/linked.cubin");
const REFUSED: &str = "launches kernels of PTX, and this one is compiled (CUGUARD_SIM=kernels=skip checks and skips \
                       launches): CUDA_ERROR_NOT_SUPPORTED";

fn compiled_kernel() -> CUfunction {
    context();
    let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
    ok(cu::cuModuleLoadData(&mut module, COMPILED.as_ptr().cast()));
    let name = c"empty".as_ptr();
    ok(cu::cuModuleGetFunction(&mut function, module, name));
    function
}

#[test]
fn a_launch_of_compiled_code_is_refused() {
    const NAME: &str = "a_launch_of_compiled_code_is_refused";
    if is_child() {
        let (function, none) = (compiled_kernel(), ptr::null_mut());
        let stream = CUstream::NULL;
        let result = cu::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none);
        assert_eq!(result, CUresult::NOT_SUPPORTED);
        return;
    }
    let output = child_with(NAME, Some("trace"));
    assert!(output.status.success());
    let line = format!("cuguard-sim: cuLaunchKernel {REFUSED}");
    assert_eq!(lines(&output), [line]);
}

#[test]
fn a_launch_that_no_driver_accepts_is_invalid_by_default() {
    const NAME: &str = "a_launch_that_no_driver_accepts_is_invalid_by_default";
    if is_child() {
        let (_, function) = kernel();
        let (none, all) = (ptr::null_mut(), ptr::null_mut());
        let stream = CUstream::NULL;
        let result = cu::cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, stream, none, all);
        assert_eq!(result, CUresult::INVALID_VALUE);
        return;
    }
    let output = child_with(NAME, Some("trace"));
    assert!(output.status.success(), "{output:?}");
    let line = "cuguard-sim: cuLaunchKernel: the block has 1025 threads, the limit is 1024";
    assert_eq!(lines(&output), [line]);
    let output = child_with(NAME, Some("memory=1GiB"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines(&output), [""; 0]);
}

/// A result code alone does not name what is wrong.
#[test]
fn what_is_wrong_with_a_launch_is_printed_once() {
    const NAME: &str = "what_is_wrong_with_a_launch_is_printed_once";
    if is_child() {
        let (_, function) = kernel();
        let (mut ptr, mut number) = (alloc(16), 1.0_f64);
        let list: [*mut c_void; 2] = [(&raw mut ptr).cast(), (&raw mut number).cast()];
        let none = ptr::null_mut();
        let launch = |grid, block: [u32; 3], shared, mut list: [*mut c_void; 2]| {
            let ([x, y, z], list) = (block, list.as_mut_ptr());
            let stream = CUstream::NULL;
            cu::cuLaunchKernel(function, grid, 1, 1, x, y, z, shared, stream, list, none)
        };
        let invalid = CUresult::INVALID_VALUE;
        for _ in 0..2 {
            assert_eq!(launch(1, [64, 64, 1], 0, list), invalid);
            assert_eq!(launch(0, [1, 1, 1], 0, list), invalid);
            assert_eq!(launch(1, [1, 1, 65], 0, list), invalid);
            assert_eq!(launch(1, [1, 1, 1], 50_000, list), invalid);
            assert_eq!(launch(1, [1, 1, 1], 0, [list[0], none.cast()]), invalid);
        }
        let stream = CUstream::NULL;
        let result = cu::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none);
        assert_eq!(result, invalid);
        return;
    }
    let output = child_with(NAME, Some("kernels=skip"));
    assert!(output.status.success(), "{output:?}");
    let expected = [
        "the block has 4096 threads, the limit is 1024",
        "the grid is 0 x 1 x 1, each dimension must be at least 1, the limits are 2147483647 x 65535 x 65535",
        "the block is 1 x 1 x 65, each dimension must be at least 1, the limits are 1024 x 1024 x 64",
        "the launch has 50000 bytes of dynamic shared memory, the limit is 49152",
        "the pointer to argument 2 of the kernel two is null",
        "the launch has no arguments, the kernel two has 2 parameters",
    ]
    .map(|why| format!("cuguard-sim: cuLaunchKernel: {why}"));
    assert_eq!(lines(&output), expected);
}

/// Sets the arguments of the kernel as in CUDA 2.0.
fn set_arguments(function: CUfunction, mut ptr: CUdeviceptr) {
    ok(cu::cuFuncSetBlockShape(function, 32, 2, 1));
    ok(cu::cuParamSetv(function, 0, (&raw mut ptr).cast(), 8));
    ok(cu::cuParamSeti(function, 8, 0));
    ok(cu::cuParamSetf(function, 12, 1.0));
    ok(cu::cuParamSetSize(function, 16));
}

#[test]
fn old_launches_of_compiled_code_are_refused() {
    const NAME: &str = "old_launches_of_compiled_code_are_refused";
    if is_child() {
        let function = compiled_kernel();
        assert_eq!(cu::cuLaunch(function), CUresult::NOT_SUPPORTED);
        assert_eq!(cu::cuLaunchGrid(function, 2, 2), CUresult::NOT_SUPPORTED);
        return;
    }
    let output = child_with(NAME, Some("trace"));
    assert!(output.status.success(), "{output:?}");
    let expected =
        ["cuLaunch", "cuLaunchGrid"].map(|name| format!("cuguard-sim: {name} {REFUSED}"));
    assert_eq!(lines(&output), expected);
}

#[test]
fn old_launches_use_what_was_set_before() {
    const NAME: &str = "old_launches_use_what_was_set_before";
    if is_child() {
        let (_, function) = kernel();
        let ptr = alloc(16 * MIB);
        set_arguments(function, ptr);
        ok(cu::cuLaunch(function));
        ok(cu::cuLaunchGrid(function, 3, 2));
        ok(cu::cuLaunchGridAsync(function, 1, 1, CUstream::NULL));
        ok(cu::cuFuncSetSharedSize(function, 49_152));
        ok(cu::cuLaunch(function));
        ok(cu::cuCtxSynchronize());
        ok(cu::cuMemFree_v2(ptr));
        // The address of the first argument is still set.
        let _ = cu::cuLaunch(function);
        return;
    }
    let output = child_with(NAME, Some("kernels=skip"));
    assert!(!output.status.success());
    let lines = lines(&output);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], SKIPPED);
    assert!(
        lines[1].contains("argument 1 of the kernel two"),
        "{lines:?}"
    );
}

#[test]
fn skipped_launches_are_announced_once() {
    const NAME: &str = "skipped_launches_are_announced_once";
    if is_child() {
        let (module, function) = kernel();
        let ptr = alloc(1000);
        for address in [ptr, ptr + 500, ptr + 1000, 0, 77] {
            ok(launch(function, address, CUstream::NULL));
        }
        ok(cu::cuCtxSynchronize());
        assert_eq!(cuguard_sim::counters().modules, 1);
        ok(cu::cuMemFree_v2(ptr));
        ok(cu::cuModuleUnload(module));
        assert_eq!(cuguard_sim::counters().modules, 0);
        assert_eq!(cuguard_sim::counters().device.count, 0);
        return;
    }
    let output = child_with(NAME, Some("kernels=skip"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines(&output), [SKIPPED]);
}

#[test]
fn an_argument_in_freed_memory_is_misuse() {
    const NAME: &str = "an_argument_in_freed_memory_is_misuse";
    if is_child() {
        let (_, function) = kernel();
        let ptr = alloc(16 * MIB);
        ok(cu::cuMemFree_v2(ptr));
        let _ = launch(function, ptr + 100, CUstream::NULL);
        return;
    }
    let output = child_with(NAME, Some("kernels=skip"));
    assert!(!output.status.success());
    let lines = lines(&output);
    let line = &lines[0];
    assert!(
        line.starts_with(
            "cuguard-sim: misuse in cuLaunchKernel: argument 1 of the kernel two is 0x"
        ) && line.ends_with(", in memory that was freed"),
        "{line}"
    );
}

/// A struct of two numbers that, as one, would be an address near that of freed memory.
#[test]
fn numbers_are_not_addresses() {
    const NAME: &str = "numbers_are_not_addresses";
    if is_child() {
        let (module, two) = kernel();
        let mut function = CUfunction::NULL;
        let name = c"shape".as_ptr();
        ok(cu::cuModuleGetFunction(&mut function, module, name));
        let freed = alloc(1000);
        ok(cu::cuMemFree_v2(freed));
        // No memory has been there, in the page of the freed memory.
        ok(launch(two, freed + 4096, CUstream::NULL));
        assert_ne!(freed >> 32, 131_072);
        let mut memory = alloc(5000);
        for mut number in [freed, 131_072 << 32 | 4096] {
            let mut list = [(&raw mut memory).cast(), (&raw mut number).cast()];
            let (stream, list, none) = (CUstream::NULL, list.as_mut_ptr(), ptr::null_mut());
            let result = cu::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none);
            ok(result);
        }
        return;
    }
    let output = child_with(NAME, Some("kernels=skip"));
    assert!(output.status.success(), "{output:?}");
}

/// Freed memory that follows live memory.
#[test]
fn the_start_of_freed_memory_is_not_the_end_of_other_memory() {
    const NAME: &str = "the_start_of_freed_memory_is_not_the_end_of_other_memory";
    if is_child() {
        let (_, function) = kernel();
        let default = CUstream::NULL;
        for size in [512, 2 * MIB] {
            let blocks = [alloc(size), alloc(size), alloc(size)];
            assert_eq!(blocks[1], blocks[0] + size as u64);
            // The end of live memory, where other live memory starts, and where nothing is known.
            ok(launch(function, blocks[2] + size as u64, default));
            ok(cu::cuMemFree_v2(blocks[1]));
            let result = launch(function, blocks[1], default);
            assert_eq!(result, CUresult::INVALID_VALUE, "{size}");
        }
        // The same for stream-ordered memory.
        let stream = stream();
        let blocks = [alloc_async(4096, stream), alloc_async(4096, stream)];
        ok(cu::cuMemFreeAsync(blocks[1], stream));
        ok(cu::cuStreamSynchronize(stream));
        let result = launch(function, blocks[1], stream);
        assert_eq!(result, CUresult::INVALID_VALUE);
        // Part of a block that was freed is allocated again. Its end is the start of no freed memory.
        let freed = alloc(16 * MIB);
        ok(cu::cuMemFree_v2(freed));
        let part = alloc(4 * MIB);
        assert_eq!(part, freed);
        ok(launch(function, part + 4 * MIB as u64, default));
        let result = launch(function, freed + 5 * MIB as u64, default);
        assert_eq!(result, CUresult::INVALID_VALUE);
        assert_eq!(cuguard_sim::misuses().len(), 4);
        return;
    }
    let output = child_with(NAME, Some("kernels=skip,misuse=error"));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_buffer_that_is_too_short_is_misuse() {
    const NAME: &str = "a_buffer_that_is_too_short_is_misuse";
    if is_child() {
        let (_, function) = kernel();
        let (mut buffer, mut len) = ([0_u64; 2], 8_usize);
        let key = ptr::without_provenance_mut::<c_void>;
        let buffer = buffer.as_mut_ptr().cast();
        let mut extra = [key(1), buffer, key(2), (&raw mut len).cast(), key(0)];
        let (stream, list) = (CUstream::NULL, ptr::null_mut());
        let _ = cu::cuLaunchKernel(
            function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream,
            list,
            extra.as_mut_ptr(),
        );
        return;
    }
    let output = child_with(NAME, Some("kernels=skip"));
    assert!(!output.status.success());
    let line = "cuguard-sim: misuse in cuLaunchKernel: \
                the argument buffer of the kernel two has 8 bytes, its parameters have 16";
    assert_eq!(lines(&output), [line]);
}

/// As pycuda launches it.
#[test]
fn a_kernel_without_parameters_may_have_an_empty_buffer() {
    const NAME: &str = "a_kernel_without_parameters_may_have_an_empty_buffer";
    if is_child() {
        let (module, two) = kernel();
        let mut empty = CUfunction::NULL;
        ok(cu::cuModuleGetFunction(
            &mut empty,
            module,
            c"empty".as_ptr(),
        ));
        let (mut bytes, mut size) = ([0_u8; 1], 0_usize);
        let key = ptr::without_provenance_mut;
        let mut list: [*mut c_void; 5] = [
            key(1),
            bytes.as_mut_ptr().cast(),
            key(2),
            (&raw mut size).cast(),
            key(0),
        ];
        let stream = CUstream::NULL;
        let mut launch = |function| {
            let none = ptr::null_mut();
            cu::cuLaunchKernel(
                function,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                none,
                list.as_mut_ptr(),
            )
        };
        ok(launch(empty));
        assert_eq!(launch(two), CUresult::INVALID_VALUE);
        return;
    }
    let output = child_with(NAME, Some("kernels=skip"));
    assert!(output.status.success(), "{output:?}");
}

/// A launch waits for what is before it on its stream, and its memory is in use until then.
#[test]
fn a_launch_has_its_position_on_the_stream() {
    const NAME: &str = "a_launch_has_its_position_on_the_stream";
    if is_child() {
        let (_, function) = kernel();
        let (one, two) = (stream(), stream());
        let ptr = alloc_async(1000, two);
        ok(cu::cuStreamSynchronize(two));
        let gate = Gate::close(one);
        ok(launch(function, ptr, one));
        assert_eq!(cu::cuStreamQuery(one), CUresult::NOT_READY);
        if std::env::var_os("CUGUARD_SIM").is_some_and(|text| text == "kernels=skip") {
            gate.open();
            ok(cu::cuStreamSynchronize(one));
        }
        ok(cu::cuMemFreeAsync(ptr, two));
        let result = cu::cuStreamSynchronize(two);
        gate.open();
        assert_eq!(result, CUresult::SUCCESS);
        let misuses = cuguard_sim::misuses();
        assert_eq!(misuses.len(), cuguard_sim::counters().misuses);
        println!("misuses: {misuses:?}");
        return;
    }
    let output = child_with(NAME, Some("kernels=skip"));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("misuses: []"), "{text}");
    let output = child_with(NAME, Some("kernels=skip,misuse=error"));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("freed on a stream while work that uses it is in flight"),
        "{text}"
    );
}
