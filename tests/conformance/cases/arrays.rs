//! Arrays, as far as `cust` uses them.

use crate::case::Case;
use crate::driver::*;
use crate::tools::*;

cases! {"arrays":
    one_dimension,
    descriptor,
}

const UNSIGNED_BYTE: u32 = 1;

fn array(c: &Case, descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CUarray {
    let mut array = CUarray::NULL;
    c.require(
        "cuArray3DCreate",
        cuArray3DCreate_v2(&mut array, descriptor),
    );
    array
}

/// Bytes go into an array and come back.
fn one_dimension(c: &Case) {
    primary(c);
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 256,
        Format: UNSIGNED_BYTE,
        NumChannels: 1,
        ..CUDA_ARRAY3D_DESCRIPTOR::default()
    };
    let array = array(c, &descriptor);
    let data: Vec<u8> = (0..=255).collect();
    let mut back = vec![0_u8; 256];
    c.ok(
        "host to array",
        cuMemcpyHtoA_v2(array, 0, data.as_ptr().cast(), 256),
    );
    c.ok(
        "array to host",
        cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), array, 0, 256),
    );
    c.yes("the bytes came back", std::hint::black_box(&back) == &data);
    let result = cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), array, 100, 3);
    c.ok("a part of it", result);
    c.same(
        "the part is from there",
        std::hint::black_box(&back)[..3].to_vec(),
        vec![100, 101, 102],
    );
    c.ok("destroy", cuArrayDestroy(array));
}

/// An array returns its descriptor.
fn descriptor(c: &Case) {
    primary(c);
    let wanted = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 64,
        Height: 32,
        Format: UNSIGNED_BYTE,
        NumChannels: 4,
        ..CUDA_ARRAY3D_DESCRIPTOR::default()
    };
    let array = array(c, &wanted);
    let mut told = CUDA_ARRAY3D_DESCRIPTOR::default();
    c.ok("descriptor", cuArray3DGetDescriptor_v2(&mut told, array));
    c.same("what it tells", told, wanted);
    c.ok("destroy", cuArrayDestroy(array));
    let mut none = CUarray::NULL;
    let result = cuArray3DCreate_v2(&mut none, &CUDA_ARRAY3D_DESCRIPTOR { Width: 0, ..wanted });
    c.invalid("an array of width 0", result);
    let result = cuArray3DCreate_v2(
        &mut none,
        &CUDA_ARRAY3D_DESCRIPTOR {
            NumChannels: 3,
            ..wanted
        },
    );
    c.invalid("an array of 3 channels", result);
}
