//! The call sites of a recording: its stack traces, resolved, each once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use cuguard_recording::Stack;

use crate::resolver::Resolver;
use crate::run::{CallSite, Frame};
use crate::symbols::call_site;

/// The most bytes of all call sites in memory: a frame is a byte in a file and may have names of kilobytes, so that a small
/// file could fill the memory. Recordings of large programs have some percent of it.
pub(crate) const MOST_BYTES: usize = 2 << 30;

/// What an allocator adds to a block, at most: its header, and the size rounded up.
const OF_ALLOCATOR: usize = 32;

/// Call sites, and which one a stack has.
pub(crate) struct CallSites {
    /// The first is unknown.
    pub(crate) sites: Vec<CallSite>,
    /// By the number of a stack.
    pub(crate) numbers: Vec<u32>,
    /// How many stacks have the unknown call site for lack of room.
    pub(crate) left_out: u64,
}

impl CallSites {
    /// Resolves stacks. Those that differ in addresses alone are one call site.
    pub(crate) fn new(stacks: &[Stack], resolver: &mut dyn Resolver, most: usize) -> Self {
        let hasher = RandomState::new();
        let mut sites = vec![CallSite::default()];
        // By hash: with call sites as keys, each would be in memory twice.
        let mut indices: HashMap<u64, Vec<u32>> = HashMap::new();
        indices.insert(hasher.hash_one(&sites[0]), vec![0]);
        let (mut room, mut left_out) = (most, 0);
        let numbers = stacks.iter().map(|stack| {
            let mut site = call_site(stack, resolver);
            let same_hash = indices.entry(hasher.hash_one(&site)).or_default();
            let known = same_hash
                .iter()
                .find(|index| sites[**index as usize] == site);
            if let Some(known) = known {
                return *known;
            }
            let Some(rest) = room.checked_sub(bytes(&site)) else {
                left_out += 1;
                return 0;
            };
            room = rest;
            // What was left out of a stack trace has room in its vector.
            site.frames.shrink_to_fit();
            let next = sites.len() as u32;
            sites.push(site);
            same_hash.push(next);
            next
        });
        let numbers = numbers.collect();
        Self {
            sites,
            numbers,
            left_out,
        }
    }
}

/// The bytes of a call site in memory, and of its index.
fn bytes(site: &CallSite) -> usize {
    let text = |text: &String| match text.len() {
        0 => 0,
        length => length + OF_ALLOCATOR,
    };
    let frame = |frame: &Frame| {
        size_of::<Frame>() + text(&frame.function) + text(&frame.file) + text(&frame.library)
    };
    let frames = site.frames.iter().map(frame).sum::<usize>();
    // The frames are one block, the numbers of call sites with one hash another.
    size_of::<(CallSite, u64, Vec<u32>)>() + 2 * OF_ALLOCATOR + text(&site.type_name) + frames
}

#[cfg(test)]
mod tests {
    use cuguard_recording::{Frame, Stack};

    use super::CallSites;
    use crate::Offsets;

    #[test]
    fn names_have_a_limit() {
        let stack = |line, frames| Stack {
            frames: vec![
                Frame::Foreign {
                    function: "x".repeat(100).into(),
                    file: "a.py".into(),
                    line,
                };
                frames
            ],
            ..Stack::default()
        };
        let stacks = [stack(1, 2), stack(2, 2), stack(3, 1), stack(1, 2)];
        let found = CallSites::new(&stacks, &mut Offsets::default(), 1100);
        assert_eq!(found.numbers, [1, 0, 2, 1]);
        assert_eq!((found.sites.len(), found.left_out), (3, 1));
    }

    /// A frame with an empty name is a byte in the file, and a hundred in memory.
    #[test]
    fn frames_without_names_have_a_limit_too() {
        let stack = |line| Stack {
            frames: vec![
                Frame::Foreign {
                    function: "".into(),
                    file: "".into(),
                    line,
                };
                1000
            ],
            ..Stack::default()
        };
        let stacks: Vec<_> = (1..=10).map(stack).collect();
        let found = CallSites::new(&stacks, &mut Offsets::default(), 500_000);
        let bytes = found
            .sites
            .iter()
            .map(|site| site.frames.len())
            .sum::<usize>()
            * size_of::<crate::Frame>();
        assert!(bytes <= 500_000, "{bytes}");
        assert!((1..10).contains(&found.left_out), "{}", found.left_out);
    }
}
