//! Kernels that fail: the code of a real device, and a line that names the place. In child processes, since an error is
//! sticky.

use std::ffi::CStr;
use std::process::Output;

use crate::common::kernels::*;
use crate::common::*;
use cuguard_sys::*;

/// The lines of the simulation on stderr.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = text.lines().filter(|line| line.starts_with("cuguard-sim:"));
    lines.map(str::to_owned).collect()
}

/// The line in the text of the kernels that contains `code`, counted from 1.
fn line_of(code: &str) -> usize {
    let at = KERNELS.lines().position(|line| line.contains(code));
    at.unwrap() + 1
}

/// Runs a kernel, which must fail with a sticky error.
fn fails(kernel: &CStr, threads: u32, argument: u64, code: CUresult) {
    let mut argument = argument;
    let kernel = function(load(KERNELS), kernel);
    launch(
        kernel,
        [1, threads],
        CUstream::NULL,
        &mut [arg(&mut argument)],
    );
    assert_eq!(cu::cuCtxSynchronize(), code);
    assert_eq!(cu::cuCtxSynchronize(), code);
    let mut ptr = 0;
    assert_eq!(cu::cuMemAlloc_v2(&mut ptr, 16), code);
}

#[test]
fn each_fault_has_the_code_of_a_device_and_its_place() {
    const NAME: &str = "each_fault_has_the_code_of_a_device_and_its_place";
    let cases: [(&str, CUresult, String); 5] = [
        (
            "trap",
            CUresult::LAUNCH_FAILED,
            format!(
                "kernel stop: trap; block (0, 0, 0), thread (3, 0, 0), PTX line {}: CUDA_ERROR_LAUNCH_FAILED",
                line_of("trap;")
            ),
        ),
        (
            "assert",
            CUresult::ASSERT,
            format!(
                "kernel check: x > 0:12: x > 0: assertion `x > 0` failed; block (0, 0, 0), thread (0, 0, 0), PTX line {}: \
                 CUDA_ERROR_ASSERT",
                line_of("call.uni __assertfail")
            ),
        ),
        (
            "misaligned",
            CUresult::MISALIGNED_ADDRESS,
            format!(
                "which is not aligned; block (0, 0, 0), thread (0, 0, 0), PTX line {}: CUDA_ERROR_MISALIGNED_ADDRESS",
                line_of("[%d0+2]")
            ),
        ),
        (
            "null",
            CUresult::ILLEGAL_ADDRESS,
            format!(
                "kernel store: write of 4 bytes at global address 0x0, out of bounds; block (0, 0, 0), thread (0, 0, 0), \
                 PTX line {}: CUDA_ERROR_ILLEGAL_ADDRESS",
                line_of("st.global.u32 [%d0], %r3;")
            ),
        ),
        (
            "forever",
            CUresult::LAUNCH_TIMEOUT,
            "kernel forever: more than 5000 instructions; block (0, 0, 0), thread (0, 0, 0)"
                .to_owned(),
        ),
    ];
    if is_child() {
        context();
        let case = std::env::var("CASE").unwrap();
        let code = cases.iter().find(|own| own.0 == case).unwrap().1;
        match &*case {
            "trap" => fails(c"stop", 32, 0, code),
            "assert" => fails(c"check", 32, 0, code),
            "misaligned" => fails(c"misaligned", 1, alloc(64), code),
            "forever" => fails(c"forever", 1, 0, code),
            _ => {
                let store = function(load(KERNELS), c"store");
                let arguments = &mut [arg(&mut 0_u64), arg(&mut 1_u32)];
                launch(store, [1, 1], CUstream::NULL, arguments);
                assert_eq!(cu::cuCtxSynchronize(), code);
            }
        }
        return;
    }
    for (case, _, line) in cases {
        let mut command = child_command(NAME);
        command.env("CASE", case).env("CUGUARD_SIM", "steps=5000");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{case}: {output:?}");
        let lines = lines(&output);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(&line), "{case}: {lines:?}");
    }
}

