//! What grew between two moments, of one run or of two, by call site.
//!
//! ```text
//!     Moment A ─┐
//!     Moment B ─┴──► matching ──► Diff ──► text, JSON
//! ```
//!
//! Call sites of two builds are matched by the names of their functions and files, not by addresses; see
//! [`matching`]. This folder must not know how runs are read.

mod change;
mod json;
mod matching;
mod text;

use std::cmp::Reverse;

use crate::moment::Moment;
use cuguard_registry::Amount;

pub use change::{Change, Match};
pub(crate) use matching::{Identity, by_identity};

/// What grew between two moments.
#[derive(Clone, Debug)]
pub struct Diff<'r> {
    /// The first moment.
    pub before: &'r Moment<'r>,
    /// The second moment.
    pub after: &'r Moment<'r>,
    /// Call sites with a difference: what grew most first, what shrank most last.
    pub changes: Vec<Change<'r>>,
    /// How many call sites have no difference.
    pub unchanged: u64,
    /// What these have.
    pub unchanged_amount: Amount,
}

/// Compares two moments.
///
/// ```
/// use cuguard_view::{Allocation, At, FOREVER, RecordedKind, Run, diff, moment};
///
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = |start| Allocation { start, end: FOREVER, bytes: 512, ..Allocation::default() };
/// let run = Run { kinds: vec![device], allocations: vec![block(1), block(5)], end: 9, ..Run::default() };
/// let (before, after) = (moment(&run, At::Time(2))?, moment(&run, At::Exit)?);
/// let diff = diff(&before, &after);
/// assert_eq!(diff.changes[0].bytes(), 512);
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
#[must_use]
pub fn diff<'r>(before: &'r Moment<'r>, after: &'r Moment<'r>) -> Diff<'r> {
    let mut diff = Diff {
        before,
        after,
        changes: matching::matched(before, after),
        unchanged: 0,
        unchanged_amount: Amount::default(),
    };
    diff.changes.retain(|change| {
        let is_equal = change.before == change.after;
        if is_equal {
            diff.unchanged += 1;
            diff.unchanged_amount += change.after;
        }
        !is_equal
    });
    let key = |change: &Change<'_>| (Reverse(change.bytes()), Reverse(change.count()));
    let changes = &mut diff.changes;
    changes.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| a.site.cmp(b.site)));
    diff
}
