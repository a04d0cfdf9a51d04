//! Executes one instruction, or a few, for many operands.

use std::fmt::Write;

use super::Argument::{U32, U64};
use super::Device;

/// Executes `body` for each row of operands and returns `d`. The operands are named `a`, `b`, `c`, `e`; each has the
/// type of a register, such as `b32`, `f32` or `pred`, and its bits.
pub fn execute(body: &str, result: &str, operands: &[(&str, &[u64])]) -> Vec<u64> {
    let count = operands.first().map_or(32, |(_, values)| values.len());
    let device = Device::new();
    let to = device.upload(&vec![0u64; count]);
    let mut arguments = vec![U32(count as u32), U64(to)];
    for (_, values) in operands {
        assert_eq!(values.len(), count, "as many values of each operand");
        arguments.push(U64(device.upload(values)));
    }
    let text = kernel(body, result, operands);
    let blocks = (count as u32).div_ceil(128);
    let launched = device.launch(&text, "test", blocks, 128, &arguments);
    launched.unwrap_or_else(|error| panic!("{error}\n{text}"));
    device.read(to, count)
}

fn kernel(body: &str, result: &str, operands: &[(&str, &[u64])]) -> String {
    let mut text = String::from(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry test(.param .u32 n, .param .u64 to",
    );
    let names = ["a", "b", "c", "e"];
    for name in &names[..operands.len()] {
        write!(text, ", .param .u64 from_{name}").unwrap();
    }
    text.push_str(
        ")\n{\n.reg .pred %out; .reg .b16 %h; .reg .b32 %i, %n, %w; .reg .b64 %at, %off, %v;\n\
         mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mul.lo.u32 %i, %i, %n; mov.u32 %n, %tid.x; add.u32 %i, %i, %n;\n\
         ld.param.u32 %n, [n]; setp.ge.u32 %out, %i, %n; @%out exit;\n\
         mul.wide.u32 %off, %i, 8;\n",
    );
    writeln!(text, ".reg .{result} d;").unwrap();
    for (name, (of, _)) in names.iter().zip(operands) {
        writeln!(text, ".reg .{of} {name};").unwrap();
        writeln!(
            text,
            "ld.param.u64 %at, [from_{name}]; add.u64 %at, %at, %off; ld.global.u64 %v, [%at];"
        )
        .unwrap();
        let narrow = match *of {
            "pred" => format!("setp.ne.u64 {name}, %v, 0;"),
            "b16" | "f16" | "u16" | "s16" => format!("cvt.u16.u64 {name}, %v;"),
            "f32" | "b32" | "u32" | "s32" => format!("cvt.u32.u64 %w, %v; mov.b32 {name}, %w;"),
            _ => format!("mov.b64 {name}, %v;"),
        };
        writeln!(text, "{narrow}").unwrap();
    }
    writeln!(text, "{body}").unwrap();
    let widen = match result {
        "pred" => "selp.u64 %v, 1, 0, d;",
        "b16" | "f16" | "u16" | "s16" => "cvt.u64.u16 %v, d;",
        "f32" | "b32" | "u32" | "s32" => "mov.b32 %w, d; cvt.u64.u32 %v, %w;",
        _ => "mov.b64 %v, d;",
    };
    writeln!(
        text,
        "{widen}\nld.param.u64 %at, [to]; add.u64 %at, %at, %off; st.global.u64 [%at], %v;\n}}"
    )
    .unwrap();
    text
}

/// Numbers of `bits` bits: those at the edges, and others of all magnitudes.
pub fn samples(bits: u32, count: usize) -> Vec<u64> {
    let mask = u64::MAX >> (64 - bits);
    let top = 1 << (bits - 1);
    let mut found = vec![
        0,
        1,
        2,
        3,
        7,
        31,
        32,
        33,
        63,
        mask,
        mask - 1,
        top,
        top - 1,
        top + 1,
    ];
    let mut state = 0x1234_5678_9ABC_DEF0u64 ^ count as u64;
    while found.len() < count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let shift = state >> 58;
        let own = (state ^ state << 29).rotate_left(17) >> shift;
        found.push(if state >> 33 & 1 != 0 {
            own
        } else {
            own.wrapping_neg()
        });
    }
    found.truncate(count);
    found.into_iter().map(|own| own & mask).collect()
}

/// The same numbers in another order.
pub fn shuffled(values: &[u64], by: usize) -> Vec<u64> {
    let count = values.len();
    (0..count)
        .map(|index| values[(index * 31 + index / 14 * by + by) % count])
        .collect()
}
