//! `cvt`, against the host's conversions and against tables of all numbers of 16 bits.

use crate::common::instruction::{execute, samples};

const INTEGERS: [(&str, u32, bool); 8] = [
    ("u8", 8, false),
    ("s8", 8, true),
    ("u16", 16, false),
    ("s16", 16, true),
    ("u32", 32, false),
    ("s32", 32, true),
    ("u64", 64, false),
    ("s64", 64, true),
];

fn register(width: u32) -> &'static str {
    match width {
        8 | 16 => "b16",
        32 => "b32",
        _ => "b64",
    }
}

fn value(bits: u64, width: u32, is_signed: bool) -> i128 {
    let raised = u128::from(bits) << (128 - width);
    if is_signed {
        raised as i128 >> (128 - width)
    } else {
        (raised >> (128 - width)) as i128
    }
}

fn range(width: u32, is_signed: bool) -> (i128, i128) {
    match is_signed {
        true => (-(1 << (width - 1)), (1 << (width - 1)) - 1),
        false => (0, (1 << width) - 1),
    }
}

/// The bits of a register that holds a smaller value.
fn extended(value: i128, width: u32) -> u64 {
    value as u64 & (u64::MAX >> (64 - width.max(16)))
}

#[test]
fn between_integers() {
    for (from, from_width, from_signed) in INTEGERS {
        let a = samples(from_width.max(16), 200);
        for (to, to_width, to_signed) in INTEGERS {
            let d = register(to_width);
            let operands = [(register(from_width), &a[..])];
            let plain = execute(&format!("cvt.{to}.{from} d, a;"), d, &operands);
            let saturated = execute(&format!("cvt.sat.{to}.{from} d, a;"), d, &operands);
            let (least, greatest) = range(to_width, to_signed);
            for index in 0..a.len() {
                let own = value(a[index], from_width, from_signed);
                let wrapped = value(own as u64, to_width, to_signed);
                assert_eq!(
                    plain[index],
                    extended(wrapped, to_width),
                    "{to}.{from} {own}"
                );
                let clamped = own.clamp(least, greatest);
                assert_eq!(
                    saturated[index],
                    extended(clamped, to_width),
                    "sat.{to}.{from} {own}"
                );
            }
        }
    }
}

#[test]
fn floats_to_integers() {
    let mut values: Vec<f64> = vec![
        0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, -2.5, 1e10, -1e10, 1e20, -1e20, 254.5, 255.5,
    ];
    values.extend([
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        127.5,
        -128.5,
        65535.5,
        4294967295.5,
        1e-40,
        -1e-40,
    ]);
    values.extend((0..200).map(|own| (f64::from(own) - 100.0) * 0.37));
    for (to, width, is_signed) in INTEGERS {
        let (least, greatest) = range(width, is_signed);
        for (mode, round) in [
            ("rni", f64::round_ties_even as fn(f64) -> f64),
            ("rzi", f64::trunc),
            ("rmi", f64::floor),
            ("rpi", f64::ceil),
        ] {
            for from in ["f32", "f64"] {
                let own = |value: f64| {
                    if from == "f32" {
                        f64::from(value as f32)
                    } else {
                        value
                    }
                };
                let bits = |value: &f64| match from {
                    "f32" => u64::from((*value as f32).to_bits()),
                    _ => value.to_bits(),
                };
                let a: Vec<u64> = values.iter().map(bits).collect();
                let found = execute(
                    &format!("cvt.{mode}.{to}.{from} d, a;"),
                    register(width),
                    &[(from, &a)],
                );
                for (found, given) in found.into_iter().zip(&values) {
                    let rounded = round(own(*given));
                    let is_wide = from == "f64" || width == 64;
                    let expected = match () {
                        () if rounded.is_nan() && is_wide => 1i128 << (width - 1),
                        () if rounded.is_nan() => 0,
                        () => (rounded as i128).clamp(least, greatest),
                    };
                    let expected = value(expected as u64, width, is_signed);
                    assert_eq!(
                        found,
                        extended(expected, width),
                        "cvt.{mode}.{to}.{from} {given}"
                    );
                }
            }
        }
    }
}

