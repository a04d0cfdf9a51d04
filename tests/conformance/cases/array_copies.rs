//! Copies between arrays and other memory.

use super::copies3d::set_up;
use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"array_copies":
    three_dimensional_array,
    array_limits,
    plain_arrays,
    plain_array_errors,
    rows_of_arrays,
    beyond_arrays,
    array_to_array,
    arrays_on_streams,
}

const BYTE: u32 = 1;

fn array_3d(c: &Case) -> CUarray {
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 16,
        Height: 4,
        Depth: 3,
        Format: BYTE,
        NumChannels: 1,
        ..CUDA_ARRAY3D_DESCRIPTOR::default()
    };
    let mut array = CUarray::NULL;
    let result = cuArray3DCreate_v2(&mut array, &descriptor);
    c.require("cuArray3DCreate", result);
    array
}

/// All of a three-dimensional array goes in and comes back.
fn three_dimensional_array(c: &Case) {
    let (to, bytes, copy) = set_up(c);
    let array = array_3d(c);
    let into = CUDA_MEMCPY3D {
        dstMemoryType: memory_type::ARRAY,
        dstArray: array,
        srcHeight: 4,
        WidthInBytes: 16,
        ..copy
    };
    c.ok("into the array", cuMemcpy3D_v2(&into));
    let out = CUDA_MEMCPY3D {
        srcMemoryType: memory_type::ARRAY,
        srcArray: array,
        dstHeight: 4,
        WidthInBytes: 16,
        ..copy
    };
    c.ok("out of the array", cuMemcpy3D_v2(&out));
    c.yes("all of it", read(c, to, 192) == bytes[..192]);
    let part = CUDA_MEMCPY3D {
        srcXInBytes: 2,
        srcY: 1,
        srcZ: 2,
        dstHeight: 1,
        WidthInBytes: 5,
        Height: 1,
        Depth: 1,
        ..out
    };
    c.ok("a part of it", cuMemcpy3D_v2(&part));
    let at = 2 * 64 + 16 + 2;
    c.yes("the part", read(c, to, 5) == bytes[at..at + 5]);
    c.ok("destroy", cuArrayDestroy(array));
}

/// A copy does not go beyond an array in any dimension.
fn array_limits(c: &Case) {
    let (_to, _bytes, copy) = set_up(c);
    let array = array_3d(c);
    let into = CUDA_MEMCPY3D {
        dstMemoryType: memory_type::ARRAY,
        dstArray: array,
        srcHeight: 8,
        ..copy
    };
    for (what, copy, want) in [
        (
            "4 layers",
            CUDA_MEMCPY3D { Depth: 4, ..into },
            Code::INVALID_VALUE,
        ),
        (
            "5 rows",
            CUDA_MEMCPY3D { Height: 5, ..into },
            Code::INVALID_VALUE,
        ),
        (
            "17 bytes",
            CUDA_MEMCPY3D {
                WidthInBytes: 17,
                srcPitch: 17,
                ..into
            },
            Code::INVALID_VALUE,
        ),
        (
            "3 layers from 1",
            CUDA_MEMCPY3D { dstZ: 1, ..into },
            Code::INVALID_VALUE,
        ),
        (
            "2 layers from 1",
            CUDA_MEMCPY3D {
                dstZ: 1,
                Depth: 2,
                ..into
            },
            Code::SUCCESS,
        ),
    ] {
        c.expect(what, cuMemcpy3D_v2(&copy), want);
    }
    let flat = array_2d(c);
    let into = CUDA_MEMCPY3D {
        dstArray: flat,
        Depth: 1,
        ..into
    };
    c.ok("one layer into a flat array", cuMemcpy3D_v2(&into));
    let result = cuMemcpy3D_v2(&CUDA_MEMCPY3D { Depth: 2, ..into });
    c.invalid("two layers into a flat array", result);
}

