//! Integer instructions against arithmetic on 128 bits.

use crate::common::instruction::{execute, samples, shuffled};

/// The value of the lowest bits of a number.
fn value(bits: u64, width: u32, is_signed: bool) -> i128 {
    let raised = u128::from(bits) << (128 - width);
    if is_signed {
        raised as i128 >> (128 - width)
    } else {
        (raised >> (128 - width)) as i128
    }
}

fn low(of: i128, width: u32) -> u64 {
    of as u64 & (u64::MAX >> (64 - width))
}

const TYPES: [(&str, u32, bool); 6] = [
    ("u16", 16, false),
    ("s16", 16, true),
    ("u32", 32, false),
    ("s32", 32, true),
    ("u64", 64, false),
    ("s64", 64, true),
];

/// What an instruction does with two or three numbers of a width.
type Expected = fn(i128, i128, i128, u32) -> i128;

fn check(name: &str, operands: usize, widens: bool, expected: Expected) {
    for (of, width, is_signed) in TYPES {
        if widens && width == 64 {
            continue;
        }
        let (register, wide) = (
            format!("b{width}"),
            format!("b{}", if widens { 2 * width } else { width }),
        );
        let a = samples(width, 600);
        let (b, c) = (
            shuffled(&a, 7),
            samples(if widens { 2 * width } else { width }, 601)[1..].to_vec(),
        );
        let all = [(&register[..], &a[..]), (&register, &b), (&wide, &c)];
        let names = ["a", "a, b", "a, b, c"][operands - 1];
        let found = execute(&format!("{name}.{of} d, {names};"), &wide, &all[..operands]);
        let to = if widens { 2 * width } else { width };
        for (index, found) in found.into_iter().enumerate() {
            let [x, y] = [a[index], b[index]].map(|own| value(own, width, is_signed));
            let z = value(c[index], to, is_signed);
            let expected = low(expected(x, y, z, width), to);
            assert_eq!(found, expected, "{name}.{of} {x} {y} {z}");
        }
    }
}

#[test]
fn sums_and_products() {
    check("add", 2, false, |a, b, _, _| a + b);
    check("sub", 2, false, |a, b, _, _| a - b);
    check("mul.lo", 2, false, |a, b, _, _| a.wrapping_mul(b));
    check("mul.wide", 2, true, |a, b, _, _| a * b);
    check("mad.lo", 3, false, |a, b, c, _| {
        a.wrapping_mul(b).wrapping_add(c)
    });
    check("mad.wide", 3, true, |a, b, c, _| a * b + c);
}

/// The product of two numbers of 64 bits has 128, which need not fit with a sign.
fn high(a: i128, b: i128, width: u32) -> i128 {
    if width < 64 {
        return (a * b) >> width;
    }
    let is_negative = (a < 0) != (b < 0);
    let magnitude = a.unsigned_abs() * b.unsigned_abs();
    let product = if is_negative {
        magnitude.wrapping_neg()
    } else {
        magnitude
    };
    (product >> 64) as i128
}

#[test]
fn upper_halves_of_products() {
    check("mul.hi", 2, false, |a, b, _, width| high(a, b, width));
    check("mad.hi", 3, false, |a, b, c, width| high(a, b, width) + c);
}

#[test]
fn quotients_and_order() {
    check(
        "div",
        2,
        false,
        |a, b, _, _| if b == 0 { -1 } else { a / b },
    );
    check("rem", 2, false, |a, b, _, _| if b == 0 { a } else { a % b });
    check("min", 2, false, |a, b, _, _| a.min(b));
    check("max", 2, false, |a, b, _, _| a.max(b));
    check("sad", 3, false, |a, b, c, _| c + (a - b).abs());
}

#[test]
fn signs() {
    for (of, width, _) in TYPES.into_iter().filter(|own| own.2) {
        let register = format!("b{width}");
        let a = samples(width, 300);
        let negated = execute(&format!("neg.{of} d, a;"), &register, &[(&register, &a)]);
        let absolute = execute(&format!("abs.{of} d, a;"), &register, &[(&register, &a)]);
        for index in 0..a.len() {
            let own = value(a[index], width, true);
            assert_eq!(negated[index], low(-own, width));
            assert_eq!(absolute[index], low(own.abs(), width));
        }
    }
}

#[test]
fn saturation() {
    let a = samples(32, 400);
    let b = shuffled(&a, 3);
    let operands = [("b32", &a[..]), ("b32", &b[..]), ("b32", &a[..])];
    let sums = execute("add.sat.s32 d, a, b;", "b32", &operands[..2]);
    let differences = execute("sub.sat.s32 d, a, b;", "b32", &operands[..2]);
    let products = execute("mad.hi.sat.s32 d, a, b, c;", "b32", &operands);
    for index in 0..a.len() {
        let [x, y] = [a[index], b[index]].map(|own| own as u32 as i32);
        assert_eq!(sums[index], u64::from(x.saturating_add(y) as u32));
        assert_eq!(differences[index], u64::from(x.saturating_sub(y) as u32));
        let high = ((i64::from(x) * i64::from(y)) >> 32) as i32;
        assert_eq!(products[index], u64::from(high.saturating_add(x) as u32));
    }
}

