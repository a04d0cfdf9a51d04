//! Algorithms in CUDA C++, compiled by nvcc, against what they compute in Rust.

use cuguard_ptx::Launch;

use crate::common::Argument::{U32, U64};
use crate::common::corpus::{ALGORITHMS, noise, run};
use crate::common::{Device, launch};

#[test]
fn scan() {
    let device = Device::new();
    let words = noise(1000);
    let (from, to, totals) = (
        device.upload(&words),
        device.upload(&[0u32; 1000]),
        device.upload(&[0u32; 4]),
    );
    run(
        ALGORITHMS,
        &launch("scan", 4, 256),
        &device,
        &[U64(from), U64(to), U64(totals), U32(1000)],
    );
    let expected = words.chunks(256).flat_map(|block| {
        block.iter().scan(0u32, |sum, own| {
            *sum = sum.wrapping_add(*own);
            Some(*sum)
        })
    });
    assert_eq!(device.read::<u32>(to, 1000), expected.collect::<Vec<_>>());
    let total = words[..256]
        .iter()
        .fold(0u32, |sum, own| sum.wrapping_add(*own));
    assert_eq!(device.read::<u32>(totals, 1), [total]);
}

#[test]
fn bitonic_sort() {
    let device = Device::new();
    let mut keys: Vec<i32> = noise(512).into_iter().map(|own| own as i32).collect();
    let at = device.upload(&keys);
    run(
        ALGORITHMS,
        &launch("bitonic_sort", 1, 512),
        &device,
        &[U64(at)],
    );
    keys.sort_unstable();
    assert_eq!(device.read::<i32>(at, 512), keys);
}

#[test]
fn transpose() {
    let device = Device::new();
    let side = 37;
    let values: Vec<f64> = (0..side * side).map(f64::from).collect();
    let (from, to) = (
        device.upload(&values),
        device.upload(&vec![0f64; values.len()]),
    );
    let launch = Launch {
        grid: [3, 3, 1],
        block: [16, 16, 1],
        ..launch("transpose", 1, 1)
    };
    run(
        ALGORITHMS,
        &launch,
        &device,
        &[U64(from), U64(to), U32(side as u32)],
    );
    let expected = (0..side * side).map(|own| f64::from(own % side * side + own / side));
    assert_eq!(
        device.read::<f64>(to, values.len()),
        expected.collect::<Vec<_>>()
    );
}

#[test]
fn mandelbrot() {
    let device = Device::new();
    let (width, height) = (60u32, 40u32);
    let to = device.upload(&vec![0u32; (width * height) as usize]);
    let launch = Launch {
        grid: [8, 5, 1],
        block: [8, 8, 1],
        ..launch("mandelbrot", 1, 1)
    };
    run(
        ALGORITHMS,
        &launch,
        &device,
        &[U64(to), U32(width), U32(height)],
    );
    let expected = (0..width * height).map(|own| {
        // The compiler fuses multiplication and addition.
        let re = 3f64.mul_add(f64::from(own % width), 0.0) / f64::from(width) - 2.0;
        let im = 2.0 * f64::from(own / width) / f64::from(height) - 1.0;
        let (mut a, mut b, mut count) = (0f64, 0f64, 0);
        while count < 200 && a * a + b * b < 4.0 {
            (a, b) = (a * a - b * b + re, 2.0 * a * b + im);
            count += 1;
        }
        count
    });
    assert_eq!(
        device.read::<u32>(to, (width * height) as usize),
        expected.collect::<Vec<_>>()
    );
}

#[test]
fn n_body() {
    let device = Device::new();
    let count = 100;
    let bodies: Vec<f32> = noise(4 * count)
        .into_iter()
        .map(|own| own as f32 / 4e9 + 0.1)
        .collect();
    let (from, to) = (
        device.upload(&bodies),
        device.upload(&vec![0f32; 3 * count]),
    );
    let launch = Launch {
        dynamic_shared: 16 * 64,
        ..launch("n_body", 2, 64)
    };
    run(
        ALGORITHMS,
        &launch,
        &device,
        &[U64(from), U64(to), U32(count as u32)],
    );
    let found = device.read::<f32>(to, 3 * count);
    let at = |body: usize, axis: usize| f64::from(bodies[4 * body + axis]);
    for own in 0..count {
        for axis in 0..3 {
            let force = (0..count).map(|other| {
                let square: f64 = (0..3)
                    .map(|axis| (at(other, axis) - at(own, axis)).powi(2))
                    .sum();
                at(other, 3) * (at(other, axis) - at(own, axis)) * (square + 0.01).powf(-1.5)
            });
            let expected: f64 = force.sum();
            let error = (f64::from(found[3 * own + axis]) - expected).abs();
            assert!(error < 1e-3 * expected.abs().max(10.0), "{own} {axis}");
        }
    }
}

