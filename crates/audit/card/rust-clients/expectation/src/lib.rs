//! The line that says what the report must contain, and the end of copies on the stack.

/// One mebibyte.
pub const MIB: usize = 1 << 20;

/// Overwrites the stack below the caller's frame, where functions that returned have left copies of addresses.
#[inline(never)]
pub fn clobber_stack() {
    let mut dead = [0_u8; 256 * 1024];
    std::hint::black_box(&mut dead);
}

/// Prints the expectation: blocks and bytes that are lost and reachable, all of one kind, and a text in the report.
pub fn expected(kind: &str, lost: (usize, usize), reachable: (usize, usize), mentions: &str) {
    println!(
        r#"{{"lost": {{"count": {}, "bytes": {}}}, "reachable": {{"count": {}, "bytes": {}}}, "kinds": {{"{kind}": {{"count": {}, "bytes": {}}}}}, "mentions": ["{mentions}"]}}"#,
        lost.0,
        lost.1,
        reachable.0,
        reachable.1,
        lost.0 + reachable.0,
        lost.1 + reachable.1,
    );
}
