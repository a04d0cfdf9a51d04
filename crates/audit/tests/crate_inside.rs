//! A program that uses the cuguard crate has one report, its own: what the crate allocates is not recorded a second time.

use std::ffi::{CStr, c_char};

use crate::support::{assert_success, library, simulated_driver_folder, text};
use cuguard::prelude::*;

const CHILD: &str = "CUGUARD_TEST_CHILD";

type Live = unsafe extern "C" fn(*const c_char, *mut u64, *mut u64) -> i32;

/// How many resources of a kind the audit library has recorded in this process. `None` if it is not preloaded.
fn recorded(kind: &CStr) -> Option<u64> {
    // SAFETY: a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuguard_audit_live".as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: the function of this name has this signature.
    let live = unsafe { std::mem::transmute::<*mut libc::c_void, Live>(address) };
    let mut count = 0;
    // SAFETY: a C string; the number can be written to; null is allowed.
    let code = unsafe { live(kind.as_ptr(), &mut count, std::ptr::null_mut()) };
    assert_eq!(code, 0, "{kind:?}");
    Some(count)
}

/// The child: leaks a buffer of the crate, and one that it allocates through the driver itself.
fn leak() {
    let context = Context::new(0).expect("a context");
    let buffer = DeviceBuffer::from_slice(&context, &[0_u8; 1000]).expect("a buffer");
    std::mem::forget(buffer);
    println!("recorded: {:?}", recorded(c"device"));
    println!("contexts: {:?}", recorded(c"context"));
}

#[test]
fn one_report() {
    if std::env::var_os(CHILD).is_some() {
        return leak();
    }
    let driver = simulated_driver_folder();
    for preloaded in [true, false] {
        let mut command = cuguard_testing::test_command("one_report");
        command
            .env(CHILD, "1")
            .env("CUGUARD_DRIVER", "real")
            .env("LEAK_REPORT", "1")
            .env("LD_LIBRARY_PATH", driver.path());
        if preloaded {
            command.env("LD_PRELOAD", library());
        }
        let output = command.output().expect("a child can be started");
        assert_success(&output);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let expected = if preloaded { "Some(0)" } else { "None" };
        assert!(
            stdout.contains(&format!("recorded: {expected}")),
            "{stdout}"
        );
        assert!(
            stdout.contains(&format!("contexts: {expected}")),
            "{stdout}"
        );
        // The crate's report names the leak, and there is no other.
        let lines = stderr.lines().filter(|line| line.starts_with("cuguard: "));
        let reports: Vec<_> = lines.filter(|line| !line.contains("simulated")).collect();
        assert_eq!(reports.len(), 1, "{stderr}");
        assert!(reports[0].contains("leaked"), "{stderr}");
    }
}
