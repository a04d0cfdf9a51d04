//! Comparisons and selection.

use crate::common::instruction::{execute, samples, shuffled};

#[test]
fn comparisons_of_integers() {
    for (width, is_signed) in [
        (16u32, false),
        (16, true),
        (32, false),
        (32, true),
        (64, false),
        (64, true),
    ] {
        let of = format!("{}{width}", if is_signed { "s" } else { "u" });
        let register = format!("b{width}");
        let a = samples(width, 300);
        let mut b = shuffled(&a, 3);
        b[..100].copy_from_slice(&a[..100]);
        let key = |own: u64| {
            let raised = own << (64 - width);
            if is_signed {
                i128::from(raised as i64)
            } else {
                i128::from(raised)
            }
        };
        for (name, f) in [
            ("eq", i128::eq as fn(&i128, &i128) -> bool),
            ("ne", i128::ne),
            ("lt", i128::lt),
            ("le", i128::le),
            ("gt", i128::gt),
            ("ge", i128::ge),
        ] {
            let body = format!("setp.{name}.{of} d, a, b;");
            let found = execute(&body, "pred", &[(&register, &a), (&register, &b)]);
            for index in 0..a.len() {
                assert_eq!(
                    found[index] != 0,
                    f(&key(a[index]), &key(b[index])),
                    "{body}"
                );
            }
        }
    }
}

#[test]
fn comparisons_of_floats() {
    let values = [
        0f64,
        -0.0,
        1.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e-310,
        2.5,
    ];
    let a: Vec<u64> = (0..81).map(|own| values[own / 9].to_bits()).collect();
    let b: Vec<u64> = (0..81).map(|own| values[own % 9].to_bits()).collect();
    for (name, f) in [
        ("eq", f64::eq as fn(&f64, &f64) -> bool),
        ("lt", f64::lt),
        ("le", f64::le),
        ("gt", f64::gt),
        ("ge", f64::ge),
        ("neu", f64::ne),
    ] {
        let ordered = |a: f64, b: f64| !a.is_nan() && !b.is_nan();
        let other = if name == "neu" {
            "ne".to_owned()
        } else {
            format!("{name}u")
        };
        let single = |own: &[u64]| -> Vec<u64> {
            own.iter()
                .map(|bits| u64::from((f64::from_bits(*bits) as f32).to_bits()))
                .collect()
        };
        let found = execute(
            &format!("setp.{name}.f64 d, a, b;"),
            "pred",
            &[("f64", &a), ("f64", &b)],
        );
        let unordered = execute(
            &format!("setp.{other}.f64 d, a, b;"),
            "pred",
            &[("f64", &a), ("f64", &b)],
        );
        let as_single = execute(
            &format!("setp.{name}.f32 d, a, b;"),
            "pred",
            &[("f32", &single(&a)), ("f32", &single(&b))],
        );
        for index in 0..81 {
            let (x, y) = (f64::from_bits(a[index]), f64::from_bits(b[index]));
            assert_eq!(found[index] != 0, f(&x, &y), "{name} {x} {y}");
            let expected = if ordered(x, y) {
                f(&x, &y)
            } else {
                name != "neu"
            };
            assert_eq!(unordered[index] != 0, expected, "{other} {x} {y}");
            let (p, q) = (f64::from(x as f32), f64::from(y as f32));
            assert_eq!(as_single[index] != 0, f(&p, &q), "{name}.f32 {p} {q}");
        }
    }
    let both = [("f64", &a[..]), ("f64", &b[..])];
    let number = execute("setp.num.f64 d, a, b;", "pred", &both);
    let nan = execute("setp.nan.f64 d, a, b;", "pred", &both);
    assert!((0..81).all(|own| number[own] + nan[own] == 1));
    let set = execute("set.lt.u32.f64 d, a, b;", "b32", &both);
    let one = execute("set.lt.f32.f64 d, a, b;", "f32", &both);
    for index in 0..81 {
        let expected = f64::from_bits(a[index]) < f64::from_bits(b[index]);
        assert_eq!(set[index], if expected { 0xFFFF_FFFF } else { 0 });
        assert_eq!(
            f32::from_bits(one[index] as u32),
            f32::from(u8::from(expected))
        );
    }
}

#[test]
fn combinations_and_selection() {
    let a = samples(32, 200);
    let b = shuffled(&a, 3);
    let c: Vec<u64> = (0..200).map(|own| own % 2).collect();
    let operands = [("b32", &a[..]), ("b32", &b[..]), ("pred", &c[..])];
    for (name, f) in [
        ("and", (|a, b| a && b) as fn(bool, bool) -> bool),
        ("or", |a, b| a || b),
        ("xor", |a, b| a != b),
    ] {
        let body = format!(
            ".reg .pred p, q; setp.lt.{name}.u32 p|q, a, b, !c; selp.b32 d, 2, 0, p; @q or.b32 d, d, 1;"
        );
        let found = execute(&body, "b32", &operands);
        for index in 0..200 {
            let (is_less, c) = (a[index] < b[index], c[index] == 0);
            let expected = u64::from(f(is_less, c)) << 1 | u64::from(f(!is_less, c));
            assert_eq!(found[index], expected, "{name}");
        }
    }
    let selected = execute("selp.b32 d, a, b, c;", "b32", &operands);
    let by_sign = execute("slct.u32.s32 d, a, b, a;", "b32", &operands[..2]);
    let logic = execute(
        ".reg .pred p; setp.eq.u32 p, a, b; xor.pred p, p, c; not.pred d, p;",
        "pred",
        &operands,
    );
    for index in 0..200 {
        assert_eq!(
            selected[index],
            if c[index] != 0 { a[index] } else { b[index] }
        );
        assert_eq!(
            by_sign[index],
            if a[index] as i32 >= 0 {
                a[index]
            } else {
                b[index]
            }
        );
        assert_eq!(logic[index] == 0, (a[index] == b[index]) != (c[index] != 0));
    }
}
