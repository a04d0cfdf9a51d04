//! The bodies of the fuzz targets: each is a function of bytes, which the fuzzer calls, and which the tests call with the seeds.
//!
//! Each states how much memory it may have at once, as a multiple of its input and a constant, and panics where it has more:
//! a few bytes of another program must not use up this one's memory. That needs the allocator [`Counting`], which the fuzzer
//! and the tests install.
//!
//! - `code`: PTX, cubins, fatbins; PTX that is decoded. `report`: `LEAK_REPORT`, and the JSON of reports. `recording`: recordings, whole and
//!   damaged. `text`: settings and suppressions. `protocol`: the socket of a live process. `symbols`: names, symbol tables,
//!   an interpreter's memory. `pool`: operations of a pool against its model.
//!
//! No body starts a process or a thread, or opens a file.

mod allocator;
mod code;
mod pool;
mod protocol;
mod recording;
mod report;
mod symbols;
mod text;

pub use allocator::{Counting, bounded, is_counting};
pub use code::{cubin, fatbin, ptx, ptx_module};
pub use pool::pool_sequence;
pub use protocol::{live_reply, live_request};
pub use recording::{recording_file, recording_flips};
pub use report::{report_json, setting};
pub use symbols::{elf_variables, python_frames, symbol_name};
pub use text::{sim_setting, suppressions};

/// The body of a target.
pub type Body = fn(&[u8]);

/// The targets of this module, by name: those of `fuzz/fuzz_targets` and of `fuzz/seeds`.
pub const TARGETS: &[(&str, Body)] = &[
    ("cubin", cubin),
    ("elf_variables", elf_variables),
    ("fatbin", fatbin),
    ("leak_report_setting", setting),
    ("live_reply", live_reply),
    ("live_request", live_request),
    ("pool_sequence", pool_sequence),
    ("ptx", ptx),
    ("ptx_module", ptx_module),
    ("python_frames", python_frames),
    ("recording_file", recording_file),
    ("recording_flips", recording_flips),
    ("report_json", report_json),
    ("sim_setting", sim_setting),
    ("suppressions", suppressions),
    ("symbol_name", symbol_name),
];
