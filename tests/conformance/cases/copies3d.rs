//! Copies in three dimensions.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"copies3d":
    layers,
    gaps,
    nothing_to_copy,
    too_large,
    wrong_pitches,
    wrong_arguments,
    between_contexts,
    host_memory,
}

/// Two blocks of 4096 bytes: the first counts up, the second is filled with 1. A copy of 8 bytes × 4
/// rows × 3 layers, with rows of 16 bytes and layers of 8 rows.
pub(crate) fn set_up(c: &Case) -> (CUdeviceptr, Vec<u8>, CUDA_MEMCPY3D) {
    primary(c);
    let (from, to) = (alloc(c, 4096), alloc(c, 4096));
    let bytes: Vec<u8> = (0..4096_u32).map(|i| (i % 251) as u8 + 2).collect();
    write(c, from, &bytes);
    c.require("fill", cuMemsetD8_v2(to, 1, 4096));
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: memory_type::DEVICE,
        srcDevice: from,
        srcPitch: 16,
        srcHeight: 8,
        dstMemoryType: memory_type::DEVICE,
        dstDevice: to,
        dstPitch: 16,
        dstHeight: 8,
        WidthInBytes: 8,
        Height: 4,
        Depth: 3,
        ..CUDA_MEMCPY3D::default()
    };
    (to, bytes, copy)
}

/// What `copy` makes of a block that was filled with 1.
fn expected(bytes: &[u8], copy: &CUDA_MEMCPY3D) -> Vec<u8> {
    let mut block = vec![1; 4096];
    for z in 0..copy.Depth {
        for y in 0..copy.Height {
            let from = ((z + copy.srcZ) * copy.srcHeight + y + copy.srcY) * copy.srcPitch;
            let to = ((z + copy.dstZ) * copy.dstHeight + y + copy.dstY) * copy.dstPitch;
            let (from, to) = (from + copy.srcXInBytes, to + copy.dstXInBytes);
            let width = copy.WidthInBytes;
            block[to..to + width].copy_from_slice(&bytes[from..from + width]);
        }
    }
    block
}

fn check(c: &Case, what: &str, (to, bytes, copy): &(CUdeviceptr, Vec<u8>, CUDA_MEMCPY3D)) {
    let want = expected(bytes, copy);
    c.ok(format_args!("{what}: copy"), cuMemcpy3D_v2(copy));
    c.yes(format_args!("{what}: copied"), read(c, *to, 4096) == want);
    c.require("fill", cuMemsetD8_v2(*to, 1, 4096));
    synchronize(c);
    let stream = independent(c);
    let result = cuMemcpy3DAsync_v2(copy, stream);
    c.ok(format_args!("{what}: copy on a stream"), result);
    wait_for(c, stream);
    let copied = read(c, *to, 4096) == want;
    c.yes(format_args!("{what}: copied on a stream"), copied);
}

/// Layers of rows are copied, and what lies between them stays.
fn layers(c: &Case) {
    let mut all = set_up(c);
    check(c, "layers", &all);
    c.require("fill", cuMemsetD8_v2(all.0, 1, 4096));
    all.2 = CUDA_MEMCPY3D {
        srcXInBytes: 3,
        srcY: 2,
        srcZ: 1,
        dstXInBytes: 5,
        dstY: 3,
        dstZ: 4,
        ..all.2
    };
    check(c, "offsets", &all);
}

/// A pitch or a height of 0 stands for no gap.
fn gaps(c: &Case) {
    let (to, bytes, copy) = set_up(c);
    let tight = CUDA_MEMCPY3D {
        srcPitch: 0,
        srcHeight: 0,
        ..copy
    };
    c.ok("both 0", cuMemcpy3D_v2(&tight));
    let as_if = CUDA_MEMCPY3D {
        srcPitch: 8,
        srcHeight: 4,
        ..copy
    };
    let same = read(c, to, 4096) == expected(&bytes, &as_if);
    c.yes("rows and layers side by side", same);
}

/// A copy without bytes, rows or layers is nothing to copy.
fn nothing_to_copy(c: &Case) {
    let (to, _bytes, copy) = set_up(c);
    for (what, copy) in [
        ("no layers", CUDA_MEMCPY3D { Depth: 0, ..copy }),
        ("no rows", CUDA_MEMCPY3D { Height: 0, ..copy }),
        (
            "no bytes",
            CUDA_MEMCPY3D {
                WidthInBytes: 0,
                ..copy
            },
        ),
    ] {
        c.ok(what, cuMemcpy3D_v2(&copy));
    }
    c.yes("nothing was copied", read(c, to, 4096) == vec![1; 4096]);
}

/// Layers beyond the end of the block fail.
fn too_large(c: &Case) {
    let (to, _bytes, copy) = set_up(c);
    for (what, copy) in [
        ("100 layers", CUDA_MEMCPY3D { Depth: 100, ..copy }),
        ("40 layers", CUDA_MEMCPY3D { Depth: 40, ..copy }),
        ("from layer 100", CUDA_MEMCPY3D { srcZ: 100, ..copy }),
    ] {
        c.invalid(what, cuMemcpy3D_v2(&copy));
        let result = cuMemcpy3DAsync_v2(&copy, CUstream::NULL);
        c.invalid(format_args!("{what}, on a stream"), result);
    }
    synchronize(c);
    c.yes("nothing was copied", read(c, to, 4096) == vec![1; 4096]);
}

