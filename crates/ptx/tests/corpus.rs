//! Kernels in CUDA C++, compiled by nvcc, against what they compute in Rust.

use cuguard_ptx::{FaultKind, Launch, Module, Order};

use crate::common::Argument::{self, U32, U64};
use crate::common::{Device, Plain, launch};

const ALGORITHMS: &str = include_str!("../../kernels/corpus/algorithms.ptx");
const LANGUAGE: &str = include_str!("../../kernels/corpus/language.ptx");
const GROUPS: &str = include_str!("../../kernels/corpus/groups.ptx");
const NUMBERS: &str = include_str!("../../kernels/corpus/numbers.ptx");

/// Numbers that look random.
fn noise(count: usize) -> Vec<u32> {
    (0..count as u32)
        .map(|own| own.wrapping_mul(2_654_435_761).rotate_left(own % 32) ^ own)
        .collect()
}

fn run(text: &str, launch: &Launch<'_>, device: &Device, arguments: &[Argument]) {
    let module = Module::new(text).unwrap_or_else(|errors| panic!("{errors}"));
    device
        .run(&module, launch, arguments)
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Launches one block whose threads read an array and write to one that has `per_thread` values for each.
fn map<A: Plain, D: Plain>(
    text: &str,
    kernel: &str,
    from: &[A],
    zero: D,
    per_thread: usize,
) -> Vec<D> {
    let device = Device::new();
    let (at, to) = (
        device.upload(from),
        device.upload(&vec![zero; from.len() * per_thread]),
    );
    run(
        text,
        &launch(kernel, 1, from.len() as u32),
        &device,
        &[U64(at), U64(to)],
    );
    device.read(to, from.len() * per_thread)
}

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

#[test]
fn recursion_and_pointers() {
    let device = Device::new();
    let to = device.upload(&[0u32; 40]);
    run(LANGUAGE, &launch("recursion", 1, 40), &device, &[U64(to)]);
    let expected: Vec<u32> = (0..40).map(|own| 2 * (own % 6) + 3).collect();
    assert_eq!(device.read::<u32>(to, 40), expected);
    let values: Vec<f32> = (0..40).map(|own| own as f32).collect();
    let which: Vec<u32> = (0..40).map(|own| own % 3).collect();
    let (at, by) = (device.upload(&values), device.upload(&which));
    run(
        LANGUAGE,
        &launch("function_pointers", 1, 40),
        &device,
        &[U64(at), U64(by)],
    );
    let expected = values
        .iter()
        .enumerate()
        .map(|(index, own)| match index % 3 {
            0 => own * own,
            1 => own / 2.0,
            _ => -own,
        });
    assert_eq!(device.read::<f32>(at, 40), expected.collect::<Vec<_>>());
    let areas = device.upload(&[0f32; 40]);
    run(
        LANGUAGE,
        &launch("virtual_functions", 1, 40),
        &device,
        &[U64(areas)],
    );
    let expected = (0..40).map(|own| {
        let side = own as f32 + 1.0;
        if own % 3 == 0 {
            side * side
        } else {
            side * 1.5
        }
    });
    assert_eq!(device.read::<f32>(areas, 40), expected.collect::<Vec<_>>());
    let sum = device.upload(&[0u64]);
    run(
        LANGUAGE,
        &launch("linked_list", 1, 40),
        &device,
        &[U64(sum), U32(10)],
    );
    assert_eq!(device.read::<u64>(sum, 1), [45 * 780]);
}

#[test]
fn output_and_assertions() {
    let device = Device::new();
    run(LANGUAGE, &launch("output", 1, 32), &device, &[U32(3)]);
    let expected = "0 of 3:  0.00 even a 0|0   |0xff\n1 of 3:  1.50 odd b -1234567890123|1   |0xff\n\
        2 of 3:  3.00 even c -2469135780246|2   |0xff\n";
    assert_eq!(*device.printed.lock().unwrap(), expected);
    let values = device.upload(&[1i32, 2, 0, 4]);
    let error = device
        .launch(LANGUAGE, "check", 1, 4, &[U64(values)])
        .unwrap_err();
    assert_eq!(error.thread, [2, 0, 0]);
    let FaultKind::Assertion(message) = error.kind else {
        panic!("{error}")
    };
    assert!(
        message.contains("language.cu:")
            && message.ends_with("assertion `values[threadIdx.x] > 0` failed"),
        "{message}"
    );
}

#[test]
fn structures_and_choices() {
    let device = Device::new();
    // short, double at 8, five bytes at 16.
    let mut given = [0u8; 24];
    given[..2].copy_from_slice(&1000i16.to_le_bytes());
    given[8..16].copy_from_slice(&2.5f64.to_le_bytes());
    given[16..21].copy_from_slice(b"vwxyz");
    let to = device.upload(&[0u8; 24 * 8]);
    let module = Module::new(LANGUAGE).unwrap();
    let variables = device.load(&module);
    let mut arguments = given.to_vec();
    arguments.extend(to.to_le_bytes());
    arguments.extend(2i32.to_le_bytes());
    let launched = Launch {
        arguments: &arguments,
        variables: &variables,
        ..launch("structures", 1, 8)
    };
    module.launch(&launched, &device, &device).unwrap();
    for (thread, own) in device.read::<u8>(to, 24 * 8).chunks(24).enumerate() {
        let chosen = (2 + thread) % 4;
        assert_eq!(own[..2], (1000 + chosen as i16).to_le_bytes());
        assert_eq!(own[8..16], 2.5f64.to_le_bytes());
        let mut text = *b"vwxyz";
        text[chosen] = b'A' + thread as u8;
        assert_eq!(own[16..21], text);
    }
    let values: Vec<i32> = (-10..22).collect();
    let (from, to) = (device.upload(&values), device.upload(&[11i32; 32]));
    run(
        LANGUAGE,
        &launch("choices", 1, 32),
        &device,
        &[U64(from), U64(to)],
    );
    let expected = values.iter().map(|own| match own {
        0 => 17,
        1 => 22,
        2 => 21,
        3 => 9,
        4 => -1,
        5 => 80,
        6 => 6 ^ 0x55,
        7 => 11,
        own => own / 7 + own % 5,
    });
    assert_eq!(device.read::<i32>(to, 32), expected.collect::<Vec<_>>());
    let wide = |salt: u32| -> Vec<u64> {
        noise(64)
            .chunks(2)
            .map(|own| u64::from(own[0] ^ salt) << 32 | u64::from(own[1]))
            .collect()
    };
    let (a, b) = (wide(0), wide(0x5555_5555));
    let (at_a, at_b, to) = (
        device.upload(&a),
        device.upload(&b),
        device.upload(&[0u64; 96]),
    );
    run(
        LANGUAGE,
        &launch("wide_integers", 1, 32),
        &device,
        &[U64(at_a), U64(at_b), U64(to)],
    );
    for (index, own) in device.read::<u64>(to, 96).chunks(3).enumerate() {
        let product = u128::from(a[index]) * u128::from(b[index]) + (1 << 70);
        assert_eq!(
            own,
            [
                product as u64,
                (product >> 64) as u64,
                (product / u128::from(b[index] | 1)) as u64
            ]
        );
    }
}

#[test]
fn cooperative_groups() {
    let values: Vec<i32> = noise(64).into_iter().map(|own| (own % 97) as i32).collect();
    let sums = map(GROUPS, "tile_sums", &values, 0i32, 1);
    for (index, found) in sums.iter().enumerate() {
        assert_eq!(*found, values[index / 8 * 8..][..8].iter().sum::<i32>());
    }
    let device = Device::new();
    let (from, sums, scans) = (
        device.upload(&values),
        device.upload(&[0i32; 64]),
        device.upload(&[0i32; 64]),
    );
    run(
        GROUPS,
        &launch("reduce_and_scan", 1, 64),
        &device,
        &[U64(from), U64(sums), U64(scans)],
    );
    for (index, (sum, scan)) in device
        .read::<i32>(sums, 64)
        .into_iter()
        .zip(device.read::<i32>(scans, 64))
        .enumerate()
    {
        let start = index / 32 * 32;
        assert_eq!(sum, values[start..start + 32].iter().sum::<i32>());
        assert_eq!(scan, values[start..=index].iter().sum::<i32>());
    }
    let labelled = map(GROUPS, "labelled", &values, 0u32, 1);
    for (index, found) in labelled.iter().enumerate() {
        let start = index / 32 * 32;
        let same = |own: &&i32| **own % 4 == values[index] % 4;
        let size = values[start..start + 32].iter().filter(same).count();
        let rank = values[start..index].iter().filter(same).count();
        assert_eq!(*found, (100 * size + rank) as u32);
    }
    let ballots = map(GROUPS, "ballots", &values, 0u32, 1);
    for (index, found) in ballots.iter().enumerate() {
        let warp = &values[index / 32 * 32..][..32];
        let count = |f: &dyn Fn(&i32) -> bool| warp.iter().filter(|own| f(own)).count() as u32;
        let any = u32::from(warp.iter().any(|own| *own > 90));
        let most = warp.iter().map(|own| own % 8).max().unwrap() as u32;
        let expected = count(&|own| own & 1 == 1)
            + 100 * count(&|own| own % 5 == values[index] % 5)
            + 10_000 * any
            + 20_000
            + 100_000 * most;
        assert_eq!(*found, expected);
    }
}

#[test]
fn aggregated_atomics() {
    let device = Device::new();
    let values: Vec<i32> = noise(500)
        .into_iter()
        .map(|own| (own % 1000) as i32)
        .collect();
    let (from, to, count) = (
        device.upload(&values),
        device.upload(&[0i32; 500]),
        device.upload(&[0i32]),
    );
    run(
        GROUPS,
        &launch("filter", 4, 128),
        &device,
        &[U64(from), U64(to), U64(count), U32(500)],
    );
    let mut expected: Vec<i32> = values.iter().copied().filter(|own| own % 3 == 0).collect();
    assert_eq!(device.read::<i32>(count, 1), [expected.len() as i32]);
    let mut found = device.read::<i32>(to, expected.len());
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn half_precision() {
    let device = Device::new();
    let one = 0x3C00u16;
    let x: Vec<u16> = (0..200).map(|own| one + own * 4).collect();
    let (at_x, at_y) = (device.upload(&x), device.upload(&vec![one; 200]));
    let module = Module::new(NUMBERS).unwrap_or_else(|errors| panic!("{errors}"));
    let mut arguments = 0x4000u64.to_le_bytes().to_vec();
    arguments.extend([at_x, at_y].iter().flat_map(|own| own.to_le_bytes()));
    arguments.extend(100u32.to_le_bytes());
    let variables = device.load(&module);
    let launched = Launch {
        arguments: &arguments,
        variables: &variables,
        ..launch("half_axpy", 1, 128)
    };
    module.launch(&launched, &device, &device).unwrap();
    // Twice a number between one and two, plus one: exact in steps of 1/256, of which x has 1/256.
    let value = |bits: u16| {
        f64::from(bits & 0x3FF | 0x400) / 1024.0 * 2f64.powi(i32::from(bits >> 10) - 15)
    };
    for (found, x) in device.read::<u16>(at_y, 200).into_iter().zip(x) {
        assert_eq!(value(found), 2.0 * value(x) + 1.0);
    }
    let bf16: Vec<u16> = (0..64)
        .map(|own| ((own as f32 * 0.5).to_bits() >> 16) as u16)
        .collect();
    let (a, to) = (device.upload(&bf16), device.upload(&[0f32]));
    run(
        NUMBERS,
        &launch("bf16_dot", 1, 32),
        &device,
        &[U64(a), U64(a), U64(to), U32(64)],
    );
    assert_eq!(
        device.read::<f32>(to, 1),
        [(0..64).map(|own| (own as f32 * 0.5).powi(2)).sum::<f32>()]
    );
    let halves: Vec<u16> = (0..32).map(|own| 0x3800 + own * 0x80).collect();
    let found = map(NUMBERS, "half_functions", &halves, 0f32, 1);
    for (bits, found) in halves.iter().zip(found) {
        let own = value(*bits);
        let expected = own.sqrt()
            + 1.0 / own
            + own.max(0.5)
            + own.round_ties_even()
            + if own > 2.0 { 100.0 } else { 0.0 };
        assert!(
            (f64::from(found) - expected).abs() < 2e-3 * expected,
            "{own}: {found} {expected}"
        );
    }
    let small: Vec<f32> = (0..32).map(|own| own as f32 * 13.7 - 200.0).collect();
    let found = map(NUMBERS, "fp8", &small, 0f32, 2);
    for (own, found) in small.iter().zip(found.chunks(2)) {
        assert!(
            (found[0] - own).abs() <= own.abs() / 16.0 && (found[1] - own).abs() <= own.abs() / 8.0
        );
    }
}

/// Functions of CUDA's mathematical library, which consist of many instructions.
#[test]
fn mathematical_library() {
    let from: Vec<f32> = (0..64).map(|own| own as f32 * 0.137 - 4.1).collect();
    let found = map(NUMBERS, "singles", &from, 0f32, 14);
    for (a, found) in from.iter().zip(found.chunks(14)) {
        let own = f64::from(*a);
        let erf = |own: f64| {
            // By its series.
            let terms = (0..200).scan(own, |term, n| {
                let value = *term / f64::from(2 * n + 1);
                *term *= -own * own / f64::from(n + 1);
                Some(value)
            });
            terms.sum::<f64>() * 2.0 / std::f64::consts::PI.sqrt()
        };
        let expected = [
            own.sin(),
            own.cos(),
            own.tan(),
            own.exp(),
            own.abs().ln(),
            own.abs().powf(f64::from(1.7f32)),
            erf(own),
            own.tanh(),
            own.cbrt(),
            own.atan2(2.0),
            own % f64::from(0.7f32),
            own.asinh(),
            own.floor() + own.round_ties_even() * 100.0,
            own.hypot(3.0),
        ];
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (f64::from(*found) - expected).abs();
            assert!(
                error <= 1e-6 * expected.abs().max(1.0),
                "{index} {a}: {found} {expected}"
            );
        }
    }
    let from: Vec<f64> = (0..64).map(|own| f64::from(own) * 0.137 - 4.1).collect();
    let found = map(NUMBERS, "doubles", &from, 0f64, 10);
    for (own, found) in from.iter().zip(found.chunks(10)) {
        let expected = [
            own.sin(),
            own.exp(),
            own.abs().ln(),
            own.abs().powf(1.7),
            own.tanh(),
            own.abs().sqrt(),
            1.0 / own,
            own.atan(),
            own.cbrt(),
            own % 0.7,
        ];
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!(
                (found - expected).abs() <= 1e-15 * 4.0 * expected.abs().max(1.0),
                "{index} {own}: {found} {expected}"
            );
        }
    }
}

