//! Fills, in one and two dimensions.

use crate::case::Case;
use crate::driver::*;
use crate::tools::*;

cases! {"fills":
    widths,
    zero_size,
    too_large,
    alignment,
    addresses,
    rows,
    wrong_rows,
    on_a_stream,
}

/// Bytes, half-words and words are written as many times as asked.
fn widths(c: &Case) {
    primary(c);
    let ptr = alloc(c, 5000);
    c.ok("5000 bytes", cuMemsetD8_v2(ptr, 0x11, 5000));
    c.same("the last two", read(c, ptr + 4998, 2), vec![0x11, 0x11]);
    c.ok("2 half-words at 2", cuMemsetD16_v2(ptr + 2, 0x2233, 2));
    c.ok("2 words at 8", cuMemsetD32_v2(ptr + 8, 0x4455_6677, 2));
    let want = vec![
        0x11, 0x11, 0x33, 0x22, 0x33, 0x22, 0x11, 0x11, 0x77, 0x66, 0x55, 0x44, 0x77, 0x66, 0x55,
        0x44, 0x11,
    ];
    c.same("the first bytes", read(c, ptr, 17), want);
    c.ok("1250 words", cuMemsetD32_v2(ptr, 1, 1250));
    c.same("the last word", read(c, ptr + 4996, 4), vec![1, 0, 0, 0]);
}

/// A fill of nothing succeeds, even at null.
fn zero_size(c: &Case) {
    primary(c);
    let ptr = alloc(c, 16);
    c.ok("0 bytes", cuMemsetD8_v2(ptr, 1, 0));
    c.ok("0 bytes at null", cuMemsetD8_v2(0, 1, 0));
    c.invalid("1 byte at null", cuMemsetD8_v2(0, 1, 1));
}

/// A fill beyond the end of a block fails.
fn too_large(c: &Case) {
    primary(c);
    let ptr = alloc(c, 5000);
    c.require("fill", cuMemsetD8_v2(ptr, 7, 5000));
    c.invalid("5001 bytes", cuMemsetD8_v2(ptr, 1, 5001));
    c.invalid("4 MiB", cuMemsetD8_v2(ptr, 1, 4 * MIB));
    c.invalid("1251 words", cuMemsetD32_v2(ptr, 1, 1251));
    c.invalid(
        "5000 bytes from the second one on",
        cuMemsetD8_v2(ptr + 1, 1, 5000),
    );
    c.same("the block is as it was", read(c, ptr, 3), vec![7; 3]);
}

/// Half-words and words lie at multiples of their size.
fn alignment(c: &Case) {
    primary(c);
    let ptr = alloc(c, 5000);
    c.invalid("half-word at 1", cuMemsetD16_v2(ptr + 1, 1, 1));
    c.ok("half-word at 2", cuMemsetD16_v2(ptr + 2, 1, 1));
    c.invalid("word at 2", cuMemsetD32_v2(ptr + 2, 1, 1));
    c.ok("word at 4", cuMemsetD32_v2(ptr + 4, 1, 1));
}

/// Only memory that the driver knows can be filled.
fn addresses(c: &Case) {
    primary(c);
    let (ptr, freed) = (alloc(c, 5000), alloc(c, 5000));
    free(c, freed);
    let host = Box::new([0_u8; 16]);
    let address = host.as_ptr().addr() as u64;
    c.invalid("ordinary host memory", cuMemsetD8_v2(address, 1, 10));
    c.invalid("freed memory", cuMemsetD8_v2(freed, 1, 1));
    c.invalid(
        "freed memory on a stream",
        cuMemsetD8Async(freed, 1, 1, CUstream::NULL),
    );
    c.invalid("an address made up", cuMemsetD8_v2(0x1234, 1, 1));
    c.ok("a block that is there", cuMemsetD8_v2(ptr, 1, 1));
    c.ok("nothing is broken", cuCtxSynchronize());
}

/// Rows are filled, and what lies between them stays.
fn rows(c: &Case) {
    primary(c);
    let ptr = alloc(c, 5000);
    c.require("fill", cuMemsetD8_v2(ptr, 1, 5000));
    c.ok(
        "10 rows of 32 bytes, 64 apart",
        cuMemsetD2D8_v2(ptr, 64, 9, 32, 10),
    );
    let block = read(c, ptr, 704);
    let right = block.chunks(64).enumerate().all(|(index, row)| {
        let value = if index < 10 { 9 } else { 1 };
        row[..32].iter().all(|&byte| byte == value) && row[32..].iter().all(|&byte| byte == 1)
    });
    c.yes("the rows are filled and nothing else", right);
    c.ok(
        "10 rows of 8 words, 64 apart",
        cuMemsetD2D32_v2(ptr, 64, 9, 8, 10),
    );
    c.same(
        "the second row begins",
        read(c, ptr + 64, 5),
        vec![9, 0, 0, 0, 9],
    );
    c.ok(
        "2 rows of 3 half-words, 64 apart",
        cuMemsetD2D16_v2(ptr, 64, 0x0304, 3, 2),
    );
    c.same(
        "the second row begins",
        read(c, ptr + 64, 8),
        vec![4, 3, 4, 3, 4, 3, 0, 0],
    );
}

/// Rows that overlap, that do not fit, or that are not aligned fail.
fn wrong_rows(c: &Case) {
    primary(c);
    let ptr = alloc(c, 5000);
    c.invalid("pitch below the width", cuMemsetD2D8_v2(ptr, 16, 9, 32, 10));
    c.invalid(
        "more rows than the block has",
        cuMemsetD2D8_v2(ptr, 64, 9, 32, 1000),
    );
    c.invalid(
        "words in a pitch of 62",
        cuMemsetD2D32_v2(ptr, 62, 9, 8, 10),
    );
}

/// The same on a stream, in order.
fn on_a_stream(c: &Case) {
    primary(c);
    let ptr = alloc(c, 4096);
    let stream = independent(c);
    c.ok("bytes", cuMemsetD8Async(ptr, 1, 4096, stream));
    c.ok("half-words", cuMemsetD16Async(ptr, 0x0202, 1024, stream));
    c.ok("words", cuMemsetD32Async(ptr, 0x0303_0303, 256, stream));
    c.ok(
        "rows of bytes",
        cuMemsetD2D8Async(ptr, 512, 4, 2, 8, stream),
    );
    c.ok(
        "rows of half-words",
        cuMemsetD2D16Async(ptr + 8, 512, 0x0505, 1, 8, stream),
    );
    c.ok(
        "rows of words",
        cuMemsetD2D32Async(ptr + 16, 512, 0x0606_0606, 1, 8, stream),
    );
    c.invalid("too many bytes", cuMemsetD8Async(ptr, 1, 4 * MIB, stream));
    c.ok("wait", cuStreamSynchronize(stream));
    let block = read(c, ptr, 4096);
    let at = |index: usize| block[index];
    let got = [
        at(0),
        at(2),
        at(8),
        at(10),
        at(16),
        at(20),
        at(1023),
        at(1030),
        at(2047),
        at(2050),
    ];
    c.same(
        "what lies where",
        got.to_vec(),
        vec![4, 3, 5, 3, 6, 3, 3, 2, 2, 1],
    );
}
