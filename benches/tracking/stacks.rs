//! Stacks of a chosen depth.

use std::hint::black_box;

use crate::pairs::repeated;
use crate::timing::medians;
use crate::{Outcome, Way, contexts_and_streams};

/// Calls itself so many times, so that the stack is that much deeper, and then does it.
#[inline(never)]
pub fn deeper<T>(levels: usize, act: &mut dyn FnMut() -> T) -> T {
    let result = if levels == 0 {
        act()
    } else {
        deeper(levels - 1, act)
    };
    black_box(());
    result
}

/// Runs `act` where the stack has so many frames, from the start of the program or the thread to
/// the function that allocates. Fewer than there are already cannot be had.
pub fn at_depth<T>(frames: usize, act: &mut dyn FnMut() -> T) -> T {
    let mut here = 0;
    deeper(0, &mut || {
        backtrace::trace(|_| {
            here += 1;
            true
        });
    });
    deeper(frames.saturating_sub(here), act)
}

/// A pair in the middle of a deep stack, many times over: what is timed is the pair alone.
pub fn depth(short: bool) -> Outcome {
    let (rounds, count) = if short { (3, 20) } else { (201, 500) };
    for frames in [8, 16, 24, 32, 48, 64] {
        let (contexts, streams) = contexts_and_streams()?;
        let _bound = contexts[0].make_current()?;
        const BYTES: usize = 1 << 20;
        let mut ways: Vec<_> = Way::ALL
            .iter()
            .zip(&streams)
            .zip(&contexts)
            .map(|((way, stream), context)| repeated(*way, context, Some(stream), BYTES))
            .collect();
        let mut ways: Vec<&mut dyn FnMut() -> Outcome> =
            ways.iter_mut().map(|way| &mut **way as _).collect();
        let times = at_depth(frames, &mut || medians(rounds, count, &mut ways))?;
        for (way, time) in Way::ALL.iter().zip(&times) {
            println!(
                "depth frames={frames} way={} ns={time:.0} added={:.0} ratio={:.3}",
                way.name(),
                time - times[0],
                time / times[0]
            );
        }
    }
    Ok(())
}
