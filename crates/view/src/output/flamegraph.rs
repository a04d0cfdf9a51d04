//! The flame graph of a moment, as SVG.

use std::io::Write;

use inferno::flamegraph::{Options, from_lines};

use super::folded::{lines, stacks};
use crate::error::ViewError;
use crate::look::Frames;
use crate::moment::Moment;
use cuguard_report::phrase::{list, printable};

/// Writes the flame graph of what was alive, by bytes. With more than one moment, a run is the outermost frame.
///
/// ```
/// use cuguard_view::{Allocation, At, FOREVER, Frames, RecordedKind, Run, flamegraph, moment};
///
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = Allocation { end: FOREVER, bytes: 512, ..Allocation::default() };
/// let run = Run { kinds: vec![device], allocations: vec![block], ..Run::default() };
/// let mut svg = Vec::new();
/// flamegraph(&[&moment(&run, At::Peak)?], Frames::Program, &mut svg)?;
/// assert!(String::from_utf8_lossy(&svg).contains("unknown call site"));
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
///
/// # Errors
/// Nothing was alive, its bytes add up to more than [`u64::MAX`], or it cannot be written.
pub fn flamegraph(
    moments: &[&Moment<'_>],
    frames: Frames,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    let stacks = stacks(moments, frames);
    let missing = |why: String| {
        let sources: Vec<_> = moments
            .iter()
            .map(|moment| moment.run.source.as_str())
            .collect();
        ViewError::NoMoment {
            source_name: list(&sources),
            why: format!("{why}: there is no flame graph"),
        }
    };
    if stacks.is_empty() {
        let at = moments
            .first()
            .map(|moment| moment.words())
            .unwrap_or_default();
        return Err(missing(format!("no memory was alive {at}")));
    }
    // The widths of frames are sums, which inferno does not check.
    let sum = stacks
        .values()
        .try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes));
    if sum.is_none() {
        let why = format!("the live bytes add up to more than {}", u64::MAX);
        return Err(missing(why));
    }
    let lines = lines(stacks);
    let mut options = Options::default();
    options.title = "Live memory by call site".to_owned();
    options.subtitle = match moments {
        [moment] => Some(format!(
            "{}: alive {}",
            printable(&moment.run.command),
            moment.words()
        )),
        _ => None,
    };
    options.count_name = "bytes".to_owned();
    options.name_type = "Function:".to_owned();
    // The same recording has the same picture.
    options.deterministic = true;
    let written = from_lines(&mut options, lines.lines(), out);
    written.map_err(|error| ViewError::Write {
        what: "flame graph",
        error,
    })
}
