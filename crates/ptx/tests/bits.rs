//! Bit instructions against loops over bits.

use crate::common::instruction::{execute, samples, shuffled};

fn words() -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    let a = samples(32, 700);
    let (b, c) = (shuffled(&a, 5), shuffled(&a, 13));
    (a, b, c)
}

#[test]
fn logic_and_shifts() {
    for width in [16, 32, 64] {
        let register = format!("b{width}");
        let mask = u64::MAX >> (64 - width);
        let a = samples(width, 300);
        let b = shuffled(&a, 3);
        let amounts: Vec<u64> = (0..300).map(|own| own % 70).collect();
        let check = |name: &str, f: &dyn Fn(u64, u64) -> u64| {
            let body = format!("{name}.b{width} d, a, b;");
            let found = execute(&body, &register, &[(&register, &a), (&register, &b)]);
            for index in 0..a.len() {
                assert_eq!(found[index], f(a[index], b[index]) & mask, "{name}");
            }
        };
        check("and", &|a, b| a & b);
        check("or", &|a, b| a | b);
        check("xor", &|a, b| a ^ b);
        let shift = |name: &str, f: &dyn Fn(u64, u32) -> u64| {
            let body = format!("{name}{width} d, a, b;");
            let found = execute(&body, &register, &[(&register, &a), ("b32", &amounts)]);
            for index in 0..a.len() {
                let expected = f(a[index], amounts[index] as u32) & mask;
                assert_eq!(
                    found[index], expected,
                    "{name}{width} {:x} {}",
                    a[index], amounts[index]
                );
            }
        };
        shift("shl.b", &|a, by| if by >= width { 0 } else { a << by });
        shift("shr.u", &|a, by| if by >= width { 0 } else { a >> by });
        shift("shr.s", &|a, by| {
            let signed = ((a << (64 - width)) as i64) >> (64 - width);
            (signed >> by.min(63)) as u64
        });
        let not = execute(
            &format!("not.b{width} d, a;"),
            &register,
            &[(&register, &a)],
        );
        let cnot = execute(
            &format!("cnot.b{width} d, a;"),
            &register,
            &[(&register, &a)],
        );
        for index in 0..a.len() {
            assert_eq!(not[index], !a[index] & mask);
            assert_eq!(cnot[index], u64::from(a[index] == 0));
        }
    }
}

#[test]
fn counts() {
    for width in [32u32, 64] {
        let register = format!("b{width}");
        let a = samples(width, 400);
        let run = |name: &str, result: &str| {
            execute(&format!("{name} d, a;"), result, &[(&register, &a)])
        };
        let ones = run(&format!("popc.b{width}"), "b32");
        let zeros = run(&format!("clz.b{width}"), "b32");
        let reversed = run(&format!("brev.b{width}"), &register);
        let unsigned = run(&format!("bfind.u{width}"), "b32");
        let signed = run(&format!("bfind.s{width}"), "b32");
        let amount = run(&format!("bfind.shiftamt.u{width}"), "b32");
        for index in 0..a.len() {
            let bit = |at: u32| a[index] >> at & 1;
            let highest = (0..width).rev().find(|at| bit(*at) == 1);
            let differing = (0..width - 1).rev().find(|at| bit(*at) != bit(width - 1));
            assert_eq!(ones[index], (0..width).map(bit).sum::<u64>());
            assert_eq!(
                zeros[index],
                u64::from(highest.map_or(width, |at| width - 1 - at))
            );
            assert_eq!(
                reversed[index],
                (0..width).fold(0, |all, at| all | bit(at) << (width - 1 - at))
            );
            assert_eq!(unsigned[index], u64::from(highest.unwrap_or(u32::MAX)));
            assert_eq!(signed[index], u64::from(differing.unwrap_or(u32::MAX)));
            assert_eq!(
                amount[index],
                u64::from(highest.map_or(u32::MAX, |at| width - 1 - at))
            );
        }
    }
}

