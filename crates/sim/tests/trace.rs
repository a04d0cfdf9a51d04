//! `CUGUARD_SIM=trace` names what is not simulated. In child processes, whose stderr is read.

use crate::common::*;
use cuguard_sys::*;

/// Runs the test `name` in a process of its own with `CUGUARD_SIM` set, and returns the lines of the
/// simulation on stderr.
#[track_caller]
fn lines(name: &str, setting: Option<&str>) -> Vec<String> {
    let output = child_with(name, setting);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {stderr}", output.status);
    let lines = stderr
        .lines()
        .filter(|line| line.starts_with("cuguard-sim:"));
    lines.map(str::to_owned).collect()
}

/// Calls functions of graphics, which are not simulated, and asks for what no driver supports: to map
/// a part of a handle, an identifier of Windows, to free managed memory on a stream, tokens.
fn calls() {
    let resources = std::ptr::null_mut();
    let map = || cu::cuGraphicsMapResources(0, resources, CUstream::NULL);
    assert_eq!(map(), CUresult::NOT_INITIALIZED);
    context();
    for _ in 0..3 {
        assert_eq!(map(), CUresult::NOT_SUPPORTED);
    }
    let unmap = cu::cuGraphicsUnmapResources_ptsz(0, resources, CUstream::NULL);
    assert_eq!(unmap, CUresult::NOT_SUPPORTED);

    let mut property = CUmemAllocationProp {
        type_: mem_allocation_type::PINNED,
        ..Default::default()
    };
    property.location.type_ = mem_location_type::DEVICE;
    let (mut handle, mut address) = (0, 0);
    ok(cu::cuMemCreate(&mut handle, 4 * MIB, &property, 0));
    ok(cu::cuMemAddressReserve(&mut address, 4 * MIB, 0, 0, 0));
    for _ in 0..2 {
        let part = cu::cuMemMap(address, 2 * MIB, 0, handle, 0);
        assert_eq!(part, CUresult::NOT_SUPPORTED);
    }
    ok(cu::cuMemRelease(handle));

    let (mut luid, mut mask, mut managed, mut tokens) = ([0; 8], 0, 0, [0_u64; 2]);
    let result = cu::cuDeviceGetLuid(luid.as_mut_ptr(), &mut mask, 0);
    assert_eq!(result, CUresult::NOT_SUPPORTED);
    ok(cu::cuMemAllocManaged(&mut managed, 4096, 1));
    let result = cu::cuMemFreeAsync(managed, CUstream::NULL);
    assert_eq!(result, CUresult::NOT_SUPPORTED);
    let tokens = tokens.as_mut_ptr().cast();
    let result = cu::cuPointerGetAttribute(tokens, pointer_attribute::P2P_TOKENS, managed);
    assert_eq!(result, CUresult::NOT_SUPPORTED);
}

#[test]
fn each_function_that_is_not_simulated_names_itself_once() {
    let name = "each_function_that_is_not_simulated_names_itself_once";
    if is_child() {
        return calls();
    }
    let expected = [
        "cuguard-sim: cuGraphicsMapResources is not simulated: CUDA_ERROR_NOT_SUPPORTED",
        "cuguard-sim: cuGraphicsUnmapResources_ptsz is not simulated: CUDA_ERROR_NOT_SUPPORTED",
    ];
    assert_eq!(lines(name, Some("trace")), expected);
    assert_eq!(lines(name, Some("devices=2,trace")), expected);
}

#[test]
fn without_the_setting_nothing_is_printed() {
    let name = "without_the_setting_nothing_is_printed";
    if is_child() {
        return calls();
    }
    assert_eq!(lines(name, None), [""; 0]);
    assert_eq!(lines(name, Some("devices=2")), [""; 0]);
}

#[test]
fn a_program_switches_it_on_too() {
    let name = "a_program_switches_it_on_too";
    if is_child() {
        let config = cuguard_sim::Config::new().trace(true);
        cuguard_sim::configure(config).unwrap();
        return calls();
    }
    assert_eq!(lines(name, None).len(), 2);
}
