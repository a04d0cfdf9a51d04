//! Loads and stores: widths, vectors, spaces, generic addresses, variables.

use cuguard_ptx::{FaultKind, Launch, Module};

use crate::common::Argument::U64;
use crate::common::{Device, launch};

const HEADER: &str = ".version 8.7\n.target sm_90\n.address_size 64\n";

/// Launches a kernel `k(u64 from, u64 to)` with a body, for 64 threads, with 1 KiB of input bytes.
fn run(declarations: &str, body: &str) -> Vec<u64> {
    let device = Device::new();
    let from = device.upload(&input());
    let to = device.upload(&[0u64; 64]);
    let text = format!(
        "{HEADER}{declarations}\n.visible .entry k(.param .u64 from, .param .u64 to)\n{{\n\
         .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .pred %p<4>;\n\
         ld.param.u64 %rd0, [from]; ld.param.u64 %rd1, [to]; mov.u32 %r0, %tid.x;\n\
         mul.wide.u32 %rd2, %r0, 8; add.u64 %rd1, %rd1, %rd2; mul.wide.u32 %rd2, %r0, 16; add.u64 %rd0, %rd0, %rd2;\n\
         {body}\nst.global.u64 [%rd1], %rd3;\n}}"
    );
    let launched = device.launch(&text, "k", 1, 64, &[U64(from), U64(to)]);
    launched.unwrap_or_else(|error| panic!("{error}\n{text}"));
    device.read(to, 64)
}

