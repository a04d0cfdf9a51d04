//! The description of the process in the header of a file.

use crate::data::Meta;
use crate::format::{Bytes, MAGIC, Put, VERSION, header, put_text, u32_at};

/// What follows the fixed fields of the header.
pub(crate) fn encode(meta: &Meta) -> Vec<u8> {
    /// Both fit into the header.
    const TEXT: usize = 256;
    const COMMAND: usize = 2 << 10;
    let mut out = Vec::new();
    put_text(&mut out, &meta.version, TEXT);
    put_text(&mut out, &meta.command, COMMAND);
    put_text(&mut out, &meta.host, TEXT);
    out.number(meta.pid.into());
    // 0 for none.
    out.number(meta.rank.map_or(0, |rank| u64::from(rank) + 1));
    out.number(meta.started);
    out
}

/// The description in the begin of a file; `None` where it cannot be read.
pub(crate) fn decode(bytes: &[u8]) -> Option<Meta> {
    let length = u32_at(bytes, header::LENGTH)? as usize;
    let bytes = bytes.get(header::META..header::META.checked_add(length)?)?;
    let mut from = Bytes::new(bytes);
    Some(Meta {
        version: from.text()?,
        command: from.text()?,
        host: from.text()?,
        pid: from.small()?,
        rank: match from.number()? {
            0 => None,
            rank => u32::try_from(rank - 1).ok(),
        },
        started: from.number()?,
    })
}

/// [`decode`] for any file; `None` for one that is not a recording of this version.
pub(crate) fn of_file(bytes: &[u8]) -> Option<Meta> {
    let is_ours = bytes.starts_with(MAGIC) && u32_at(bytes, header::VERSION) == Some(VERSION);
    is_ours.then(|| decode(bytes)).flatten()
}
