//! What CUDA C++ has beside arithmetic, compiled by nvcc: calls, output, groups of threads.

use cuguard_ptx::{FaultKind, Launch, Module, Order};

use crate::common::Argument::{U32, U64};
use crate::common::corpus::{GROUPS, LANGUAGE, map, noise, run};
use crate::common::{Device, launch};

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
