//! Parts that all texts have: stack traces and differences.

use std::fmt::Write;

use cuguard_report::ByteSize;

use crate::look::{Frames, UNKNOWN};
use crate::run::{CallSite, Frame};
use cuguard_report::phrase::printable;

/// The frames in two columns.
pub(crate) fn stack(page: &mut String, site: &CallSite, frames: Frames) {
    /// Longer names do not widen the column.
    const MAX_WIDTH: usize = 56;
    let rows: Vec<_> = site.shown(frames).map(columns).collect();
    let widths = rows.iter().map(|(name, _)| name.chars().count());
    let width = widths
        .filter(|width| *width <= MAX_WIDTH)
        .max()
        .unwrap_or(0);
    for (name, location) in &rows {
        let _ = match location.as_str() {
            "" => writeln!(page, "    {name}"),
            location => writeln!(page, "    {name:<width$}  {location}"),
        };
    }
    if rows.is_empty() {
        let _ = writeln!(page, "    {UNKNOWN}");
    }
}

/// The name and the location of a function.
pub(crate) fn columns(frame: &Frame) -> (String, String) {
    let function = printable(&frame.function).into_owned();
    let location = match (frame.file.as_str(), frame.line) {
        ("", _) => String::new(),
        (file, 0) => printable(file).into_owned(),
        (file, line) => format!("{}:{line}", printable(file)),
    };
    match location == function {
        true => (function, String::new()),
        false => (function, location),
    }
}

/// `4 KiB more`, `4 KiB less`, `no difference in bytes`.
pub(crate) fn difference(bytes: i128) -> String {
    let size = ByteSize(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
    match bytes {
        0 => "no difference in bytes".to_owned(),
        1.. => format!("{size} more"),
        _ => format!("{size} less"),
    }
}
