//! Tests beside the crate.

#[test]
fn leaks() {
    leaky_crate::allocate(1 << 10);
}

#[test]
fn uses_no_cuda() {}