const FLAT: CUDA_ARRAY_DESCRIPTOR = CUDA_ARRAY_DESCRIPTOR {
    Width: 16,
    Height: 4,
    Format: BYTE,
    NumChannels: 1,
};

fn array(c: &Case, descriptor: CUDA_ARRAY_DESCRIPTOR) -> CUarray {
    let mut array = CUarray::NULL;
    let result = cuArrayCreate_v2(&mut array, &descriptor);
    c.require("cuArrayCreate", result);
    array
}

/// 4 rows of 16 bytes.
fn array_2d(c: &Case) -> CUarray {
    array(c, FLAT)
}

/// 256 bytes.
fn array_1d(c: &Case) -> CUarray {
    array(
        c,
        CUDA_ARRAY_DESCRIPTOR {
            Width: 256,
            Height: 0,
            ..FLAT
        },
    )
}

/// An array returns its descriptor, with and without layers.
fn plain_arrays(c: &Case) {
    primary(c);
    let array = array_2d(c);
    let mut flat = CUDA_ARRAY_DESCRIPTOR::default();
    c.ok("descriptor", cuArrayGetDescriptor_v2(&mut flat, array));
    c.same("what it returns", flat, FLAT);
    let mut full = CUDA_ARRAY3D_DESCRIPTOR::default();
    c.ok(
        "full descriptor",
        cuArray3DGetDescriptor_v2(&mut full, array),
    );
    let layers = (full.Width, full.Height, full.Depth, full.Flags);
    c.same("width, height, depth, flags", layers, (16, 4, 0, 0));
    let deep = array_3d(c);
    c.ok(
        "descriptor of layers",
        cuArrayGetDescriptor_v2(&mut flat, deep),
    );
    let result = cuArrayGetDescriptor_v2(&mut flat, CUarray::NULL);
    c.expect("descriptor of null", result, Code::INVALID_HANDLE);
    let result = cuArrayGetDescriptor_v2(std::ptr::null_mut(), array);
    c.invalid("descriptor into null", result);
    c.ok("destroy", cuArrayDestroy(array));
}

/// What is not an array: width 0, three channels, an unknown format, too wide.
fn plain_array_errors(c: &Case) {
    primary(c);
    let mut array = CUarray::NULL;
    c.invalid("into null", cuArrayCreate_v2(std::ptr::null_mut(), &FLAT));
    c.invalid("from null", cuArrayCreate_v2(&mut array, std::ptr::null()));
    for (what, descriptor) in [
        ("width 0", CUDA_ARRAY_DESCRIPTOR { Width: 0, ..FLAT }),
        (
            "3 channels",
            CUDA_ARRAY_DESCRIPTOR {
                NumChannels: 3,
                ..FLAT
            },
        ),
        ("format 77", CUDA_ARRAY_DESCRIPTOR { Format: 77, ..FLAT }),
        (
            "200,000 wide",
            CUDA_ARRAY_DESCRIPTOR {
                Width: 200_000,
                ..FLAT
            },
        ),
        (
            "131,073 wide",
            CUDA_ARRAY_DESCRIPTOR {
                Width: 131_073,
                Height: 0,
                ..FLAT
            },
        ),
    ] {
        c.invalid(what, cuArrayCreate_v2(&mut array, &descriptor));
    }
    let widest = CUDA_ARRAY_DESCRIPTOR {
        Width: 131_072,
        Height: 0,
        ..FLAT
    };
    c.ok("131,072 wide", cuArrayCreate_v2(&mut array, &widest));
    let no_rows = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 16,
        Depth: 3,
        Format: BYTE,
        NumChannels: 1,
        ..CUDA_ARRAY3D_DESCRIPTOR::default()
    };
    c.invalid(
        "layers without rows",
        cuArray3DCreate_v2(&mut array, &no_rows),
    );
}

