//! Columns of integers as bytes, and bytes as text.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// The largest integer that JavaScript's numbers hold exactly.
pub(super) const MAX_SAFE: u64 = (1 << 53) - 1;

/// Columns one after the other. A reader knows the length of each.
#[derive(Default)]
pub(super) struct Columns(pub(super) Vec<u8>);

impl Columns {
    /// A LEB128 varint. Larger values than [`MAX_SAFE`] become that: the reader could not hold them.
    pub(super) fn push(&mut self, value: u64) {
        let mut rest = value.min(MAX_SAFE);
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    /// A column.
    pub(super) fn extend(&mut self, values: impl IntoIterator<Item = u64>) {
        for value in values {
            self.push(value);
        }
    }

    /// A column of differences to the value before, small ones of either sign in few bytes.
    pub(super) fn extend_deltas(&mut self, values: impl IntoIterator<Item = u64>) {
        let mut before = 0i64;
        for value in values {
            // At most 2^53, so that neither the difference nor its double overflows.
            let value = value.min(MAX_SAFE / 2) as i64;
            let delta = value - before;
            self.push(((delta << 1) ^ (delta >> 63)) as u64);
            before = value;
        }
    }
}

/// `bytes` deflated (zlib) and in base64.
pub(super) fn pack(bytes: &[u8]) -> io::Result<String> {
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::new(6));
    encoder.write_all(bytes)?;
    Ok(base64(&encoder.finish()?))
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let (a, b, c) = (chunk[0], chunk.get(1).copied(), chunk.get(2).copied());
        let word = u32::from(a) << 16 | u32::from(b.unwrap_or(0)) << 8 | u32::from(c.unwrap_or(0));
        let digit = |shift: u32| char::from(DIGITS[(word >> shift) as usize & 63]);
        text.push(digit(18));
        text.push(digit(12));
        text.push(if b.is_some() { digit(6) } else { '=' });
        text.push(if c.is_some() { digit(0) } else { '=' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Columns, MAX_SAFE, base64};

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn varints_and_deltas() {
        let mut columns = Columns::default();
        columns.extend([0, 127, 128, 300]);
        assert_eq!(columns.0, [0, 127, 0x80, 1, 0xac, 2]);
        let mut columns = Columns::default();
        columns.extend_deltas([5, 3, 3]);
        assert_eq!(columns.0, [10, 3, 0]);
        // The widest difference is still one that the reader holds exactly.
        let mut columns = Columns::default();
        columns.extend_deltas([u64::MAX, 0]);
        assert_eq!(columns.0.len(), 16);
        let mut one = Columns::default();
        one.push(u64::MAX);
        let mut safe = Columns::default();
        safe.push(MAX_SAFE);
        assert_eq!(one.0, safe.0);
    }
}