#[test]
fn integers_to_floats() {
    for (from, width, is_signed) in INTEGERS {
        let a = samples(width.max(16), 400);
        let operands = [(register(width), &a[..])];
        let singles = execute(&format!("cvt.rn.f32.{from} d, a;"), "f32", &operands);
        let doubles = execute(&format!("cvt.rn.f64.{from} d, a;"), "f64", &operands);
        let down = execute(&format!("cvt.rm.f32.{from} d, a;"), "f32", &operands);
        let up = execute(&format!("cvt.rp.f32.{from} d, a;"), "f32", &operands);
        for index in 0..a.len() {
            let own = value(a[index], width, is_signed);
            assert_eq!(
                singles[index],
                u64::from((own as f32).to_bits()),
                "{from} {own}"
            );
            assert_eq!(doubles[index], (own as f64).to_bits(), "{from} {own}");
            let [down, up] = [down[index], up[index]].map(|bits| f32::from_bits(bits as u32));
            assert!(
                down as i128 <= own && own <= up as i128 && (down == up || down.next_up() == up)
            );
        }
    }
}

#[test]
fn between_floats() {
    let mut values: Vec<f64> = vec![
        0.0,
        -0.0,
        1.0,
        1e300,
        -1e300,
        1e-300,
        1e-42,
        f64::INFINITY,
        f64::NAN,
        0.1,
        -0.7,
        1.7,
    ];
    values.extend((0..300).map(|own| {
        f64::from_bits(0x3FF0_0000_1000_0000u64.wrapping_add(own * 0x0000_0765_4321_1234))
    }));
    let a: Vec<u64> = values.iter().map(|own| own.to_bits()).collect();
    let single = execute("cvt.rn.f32.f64 d, a;", "f32", &[("f64", &a)]);
    let clamped = execute("cvt.rn.sat.f32.f64 d, a;", "f32", &[("f64", &a)]);
    let whole = execute("cvt.rni.f64.f64 d, a;", "f64", &[("f64", &a)]);
    let down = execute("cvt.rm.f32.f64 d, a;", "f32", &[("f64", &a)]);
    for (index, own) in values.iter().enumerate() {
        let expected = *own as f32;
        let found = f32::from_bits(single[index] as u32);
        assert!(found.to_bits() == expected.to_bits() || found.is_nan() && own.is_nan());
        let saturated = if *own > 0.0 { expected.min(1.0) } else { 0.0 };
        assert_eq!(clamped[index], u64::from(saturated.to_bits()), "{own}");
        if !own.is_nan() {
            assert_eq!(whole[index], own.round_ties_even().to_bits());
            let found = f32::from_bits(down[index] as u32);
            assert!(
                f64::from(found) <= *own
                    && (f64::from(found.next_up()) > *own || *own == f64::INFINITY),
                "{own}"
            );
        }
    }
    let singles: Vec<u64> = values
        .iter()
        .map(|own| u64::from((*own as f32).to_bits()))
        .collect();
    let doubles = execute("cvt.f64.f32 d, a;", "f64", &[("f32", &singles)]);
    for (index, bits) in singles
        .iter()
        .enumerate()
        .filter(|(_, bits)| !f32::from_bits(**bits as u32).is_nan())
    {
        assert_eq!(
            doubles[index],
            f64::from(f32::from_bits(*bits as u32)).to_bits()
        );
    }
}