/// What the kernel `chase` writes to.
fn bad_address(case: &str) -> u64 {
    match case {
        "freed" => {
            let ptr = alloc(1000);
            ok(cu::cuMemFree_v2(ptr));
            ptr + 40
        }
        "freed on the stream" => {
            let stream = CUstream::LEGACY;
            let ptr = alloc_async(1000, stream);
            ok(cu::cuMemFreeAsync(ptr, stream));
            ptr
        }
        "after the end" => alloc(1000) + 1000 + 16,
        "across the end" => alloc(1002) + 1000,
        "pinned" => {
            let ptr = pinned(4096);
            ok(cu::cuMemFreeHost(ptr));
            ptr.addr() as u64
        }
        _ => unreachable!("{case}"),
    }
}

/// A real device may not notice these.
#[test]
fn accesses_beside_and_behind_the_life_of_memory_are_misuse() {
    const NAME: &str = "accesses_beside_and_behind_the_life_of_memory_are_misuse";
    let cases = [
        ("freed", ["in memory at 0x", " that was freed"]),
        (
            "freed on the stream",
            ["in memory at 0x", " that was freed"],
        ),
        (
            "after the end",
            [
                "16 bytes after the end of the allocation of 1000 bytes at 0x",
                "",
            ],
        ),
        (
            "across the end",
            ["across the end of the allocation of 1002 bytes at 0x", ""],
        ),
        ("pinned", ["in host memory at 0x", " that was freed"]),
    ];
    if is_child() {
        context();
        let case = std::env::var("CASE").unwrap();
        let mut place = alloc(8);
        // Not an argument, which the launch itself would check.
        let mut address = bad_address(&case);
        ok(cu::cuMemcpyHtoD_v2(place, arg(&mut address), 8));
        let chase = function(load(KERNELS), c"chase");
        launch(chase, [1, 1], CUstream::NULL, &mut [arg(&mut place)]);
        assert_eq!(cu::cuCtxSynchronize(), CUresult::ILLEGAL_ADDRESS);
        let misuses = cuguard_sim::misuses();
        assert_eq!(misuses.len(), 1, "{misuses:?}");
        println!("misuse: {}", misuses[0]);
        return;
    }
    for (case, words) in cases {
        let run = |setting: &str| {
            let mut command = child_command(NAME);
            command.env("CASE", case).env("CUGUARD_SIM", setting);
            command.output().unwrap()
        };
        let output = run("misuse=error");
        assert!(output.status.success(), "{case}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text
            .lines()
            .find_map(|line| Some(line.split_once("misuse: ")?.1));
        let line = line.unwrap_or_default().to_owned();
        let start = "kernel chase: write of 4 bytes at global address 0x";
        assert!(line.starts_with(start), "{case}: {line}");
        for word in words {
            assert!(line.contains(word), "{case}: {line}");
        }
        let output = run("misuse=abort");
        assert!(!output.status.success(), "{case}");
        assert!(lines(&output)[0].contains(words[0]), "{case}: {output:?}");
    }
}

/// Neighbors are in no danger: a kernel that writes past its memory changes nothing else.
#[test]
fn a_stray_write_changes_nothing() {
    const NAME: &str = "a_stray_write_changes_nothing";
    if is_child() {
        context();
        let (mut first, second) = (alloc(512), alloc(512));
        assert_eq!(second, first + 512);
        ok(cu::cuMemsetD8_v2(second, 1, 512));
        let store = function(load(KERNELS), c"store");
        // 129 words.
        let arguments = &mut [arg(&mut first), arg(&mut 0_u32)];
        launch(store, [1, 128], CUstream::NULL, arguments);
        ok(cu::cuCtxSynchronize());
        assert_eq!(read::<u8>(second, 512), [1; 512]);
        return;
    }
    lives(NAME);
}

#[test]
fn an_instruction_that_is_not_supported_is_in_the_log() {
    let _turn = turn();
    context();
    let ptx = text(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {\nwgmma.fence.sync.aligned;\nret;\n}\n",
    );
    let mut log = [0_u8; 500];
    let mut options = [
        jit_option::ERROR_LOG_BUFFER,
        jit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values = [
        log.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(500),
    ];
    let mut module = CUmodule::NULL;
    let code = ptx.as_ptr().cast();
    let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
    let result = cu::cuModuleLoadDataEx(&mut module, code, 2, options, values);
    assert_eq!(result, CUresult::INVALID_PTX);
    let text = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert!(
        text.contains("line 5; error   : wgmma.fence.sync.aligned: not supported"),
        "{text}"
    );
    release();
}
