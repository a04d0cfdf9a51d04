//! Threads with hardly any stack: a capture does not overflow it.

#![cfg(target_os = "linux")]

use std::ffi::c_void;

use cuguard_stack::capture;

extern "C" fn first_capture(_: *mut c_void) -> *mut c_void {
    let mut frames = [0_usize; 32];
    let count = capture(&mut frames);
    std::ptr::without_provenance_mut(count)
}

/// The smallest stacks that the system gives, with a thread of their own each, so that each capture
/// is the thread's first.
#[test]
fn a_first_capture_fits_on_a_small_stack() {
    for kibibytes in [16, 20, 24, 32, 40, 48, 64, 96, 128, 256] {
        // SAFETY: the attributes are initialised before they are used, and the thread's function
        // takes and returns a pointer that is never dereferenced.
        let count = unsafe {
            let mut attributes = std::mem::zeroed();
            assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
            let set = libc::pthread_attr_setstacksize(&mut attributes, kibibytes << 10);
            if set != 0 {
                cuguard_testing::not_run(
                    cuguard_testing::Requirement::Stacks,
                    format_args!("{kibibytes} KiB"),
                );
                continue;
            }
            let mut thread = std::mem::zeroed();
            let null = std::ptr::null_mut();
            let made = libc::pthread_create(&mut thread, &attributes, first_capture, null);
            assert_eq!(made, 0, "{kibibytes} KiB");
            let mut answer = std::ptr::null_mut();
            assert_eq!(libc::pthread_join(thread, &mut answer), 0);
            answer.addr()
        };
        assert!(count >= 1, "{kibibytes} KiB: {count} frames");
    }
}
