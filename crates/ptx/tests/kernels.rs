//! The kernels of the folder `kernels`, against what they compute in Rust.

use cuguard_ptx::{FaultKind, Launch, Module};

use crate::common::Argument::{F32, U32, U64};
use crate::common::{Device, launch};

macro_rules! kernel {
    ($name:literal) => {
        include_str!(concat!("../../../kernels/", $name, ".ptx"))
    };
}

#[test]
fn saxpy() {
    for (grid, block, count) in [(1, 32, 5), (3, 100, 1000), (2, 64, 128), (7, 33, 0)] {
        let device = Device::new();
        let x: Vec<f32> = (0..count).map(|own| own as f32 * 0.37).collect();
        let y: Vec<f32> = (0..count).map(|own| 5.0 - own as f32).collect();
        let (at_x, at_y) = (device.upload(&x), device.upload(&y));
        let arguments = [F32(1.7), U64(at_x), U64(at_y), U64(count)];
        device
            .launch(kernel!("saxpy"), "saxpy", grid, block, &arguments)
            .unwrap();
        let expected: Vec<f32> = x
            .iter()
            .zip(&y)
            .map(|(x, y)| 1.7f32.mul_add(*x, *y))
            .collect();
        assert_eq!(device.read::<f32>(at_y, count as usize), expected);
    }
}

#[test]
fn pattern() {
    let device = Device::new();
    let words = device.upload(&vec![0u32; 1000]);
    let differ = device.upload(&[0u64]);
    let text = kernel!("pattern");
    let arguments = [U64(words), U64(1000), U32(77)];
    device
        .launch(text, "fill_pattern", 3, 96, &arguments)
        .unwrap();
    let expected = (0..1000u32).map(|own| own.wrapping_mul(2_654_435_761) ^ 77);
    assert_eq!(
        device.read::<u32>(words, 1000),
        expected.collect::<Vec<_>>()
    );
    device.write(words + 400, &[1u32, 2, 3]);
    let arguments = [U64(words), U64(1000), U32(77), U64(differ)];
    device
        .launch(text, "check_pattern", 4, 64, &arguments)
        .unwrap();
    assert_eq!(device.read::<u64>(differ, 1), [3]);
}

#[test]
fn launches() {
    let device = Device::new();
    let text = kernel!("launches");
    device.launch(text, "nothing", 5, 5, &[]).unwrap();
    let input: Vec<f32> = (0..100).map(|own| own as f32).collect();
    let (from, to) = (device.upload(&input), device.upload(&[0f32; 100]));
    device
        .launch(
            text,
            "scale",
            2,
            40,
            &[U64(from), U64(to), U32(100), F32(0.5)],
        )
        .unwrap();
    let expected: Vec<f32> = input.iter().map(|own| own * 0.5).collect();
    assert_eq!(device.read::<f32>(to, 100), expected);

    let words: Vec<u32> = (0..2 * 16384).collect();
    let at = device.upload(&words);
    let module = Module::new(text).unwrap();
    let launch = Launch {
        dynamic_shared: 64 << 10,
        ..launch("reverse_tiles", 2, 256)
    };
    device.run(&module, &launch, &[U64(at), U32(2)]).unwrap();
    let expected = words
        .chunks(16384)
        .flat_map(|tile| tile.iter().rev().copied());
    assert_eq!(
        device.read::<u32>(at, words.len()),
        expected.collect::<Vec<_>>()
    );
}

/// Blocks wait for each other.
#[test]
fn a_barrier_of_the_grid() {
    for workers in [1, 3] {
        let device = Device::new();
        let words: Vec<u32> = (0..1000).collect();
        let at = device.upload(&words);
        let partial = device.upload(&[0u32; 16]);
        let arrived = device.upload(&[0u32]);
        let sums = device.upload(&[0u32; 16]);
        let module = Module::new(kernel!("launches")).unwrap();
        let launch = Launch {
            workers,
            ..launch("sum_everywhere", 16, 64)
        };
        let arguments = [U64(at), U32(1000), U64(partial), U64(arrived), U64(sums)];
        device.run(&module, &launch, &arguments).unwrap();
        assert_eq!(device.read::<u32>(sums, 16), [499_500; 16]);
    }
}

#[test]
fn local() {
    let device = Device::new();
    let sum = device.upload(&[0u32]);
    device
        .launch(
            kernel!("local"),
            "use_local",
            1,
            33,
            &[U32(12345), U64(sum)],
        )
        .unwrap();
    let mut slots = vec![0u32; 16384];
    let mut position = 0u32;
    for value in 0..16384 {
        slots[((position ^ 12345) & 16383) as usize] = value;
        position = position.wrapping_sub(1_640_531_535);
    }
    let (mut at, mut total) = (0u32, 0u32);
    for _ in 0..64 {
        total = total.wrapping_add(slots[(at.wrapping_add(total) & 16383) as usize]);
        at = at.wrapping_add(12345);
    }
    assert_eq!(device.read::<u32>(sum, 1), [total.wrapping_mul(33)]);
}

#[test]
fn heap() {
    let device = Device::new();
    let (granted, refused) = (device.upload(&[0u64]), device.upload(&[0u64]));
    let text = kernel!("heap");
    for (bytes, keep) in [(100, 0), (16 << 20, 0), (64, 1)] {
        let arguments = [U64(bytes), U32(keep), U64(granted), U64(refused)];
        device
            .launch(text, "heap_allocate", 1, 40, &arguments)
            .unwrap();
    }
    assert_eq!(device.read::<u64>(granted, 1), [80]);
    assert_eq!(device.read::<u64>(refused, 1), [40]);
}

#[test]
fn spin() {
    let device = Device::new();
    device
        .launch(kernel!("spin"), "spin", 1, 1, &[U64(100_000)])
        .unwrap();
}

#[test]
fn faults() {
    let device = Device::new();
    let text = kernel!("fault");
    let inside = device.upload(&[0u32, 0]);
    device
        .launch(text, "write_to", 1, 1, &[U64(inside + 4)])
        .unwrap();
    assert_eq!(device.read::<u32>(inside, 2), [0, 1]);
    let error = device
        .launch(text, "write_to", 2, 40, &[U64(inside + 8)])
        .unwrap_err();
    let kind = FaultKind::OutOfBounds {
        address: inside + 8,
        size: 4,
        is_write: true,
        space: "global",
    };
    assert_eq!(
        (error.kind.clone(), error.line, error.thread),
        (kind, 14, [0, 0, 0])
    );
    assert!(
        error
            .to_string()
            .starts_with("write_to: write of 4 bytes at global address 0x7")
    );
    let error = device
        .launch(text, "write_to", 2, 40, &[U64(inside + 2)])
        .unwrap_err();
    assert_eq!(
        error.kind,
        FaultKind::Misaligned {
            address: inside + 2,
            size: 4
        }
    );
}
