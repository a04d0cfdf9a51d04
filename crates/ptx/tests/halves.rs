//! Arithmetic of 16 bits against the nearest number of a table.

use crate::common::instruction::{execute, samples, shuffled};

struct Format {
    name: &'static str,
    mantissa: i32,
    bias: i32,
}

const FORMATS: [Format; 2] = [
    Format {
        name: "f16",
        mantissa: 10,
        bias: 15,
    },
    Format {
        name: "bf16",
        mantissa: 7,
        bias: 127,
    },
];

impl Format {
    fn value(&self, bits: u64) -> f64 {
        let stored = (bits as i32 & 0x7FFF) >> self.mantissa;
        let fraction = (bits & ((1 << self.mantissa) - 1)) as f64 / f64::from(1 << self.mantissa);
        let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
        sign * match stored {
            0 => fraction * 2f64.powi(1 - self.bias),
            _ if stored == 2 * self.bias + 1 && fraction == 0.0 => f64::INFINITY,
            _ if stored == 2 * self.bias + 1 => f64::NAN,
            _ => (1.0 + fraction) * 2f64.powi(stored - self.bias),
        }
    }

    /// The nearest number, found by bisection: numbers are in the order of their bits. `error` is what `exact` lacks.
    fn nearest(&self, exact: f64, error: f64) -> u64 {
        if exact.is_nan() {
            return 0x7FFF;
        }
        let sign = if exact.is_sign_negative() { 0x8000 } else { 0 };
        let (magnitude, error) = (exact.abs(), if sign == 0 { error } else { -error });
        let infinity = (2 * self.bias as u64 + 1) << self.mantissa;
        if magnitude.is_infinite() {
            return sign | infinity;
        }
        let (mut low, mut high) = (0, infinity);
        while high - low > 1 {
            let middle = (low + high) / 2;
            let own = self.value(middle);
            if own < magnitude || own == magnitude && error >= 0.0 {
                low = middle
            } else {
                high = middle
            }
        }
        let below = self.value(low);
        let above = if high == infinity {
            below + (below - self.value(low - 1))
        } else {
            self.value(high)
        };
        let half = below + (above - below) / 2.0;
        let is_up =
            magnitude > half || magnitude == half && (error > 0.0 || error == 0.0 && low & 1 != 0);
        sign | if is_up { high } else { low }
    }
}

fn same(found: u64, expected: u64) -> bool {
    found == expected
}

#[test]
fn arithmetic() {
    for format in &FORMATS {
        let a: Vec<u64> = samples(16, 3000)
            .iter()
            .enumerate()
            .map(|(index, own)| (own ^ (index as u64 * 977)) & 0xFFFF)
            .collect();
        let (b, c) = (shuffled(&a, 3), shuffled(&a, 11));
        let operands = [("b16", &a[..]), ("b16", &b[..]), ("b16", &c[..])];
        let name = format.name;
        let run = |op: &str| execute(&format!("{op}.{name} d, a, b;"), "b16", &operands);
        let (sums, differences, products) = (run("add"), run("sub"), run("mul"));
        let fused = execute(&format!("fma.rn.{name} d, a, b, c;"), "b16", &operands);
        let (least, greatest) = (run("min"), run("max.NaN"));
        for index in 0..a.len() {
            let [x, y, z] = [&a, &b, &c].map(|own| format.value(own[index]));
            let sum = |x: f64, y: f64| {
                let sum = x + y;
                let other = sum - x;
                let error = (x - (sum - other)) + (y - other);
                format.nearest(sum, if error.is_nan() { 0.0 } else { error })
            };
            let what = format!("{name} {x:e} {y:e} {z:e}");
            assert!(same(sums[index], sum(x, y)), "add.{what}");
            assert!(same(differences[index], sum(x, -y)), "sub.{what}");
            assert!(
                same(products[index], format.nearest(x * y, 0.0)),
                "mul.{what}"
            );
            assert!(same(fused[index], sum(x * y, z)), "fma.{what}");
            let (least, greatest) = (format.value(least[index]), format.value(greatest[index]));
            if x.is_nan() || y.is_nan() {
                assert!(greatest.is_nan());
                assert!(least == x || least == y || x.is_nan() && y.is_nan() && least.is_nan());
            } else {
                assert!(least == x.min(y) && greatest == x.max(y));
            }
        }
    }
}