/// The value of a small number, straight from its definition.
fn small(bits: u64, mantissa: i32, exponent: u32) -> f64 {
    let bias = (1 << (exponent - 1)) - 1;
    let stored = (bits >> mantissa) as i32 & ((1 << exponent) - 1);
    let fraction = (bits & ((1 << mantissa) - 1)) as f64 / f64::from(1 << mantissa);
    let sign = if bits >> (mantissa as u32 + exponent) & 1 != 0 {
        -1.0
    } else {
        1.0
    };
    let power = |own: i32| 2f64.powi(own);
    sign * match stored {
        0 => fraction * power(1 - bias),
        _ if stored == (1 << exponent) - 1 && fraction == 0.0 => f64::INFINITY,
        _ if stored == (1 << exponent) - 1 => f64::NAN,
        _ => (1.0 + fraction) * power(stored - bias),
    }
}

/// All numbers of 16 bits to singles, and from singles to the nearest by search.
#[test]
fn halves() {
    let all: Vec<u64> = (0..=0xFFFF).collect();
    for (of, mantissa, exponent) in [("f16", 10, 5), ("bf16", 7, 8)] {
        let found = execute(&format!("cvt.f32.{of} d, a;"), "f32", &[("b16", &all)]);
        let values: Vec<f64> = all
            .iter()
            .map(|bits| small(*bits, mantissa, exponent))
            .collect();
        for index in 0..all.len() {
            let found = f64::from(f32::from_bits(found[index] as u32));
            assert!(
                found.to_bits() == values[index].to_bits()
                    || found.is_nan() && values[index].is_nan(),
                "{of} {index:x}"
            );
        }
        // Finite numbers by size.
        let finite: Vec<(f64, u64)> = values[..0x8000]
            .iter()
            .copied()
            .zip(0..)
            .filter(|(own, _)| own.is_finite())
            .collect();
        let singles: Vec<f32> = (0..20_000u32)
            .map(|own| f32::from_bits(own.wrapping_mul(2_654_435_761)))
            .filter(|own| own.is_finite())
            .collect();
        let bits: Vec<u64> = singles.iter().map(|own| own.to_bits().into()).collect();
        let nearest = execute(&format!("cvt.rn.{of}.f32 d, a;"), "b16", &[("f32", &bits)]);
        let toward_zero = execute(&format!("cvt.rz.{of}.f32 d, a;"), "b16", &[("f32", &bits)]);
        for (index, own) in singles.iter().enumerate() {
            let magnitude = f64::from(own.abs());
            let above = finite.partition_point(|(other, _)| *other <= magnitude);
            let (below, below_bits) = finite[above - 1];
            let sign = u64::from(own.to_bits() >> 31) << 15;
            assert_eq!(toward_zero[index], sign | below_bits, "rz {of} {own:e}");
            // What follows the largest would be next by the same step.
            let step = below - finite[above.max(2) - 2].0;
            let next = finite.get(above).map_or(below + step, |own| own.0);
            let (to_below, to_next) = (magnitude - below, next - magnitude);
            let is_up = to_next < to_below || to_next == to_below && below_bits & 1 != 0;
            assert_eq!(
                nearest[index],
                sign | (below_bits + u64::from(is_up)),
                "rn {of} {own:e}"
            );
        }
    }
}

