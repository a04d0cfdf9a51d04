//! Products of matrices on tensor cores.

use cuguard_ptx::{FaultKind, Launch, Module};

use crate::common::Argument::{U32, U64};
use crate::common::{Device, launch};

const TEXT: &str = include_str!("../../kernels/corpus/matrices.ptx");

/// Small whole numbers, whose sums are exact in every type.
fn whole(count: usize, salt: u32) -> Vec<i32> {
    (0..count as u32)
        .map(|own| ((own ^ salt).wrapping_mul(2_654_435_761) >> 28) as i32 - 8)
        .collect()
}

/// The half of a small whole number.
fn half(own: &i32) -> u16 {
    let Some(exponent) = own.unsigned_abs().checked_ilog2() else {
        return 0;
    };
    let sign = if *own < 0 { 0x8000 } else { 0 };
    let mantissa = own.unsigned_abs() << (10 - exponent) & 0x3FF;
    sign | ((exponent + 15) << 10 | mantissa) as u16
}

fn run(kernel: &str, device: &Device, arguments: &[crate::common::Argument]) {
    let module = Module::new(TEXT).unwrap_or_else(|errors| panic!("{errors}"));
    device
        .run(&module, &launch(kernel, 1, 32), arguments)
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Element of the product of a matrix by rows and another by rows.
fn product(a: &[i32], b: &[i32], k: usize, n: usize, row: usize, column: usize) -> i32 {
    (0..k).map(|at| a[row * k + at] * b[at * n + column]).sum()
}

#[test]
fn fragments_of_halves() {
    let device = Device::new();
    let side = 32;
    let (a, b) = (whole(side * side, 1), whole(side * side, 2));
    let halves = |own: &[i32]| device.upload(&own.iter().map(half).collect::<Vec<_>>());
    let (at_a, at_b, to) = (
        halves(&a),
        halves(&b),
        device.upload(&vec![0f32; side * side]),
    );
    let module = Module::new(TEXT).unwrap_or_else(|errors| panic!("{errors}"));
    let launch = Launch {
        grid: [2, 2, 1],
        ..launch("product_of_halves", 1, 32)
    };
    device
        .run(
            &module,
            &launch,
            &[U64(at_a), U64(at_b), U64(to), U32(side as u32)],
        )
        .unwrap();
    for (index, found) in device.read::<f32>(to, side * side).into_iter().enumerate() {
        let (row, column) = (index / side, index % side);
        // The second matrix is by columns.
        let sum: i32 = (0..side)
            .map(|at| a[row * side + at] * b[column * side + at])
            .sum();
        assert_eq!(found, 2.0 * (sum + 1) as f32, "{row} {column}");
    }
}

#[test]
fn fragments_of_bytes_and_doubles() {
    let device = Device::new();
    let (a, b) = (whole(32 * 16, 3), whole(16 * 8, 4));
    let bytes = |own: &[i32]| device.upload(&own.iter().map(|own| *own as i8).collect::<Vec<_>>());
    let (at_a, at_b, to) = (bytes(&a), bytes(&b), device.upload(&[0i32; 256]));
    run(
        "product_of_bytes",
        &device,
        &[U64(at_a), U64(at_b), U64(to)],
    );
    for (index, found) in device.read::<i32>(to, 256).into_iter().enumerate() {
        assert_eq!(found, product(&a, &b, 16, 8, index / 8, index % 8));
    }
    let (a, b, c) = (whole(32, 5), whole(32, 6), whole(64, 7));
    let doubles =
        |own: &[i32]| device.upload(&own.iter().map(|own| f64::from(*own)).collect::<Vec<_>>());
    let (at_a, at_b, to) = (doubles(&a), doubles(&b), doubles(&c));
    run(
        "product_of_doubles",
        &device,
        &[U64(at_a), U64(at_b), U64(to)],
    );
    for (index, found) in device.read::<f64>(to, 64).into_iter().enumerate() {
        let (row, column) = (index % 8, index / 8);
        assert_eq!(
            found,
            f64::from(product(&a, &b, 4, 8, row, column) + c[row * 8 + column])
        );
    }
}

#[test]
fn the_instruction_itself() {
    let device = Device::new();
    let (a, b) = (whole(256, 8), whole(128, 9));
    let halves = |own: &[i32]| device.upload(&own.iter().map(half).collect::<Vec<_>>());
    let (at_a, at_b, to) = (halves(&a), halves(&b), device.upload(&[0f32; 128]));
    run(
        "product_by_instruction",
        &device,
        &[U64(at_a), U64(at_b), U64(to)],
    );
    for (index, found) in device.read::<f32>(to, 128).into_iter().enumerate() {
        assert_eq!(
            found,
            product(&a, &b, 16, 8, index / 8, index % 8) as f32 + 0.5
        );
    }
    let (a, b) = (whole(512, 10), whole(256, 11));
    let bytes = |own: &[i32]| device.upload(&own.iter().map(|own| *own as i8).collect::<Vec<_>>());
    let (at_a, at_b, to) = (bytes(&a), bytes(&b), device.upload(&[0i32; 128]));
    run(
        "product_of_bytes_by_instruction",
        &device,
        &[U64(at_a), U64(at_b), U64(to)],
    );
    for (index, found) in device.read::<i32>(to, 128).into_iter().enumerate() {
        let (row, column) = (index / 8, index % 8);
        let sum: i32 = (0..32)
            .map(|at| a[row * 32 + at] * b[column * 32 + at])
            .sum();
        assert_eq!(found, sum + 7);
    }
}

/// Rows are aligned to 16 bytes.
#[test]
fn addresses_are_aligned() {
    for (offset, instruction) in [
        (3, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r0];"),
        (8, "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r0], {%r2};"),
        (
            1,
            "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%r0], 16;",
        ),
        (
            4,
            "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r0], {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, 16;",
        ),
    ] {
        let kernel = |offset: u32| {
            let text = format!(
                ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry k() {{ .shared .align 16 .b8 s[4096];\n\
                 .reg .b32 %r<9>; mov.u32 %r0, s; add.u32 %r0, %r0, {offset}; {instruction} ret; }}"
            );
            let launched = Device::new().launch(&text, "k", 1, 32, &[]);
            launched.map_err(|error| error.kind)
        };
        assert!(kernel(16).is_ok(), "{instruction}");
        let found = kernel(offset);
        assert!(
            matches!(found, Err(FaultKind::Misaligned { .. })),
            "{found:?}"
        );
    }
}
