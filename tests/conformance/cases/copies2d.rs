//! Copies in two dimensions.

use crate::case::Case;
use crate::driver::*;
use crate::tools::*;

cases! {"copies2d":
    host_to_device,
    device_to_host,
    device_to_device,
    offsets,
    unified_addresses,
    nothing_to_copy,
    wrong_pitch,
    no_pitch,
    too_large,
    wrong_arguments,
    on_a_stream,
}

/// A block of 10 rows, 64 bytes apart, filled with 1, and 10 rows of 32 bytes to copy to it.
fn set_up(c: &Case) -> (CUdeviceptr, Vec<u8>, CUDA_MEMCPY2D) {
    primary(c);
    let ptr = alloc(c, 640);
    c.require("fill", cuMemsetD8_v2(ptr, 1, 640));
    let rows: Vec<u8> = (0..320_u32).map(|i| (i % 251) as u8 + 2).collect();
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: memory_type::HOST,
        srcHost: rows.as_ptr().cast(),
        srcPitch: 32,
        dstMemoryType: memory_type::DEVICE,
        dstDevice: ptr,
        dstPitch: 64,
        WidthInBytes: 32,
        Height: 10,
        ..CUDA_MEMCPY2D::default()
    };
    (ptr, rows, copy)
}

/// The rows as they should lie in the block, over what it was filled with.
fn spread(rows: &[u8]) -> Vec<u8> {
    let mut block = vec![1_u8; 640];
    for (row, target) in rows.chunks(32).zip(block.chunks_mut(64)) {
        target[..32].copy_from_slice(row);
    }
    block
}

/// Rows are copied, and what lies between them stays.
fn host_to_device(c: &Case) {
    let (ptr, rows, copy) = set_up(c);
    c.ok("copy", cuMemcpy2D_v2(&copy));
    c.yes("the rows are there", read(c, ptr, 640) == spread(&rows));
    c.ok("fill", cuMemsetD8_v2(ptr, 1, 640));
    c.ok(
        "copy by the function for any pitch",
        cuMemcpy2DUnaligned_v2(&copy),
    );
    c.yes("the rows are there", read(c, ptr, 640) == spread(&rows));
}

/// Rows come back.
fn device_to_host(c: &Case) {
    let (ptr, rows, copy) = set_up(c);
    c.require("cuMemcpy2D", cuMemcpy2D_v2(&copy));
    let mut back = vec![0_u8; 320];
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: memory_type::DEVICE,
        srcDevice: ptr,
        srcPitch: 64,
        dstMemoryType: memory_type::HOST,
        dstHost: back.as_mut_ptr().cast(),
        dstPitch: 32,
        WidthInBytes: 32,
        Height: 10,
        ..CUDA_MEMCPY2D::default()
    };
    c.ok("copy", cuMemcpy2D_v2(&copy));
    c.yes("the rows came back", std::hint::black_box(&back) == &rows);
}

/// Rows can be copied from one block to another of another pitch.
fn device_to_device(c: &Case) {
    let (ptr, rows, copy) = set_up(c);
    c.require("cuMemcpy2D", cuMemcpy2D_v2(&copy));
    let tight = alloc(c, 320);
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: memory_type::DEVICE,
        srcDevice: ptr,
        srcPitch: 64,
        dstMemoryType: memory_type::DEVICE,
        dstDevice: tight,
        dstPitch: 32,
        WidthInBytes: 32,
        Height: 10,
        ..CUDA_MEMCPY2D::default()
    };
    c.ok("copy", cuMemcpy2D_v2(&copy));
    c.yes("the rows are there", read(c, tight, 320) == rows);
}

/// A copy can begin within a row and below the first one, on both sides.
fn offsets(c: &Case) {
    let (ptr, rows, copy) = set_up(c);
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 8,
        srcY: 2,
        dstXInBytes: 4,
        dstY: 1,
        WidthInBytes: 16,
        Height: 3,
        ..copy
    };
    c.ok("copy", cuMemcpy2D_v2(&copy));
    let mut want = vec![1_u8; 640];
    for row in 0..3 {
        let source = (row + 2) * 32 + 8;
        let target = (row + 1) * 64 + 4;
        want[target..target + 16].copy_from_slice(&rows[source..source + 16]);
    }
    c.yes("the rows are there", read(c, ptr, 640) == want);
}