#[test]
fn fields() {
    for width in [32u32, 64] {
        let register = format!("b{width}");
        let a = samples(width, 2000);
        let b = shuffled(&a, 5);
        let positions: Vec<u64> = (0..2000).map(|own| own * 7 % 70).collect();
        let lengths: Vec<u64> = (0..2000).map(|own| own * 11 % 71).collect();
        let extract = [
            (&register[..], &a[..]),
            ("b32", &positions),
            ("b32", &lengths),
        ];
        let insert = [
            (&register[..], &a[..]),
            (&register, &b),
            ("b32", &positions),
            ("b32", &lengths),
        ];
        let unsigned = execute(&format!("bfe.u{width} d, a, b, c;"), &register, &extract);
        let signed = execute(&format!("bfe.s{width} d, a, b, c;"), &register, &extract);
        let inserted = execute(&format!("bfi.b{width} d, a, b, c, e;"), &register, &insert);
        for index in 0..a.len() {
            let (at, len) = (positions[index] as u32, lengths[index] as u32);
            let bit = |of: u64, at: u32| if at < width { of >> at & 1 } else { 0 };
            // As the manual's pseudo code has it.
            let sign = if len == 0 {
                0
            } else {
                bit(a[index], (at + len - 1).min(width - 1))
            };
            let field = |fill: u64| {
                (0..width).fold(0, |all, i| {
                    let is_inside = i < len && at + i < width;
                    all | (if is_inside {
                        bit(a[index], at + i)
                    } else {
                        fill
                    }) << i
                })
            };
            assert_eq!(
                unsigned[index],
                field(0),
                "bfe.u{width} {:x} {at} {len}",
                a[index]
            );
            assert_eq!(
                signed[index],
                field(sign),
                "bfe.s{width} {:x} {at} {len}",
                a[index]
            );
            let expected = (0..width).fold(0, |all, i| {
                let own = if i >= at && i < at + len {
                    bit(a[index], i - at)
                } else {
                    bit(b[index], i)
                };
                all | own << i
            });
            assert_eq!(inserted[index], expected, "bfi.b{width} {at} {len}");
        }
    }
}

/// Beyond what the manual allows: as an H200 does it.
#[test]
fn fields_of_long_positions() {
    let a = 0x3040_14A3_0B42_D718u64;
    let cases = [
        ("bfe.u64", a, 0, 0x42CE_A639, a),
        ("bfe.u64", a, 0, 0x100, a),
        ("bfe.u64", a, 0x8000_0000, 0x42CE_A639, 0),
        ("bfe.u64", a, 0x42CE_A639, 0x42CE_A639, 0),
        ("bfe.u64", u64::MAX - 92, 0x0002_0000, 0x61, 0),
        ("bfe.s64", a, 0xD496_F825, 0xD496_F825, 0),
        ("bfe.s64", !a, 0x8000, 0x8000, u64::MAX),
        ("bfe.s64", !22, 22, 0x8000, u64::MAX),
        // Only the low 8 bits count.
        ("bfe.u32", 0xA1B9_65F4, 0x100, 0x8000_0008, 0xF4),
        ("bfe.s32", 0xA1B9_65F4, 0x8000_0020, 1, 0xFFFF_FFFF),
    ];
    for (instruction, a, at, len, expected) in cases {
        let register = format!("b{}", &instruction[5..]);
        let operands = [(&register[..], &[a][..]), ("b32", &[at]), ("b32", &[len])];
        let found = execute(&format!("{instruction} d, a, b, c;"), &register, &operands);
        assert_eq!(found, [expected], "{instruction} {a:x} {at:x} {len:x}");
    }
    let inserted = [
        (a, a, 1, 0x0200_0000, 0x6080_2946_1685_AE30),
        (1, 1, 0x8BDF_E41C, 1, 1),
        (1, 1, 0x22, 0x0040_0000, 0x0000_0004_0000_0001),
        (0x0040_0000_0000_0000, !11, 0x1000, 3, !11),
    ];
    for (a, b, at, len, expected) in inserted {
        let operands: [(&str, &[u64]); 4] = [
            ("b64", &[a]),
            ("b64", &[b]),
            ("b32", &[at]),
            ("b32", &[len]),
        ];
        let found = execute("bfi.b64 d, a, b, c, e;", "b64", &operands);
        assert_eq!(found, [expected], "bfi.b64 {a:x} {b:x} {at:x} {len:x}");
    }
}

#[test]
fn functions_of_three() {
    let (a, b, c) = words();
    let operands = [("b32", &a[..]), ("b32", &b[..]), ("b32", &c[..])];
    for table in [0x00, 0x01, 0x80, 0x96, 0xE8, 0xCA, 0x1B, 0xFF, 0x6A] {
        let found = execute(&format!("lop3.b32 d, a, b, c, {table};"), "b32", &operands);
        for index in 0..a.len() {
            let expected = (0..32).fold(0u64, |all, at| {
                let bit = |of: &[u64]| of[index] >> at & 1;
                let row = bit(&a) << 2 | bit(&b) << 1 | bit(&c);
                all | (table >> row & 1) << at
            });
            assert_eq!(found[index], expected, "{table:x}");
        }
    }
    let body = ".reg .pred p, q; .reg .b32 t; setp.gt.u32 q, a, b; lop3.or.b32 t|p, a, b, c, 0x80, q; selp.b32 d, 1, 0, p;";
    let found = execute(body, "b32", &operands);
    for index in 0..a.len() {
        let expected = a[index] & b[index] & c[index] != 0 || a[index] > b[index];
        assert_eq!(found[index] != 0, expected);
    }
}