/// Rows and layers must not overlap.
fn wrong_pitches(c: &Case) {
    let (_to, _bytes, copy) = set_up(c);
    for (what, copy) in [
        (
            "pitch 7",
            CUDA_MEMCPY3D {
                srcPitch: 7,
                ..copy
            },
        ),
        (
            "height 3",
            CUDA_MEMCPY3D {
                srcHeight: 3,
                ..copy
            },
        ),
        (
            "height 3, one layer",
            CUDA_MEMCPY3D {
                srcHeight: 3,
                Depth: 1,
                ..copy
            },
        ),
        ("from row 5 of 8", CUDA_MEMCPY3D { srcY: 5, ..copy }),
        (
            "from byte 9 of 16",
            CUDA_MEMCPY3D {
                srcXInBytes: 9,
                ..copy
            },
        ),
    ] {
        c.invalid(what, cuMemcpy3D_v2(&copy));
    }
}

/// A copy needs a description, a memory type and an address.
fn wrong_arguments(c: &Case) {
    let (_to, _bytes, copy) = set_up(c);
    c.invalid("null", cuMemcpy3D_v2(std::ptr::null()));
    for (what, copy) in [
        (
            "memory type 0",
            CUDA_MEMCPY3D {
                srcMemoryType: 0,
                ..copy
            },
        ),
        (
            "memory type 9",
            CUDA_MEMCPY3D {
                srcMemoryType: 9,
                ..copy
            },
        ),
        (
            "no address",
            CUDA_MEMCPY3D {
                srcDevice: 0,
                ..copy
            },
        ),
        (
            "no memory",
            CUDA_MEMCPY3D {
                srcDevice: 0x1234,
                ..copy
            },
        ),
        (
            "no array",
            CUDA_MEMCPY3D {
                dstMemoryType: memory_type::ARRAY,
                ..copy
            },
        ),
    ] {
        c.invalid(what, cuMemcpy3D_v2(&copy));
    }
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: memory_type::UNIFIED,
        srcLOD: 1,
        ..copy
    };
    c.ok("unified addresses", cuMemcpy3D_v2(&copy));
}

/// The same between contexts, which may be left out.
fn between_contexts(c: &Case) {
    let (to, bytes, copy) = set_up(c);
    let context = current(c);
    let peer = CUDA_MEMCPY3D_PEER {
        srcMemoryType: memory_type::DEVICE,
        srcDevice: copy.srcDevice,
        srcContext: context,
        srcPitch: 16,
        srcHeight: 8,
        dstMemoryType: memory_type::DEVICE,
        dstDevice: to,
        dstContext: context,
        dstPitch: 16,
        dstHeight: 8,
        WidthInBytes: 8,
        Height: 4,
        Depth: 3,
        ..CUDA_MEMCPY3D_PEER::default()
    };
    c.ok("copy", cuMemcpy3DPeer(&peer));
    let want = expected(&bytes, &copy);
    c.yes("copied", read(c, to, 4096) == want);
    let none = CUDA_MEMCPY3D_PEER {
        srcContext: CUcontext::NULL,
        dstContext: CUcontext::NULL,
        ..peer
    };
    c.ok("without contexts", cuMemcpy3DPeer(&none));
    let stream = independent(c);
    c.ok("on a stream", cuMemcpy3DPeerAsync(&none, stream));
    wait_for(c, stream);
    for (what, copy, want) in [
        (
            "no layers",
            CUDA_MEMCPY3D_PEER { Depth: 0, ..peer },
            Code::SUCCESS,
        ),
        (
            "100 layers",
            CUDA_MEMCPY3D_PEER { Depth: 100, ..peer },
            Code::INVALID_VALUE,
        ),
        (
            "height 3",
            CUDA_MEMCPY3D_PEER {
                srcHeight: 3,
                ..peer
            },
            Code::INVALID_VALUE,
        ),
        (
            "memory type 9",
            CUDA_MEMCPY3D_PEER {
                srcMemoryType: 9,
                ..peer
            },
            Code::INVALID_VALUE,
        ),
    ] {
        c.expect(what, cuMemcpy3DPeer(&copy), want);
    }
}

/// From ordinary memory to the device and back.
fn host_memory(c: &Case) {
    let (to, bytes, copy) = set_up(c);
    let from_host = CUDA_MEMCPY3D {
        srcMemoryType: memory_type::HOST,
        srcHost: bytes.as_ptr().cast(),
        ..copy
    };
    let want = expected(&bytes, &copy);
    c.ok("from the host", cuMemcpy3D_v2(&from_host));
    c.yes("copied", read(c, to, 4096) == want);
    let mut back = vec![1_u8; 4096];
    let to_host = CUDA_MEMCPY3D {
        dstMemoryType: memory_type::HOST,
        dstHost: back.as_mut_ptr().cast(),
        ..copy
    };
    let stream = independent(c);
    c.ok("to the host", cuMemcpy3DAsync_v2(&to_host, stream));
    wait_for(c, stream);
    c.yes("copied back", std::hint::black_box(&back) == &want);
}