/// With unified addresses the driver finds out by itself where they lie.
fn unified_addresses(c: &Case) {
    let (ptr, rows, copy) = set_up(c);
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: memory_type::UNIFIED,
        srcDevice: rows.as_ptr().addr() as u64,
        dstMemoryType: memory_type::UNIFIED,
        ..copy
    };
    c.ok("copy", cuMemcpy2D_v2(&copy));
    c.yes("the rows are there", read(c, ptr, 640) == spread(&rows));
}

/// No rows, or rows of no bytes, are nothing to copy.
fn nothing_to_copy(c: &Case) {
    let (ptr, _rows, copy) = set_up(c);
    c.ok(
        "no rows",
        cuMemcpy2D_v2(&CUDA_MEMCPY2D { Height: 0, ..copy }),
    );
    c.ok(
        "rows of no bytes",
        cuMemcpy2D_v2(&CUDA_MEMCPY2D {
            WidthInBytes: 0,
            ..copy
        }),
    );
    c.yes("nothing was copied", read(c, ptr, 640) == vec![1; 640]);
}

/// Rows must not overlap: a pitch below the width fails on either side.
fn wrong_pitch(c: &Case) {
    let (ptr, _rows, copy) = set_up(c);
    let result = cuMemcpy2D_v2(&CUDA_MEMCPY2D {
        srcPitch: 16,
        ..copy
    });
    c.invalid("the source's pitch below the width", result);
    let result = cuMemcpy2D_v2(&CUDA_MEMCPY2D {
        dstPitch: 16,
        ..copy
    });
    c.invalid("the target's pitch below the width", result);
    c.yes("nothing was copied", read(c, ptr, 640) == vec![1; 640]);
}

/// A pitch of 0 stands for rows without a gap.
fn no_pitch(c: &Case) {
    let (ptr, rows, copy) = set_up(c);
    let copy = CUDA_MEMCPY2D {
        srcPitch: 0,
        dstPitch: 0,
        ..copy
    };
    c.ok("copy", cuMemcpy2D_v2(&copy));
    c.yes("the rows lie side by side", read(c, ptr, 320) == rows);
}

/// Rows beyond the end of the block fail.
fn too_large(c: &Case) {
    let (ptr, _rows, copy) = set_up(c);
    let large = vec![9_u8; 32 * 1000];
    let copy = CUDA_MEMCPY2D {
        srcHost: large.as_ptr().cast(),
        Height: 1000,
        ..copy
    };
    c.invalid("1000 rows into 10", cuMemcpy2D_v2(&copy));
    c.yes("nothing was copied", read(c, ptr, 640) == vec![1; 640]);
}

/// There must be a description, and it must say where the bytes lie.
fn wrong_arguments(c: &Case) {
    let (_ptr, _rows, copy) = set_up(c);
    c.invalid("null", cuMemcpy2D_v2(std::ptr::null()));
    let result = cuMemcpy2D_v2(&CUDA_MEMCPY2D {
        srcMemoryType: 9,
        ..copy
    });
    c.invalid("memory type 9", result);
}

/// The same on a stream.
fn on_a_stream(c: &Case) {
    let (ptr, rows, copy) = set_up(c);
    let stream = independent(c);
    c.ok("copy", cuMemcpy2DAsync_v2(&copy, stream));
    c.ok("wait", cuStreamSynchronize(stream));
    c.yes("the rows are there", read(c, ptr, 640) == spread(&rows));
    let result = cuMemcpy2DAsync_v2(
        &CUDA_MEMCPY2D {
            srcPitch: 16,
            ..copy
        },
        stream,
    );
    c.invalid("the source's pitch below the width", result);
    c.ok("the stream is fine", cuStreamSynchronize(stream));
}
