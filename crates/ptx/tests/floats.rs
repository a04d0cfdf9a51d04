//! Floating-point instructions against the host's, and against exact arithmetic.

use crate::common::instruction::{execute, samples, shuffled};

fn singles(count: usize) -> Vec<u64> {
    let mut found = vec![
        0u64,
        1 << 31,
        1,
        0x8000_0001,
        0x7F_FFFF,
        0x80_0000,
        0x3F80_0000,
        0xBF80_0000,
    ];
    found.extend([
        0x7F80_0000,
        0xFF80_0000,
        0x7FC0_0000,
        0x7F7F_FFFF,
        0xFF7F_FFFF,
        0x3F80_0001,
    ]);
    found.extend(
        samples(32, count - found.len())
            .into_iter()
            .rev()
            .map(|own| own.wrapping_mul(0x9E37_79B1) & 0xFFFF_FFFF),
    );
    found
}

fn doubles(count: usize) -> Vec<u64> {
    let wide = singles(count)
        .into_iter()
        .map(|own| f64::from(f32::from_bits(own as u32)).to_bits());
    let own = samples(64, count)
        .into_iter()
        .map(|own| own.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    wide.zip(own)
        .enumerate()
        .map(|(index, (a, b))| if index % 3 == 0 { a } else { b })
        .collect()
}

fn canonical(value: f32) -> u64 {
    if value.is_nan() {
        0x7FFF_FFFF
    } else {
        value.to_bits().into()
    }
}

fn check32(body: &str, f: impl Fn(f32, f32, f32) -> f32) {
    let a = singles(2000);
    let (b, c) = (shuffled(&a, 3), shuffled(&a, 14));
    let found = execute(body, "f32", &[("f32", &a), ("f32", &b), ("f32", &c)]);
    for index in 0..a.len() {
        let [x, y, z] = [&a, &b, &c].map(|own| f32::from_bits(own[index] as u32));
        let expected = canonical(f(x, y, z));
        assert_eq!(
            found[index],
            expected,
            "{body} {x:e} {y:e} {z:e}: {:e}",
            f32::from_bits(found[index] as u32)
        );
    }
}

fn flush(value: f32) -> f32 {
    if value.is_subnormal() {
        0f32.copysign(value)
    } else {
        value
    }
}

fn saturate(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

#[test]
fn singles_to_nearest() {
    check32("add.f32 d, a, b;", |a, b, _| a + b);
    check32("sub.rn.f32 d, a, b;", |a, b, _| a - b);
    check32("mul.f32 d, a, b;", |a, b, _| a * b);
    check32("div.rn.f32 d, a, b;", |a, b, _| a / b);
    check32("fma.rn.f32 d, a, b, c;", f32::mul_add);
    check32("sqrt.rn.f32 d, a;", |a, _, _| a.sqrt());
    check32("rcp.rn.f32 d, a;", |a, _, _| 1.0 / a);
    check32("add.ftz.f32 d, a, b;", |a, b, _| flush(flush(a) + flush(b)));
    check32("mul.ftz.sat.f32 d, a, b;", |a, b, _| {
        saturate(flush(flush(a) * flush(b)))
    });
    check32("fma.rn.ftz.f32 d, a, b, c;", |a, b, c| {
        flush(flush(a).mul_add(flush(b), flush(c)))
    });
    check32("add.sat.f32 d, a, b;", |a, b, _| saturate(a + b));
}

#[test]
fn singles_without_rounding() {
    let order = |a: f32, b: f32| {
        a.partial_cmp(&b)
            .map(|own| own.then(a.is_sign_positive().cmp(&b.is_sign_positive())))
    };
    let least = |a: f32, b: f32| match order(a, b) {
        None if a.is_nan() => b,
        None => a,
        Some(own) => {
            if own.is_le() {
                a
            } else {
                b
            }
        }
    };
    let most = |a: f32, b: f32| match order(a, b) {
        None if a.is_nan() => b,
        None => a,
        Some(own) => {
            if own.is_ge() {
                a
            } else {
                b
            }
        }
    };
    check32("min.f32 d, a, b;", |a, b, _| least(a, b));
    check32("max.f32 d, a, b;", |a, b, _| most(a, b));
    check32("min.NaN.f32 d, a, b;", |a, b, _| {
        if a.is_nan() || b.is_nan() {
            f32::NAN
        } else {
            least(a, b)
        }
    });
    check32("max.f32 d, a, b, c;", |a, b, c| most(most(a, b), c));
    let a = singles(500);
    let b = shuffled(&a, 3);
    let negated = execute("neg.f32 d, a;", "f32", &[("f32", &a)]);
    let absolute = execute("abs.f32 d, a;", "f32", &[("f32", &a)]);
    let signed = execute("copysign.f32 d, a, b;", "f32", &[("f32", &a), ("f32", &b)]);
    for index in 0..a.len() {
        assert_eq!(negated[index], a[index] ^ 1 << 31);
        assert_eq!(absolute[index], a[index] & !(1 << 31));
        assert_eq!(signed[index], b[index] & !(1 << 31) | a[index] & 1 << 31);
    }
}

/// The result nearest to the exact one in a direction. `round` rounds a double whose error has the sign of `error`.
fn directed(value: f64, error: f64, mode: &str) -> f32 {
    let nearest = value as f32;
    if nearest.is_nan() || value.is_infinite() || value == 0.0 && error == 0.0 {
        return nearest;
    }
    let exact_is_above = f64::from(nearest) < value || f64::from(nearest) == value && error > 0.0;
    let exact_is_below = f64::from(nearest) > value || f64::from(nearest) == value && error < 0.0;
    match mode {
        "rm" if exact_is_below => nearest.next_down(),
        "rp" if exact_is_above => nearest.next_up(),
        "rz" if value > 0.0 && exact_is_below => nearest.next_down(),
        "rz" if value < 0.0 && exact_is_above => nearest.next_up(),
        _ => nearest,
    }
}

#[test]
fn singles_in_a_direction() {
    for mode in ["rz", "rm", "rp"] {
        check32(&format!("mul.{mode}.f32 d, a, b;"), |a, b, _| {
            directed(f64::from(a) * f64::from(b), 0.0, mode)
        });
        check32(&format!("add.{mode}.f32 d, a, b;"), |a, b, _| {
            let (x, y) = (f64::from(a), f64::from(b));
            let sum = x + y;
            if sum == 0.0 && x != 0.0 {
                return if mode == "rm" { -0.0 } else { 0.0 };
            }
            if sum == 0.0 && mode == "rm" && a.is_sign_negative() != b.is_sign_negative() {
                return -0.0;
            }
            let other = sum - x;
            directed(sum, (x - (sum - other)) + (y - other), mode)
        });
        check32(&format!("div.{mode}.f32 d, a, b;"), |a, b, _| {
            let quotient = f64::from(a) / f64::from(b);
            let rest = (-quotient).mul_add(f64::from(b), f64::from(a));
            directed(quotient, rest * f64::from(b).signum(), mode)
        });
        check32(&format!("sqrt.{mode}.f32 d, a;"), |a, _, _| {
            let root = f64::from(a).sqrt();
            directed(root, (-root).mul_add(root, f64::from(a)), mode)
        });
    }
}

#[test]
fn doubles_to_nearest() {
    let a = doubles(2000);
    let (b, c) = (shuffled(&a, 3), shuffled(&a, 14));
    let operands = [("f64", &a[..]), ("f64", &b[..]), ("f64", &c[..])];
    let check = |body: &str, f: &dyn Fn(f64, f64, f64) -> f64| {
        let found = execute(body, "f64", &operands);
        for index in 0..a.len() {
            let [x, y, z] = [&a, &b, &c].map(|own| f64::from_bits(own[index]));
            let (found, expected) = (f64::from_bits(found[index]), f(x, y, z));
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(
                same,
                "{body} {x:e} {y:e} {z:e}: {found:e}, not {expected:e}"
            );
        }
    };
    check("add.f64 d, a, b;", &|a, b, _| a + b);
    check("sub.f64 d, a, b;", &|a, b, _| a - b);
    check("mul.f64 d, a, b;", &|a, b, _| a * b);
    check("div.rn.f64 d, a, b;", &|a, b, _| a / b);
    check("fma.rn.f64 d, a, b, c;", &f64::mul_add);
    check("sqrt.rn.f64 d, a;", &|a, _, _| a.sqrt());
    check("min.f64 d, a, b;", &|a, b, _| {
        if a == b && b.is_sign_negative() {
            b
        } else if a == b {
            a
        } else {
            a.min(b)
        }
    });
}

/// Each pair of results in opposite directions brackets that to nearest, which is one of them.
#[test]
fn doubles_in_a_direction() {
    let a = doubles(2000);
    let (b, c) = (shuffled(&a, 3), shuffled(&a, 14));
    let operands = [("f64", &a[..]), ("f64", &b[..]), ("f64", &c[..])];
    for name in [
        "add.MODE.f64 d, a, b;",
        "mul.MODE.f64 d, a, b;",
        "div.MODE.f64 d, a, b;",
        "sqrt.MODE.f64 d, a;",
        "fma.MODE.f64 d, a, b, c;",
    ] {
        let run = |mode: &str| -> Vec<f64> {
            execute(&name.replace("MODE", mode), "f64", &operands)
                .into_iter()
                .map(f64::from_bits)
                .collect()
        };
        let (nearest, down, up, zero) = (run("rn"), run("rm"), run("rp"), run("rz"));
        for index in 0..a.len() {
            let (near, down, up) = (nearest[index], down[index], up[index]);
            if near.is_nan() {
                assert!(down.is_nan() && up.is_nan() && zero[index].is_nan());
                continue;
            }
            assert!(
                down <= near && near <= up && (near == down || near == up),
                "{name} {down:e} {near:e} {up:e}"
            );
            assert!(down == up || down.next_up() == up, "{name} {down:e} {up:e}");
            assert_eq!(
                zero[index],
                if near > 0.0 || near == 0.0 && up > 0.0 {
                    down.max(0.0)
                } else {
                    up
                },
                "{name}"
            );
        }
    }
}

#[test]
fn approximations_are_within_their_bounds() {
    let a: Vec<f32> = (0..4000)
        .map(|own| (own as f32 - 2000.0) * 0.0123)
        .collect();
    let bits: Vec<u64> = a.iter().map(|own| own.to_bits().into()).collect();
    let check = |name: &str, f: &dyn Fn(f64) -> f64, absolute: f64, relative: f64| {
        let found = execute(&format!("{name} d, a;"), "f32", &[("f32", &bits)]);
        for index in 0..a.len() {
            let (found, expected) = (
                f64::from(f32::from_bits(found[index] as u32)),
                f(a[index].into()),
            );
            if expected.is_nan() {
                assert!(found.is_nan(), "{name} {}", a[index]);
                continue;
            }
            let error = (found - expected).abs();
            let bound = absolute.max(relative * expected.abs());
            assert!(
                found == expected || error <= bound,
                "{name} {}: {found} {expected}",
                a[index]
            );
        }
    };
    let half_unit = 2f64.powi(-23);
    check("rcp.approx.f32", &|a| 1.0 / a, 0.0, half_unit);
    check("sqrt.approx.f32", &f64::sqrt, 0.0, half_unit);
    check("rsqrt.approx.f32", &|a| 1.0 / a.sqrt(), 0.0, half_unit);
    check("sin.approx.f32", &f64::sin, 2f64.powf(-20.5), half_unit);
    check("cos.approx.f32", &f64::cos, 2f64.powf(-20.5), half_unit);
    check("lg2.approx.f32", &f64::log2, 2f64.powi(-22), half_unit);
    check("ex2.approx.f32", &f64::exp2, 0.0, 2.0 * half_unit);
    check("tanh.approx.f32", &f64::tanh, 0.0, 2f64.powi(-11));
}

#[test]
fn kinds_of_numbers() {
    let a = singles(600);
    for (kind, f) in [
        ("finite", f32::is_finite as fn(f32) -> bool),
        ("infinite", f32::is_infinite),
        ("number", |own: f32| !own.is_nan()),
        ("notanumber", f32::is_nan),
        ("normal", |own: f32| own.is_normal() || own == 0.0),
        ("subnormal", f32::is_subnormal),
    ] {
        let found = execute(&format!("testp.{kind}.f32 d, a;"), "pred", &[("f32", &a)]);
        for index in 0..a.len() {
            assert_eq!(
                found[index] != 0,
                f(f32::from_bits(a[index] as u32)),
                "{kind} {:x}",
                a[index]
            );
        }
    }
}

#[test]
fn quotients_by_the_largest_numbers() {
    let divide = |a: u64, b: u64| {
        execute(
            "div.approx.f32 d, a, b;",
            "f32",
            &[("f32", &[a]), ("f32", &[b])],
        )[0]
    };
    assert_eq!(divide(0x4120_0000, 0x7F00_0000), 0);
    assert_eq!(divide(0x4120_0000, 0xFF00_0000), 0x8000_0000);
    assert_eq!(divide(0x7F80_0000, 0x7F00_0000), 0x7FFF_FFFF);
    assert_eq!(divide(0x7E80_0000, 0x7E80_0000), 0x3F80_0000);
    assert_eq!(divide(0x4120_0000, 0x7F80_0000), 0);
}

#[test]
fn powers_of_halves_are_flushed() {
    // 2 to the power of -130.
    let power = |name: &str| execute(&format!("{name} d, a;"), "b16", &[("b16", &[0xC302])])[0];
    assert_eq!(power("ex2.approx.ftz.bf16"), 0);
}
