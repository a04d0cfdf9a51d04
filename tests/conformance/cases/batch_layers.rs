//! Batches of copies in three dimensions.

use super::batch_copies::{NONE, set_up};
use crate::case::Case;
use crate::driver::*;
use crate::tools::*;
use memcpy_src_access_order as order;

cases! {"batch_layers":
    layers,
    layers_and_arrays,
    layers_at_fault,
    layers_with_invalid_memory,
    layers_arguments,
}

fn pointer(ptr: CUdeviceptr) -> CUmemcpy3DOperand {
    strided(ptr, 0, 0)
}

fn strided(ptr: CUdeviceptr, row_length: usize, layer_height: usize) -> CUmemcpy3DOperand {
    CUmemcpy3DOperand {
        type_: memcpy3d_operand_type::POINTER,
        op: CUmemcpy3DOperand_op {
            ptr: CUmemcpy3DOperand_op_ptr {
                ptr,
                rowLength: row_length,
                layerHeight: layer_height,
                ..CUmemcpy3DOperand_op_ptr::default()
            },
        },
    }
}

fn in_array(array: CUarray, x: usize) -> CUmemcpy3DOperand {
    CUmemcpy3DOperand {
        type_: memcpy3d_operand_type::ARRAY,
        op: CUmemcpy3DOperand_op {
            array: CUmemcpy3DOperand_op_array {
                array,
                offset: CUoffset3D { x, y: 0, z: 0 },
            },
        },
    }
}

/// A copy of 4 × 3 × 2 elements.
fn copy(dst: CUmemcpy3DOperand, src: CUmemcpy3DOperand) -> CUDA_MEMCPY3D_BATCH_OP {
    CUDA_MEMCPY3D_BATCH_OP {
        src,
        dst,
        extent: CUextent3D {
            width: 4,
            height: 3,
            depth: 2,
        },
        srcAccessOrder: order::STREAM,
        flags: 0,
    }
}

fn run_3d(ops: &mut [CUDA_MEMCPY3D_BATCH_OP], stream: CUstream) -> CUresult {
    cuMemcpy3DBatchAsync_v2(ops.len(), ops.as_mut_ptr(), 0, stream)
}

fn invalid_3d(c: &Case, what: &str, ops: &mut [CUDA_MEMCPY3D_BATCH_OP], copy: usize) {
    let stream = independent(c);
    c.invalid(what, run_3d(ops, stream));
    let mut failed = 99;
    let result = cuMemcpy3DBatchAsync(ops.len(), ops.as_mut_ptr(), &mut failed, 0, stream);
    c.invalid(format_args!("{what}, CUDA 12.8"), result);
    c.same(format_args!("{what}: the copy at fault"), failed, copy);
    wait_for(c, stream);
}

/// Rows and layers are copied, with and without gaps. An element is a byte.
fn layers(c: &Case) {
    let (batch, [a, b, d], _host) = set_up(c);
    let bytes: Vec<u8> = (0..=255).collect();
    write(c, a, &bytes);
    let mut ops = [
        copy(pointer(b), pointer(a)),
        copy(pointer(d), strided(a, 8, 5)),
    ];
    c.ok("copy", run_3d(&mut ops, batch.stream));
    wait_for(c, batch.stream);
    c.yes("without gaps", read(c, b, 24) == bytes[..24]);
    c.same("after that", read(c, b + 24, 1), vec![2]);
    let mut want = Vec::new();
    for start in [0, 8, 16, 40, 48, 56] {
        want.extend_from_slice(&bytes[start..start + 4]);
    }
    c.yes("from rows of 8, layers of 5 rows", read(c, d, 24) == want);
    let mut failed = 99;
    let result = cuMemcpy3DBatchAsync(2, ops.as_mut_ptr(), &mut failed, 0, batch.stream);
    c.ok("CUDA 12.8", result);
    c.same("no copy at fault", failed, NONE);
    wait_for(c, batch.stream);
}