fn input() -> Vec<u8> {
    (0..1024u32)
        .map(|own| (own.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// The little-endian number at a place of a thread's 16 bytes.
fn at(thread: usize, offset: usize, size: usize) -> u64 {
    let bytes = &input()[16 * thread + offset..][..size];
    bytes
        .iter()
        .rev()
        .fold(0, |all, byte| all << 8 | u64::from(*byte))
}

fn check(found: &[u64], expected: impl Fn(usize) -> u64) {
    for (thread, found) in found.iter().enumerate() {
        assert_eq!(*found, expected(thread), "thread {thread}");
    }
}

#[test]
fn widths_are_extended() {
    check(&run("", "ld.global.u8 %rd3, [%rd0+3];"), |own| {
        at(own, 3, 1)
    });
    check(&run("", "ld.global.s8 %rd3, [%rd0+3];"), |own| {
        at(own, 3, 1) as u8 as i8 as u64
    });
    check(
        &run("", "ld.global.s16 %r3, [%rd0+6]; cvt.s64.s32 %rd3, %r3;"),
        |own| at(own, 6, 2) as u16 as i16 as u64,
    );
    check(&run("", "ld.global.u16 %rd3, [%rd0+2];"), |own| {
        at(own, 2, 2)
    });
    check(&run("", "ld.global.s32 %rd3, [%rd0+12];"), |own| {
        at(own, 12, 4) as u32 as i32 as u64
    });
    check(
        &run(
            "",
            "ld.global.nc.L1::no_allocate.b32 %r3, [%rd0+-0]; cvt.u64.u32 %rd3, %r3;",
        ),
        |own| at(own, 0, 4),
    );
    check(&run("", "ld.volatile.u64 %rd3, [%rd0+8];"), |own| {
        at(own, 8, 8)
    });
    check(
        &run("", "ld.acquire.gpu.global.u64 %rd3, [%rd0+8];"),
        |own| at(own, 8, 8),
    );
    check(
        &run(
            "",
            "ld.global.u8 %h0, [%rd0]; shl.b16 %h0, %h0, 8; cvt.u64.u16 %rd3, %h0;",
        ),
        |own| at(own, 0, 1) << 8,
    );
}

#[test]
fn vectors() {
    let sum = "cvt.u64.u32 %rd4, %r4; cvt.u64.u32 %rd5, %r5; shl.b64 %rd5, %rd5, 32; or.b64 %rd3, %rd4, %rd5;";
    check(
        &run(
            "",
            &format!("ld.global.v4.u32 {{%r2, _, %r4, %r5}}, [%rd0]; {sum}"),
        ),
        |own| at(own, 8, 8),
    );
    check(
        &run(
            "",
            &format!("ld.global.v2.b32 {{%r4, %r5}}, [%rd0+8]; {sum}"),
        ),
        |own| at(own, 8, 8),
    );
    check(
        &run(
            "",
            "ld.global.v2.u64 {%rd4, %rd5}, [%rd0]; xor.b64 %rd3, %rd4, %rd5;",
        ),
        |own| at(own, 0, 8) ^ at(own, 8, 8),
    );
    check(
        &run(
            "",
            "ld.global.v4.u8 {%r2, %r3, %r4, %r5}, [%rd0+4]; cvt.u64.u32 %rd3, %r5;",
        ),
        |own| at(own, 7, 1),
    );
    let store = "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd0]; st.shared.v4.u32 [%r6], {%r5, %r4, %r3, %r2};";
    let body = format!(
        "mov.u32 %r6, s; mad.lo.u32 %r6, %r0, 16, %r6; {store} ld.shared.u64 %rd3, [%r6+8];"
    );
    check(&run(".shared .align 16 .b8 s[1024];", &body), |own| {
        at(own, 4, 4) | at(own, 0, 4) << 32
    });
    let body = ".reg .v2 .b32 v; ld.global.v2.b32 v, [%rd0]; mov.b64 %rd3, {v.y, v.x};";
    check(&run("", body), |own| at(own, 4, 4) | at(own, 0, 4) << 32);
    let body = ".reg .b128 q; ld.global.b128 q, [%rd0]; mov.b128 {%rd4, %rd5}, q; sub.u64 %rd3, %rd5, %rd4;";
    check(&run("", body), |own| {
        at(own, 8, 8).wrapping_sub(at(own, 0, 8))
    });
}

/// Through generic addresses all spaces are reached.
#[test]
fn generic_addresses() {
    let body = "ld.global.u64 %rd4, [%rd0]; mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 8, %r1; cvt.u64.u32 %rd5, %r1;\n\
        cvta.shared.u64 %rd6, %rd5; st.u64 [%rd6], %rd4; ld.shared.u64 %rd3, [%r1]; isspacep.shared %p0, %rd6;\n\
        @!%p0 mov.u64 %rd3, 0; isspacep.global %p0, %rd6; @%p0 mov.u64 %rd3, 1; cvta.to.shared.u64 %rd7, %rd6;\n\
        setp.ne.u64 %p1, %rd7, %rd5; @%p1 mov.u64 %rd3, 2;";
    check(&run(".shared .align 8 .b8 s[512];", body), |own| {
        at(own, 0, 8)
    });
    let body = ".local .align 8 .b8 l[64]; ld.global.u64 %rd4, [%rd0]; mov.u64 %rd5, l; cvta.local.u64 %rd6, %rd5;\n\
        and.b64 %rd7, %rd2, 48; add.u64 %rd6, %rd6, %rd7; st.u64 [%rd6], %rd4; st.u8 [%rd6+1], %r0;\n\
        add.u64 %rd5, %rd5, %rd7; ld.local.u64 %rd3, [%rd5];";
    check(&run("", body), |own| {
        at(own, 0, 8) & !0xFF00 | (own as u64) << 8
    });
    let body = "mov.u64 %rd4, to; cvta.param.u64 %rd4, %rd4; ld.u64 %rd5, [%rd4]; sub.u64 %rd3, %rd1, %rd5;";
    check(&run("", body), |own| 8 * own as u64);
}

#[test]
fn variables_and_their_values() {
    let declarations = ".global .align 4 .u32 table[2][3] = {{1, 2, 3}, {4, 5}};\n\
        .const .f64 half = 0.5;\n.global .u64 pointer = generic(table)+8;\n.global .b8 bytes[] = {10, 20, 30};\n\
        .visible .global .f32 ones[2] = {0f3F800000, 1};\n.extern .global .u32 later;\n.global .u32 later = 77;";
    let body = "ld.global.u64 %rd4, [pointer]; ld.u32 %r1, [%rd4]; ld.global.u32 %r2, [table+16]; mad.lo.u32 %r1, %r2, 100, %r1;\n\
        ld.global.u32 %r2, [table+20]; add.u32 %r1, %r1, %r2; ld.global.u8 %r2, [bytes+2]; mad.lo.u32 %r1, %r2, 1000, %r1;\n\
        ld.global.u32 %r2, [later]; add.u32 %r1, %r1, %r2; cvt.u64.u32 %rd3, %r1; ld.const.b64 %rd4, [half]; add.u64 %rd3, %rd3, %rd4;\n\
        ld.global.u32 %r2, [ones+4]; cvt.u64.u32 %rd4, %r2; sub.u64 %rd3, %rd3, %rd4;";
    let one = u64::from(1f32.to_bits());
    let expected = 3 + 500 + 30_000 + 77 + 0.5f64.to_bits() - one;
    check(&run(declarations, body), |_| expected);
    let module = Module::new(&format!("{HEADER}{declarations}")).unwrap();
    let sizes: Vec<_> = module
        .variables()
        .map(|own| (own.name.to_owned(), own.size, own.is_constant))
        .collect();
    assert_eq!(sizes[0], ("table".to_owned(), 24, false));
    assert_eq!(sizes[1], ("half".to_owned(), 8, true));
    assert_eq!(sizes[3], ("bytes".to_owned(), 3, false));
    let sizes = sizes.len() as u64;
    assert_eq!(
        module.initial_value(2, &(0..sizes).map(|own| own + 100).collect::<Vec<_>>()),
        108u64.to_le_bytes()
    );
}

/// Shared variables of a kernel are those that it and its functions use.
#[test]
fn shared_variables_have_their_own_places() {
    let text = format!(
        "{HEADER}.shared .b8 unused[40000];\n.shared .align 4 .b8 first[6];\n.extern .shared .align 16 .b8 open[];\n\
         .func use() {{ .shared .align 8 .u64 own; .reg .b64 %rd<2>; mov.u64 %rd0, 5; st.shared.u64 [own], %rd0; ret; }}\n\
         .entry k(.param .u64 to) {{ .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred p;\n\
         mov.u32 %r0, %tid.x; setp.ne.u32 p, %r0, 0; @p bra WAIT; call use, (); mov.u32 %r1, 7; st.shared.u32 [first], %r1;\n\
         st.shared.u32 [open+8], %r1;\nWAIT: bar.sync 0; mov.u32 %r2, open; add.u32 %r2, %r2, 8; ld.shared.u32 %r3, [%r2];\n\
         mov.u32 %r1, %dynamic_smem_size; add.u32 %r3, %r3, %r1; ld.param.u64 %rd1, [to];\n\
         cvt.u64.u32 %rd0, %r3; st.global.u64 [%rd1], %rd0; }}"
    );
    let device = Device::new();
    let to = device.upload(&[0u64]);
    let module = Module::new(&text).unwrap();
    let kernel = module.kernels().next().unwrap();
    assert_eq!((kernel.name, kernel.static_shared), ("k", 16));
    let launch = Launch {
        dynamic_shared: 100,
        ..launch("k", 1, 64)
    };
    device.run(&module, &launch, &[U64(to)]).unwrap();
    assert_eq!(device.read::<u64>(to, 1), [107]);
    let launch = Launch {
        dynamic_shared: 4,
        ..launch
    };
    let error = device.run(&module, &launch, &[U64(to)]).unwrap_err();
    assert!(
        matches!(
            error.kind,
            FaultKind::OutOfBounds {
                address: 24,
                size: 4,
                is_write: true,
                space: "shared"
            }
        ),
        "{error}"
    );
}

#[test]
fn copies_and_barriers_in_shared_memory() {
    let body = "mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 16, %r1; cp.async.cg.shared.global [%r2], [%rd0], 16;\n\
        cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; xor.b32 %r3, %r0, 63; mad.lo.u32 %r2, %r3, 16, %r1;\n\
        ld.shared.u64 %rd3, [%r2];";
    check(&run(".shared .align 16 .b8 s[1024];", body), |own| {
        at(own ^ 63, 0, 8)
    });
    let body = "mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 8, %r1; mov.u64 %rd3, -1; st.shared.u64 [%r2], %rd3; mov.u32 %r3, 4;\n\
        cp.async.ca.shared.global [%r2], [%rd0], 8, %r3; cp.async.wait_all; ld.shared.u64 %rd3, [%r2];";
    check(&run(".shared .align 16 .b8 s[1024];", body), |own| {
        at(own, 0, 4)
    });
    // Each warp waits for all 64 threads of two phases.
    let body = "setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [m], 64; bar.sync 0; mov.u32 %r5, 0;\n\
        LOOP: mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 8, %r1; cvt.u64.u32 %rd4, %r0; cvt.u64.u32 %rd5, %r5; add.u64 %rd4, %rd4, %rd5;\n\
        st.shared.u64 [%r2], %rd4; mbarrier.arrive.shared.b64 %rd6, [m];\n\
        WAIT: mbarrier.try_wait.shared.b64 %p1, [m], %rd6; @!%p1 bra WAIT;\n\
        xor.b32 %r3, %r0, 32; mad.lo.u32 %r2, %r3, 8, %r1; ld.shared.u64 %rd3, [%r2];\n\
        mbarrier.arrive.shared.b64 _, [m]; and.b32 %r6, %r5, 0; add.u32 %r6, %r6, 1;\n\
        WAIT2: mbarrier.test_wait.parity.shared.b64 %p1, [m], %r6; @!%p1 bra WAIT2;\n\
        add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 3; @%p2 bra LOOP;";
    check(
        &run(
            ".shared .align 8 .b64 m; .shared .align 8 .b8 s[512];",
            body,
        ),
        |own| (own as u64 ^ 32) + 2,
    );
}

/// Executes a kernel `k(u64 p)` with 16 words of memory at `%rd0`.
fn words(body: &str) -> Result<Vec<u32>, FaultKind> {
    let device = Device::new();
    let to = device.upload(&[0u32; 16]);
    let text = format!(
        "{HEADER}.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n\
         .visible .entry k(.param .u64 p) {{ .reg .b32 %r<16>; .reg .f32 %f<4>; .reg .b64 %rd<4>; .reg .f64 %d;\n\
         ld.param.u64 %rd0, [p]; {body} ret; }}"
    );
    let launched = device.launch(&text, "k", 1, 32, &[U64(to)]);
    launched.map_err(|error| error.kind)?;
    Ok(device.read(to, 16))
}

/// Only sums in global memory are flushed.
#[test]
fn sums_of_subnormal_numbers() {
    let body = |space: &str, address: &str| {
        format!(
            ".shared .f32 s; mov.u32 %r0, %laneid; mov.u32 %r1, 1; st.shared.u32 [s], %r1; mov.b32 %f1, %r1;\n\
             mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1; st.global.u32 [%rd0], %r1;\n\
             bar.warp.sync -1; red{space}.add.f32 [{address}], %f1; ld.u32 %r3, [{address}]; st.global.u32 [%rd0+4], %r3;"
        )
    };
    assert_eq!(words(&body("", "%rd1")).map(|own| own[1]), Ok(33));
    assert_eq!(words(&body(".global", "%rd0")).map(|own| own[1]), Ok(0));
    assert_eq!(words(&body("", "%rd0")).map(|own| own[1]), Ok(0));
}

/// Addresses at the ends of their range are faults, and nothing else.
#[test]
fn addresses_that_wrap() {
    let parameter = words("ld.param.u32 %r0, [p+-4];");
    let pointer = words(
        "mov.u32 %r0, 0xA6425; st.global.u32 [%rd0], %r0; { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %rd0;\n\
         mov.u64 %rd1, -1; st.param.b64 [b], %rd1; call (r), vprintf, (a, b); }",
    );
    for found in [parameter, pointer] {
        assert!(
            matches!(found, Err(FaultKind::OutOfBounds { .. })),
            "{found:?}"
        );
    }
}
