//! Decompression of the images in fatbins: LZ4 blocks, and Zstandard since CUDA 12.8.

use std::io::Read;

/// More than any image has, in all and for each byte of its compressed form, so that a small file does not use up the host's
/// memory.
const MAX: usize = 1 << 28;
const MAX_RATIO: usize = 256;

/// Decompresses a block of LZ4 into `len` bytes; `None` if it is malformed.
pub(super) fn lz4(block: &[u8], len: usize) -> Option<Vec<u8>> {
    if !is_plausible(block, len) {
        return None;
    }
    let mut output = Vec::with_capacity(len);
    let mut rest = block;
    loop {
        let token = take(&mut rest, 1)?.first().copied()?;
        let literals = length(&mut rest, token >> 4)?;
        output.extend_from_slice(take(&mut rest, literals)?);
        if output.len() >= len {
            output.truncate(len);
            return Some(output);
        }
        let distance: [u8; 2] = take(&mut rest, 2)?.try_into().ok()?;
        let distance = usize::from(u16::from_le_bytes(distance));
        let count = length(&mut rest, token & 15)?.checked_add(4)?;
        let start = output
            .len()
            .checked_sub(distance)
            .filter(|_| distance > 0)?;
        if count > len - output.len() {
            return None;
        }
        // A copy may overlap what it writes.
        for at in start..start + count {
            output.push(output.get(at).copied()?);
        }
    }
}

fn is_plausible(compressed: &[u8], len: usize) -> bool {
    len <= MAX && len / MAX_RATIO <= compressed.len()
}

/// Takes bytes off the rest.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, tail) = rest.split_at_checked(count)?;
    *rest = tail;
    Some(taken)
}

/// A length that continues in further bytes if it is 15.
fn length(rest: &mut &[u8], first: u8) -> Option<usize> {
    let mut sum = usize::from(first);
    if first < 15 {
        return Some(sum);
    }
    loop {
        let next = take(rest, 1)?.first().copied()?;
        sum = sum.checked_add(next.into())?;
        if next < 255 {
            return Some(sum);
        }
    }
}

/// Decompresses a Zstandard frame into at most `len` bytes; `None` if it is malformed.
pub(super) fn zstd(frame: &[u8], len: usize) -> Option<Vec<u8>> {
    if !is_plausible(frame, len) {
        return None;
    }
    let decoder = ruzstd::decoding::StreamingDecoder::new(frame).ok()?;
    let mut output = Vec::new();
    decoder.take(len as u64).read_to_end(&mut output).ok()?;
    (output.len() == len).then_some(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lz4_blocks_are_decompressed() {
        // "abcdefabcdefabcdefabcdefabcdef12345": six letters, a match of 24 at a distance of 6, five digits.
        let block = [&[0x6f][..], b"abcdef", &[6, 0, 5], &[0x50], b"12345"].concat();
        let text = "abcdef".repeat(5) + "12345";
        assert_eq!(lz4(&block, text.len()).unwrap(), text.as_bytes());
        // A long run of one letter, and no literals behind it but the last ones.
        let block = [&[0x1f][..], b"a", &[1, 0, 255, 16], &[0x50], b"bbbbb"].concat();
        let text = "a".repeat(1 + 15 + 255 + 16 + 4) + "bbbbb";
        assert_eq!(lz4(&block, text.len()).unwrap(), text.as_bytes());
    }

    #[test]
    fn malformed_blocks_are_none() {
        for (block, len) in [
            (&[][..], 1),
            (&[0x10], 1),
            // A distance before the start, and of nothing.
            (&[0x1f, b'a', 2, 0, 0], 30),
            (&[0x1f, b'a', 0, 0, 0], 30),
            // More than is announced.
            (&[0x1f, b'a', 1, 0, 200, 0], 30),
            (&[0xf0, 255, 255], 400),
            (&[0x10, b'a'], usize::MAX),
        ] {
            assert_eq!(lz4(block, len), None, "{block:?}");
            assert_eq!(zstd(block, len), None, "{block:?}");
        }
    }

    #[test]
    fn zstandard_frames_are_decompressed() {
        let text = b"a text that repeats, a text that repeats, a text that repeats".repeat(9);
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let frame = ruzstd::encoding::compress_to_vec(&text[..], level);
        assert_eq!(zstd(&frame, text.len()).unwrap(), text);
        assert_eq!(zstd(&frame, text.len() + 1), None);
    }
}
