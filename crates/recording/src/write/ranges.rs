//! Where the recording is mapped, for those who read the memory of the process.
//!
//! A list that only grows, and is read without a lock: other threads may be stopped meanwhile.

use std::ops::Range;
use std::sync::OnceLock;

#[derive(Debug)]
struct Node {
    addresses: Range<usize>,
    next: OnceLock<&'static Node>,
}

static FIRST: OnceLock<&'static Node> = OnceLock::new();

/// Adds a mapping, which lasts until the process ends.
pub(super) fn add(bytes: Range<*const u8>) {
    let node: &'static Node = Box::leak(Box::new(Node {
        addresses: bytes.start as usize..bytes.end as usize,
        next: OnceLock::new(),
    }));
    let mut place = &FIRST;
    // Few: the file grows in large steps.
    while let Err(_taken) = place.set(node) {
        match place.get() {
            Some(last) => place = &last.next,
            None => break,
        }
    }
}

/// The addresses at which the recording of this process is mapped.
///
/// ```
/// assert_eq!(cuguard_recording::mapped_ranges().count(), 0);
/// ```
pub fn mapped_ranges() -> impl Iterator<Item = Range<usize>> {
    let first = FIRST.get().copied();
    let nodes = std::iter::successors(first, |node| node.next.get().copied());
    nodes.map(|node| node.addresses.clone())
}