#[test]
fn rounding() {
    let from: Vec<f32> = (0..64).map(|own| own as f32 * 0.731 - 20.0).collect();
    let found = map(NUMBERS, "rounding", &from, 0i32, 8);
    for (a, found) in from.iter().zip(found.chunks(8)) {
        let exact = f64::from(*a) * f64::from(1.1f32);
        let up = f32::from_bits(found[3] as u32);
        assert_eq!(
            found[..3],
            [a.round_ties_even() as i32, a.ceil() as i32, *a as i32]
        );
        assert!(f64::from(up) >= exact && f64::from(up.next_down()) < exact);
        let third = f32::from_bits(found[4] as u32);
        assert!(f64::from(third.abs()) * 3.0 <= f64::from(a.abs()));
        let root = f64::from(f32::from_bits(found[5] as u32));
        assert!(root * root <= f64::from(a.abs()));
        assert_eq!(
            i64::from(found[6]),
            i64::from((a * 1e6).round_ties_even() as i32)
        );
        assert!(f64::from(f32::from_bits(found[7] as u32)) <= f64::from(*a) * 1.1);
    }
}

#[test]
fn barriers_of_the_grid() {
    let module = Module::new(GROUPS).unwrap();
    for (order, workers) in [
        (Order::Sequential, 1),
        (Order::Random(5), 1),
        (Order::Random(6), 2),
    ] {
        let device = Device::new();
        let values: Vec<i32> = (0..192).collect();
        let at = device.upload(&values);
        let launched = Launch {
            workspace: device.upload(&[0u32; 4]),
            order,
            workers,
            ..launch("grid_barrier", 3, 64)
        };
        device
            .run(&module, &launched, &[U64(at), U32(192), U32(5)])
            .unwrap_or_else(|error| panic!("{error}"));
        let expected: Vec<i32> = (0..192).map(|own| (own + 5) % 192 + 5).collect();
        assert_eq!(device.read::<i32>(at, 192), expected);
    }
}

/// Contexts share a module, and streams launch at the same time.
#[test]
fn modules_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Module>();
}
