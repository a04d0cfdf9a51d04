//! The call sites of a recording: its stack traces, resolved, each once.

use std::collections::HashMap;

use cuguard_recording::Stack;

use crate::resolver::Resolver;
use crate::run::CallSite;
use crate::symbols::call_site;

/// The most bytes of all names: a frame is a byte in a file and may have names of kilobytes, so that a small file could fill
/// the memory. Recordings of large programs have some percent of it.
pub(crate) const MOST_NAMES: usize = 1 << 30;

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
        let mut sites = vec![CallSite::default()];
        let mut indices = HashMap::from([(CallSite::default(), 0)]);
        let (mut room, mut left_out) = (most, 0);
        let numbers = stacks.iter().map(|stack| {
            let site = call_site(stack, resolver);
            if let Some(known) = indices.get(&site) {
                return *known;
            }
            let Some(rest) = room.checked_sub(names(&site)) else {
                left_out += 1;
                return 0;
            };
            room = rest;
            let next = sites.len() as u32;
            sites.push(site.clone());
            indices.insert(site, next);
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

/// The bytes of the names of a call site.
fn names(site: &CallSite) -> usize {
    let frames = site.frames.iter();
    let frames = frames.map(|frame| frame.function.len() + frame.file.len() + frame.library.len());
    site.type_name.len() + frames.sum::<usize>()
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
        let found = CallSites::new(&stacks, &mut Offsets::default(), 320);
        assert_eq!(found.numbers, [1, 0, 2, 1]);
        assert_eq!((found.sites.len(), found.left_out), (3, 1));
    }
}