#[test]
fn pairs_are_two_of_their_halves() {
    for format in &FORMATS {
        let name = format.name;
        let a = samples(32, 500);
        let (b, c) = (shuffled(&a, 3), shuffled(&a, 11));
        let half = |own: &[u64], shift: u32| -> Vec<u64> {
            own.iter().map(|bits| bits >> shift & 0xFFFF).collect()
        };
        for op in [
            "add",
            "sub",
            "mul",
            "min",
            "max",
            "fma.rn",
            "neg",
            "abs",
            "fma.rn.relu",
            "add.sat",
        ] {
            if name == "bf16" && op == "add.sat" {
                continue;
            }
            let names = match op {
                "neg" | "abs" => "a",
                _ if op.starts_with("fma") => "a, b, c",
                _ => "a, b",
            };
            let whole = execute(
                &format!("{op}.{name}x2 d, {names};"),
                "b32",
                &[("b32", &a), ("b32", &b), ("b32", &c)],
            );
            let part = |shift| {
                let operands = [half(&a, shift), half(&b, shift), half(&c, shift)];
                let operands: Vec<(&str, &[u64])> =
                    operands.iter().map(|own| ("b16", &own[..])).collect();
                execute(&format!("{op}.{name} d, {names};"), "b16", &operands)
            };
            let (low, high) = (part(0), part(16));
            for index in 0..a.len() {
                assert_eq!(whole[index], high[index] << 16 | low[index], "{op}.{name}");
            }
        }
    }
}

#[test]
fn comparisons_of_pairs() {
    let a = samples(32, 400);
    let mut b = shuffled(&a, 3);
    b[..50].copy_from_slice(&a[..50]);
    let body = ".reg .pred p, q; setp.le.f16x2 p|q, a, b; selp.b32 d, 1, 0, p; @q or.b32 d, d, 2;";
    let found = execute(body, "b32", &[("b32", &a), ("b32", &b)]);
    let set = execute(
        "set.gtu.f16x2.f16x2 d, a, b;",
        "b32",
        &[("b32", &a), ("b32", &b)],
    );
    for index in 0..a.len() {
        let value = |own: &[u64], shift: u32| FORMATS[0].value(own[index] >> shift & 0xFFFF);
        let [low, high] = [0, 16].map(|shift| u64::from(value(&a, shift) <= value(&b, shift)));
        assert_eq!(found[index], high << 1 | low);
        let [low, high] = [0, 16].map(|shift| {
            if value(&a, shift) <= value(&b, shift) {
                0
            } else {
                0x3C00
            }
        });
        assert_eq!(set[index], high << 16 | low);
    }
}

/// As an H200 does it: the sign of a NaN counts, although the other operand is the result.
#[test]
fn signs_of_nan() {
    let cases = [
        ("min.xorsign.abs.f16", 0xFF80, 0x7BFF, 0xFBFF),
        ("min.xorsign.abs.f16", 0xD8C2, 0x7E01, 0xD8C2),
        ("min.xorsign.abs.f16", 0x689A, 0xFF80, 0xE89A),
        ("min.ftz.xorsign.abs.f16", 0x7C00, 0xFF80, 0xFC00),
        ("min.xorsign.abs.bf16", 0xFA12, 0x7FFF, 0xFA12),
        ("max.xorsign.abs.f16", 0xD8C2, 0xFF80, 0x58C2),
    ];
    for (instruction, a, b, expected) in cases {
        let operands: [(&str, &[u64]); 2] = [("b16", &[a]), ("b16", &[b])];
        let found = execute(&format!("{instruction} d, a, b;"), "b16", &operands);
        assert_eq!(found, [expected], "{instruction} {a:x} {b:x}");
    }
}