/// Device memory goes into an array and comes back, within its first row.
fn rows_of_arrays(c: &Case) {
    let (to, bytes, copy) = set_up(c);
    let from = copy.srcDevice;
    let line = array_1d(c);
    c.ok("into the array", cuMemcpyDtoA_v2(line, 0, from, 256));
    c.ok("into a part", cuMemcpyDtoA_v2(line, 100, from, 100));
    c.ok("out of it", cuMemcpyAtoD_v2(to, line, 0, 256));
    let mut want = bytes[..256].to_vec();
    want[100..200].copy_from_slice(&bytes[..100]);
    c.yes("the bytes came back", read(c, to, 256) == want);
    let flat = array_2d(c);
    c.ok("a row", cuMemcpyDtoA_v2(flat, 0, from, 16));
    c.ok("a row of layers", cuMemcpyDtoA_v2(array_3d(c), 0, from, 16));
    c.invalid("two rows", cuMemcpyDtoA_v2(flat, 0, from, 32));
    c.invalid("across rows", cuMemcpyDtoA_v2(flat, 8, from, 16));
    c.invalid("all rows", cuMemcpyAtoD_v2(to, flat, 0, 64));
}

/// Beyond an array, without an array, without memory.
fn beyond_arrays(c: &Case) {
    let (_to, bytes, copy) = set_up(c);
    let from = copy.srcDevice;
    let line = array_1d(c);
    c.invalid("beyond its end", cuMemcpyDtoA_v2(line, 200, from, 100));
    c.ok("0 bytes", cuMemcpyDtoA_v2(line, 0, from, 0));
    c.ok(
        "0 bytes beyond its end",
        cuMemcpyDtoA_v2(line, 300, from, 0),
    );
    c.invalid("from null", cuMemcpyDtoA_v2(line, 0, 0, 16));
    let host = bytes.as_ptr().addr() as u64;
    c.invalid("from ordinary memory", cuMemcpyDtoA_v2(line, 0, host, 16));
    let result = cuMemcpyDtoA_v2(CUarray::NULL, 0, from, 16);
    c.invalid("into no array", result);
}

/// Bytes are copied between arrays, also within one.
fn array_to_array(c: &Case) {
    let (to, bytes, copy) = set_up(c);
    let line = array_1d(c);
    c.require("fill", cuMemcpyDtoA_v2(line, 0, copy.srcDevice, 256));
    c.ok("within an array", cuMemcpyAtoA_v2(line, 10, line, 100, 16));
    c.require("read", cuMemcpyAtoD_v2(to, line, 10, 16));
    c.yes("copied", read(c, to, 16) == bytes[100..116]);
    c.ok("overlapping", cuMemcpyAtoA_v2(line, 10, line, 12, 16));
    let flat = array_2d(c);
    let result = cuMemcpyAtoA_v2(line, 0, flat, 0, 32);
    c.invalid("two rows", result);
    let result = cuMemcpyAtoA_v2(line, 250, flat, 0, 16);
    c.invalid("beyond its end", result);
}

/// The same on streams.
fn arrays_on_streams(c: &Case) {
    primary(c);
    let (line, stream) = (array_1d(c), independent(c));
    let data: Vec<u8> = (0..=255).collect();
    let mut back = vec![0_u8; 16];
    let result = cuMemcpyHtoAAsync_v2(line, 0, data.as_ptr().cast(), 256, stream);
    c.ok("into the array", result);
    let result = cuMemcpyAtoHAsync_v2(back.as_mut_ptr().cast(), line, 100, 16, stream);
    c.ok("out of it", result);
    wait_for(c, stream);
    c.yes(
        "the part",
        std::hint::black_box(&back)[..] == data[100..116],
    );
    let result = cuMemcpyHtoAAsync_v2(line, 250, data.as_ptr().cast(), 16, stream);
    c.invalid("beyond its end", result);
    let result = cuMemcpyHtoAAsync_v2(line, 0, std::ptr::null(), 16, stream);
    c.invalid("from null", result);
    c.ok("the stream is fine", cuStreamSynchronize(stream));
}
