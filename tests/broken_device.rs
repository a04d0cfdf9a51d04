//! A kernel that writes to a bad address breaks the device for the whole process. On a real GPU, in
//! a child process. (`tests/every_fault` has the same on the simulated one.)

use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::{Context, DeviceBuffer, Module, PinnedBuffer, Stream};

const FAULT: &str = include_str!("../kernels/fault.ptx");

/// An address that belongs to nobody.
const NOWHERE: u64 = 0x1000;

/// Guards still drop, no free that was refused counts as done, and the report tells the first error
/// with the operation that met it, and what helps.
#[test]
fn a_kernel_that_writes_to_a_bad_address() {
    const TEST: &str = "a_kernel_that_writes_to_a_bad_address";
    if part().is_some() {
        let context = Context::new(0).unwrap();
        let stream = Stream::new(&context).unwrap();
        let module = Module::from_ptx(&context, FAULT).unwrap();
        let kernel = module.function("write_to").unwrap();
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000).unwrap();
        let pinned = PinnedBuffer::<u8>::zeroed(&context, 1000).unwrap();
        let result = stream.scope(|s| {
            // SAFETY: none: this kernel is here to do what it must not, and the process ends after.
            unsafe { s.launch(&kernel, (1, 1), &[&NOWHERE]) }
        });
        assert_eq!(result.unwrap_err().code(), Some(CUresult::ILLEGAL_ADDRESS));
        let error = buffer.to_vec().unwrap_err();
        assert_eq!(error.code(), Some(CUresult::ILLEGAL_ADDRESS));
        drop((buffer, stream));
        drop(module);
        // The driver did not let go of it, so it is not given back to the heap.
        drop(pinned);
        assert!(context.close().is_err());
        assert!(Context::new(0).is_err());
        return;
    }
    let output = child(TEST, "child", &[("LEAK_REPORT", "1,exitcode=23")]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(23), "{err}");
    for words in [
        "CUDA_ERROR_ILLEGAL_ADDRESS (700), first returned by cuStreamSynchronize in Stream::scope",
        "only a new process helps",
        "could not free 1000 B in 1 allocation of device memory",
    ] {
        assert!(err.contains(words), "{words}\n{err}");
    }
}