/// With an array, an element is the array's.
fn layers_and_arrays(c: &Case) {
    const INT32: u32 = 3;
    let (batch, [a, b, _], _host) = set_up(c);
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 8,
        Height: 4,
        Depth: 2,
        Format: INT32,
        NumChannels: 1,
        ..CUDA_ARRAY3D_DESCRIPTOR::default()
    };
    let mut array = CUarray::NULL;
    c.require("array", cuArray3DCreate_v2(&mut array, &descriptor));
    let numbers: Vec<u8> = (0..24_u32).flat_map(u32::to_ne_bytes).collect();
    write(c, a, &numbers);
    c.require("fill", cuMemsetD8_v2(b, 0, 4096));
    synchronize(c);
    // The copies of one batch are in no order.
    let mut into = [copy(in_array(array, 1), pointer(a))];
    c.ok("into the array", run_3d(&mut into, batch.stream));
    let mut out = [copy(strided(b, 6, 4), in_array(array, 1))];
    c.ok("out of it", run_3d(&mut out, batch.stream));
    wait_for(c, batch.stream);
    let back = read(c, b, 192);
    let mut want = vec![0_u8; 192];
    for (row, start) in [0, 24, 48, 96, 120, 144].into_iter().enumerate() {
        want[start..start + 16].copy_from_slice(&numbers[row * 16..row * 16 + 16]);
    }
    c.yes("rows of 6, layers of 4 rows", back == want);
    let mut ops = [copy(in_array(array, 5), pointer(a))];
    c.invalid("beyond the array", run_3d(&mut ops, batch.stream));
}

/// Parameters at fault are reported; no copy is executed.
fn layers_at_fault(c: &Case) {
    let (_batch, [a, b, d], _host) = set_up(c);
    let good = copy(pointer(b), pointer(a));
    let second = copy(pointer(d), pointer(a));
    let width = CUextent3D {
        width: 0,
        ..good.extent
    };
    let depth = CUextent3D {
        depth: 0,
        ..good.extent
    };
    let typeless = CUmemcpy3DOperand {
        type_: 0,
        ..pointer(a)
    };
    for (what, bad) in [
        (
            "no bytes",
            CUDA_MEMCPY3D_BATCH_OP {
                extent: width,
                ..second
            },
        ),
        (
            "no layers",
            CUDA_MEMCPY3D_BATCH_OP {
                extent: depth,
                ..second
            },
        ),
        ("rows of 3", copy(pointer(d), strided(a, 3, 0))),
        ("layers of 2 rows", copy(pointer(d), strided(a, 0, 2))),
        ("operand type 0", copy(pointer(d), typeless)),
        (
            "order 0",
            CUDA_MEMCPY3D_BATCH_OP {
                srcAccessOrder: 0,
                ..second
            },
        ),
        ("flags 2", CUDA_MEMCPY3D_BATCH_OP { flags: 2, ..second }),
    ] {
        invalid_3d(c, what, &mut [good, bad], 1);
        if what == "no bytes" {
            c.same("nothing is copied", read(c, b, 1), vec![2]);
        }
    }
}

/// Invalid memory is found when its copy is next. The copy is not reported.
fn layers_with_invalid_memory(c: &Case) {
    let (_batch, [a, b, d], _host) = set_up(c);
    let good = copy(pointer(b), pointer(a));
    let deep = CUextent3D {
        depth: 1000,
        ..good.extent
    };
    let too_deep = CUDA_MEMCPY3D_BATCH_OP {
        extent: deep,
        ..copy(pointer(d), pointer(a))
    };
    for (what, bad) in [
        ("1000 layers", too_deep),
        ("no source", copy(pointer(d), pointer(0))),
    ] {
        c.require("fill", cuMemsetD8_v2(b, 2, 4096));
        synchronize(c);
        invalid_3d(c, what, &mut [good, bad], NONE);
        let first = read(c, b, 1);
        c.same(format_args!("{what}: the first copy"), first, vec![1]);
    }
}

/// There must be copies, no flags, and a stream that is not the legacy default stream.
fn layers_arguments(c: &Case) {
    let (batch, [a, b, _], _host) = set_up(c);
    let mut op = copy(pointer(b), pointer(a));
    let none = std::ptr::null_mut();
    c.invalid(
        "flags 1",
        cuMemcpy3DBatchAsync_v2(1, &mut op, 1, batch.stream),
    );
    c.invalid(
        "no copies",
        cuMemcpy3DBatchAsync_v2(0, &mut op, 0, batch.stream),
    );
    c.invalid("null", cuMemcpy3DBatchAsync_v2(1, none, 0, batch.stream));
    for (what, stream, want) in [
        ("the default stream", CUstream::NULL, 99),
        ("the legacy default stream", CUstream::LEGACY, NONE),
    ] {
        let mut failed = 99;
        let result = cuMemcpy3DBatchAsync(1, &mut op, &mut failed, 0, stream);
        c.invalid(what, result);
        c.same(format_args!("{what}: the copy at fault"), failed, want);
    }
    let result = cuMemcpy3DBatchAsync_v2(1, &mut op, 0, CUstream::PER_THREAD);
    c.ok("the thread's own stream", result);
    op.flags = memcpy_flags::PREFER_OVERLAP_WITH_COMPUTE;
    let result = cuMemcpy3DBatchAsync_v2(1, &mut op, 0, batch.stream);
    c.ok("flags 1 of a copy", result);
    synchronize(c);
}