#[test]
fn few_bits() {
    let a = samples(32, 500);
    let (b, c) = (shuffled(&a, 5), shuffled(&a, 11));
    let operands = [("b32", &a[..]), ("b32", &b[..]), ("b32", &c[..])];
    for is_signed in [false, true] {
        let of = if is_signed { "s32" } else { "u32" };
        let low24 = execute(&format!("mul24.lo.{of} d, a, b;"), "b32", &operands[..2]);
        let high24 = execute(&format!("mad24.hi.{of} d, a, b, c;"), "b32", &operands);
        let dot4 = execute(&format!("dp4a.{of}.u32 d, a, b, c;"), "b32", &operands);
        let dot2 = execute(&format!("dp2a.hi.s32.{of} d, a, b, c;"), "b32", &operands);
        for index in 0..a.len() {
            let (x, y, z) = (a[index], b[index], c[index]);
            let product = value(x, 24, is_signed) * value(y, 24, is_signed);
            assert_eq!(low24[index], low(product, 32));
            assert_eq!(high24[index], low((product >> 16) + i128::from(z), 32));
            let bytes = (0..4)
                .map(|at| value(x >> (8 * at), 8, is_signed) * value(y >> (8 * at), 8, false));
            assert_eq!(dot4[index], low(bytes.sum::<i128>() + i128::from(z), 32));
            let halves = (0..2).map(|at| {
                value(x >> (16 * at), 16, true) * value(y >> (16 + 8 * at), 8, is_signed)
            });
            assert_eq!(dot2[index], low(halves.sum::<i128>() + i128::from(z), 32));
        }
    }
    let sums = execute("add.u16x2 d, a, b;", "b32", &operands[..2]);
    let least = execute("min.s16x2 d, a, b;", "b32", &operands[..2]);
    for index in 0..a.len() {
        let halves = |f: &dyn Fn(u16, u16) -> u16| {
            let at =
                |shift: u32| u64::from(f((a[index] >> shift) as u16, (b[index] >> shift) as u16));
            at(16) << 16 | at(0)
        };
        assert_eq!(sums[index], halves(&u16::wrapping_add));
        assert_eq!(
            least[index],
            halves(&|a, b| (a as i16).min(b as i16) as u16)
        );
    }
}

/// Sums of 128 bits in steps of 32 and of 64.
#[test]
fn carries() {
    let a = samples(64, 400);
    let (b, c, e) = (shuffled(&a, 3), shuffled(&a, 9), shuffled(&a, 17));
    let operands = [
        ("b64", &a[..]),
        ("b64", &b[..]),
        ("b64", &c[..]),
        ("b64", &e[..]),
    ];
    let wide = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
    for (add, f) in [
        ("add", u128::wrapping_add as fn(u128, u128) -> u128),
        ("sub", u128::wrapping_sub),
    ] {
        let next = format!("{add}c");
        let body = format!(".reg .b64 t; {add}.cc.u64 t, a, b; {next}.u64 d, c, e;");
        let found = execute(&body, "b64", &operands);
        let halves = format!(
            ".reg .b32 t<8>; mov.b64 {{t0, t1}}, a; mov.b64 {{t2, t3}}, b; mov.b64 {{t4, t5}}, c; mov.b64 {{t6, t7}}, e;\n\
             {add}.cc.u32 t0, t0, t2; {next}.cc.u32 t1, t1, t3; {next}.cc.u32 t4, t4, t6; {next}.u32 t5, t5, t7;\n\
             mov.b64 d, {{t4, t5}};"
        );
        let found32 = execute(&halves, "b64", &operands);
        for index in 0..a.len() {
            let expected = f(wide(c[index], a[index]), wide(e[index], b[index])) >> 64;
            assert_eq!(found[index], expected as u64, "{add}");
            assert_eq!(found32[index], expected as u64, "{add} in words");
        }
    }
    // The flag of a difference says that nothing was borrowed.
    let body = ".reg .b64 t; sub.cc.u64 t, a, b; addc.u64 d, 0, 0;";
    let found = execute(body, "b64", &operands[..2]);
    for index in 0..a.len() {
        assert_eq!(found[index], u64::from(a[index] >= b[index]));
    }
    let body = ".reg .b64 t; mad.lo.cc.u64 t, a, b, c; madc.hi.u64 d, a, b, 0;";
    let found = execute(body, "b64", &operands[..3]);
    for index in 0..a.len() {
        let product = u128::from(a[index]) * u128::from(b[index]) + u128::from(c[index]);
        assert_eq!(found[index], (product >> 64) as u64);
    }
}

#[test]
fn extrema_without_negative_numbers() {
    let a = [5u64, 0xFFFF_FFFF, 0x8000_0000, 3];
    let b = [7u64, 0xFFFF_FFF0, 9, 0xFFFF_FFFE];
    let run = |body: &str| execute(body, "s32", &[("s32", &a), ("s32", &b)]);
    assert_eq!(run("min.relu.s32 d, a, b;"), [5, 0, 0, 0]);
    assert_eq!(run("max.relu.s32 d, a, b;"), [7, 0, 9, 3]);
}
