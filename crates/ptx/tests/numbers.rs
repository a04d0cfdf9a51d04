//! CUDA C++'s library of numbers, compiled by nvcc, against Rust's.

use cuguard_ptx::{Launch, Module};

use crate::common::Argument::{U32, U64};
use crate::common::corpus::{NUMBERS, map, run};
use crate::common::{Device, launch};

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