#[test]
fn funnels_and_bytes() {
    let (a, b, _) = words();
    let amounts: Vec<u64> = (0..700).map(|own| own % 67).collect();
    let operands = [("b32", &a[..]), ("b32", &b[..]), ("b32", &amounts[..])];
    for (name, is_left, clamps) in [
        ("l.wrap", true, false),
        ("l.clamp", true, true),
        ("r.wrap", false, false),
        ("r.clamp", false, true),
    ] {
        let found = execute(&format!("shf.{name}.b32 d, a, b, c;"), "b32", &operands);
        for index in 0..a.len() {
            let by = if clamps {
                amounts[index].min(32)
            } else {
                amounts[index] % 32
            };
            let both = u128::from(b[index]) << 32 | u128::from(a[index]);
            let expected = if is_left {
                (both << by >> 32) as u32
            } else {
                (both >> by) as u32
            };
            assert_eq!(found[index], u64::from(expected), "{name} {by}");
        }
    }
    let selectors = samples(32, 700);
    let operands = [("b32", &a[..]), ("b32", &b[..]), ("b32", &selectors[..])];
    let modes: [(&str, [[usize; 4]; 4]); 6] = [
        (
            "f4e",
            [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
        ),
        (
            "b4e",
            [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
        ),
        ("rc8", [[0; 4], [1; 4], [2; 4], [3; 4]]),
        (
            "ecl",
            [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
        ),
        (
            "ecr",
            [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
        ),
        (
            "rc16",
            [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
        ),
    ];
    let bytes = |index: usize| {
        let both = b[index] << 32 | a[index];
        both.to_le_bytes()
    };
    for (mode, table) in modes {
        let found = execute(&format!("prmt.b32.{mode} d, a, b, c;"), "b32", &operands);
        for index in 0..a.len() {
            let row = table[selectors[index] as usize % 4];
            let expected = u32::from_le_bytes(row.map(|at| bytes(index)[at]));
            assert_eq!(found[index], u64::from(expected), "{mode}");
        }
    }
    let found = execute("prmt.b32 d, a, b, c;", "b32", &operands);
    for index in 0..a.len() {
        let expected = [0, 1, 2, 3].map(|at| {
            let selector = selectors[index] >> (4 * at) & 15;
            let byte = bytes(index)[selector as usize % 8];
            if selector >= 8 {
                ((byte as i8) >> 7) as u8
            } else {
                byte
            }
        });
        assert_eq!(found[index], u64::from(u32::from_le_bytes(expected)));
    }
}

#[test]
fn masks_and_extensions() {
    let (a, b, _) = words();
    let lengths: Vec<u64> = (0..700).map(|own| own * 3 % 40).collect();
    let run = |name: &str, first: &[u64]| {
        execute(
            &format!("{name} d, a, b;"),
            "b32",
            &[("b32", first), ("b32", &lengths)],
        )
    };
    let positions: Vec<u64> = (0..700).map(|own| own % 37).collect();
    let clamped = run("bmsk.clamp.b32", &positions);
    let wrapped = run("bmsk.wrap.b32", &positions);
    let extended = run("szext.clamp.s32", &a);
    let zeroed = run("szext.wrap.u32", &b);
    for index in 0..a.len() {
        let ones = |at: u64, len: u64| {
            (0..32)
                .filter(|i| *i >= at && *i < at + len)
                .fold(0, |all, i| all | 1u64 << i)
        };
        let (at, len) = (positions[index], lengths[index]);
        assert_eq!(clamped[index], ones(at.min(32), len.min(32)));
        assert_eq!(wrapped[index], ones(at % 32, len % 32));
        let signed = match len.min(32) {
            0 => 0,
            len => (a[index] << (64 - len)) as i64 >> (64 - len),
        };
        assert_eq!(extended[index], u64::from(signed as u32));
        assert_eq!(zeroed[index], b[index] & ((1 << (len % 32)) - 1));
    }
    let offsets: Vec<u64> = (0..700)
        .map(|own| (own as i64 % 13 - 6) as u32 as u64)
        .collect();
    let bases: Vec<u64> = (0..700).map(|own| own % 32).collect();
    let found = execute(
        "fns.b32 d, a, b, c;",
        "b32",
        &[("b32", &a), ("b32", &bases), ("b32", &offsets)],
    );
    for index in 0..a.len() {
        let (base, offset) = (bases[index] as i64, offsets[index] as i32);
        let step = if offset < 0 { -1 } else { 1 };
        let (mut at, mut left, mut expected) = (base, offset.abs().max(1), u32::MAX);
        while (0..32).contains(&at) {
            if a[index] >> at & 1 != 0 {
                left -= 1;
                if left == 0 {
                    expected = at as u32;
                    break;
                }
            }
            if offset == 0 {
                break;
            }
            at += step;
        }
        assert_eq!(
            found[index],
            u64::from(expected),
            "{:x} {base} {offset}",
            a[index]
        );
    }
}
