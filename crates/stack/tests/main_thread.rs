//! The stack of the main thread, from the first capture of the process on: no test harness.

mod common;

use std::hint::black_box;

use common::{check, rules};
use cuguard_stack::{Method, capture_with_rules, method};

/// Uses stack at each level, so that the stack grows far beyond what it was at the first capture.
#[inline(never)]
fn grow(levels: usize) -> usize {
    let room = black_box([0u8; 64 << 10]);
    let found = if levels == 0 {
        check(rules())
    } else {
        grow(levels - 1)
    };
    black_box(room[found]);
    found
}

fn main() {
    let has_rules = cfg!(all(
        target_os = "linux",
        target_env = "gnu",
        any(target_arch = "x86_64", target_arch = "aarch64")
    ));
    // Before anything else has decided on the method.
    let mut frames = [0; 64];
    assert_eq!(capture_with_rules(&mut frames).is_some(), has_rules);
    assert_eq!(method() == Method::Rules, has_rules);

    if !has_rules {
        return;
    }
    let outer = check(rules());
    assert!(outer > 4);
    assert!(grow(60) > outer + 55);
    println!(
        "the main thread's stack is right: {outer} frames, {}",
        method()
    );
}