#[test]
fn fft() {
    let device = Device::new();
    let (log, count) = (7, 128);
    let values: Vec<f32> = noise(2 * count)
        .into_iter()
        .map(|own| own as f32 / 2e9 - 1.0)
        .collect();
    let at = device.upload(&values);
    run(
        ALGORITHMS,
        &launch("fft", 1, count as u32 / 2),
        &device,
        &[U64(at), U32(log)],
    );
    let found = device.read::<f32>(at, 2 * count);
    for k in 0..count {
        let (mut re, mut im) = (0.0, 0.0);
        for n in 0..count {
            let angle = -std::f64::consts::TAU * (k * n % count) as f64 / count as f64;
            let (x, y) = (f64::from(values[2 * n]), f64::from(values[2 * n + 1]));
            re += x * angle.cos() - y * angle.sin();
            im += x * angle.sin() + y * angle.cos();
        }
        let error = (f64::from(found[2 * k]) - re).abs() + (f64::from(found[2 * k + 1]) - im).abs();
        assert!(error < 1e-4, "{k}: {error}");
    }
}

#[test]
fn hash_table() {
    let device = Device::new();
    let keys: Vec<u32> = noise(2000).into_iter().map(|own| own % 300 + 1).collect();
    let at = device.upload(&keys);
    let (slots, counts) = (device.upload(&[0u32; 512]), device.upload(&[0u32; 512]));
    run(
        ALGORITHMS,
        &launch("count_keys", 3, 128),
        &device,
        &[U64(at), U32(2000), U64(slots), U64(counts), U32(511)],
    );
    let (slots, counts) = (
        device.read::<u32>(slots, 512),
        device.read::<u32>(counts, 512),
    );
    for key in 1..=300 {
        let expected = keys.iter().filter(|own| **own == key).count() as u32;
        let found = slots
            .iter()
            .position(|own| *own == key)
            .map_or(0, |slot| counts[slot]);
        assert_eq!(found, expected, "{key}");
    }
}

#[test]
fn collatz() {
    let device = Device::new();
    let values: Vec<u64> = (1..=200).map(|own| own * 977).collect();
    let (from, to) = (device.upload(&values), device.upload(&[0u32; 200]));
    run(
        ALGORITHMS,
        &launch("collatz", 2, 128),
        &device,
        &[U64(from), U64(to), U32(200)],
    );
    let expected = values.iter().map(|own| {
        let next =
            |own: &u64| (*own > 1).then_some(if own % 2 == 1 { 3 * own + 1 } else { own / 2 });
        std::iter::successors(Some(*own), next).count() as u32 - 1
    });
    assert_eq!(device.read::<u32>(to, 200), expected.collect::<Vec<_>>());
}

#[test]
fn edit_distance() {
    let device = Device::new();
    let text = |salt: u32| -> Vec<u8> {
        noise(100)
            .into_iter()
            .map(|own| b'a' + ((own ^ salt) >> 7) as u8 % 4)
            .collect()
    };
    let (a, b) = (text(0), text(0x1234_5678));
    let (at_a, at_b, to) = (device.upload(&a), device.upload(&b), device.upload(&[0u32]));
    run(
        ALGORITHMS,
        &launch("edit_distance", 1, 128),
        &device,
        &[U64(at_a), U64(at_b), U32(100), U64(to)],
    );
    let mut row: Vec<u32> = (0..=100).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i as u32 + 1);
        for (j, y) in b.iter().enumerate() {
            let own = (corner + u32::from(x != y)).min(row[j].min(row[j + 1]) + 1);
            corner = std::mem::replace(&mut row[j + 1], own);
        }
    }
    assert_eq!(device.read::<u32>(to, 1), [row[100]]);
}

#[test]
fn the_last_block_adds_up() {
    for workers in [1, 2] {
        let device = Device::new();
        let values: Vec<f32> = (0..5000).map(|own| own as f32).collect();
        let (from, partial, sum) = (
            device.upload(&values),
            device.upload(&[0f64; 8]),
            device.upload(&[0f64]),
        );
        let launch = Launch {
            workers,
            ..launch("sum_last_block", 8, 256)
        };
        run(
            ALGORITHMS,
            &launch,
            &device,
            &[U64(from), U32(5000), U64(partial), U64(sum)],
        );
        assert_eq!(device.read::<f64>(sum, 1), [12_497_500.0]);
    }
}

#[test]
fn dot_bytes() {
    let device = Device::new();
    let (a, b) = (noise(100), noise(200)[100..].to_vec());
    let (at_a, at_b, to) = (
        device.upload(&a),
        device.upload(&b),
        device.upload(&[0i32; 100]),
    );
    run(
        ALGORITHMS,
        &launch("dot_bytes", 1, 128),
        &device,
        &[U64(at_a), U64(at_b), U64(to), U32(100)],
    );
    let expected = (0..100).map(|i| {
        let bytes = |own: u32| own.to_le_bytes().map(|byte| i32::from(byte as i8));
        let dot: i32 = bytes(a[i])
            .iter()
            .zip(bytes(b[i]))
            .map(|(x, y)| x * y)
            .sum();
        let first = (a[i] ^ b[i])
            .checked_ilog2()
            .map_or(0, |_| (a[i] ^ b[i]).trailing_zeros() as i32 + 1);
        dot + i as i32 + a[i].count_ones() as i32 + b[i].leading_zeros() as i32 + first
    });
    assert_eq!(device.read::<i32>(to, 100), expected.collect::<Vec<_>>());
}
