//! The sticky error that a failed kernel leaves.

use std::ffi::CStr;

use super::kernel_results::TEXT;
use super::kernels::{function, launch, load};
use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"kernel_faults":
    trap,
    breakpoint,
    assertion,
    misaligned,
    null,
    far_away,
    shared_misaligned,
    shared_out_of_bounds,
    bad_call,
    bad_free,
    unsupported_instruction,
    undefined_function,
}

/// Runs a kernel, which fails with this error at the next synchronization and at every one after it.
fn fails(c: &Case, kernel: &CStr, argument: u64, want: Code) {
    let kernel = function(c, load(c, TEXT), kernel);
    let mut argument = argument;
    // `store` has a second parameter.
    let mut value = 1_u32;
    let mut list = [(&raw mut argument).cast(), (&raw mut value).cast()];
    c.ok("the launch itself", launch(kernel, 1, 32, &mut list));
    c.expect("the first synchronise", cuCtxSynchronize(), want);
    c.expect("the second synchronise", cuCtxSynchronize(), want);
    let mut ptr = 0;
    c.expect("cuMemAlloc", cuMemAlloc_v2(&mut ptr, 16), want);
}

fn trap(c: &Case) {
    primary(c);
    fails(c, c"stop", 0, Code::LAUNCH_FAILED);
}

fn breakpoint(c: &Case) {
    primary(c);
    fails(c, c"breakpoint", 0, Code::LAUNCH_FAILED);
}

fn assertion(c: &Case) {
    primary(c);
    fails(c, c"check", 0, Code::ASSERT);
}

fn misaligned(c: &Case) {
    primary(c);
    let ptr = alloc(c, 64);
    fails(c, c"misaligned", ptr, Code::MISALIGNED_ADDRESS);
}

fn null(c: &Case) {
    primary(c);
    fails(c, c"store", 0, Code::ILLEGAL_ADDRESS);
}

/// Nothing is mapped there.
fn far_away(c: &Case) {
    primary(c);
    let ptr = alloc(c, 4096);
    fails(c, c"store", ptr + (1 << 34), Code::ILLEGAL_ADDRESS);
}

fn shared_misaligned(c: &Case) {
    primary(c);
    fails(c, c"store_shared", 2, Code::MISALIGNED_ADDRESS);
}

fn shared_out_of_bounds(c: &Case) {
    primary(c);
    fails(c, c"store_shared", 64 << 10, Code::ILLEGAL_ADDRESS);
}

fn bad_call(c: &Case) {
    primary(c);
    fails(c, c"call_address", 0x12_3450, Code::ILLEGAL_INSTRUCTION);
}

/// `free` of what `malloc` did not return.
fn bad_free(c: &Case) {
    primary(c);
    let ptr = alloc(c, 4096);
    fails(c, c"free_address", ptr, Code::ILLEGAL_ADDRESS);
}

const HEADER: &str = ".version 7.0\n.target sm_70\n.address_size 64\n";

/// A module that does not load, and the log.
fn log_of(c: &Case, text: &str) -> String {
    primary(c);
    let text = std::ffi::CString::new(text).unwrap_or_default();
    let mut log = vec![0_u8; 4096];
    let mut options = [
        jit_option::ERROR_LOG_BUFFER,
        jit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let size = std::ptr::without_provenance_mut(log.len());
    let mut values = [log.as_mut_ptr().cast(), size];
    let mut module = CUmodule::NULL;
    let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
    let code = text.as_ptr().cast();
    let result = cuModuleLoadDataEx(&mut module, code, 2, options, values);
    c.expect("cuModuleLoadDataEx", result, Code::INVALID_PTX);
    let log = CStr::from_bytes_until_nul(&log).unwrap_or_default();
    log.to_string_lossy().into_owned()
}

/// The log names the line and the instruction that the architecture lacks.
fn unsupported_instruction(c: &Case) {
    let text = format!("{HEADER}.visible .entry k() {{\nwgmma.fence.sync.aligned;\nret;\n}}\n");
    let log = log_of(c, &text);
    c.yes("the line", log.contains("line 5; error   :"));
    c.yes("the instruction", log.contains("wgmma.fence"));
    let end = "ptxas fatal   : Ptx assembly aborted due to errors";
    c.yes("the end", log.ends_with(end));
}

/// A function that is called and nowhere defined.
fn undefined_function(c: &Case) {
    let text =
        format!("{HEADER}.extern .func nowhere();\n.visible .entry k() {{ call nowhere; ret; }}\n");
    let log = log_of(c, &text);
    c.yes("its name", log.contains("nowhere"));
}
