//! What all targets have in common: the allocator that counts, and the function that libFuzzer calls.

pub use libfuzzer_sys;

#[global_allocator]
static ALLOCATOR: cuguard_torture::fuzz::Counting = cuguard_torture::fuzz::Counting;

/// A target whose body is a function of bytes.
#[macro_export]
macro_rules! target {
    ($body:path) => {
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $body(bytes));
    };
}
