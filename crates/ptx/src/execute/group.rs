//! Lanes of a warp that execute together.

use std::sync::Arc;

use crate::machine::Base;

/// Lanes of a warp that are at the same instruction with the same callers. A warp whose lanes have diverged has several.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) pc: u32,
    pub(super) mask: u32,
    pub(super) function: u32,
    pub(super) base: Base,
    pub(super) frame: Option<Arc<Frame>>,
    pub(super) wait: Option<Wait>,
    /// When it was chosen last.
    pub(super) chosen: u64,
}

/// A call that has not returned.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The step of the call.
    pub(super) pc: u32,
    pub(super) function: u32,
    pub(super) base: Base,
    pub(super) parent: Option<Arc<Frame>>,
    pub(super) depth: u32,
}

/// What a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// For lanes of the warp.
    Lanes { mask: u32, is_barrier: bool },
    /// For a barrier of the block to leave a generation.
    Block { number: usize, generation: u64 },
    /// For the cluster's barrier to leave a generation.
    Cluster { generation: u64 },
}

impl Group {
    /// The number of calls that have not returned.
    pub(super) fn depth(&self) -> u32 {
        self.frame.as_ref().map_or(0, |frame| frame.depth)
    }

    /// Whether two groups can continue as one.
    fn can_join(&self, other: &Self) -> bool {
        // Who has arrived at a barrier of the block must not arrive again. Who waits for different lanes would part again.
        let may_join = match (self.wait, other.wait) {
            (None, None) => true,
            (None, Some(wait)) | (Some(wait), None) => matches!(wait, Wait::Lanes { .. }),
            (Some(a), Some(b)) => matches!(a, Wait::Lanes { .. }) && a == b,
        };
        self.pc == other.pc
            && self.base == other.base
            && may_join
            && same_frame(&self.frame, &other.frame)
    }
}

fn same_frame(a: &Option<Arc<Frame>>, b: &Option<Arc<Frame>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || equal(a, b),
        _ => false,
    }
}

/// Without recursion: calls may nest deep.
fn equal(mut a: &Arc<Frame>, mut b: &Arc<Frame>) -> bool {
    loop {
        if Arc::ptr_eq(a, b) {
            return true;
        }
        if (a.pc, a.base, a.depth) != (b.pc, b.base, b.depth) {
            return false;
        }
        match (&a.parent, &b.parent) {
            (Some(x), Some(y)) => (a, b) = (x, y),
            (None, None) => return true,
            _ => return false,
        }
    }
}

impl Drop for Frame {
    // Without recursion: calls may nest deep.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(frame) = parent {
            match Arc::try_unwrap(frame) {
                Ok(mut frame) => parent = frame.parent.take(),
                Err(_) => break,
            }
        }
    }
}

/// Joins groups that are at the same instruction.
pub(super) fn join(groups: &mut Vec<Group>) {
    let mut at = 0;
    while at < groups.len() {
        let mut other = at + 1;
        while other < groups.len() {
            if groups[at].can_join(&groups[other]) {
                let joined = groups.swap_remove(other);
                groups[at].mask |= joined.mask;
                groups[at].chosen = groups[at].chosen.max(joined.chosen);
                groups[at].wait = None;
            } else {
                other += 1;
            }
        }
        at += 1;
    }
}