#[test]
fn pairs_and_eighths() {
    let a: Vec<f32> = (0..500).map(|own| (own as f32 - 250.0) * 1.93).collect();
    let bits: Vec<u64> = a.iter().map(|own| own.to_bits().into()).collect();
    let reversed: Vec<u64> = bits.iter().rev().copied().collect();
    let operands = [("f32", &bits[..]), ("f32", &reversed[..])];
    let low = execute("cvt.rn.f16.f32 d, a;", "b16", &operands[..1]);
    let pair = execute("cvt.rn.f16x2.f32 d, a, b;", "b32", &operands);
    let relu = execute("cvt.rn.relu.bf16x2.f32 d, a, b;", "b32", &operands);
    let bf16 = execute("cvt.rn.bf16.f32 d, a;", "b16", &operands[..1]);
    let tf32 = execute("cvt.rna.tf32.f32 d, a;", "b32", &operands[..1]);
    let e4m3 = execute("cvt.rn.satfinite.e4m3x2.f32 d, a, b;", "b16", &operands);
    let e5m2 = execute("cvt.rn.satfinite.e5m2x2.f32 d, a, b;", "b16", &operands);
    let back = execute("cvt.rn.f16x2.e4m3x2 d, a;", "b32", &[("b16", &e4m3)]);
    let table = |mantissa: i32, exponent: u32, limit: f64| -> Vec<f64> {
        let all = (0..0x7F).map(|own| small(own, mantissa, exponent));
        all.filter(move |own| *own <= limit).collect()
    };
    // The largest exponent of `e4m3` has numbers, too.
    let mut quarters = table(3, 4, 240.0);
    quarters.extend((0..7).map(|own| 256.0 + 32.0 * f64::from(own)));
    let nearest = |table: &[f64], own: f32| {
        let magnitude = f64::from(own.abs());
        let distance = |index: &usize| (table[*index] - magnitude).abs();
        let best = (0..table.len()).min_by(|a, b| {
            distance(a)
                .total_cmp(&distance(b))
                .then((a % 2).cmp(&(b % 2)))
        });
        best.unwrap() as u64 | u64::from(own < 0.0) << 7
    };
    let fifths = table(2, 5, 57344.0);
    for (index, own) in a.iter().enumerate() {
        let other = a[a.len() - 1 - index];
        assert_eq!(pair[index], low[index] << 16 | low[a.len() - 1 - index]);
        let positive = |at: usize| if a[at] < 0.0 { 0 } else { bf16[at] };
        assert_eq!(
            relu[index],
            positive(index) << 16 | positive(a.len() - 1 - index)
        );
        assert_eq!(
            e4m3[index],
            nearest(&quarters, *own) << 8 | nearest(&quarters, other),
            "{own} {other}"
        );
        assert_eq!(
            e5m2[index],
            nearest(&fifths, *own) << 8 | nearest(&fifths, other),
            "{own} {other}"
        );
        let rounded = f32::from_bits(tf32[index] as u32);
        assert!(tf32[index] & 0x1FFF == 0 && (rounded - own).abs() <= own.abs() / 2048.0);
        let expected = quarters[(e4m3[index] & 0x7F) as usize];
        assert_eq!(small(back[index] & 0x7FFF, 10, 5), expected);
    }
    let words = samples(32, 300);
    let packed = execute(
        "cvt.pack.sat.u8.s32.b32 d, a, b, a;",
        "b32",
        &[("b32", &words), ("b32", &words)],
    );
    for index in 0..words.len() {
        let byte = (words[index] as i32).clamp(0, 255) as u64;
        assert_eq!(
            packed[index],
            words[index] << 16 & 0xFFFF_0000 | byte << 8 | byte
        );
    }
}

/// `.ftz` is for `.f32` alone.
#[test]
fn only_singles_are_flushed() {
    let found =
        |body: &str, result: &str, of: &str, bits: u64| execute(body, result, &[(of, &[bits])])[0];
    assert_eq!(found("cvt.ftz.f32.f16 d, a;", "f32", "f16", 1), 0x3380_0000);
    assert_eq!(
        found("cvt.rn.ftz.f16.f32 d, a;", "f16", "f32", 0x3586_37BD),
        0x11
    );
    assert_eq!(
        found("cvt.rn.ftz.f16.f32 d, a;", "f16", "f32", 0x8000_0001),
        0x8000
    );
    assert_eq!(found("cvt.rpi.ftz.f32.f32 d, a;", "f32", "f32", 1), 0);
    // As an H200 does it.
    let to_half = [
        ("cvt.rm.ftz.f16.f32 d, a;", 0x807F_FFFF, 0x8001),
        ("cvt.rp.ftz.f16.f32 d, a;", 1, 1),
        ("cvt.rm.ftz.f16.f32 d, a;", 0xB6B1_4D62, 0x8059),
    ];
    for (body, bits, expected) in to_half {
        assert_eq!(found(body, "f16", "f32", bits), expected, "{body} {bits:x}");
    }
}
