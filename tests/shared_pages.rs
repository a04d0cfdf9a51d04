//! Two contexts of this crate hold one context of the driver's: their small blocks lie in the same
//! pages, and no byte is told of twice when memory runs out.

use cuguard::Result;

use crate::support::room::*;
use crate::support::*;
use cuguard::oom::Cause;

const HALF: u64 = 1536 * MIB as u64;

#[test]
fn small_blocks_of_two_contexts_lie_side_by_side() -> Result<()> {
    let turn = turn();
    if !simulated("small_blocks_of_two_contexts_lie_side_by_side") {
        return Ok(());
    }
    let (one, other) = (context()?, context()?);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..HALF / MIB as u64 {
        ours.push(take(&one, MIB)?);
        theirs.push(take(&other, MIB)?);
    }
    for context in [&one, &other] {
        // Else it depends on the time that the allocations took whether their data seems to grow.
        context.mark_oom_baseline();
        let why = why(take(context, 2 * GIB));
        let causes = [Cause::OtherContexts { bytes: HALF }];
        assert_eq!(why.causes(), causes, "{why:#}");
        let pages = why.pages.expect("all is recorded");
        assert_eq!((pages.taken(), pages.pinned()), (HALF, 0), "{why:#}");
        let taken = why.contexts.iter().filter_map(|context| context.taken);
        assert_eq!(taken.sum::<u64>(), HALF, "{why:#}");
    }
    // Where the other one's blocks are gone, these keep the pages alone.
    drop(theirs);
    let why = why(take(&one, 2 * GIB));
    let cause = Cause::Fragmentation {
        bytes: HALF,
        pages: HALF / MIB as u64,
    };
    assert!(why.causes().contains(&cause), "{why:#}");
    drop((ours, one, other));
    turn.all_came_back();
    Ok(())
}
