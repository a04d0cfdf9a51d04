//! A Python program that compiles code all the time does not grow: not all of its code objects are kept alive.

use std::path::Path;
use std::process::Command;

use crate::support::{assert_success, audited, simulated_driver_folder, text};
use cuguard_testing::{Requirement, not_run};

/// Calls the driver from many functions, each with a code object of its own, and says how many of those are alive in the end.
const SCRIPT: &str = "
import ctypes, gc, sys, weakref
cuda = ctypes.PyDLL('libcuda.so.1')
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
allocate, free, size = cuda.cuMemAlloc_v2, cuda.cuMemFree_v2, ctypes.c_size_t(100)
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
at = ctypes.byref(memory)
alive = 0
def freed(_):
    global alive
    alive -= 1
references = []
def template():
    assert allocate(at, size) == 0
for i in range(int(sys.argv[1])):
    code = template.__code__.replace()
    alive += 1
    references.append(weakref.ref(code, freed))
    exec(code)
    assert free(memory) == 0
del code
gc.collect()
print(alive)
";

fn alive(count: u32) -> Option<u32> {
    let driver = simulated_driver_folder();
    let file = driver.join("script.py");
    std::fs::write(&file, SCRIPT).expect("a file can be written");
    let output = audited(Path::new("python3"), &driver)
        .arg(&file)
        .arg(count.to_string())
        .env("LEAK_REPORT", "0")
        .output()
        .expect("Python can be started");
    assert_success(&output);
    text(&output.stdout).trim().parse().ok()
}

#[test]
fn code_objects_are_kept_up_to_a_number() {
    let version = Command::new("python3").arg("--version").output();
    if !version.is_ok_and(|version| version.status.success()) {
        return not_run(Requirement::Python, "");
    }
    // Their addresses stand for the first.
    assert_eq!(alive(1000), Some(1000));
    let many = alive(70_000).expect("a number");
    assert!((60_000..=65_536).contains(&many), "{many}");
}
