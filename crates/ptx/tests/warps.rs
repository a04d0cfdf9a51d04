//! Instructions of whole warps, barriers, special registers, atomic operations.

use cuguard_ptx::{Launch, Module};

use crate::common::Argument::U64;
use crate::common::{Device, launch};

const HEADER: &str = ".version 8.7\n.target sm_90\n.address_size 64\n";

fn text(declarations: &str, body: &str) -> String {
    format!(
        "{HEADER}{declarations}\n.visible .entry k(.param .u64 to)\n{{\n\
         .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .f32 %f<8>; .reg .b64 %rd<16>; .reg .pred %p<8>;\n\
         mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r1, %r0, %r1, %r2;\n\
         mov.u32 %r0, 0;\n{body}\nld.param.u64 %rd0, [to]; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd0, %rd0, %rd1;\n\
         st.global.u32 [%rd0], %r0;\n}}"
    )
}

/// Launches a kernel whose body leaves a number in `%r0`; `%r1` is the thread's number.
fn run(declarations: &str, body: &str, grid: u32, block: u32) -> Vec<u32> {
    let device = Device::new();
    let to = device.upload(&vec![0u32; (grid * block) as usize]);
    let text = text(declarations, body);
    let launched = device.launch(&text, "k", grid, block, &[U64(to)]);
    launched.unwrap_or_else(|error| panic!("{error}\n{text}"));
    device.read(to, (grid * block) as usize)
}

fn check(found: &[u32], expected: impl Fn(u32) -> u32) {
    for (thread, found) in found.iter().enumerate() {
        assert_eq!(*found, expected(thread as u32), "thread {thread}");
    }
}

/// As the manual's pseudo code has it.
fn shuffled(mode: &str, lane: i32, b: i32, c: i32) -> (i32, bool) {
    let (segment, clamp) = (c >> 8 & 31, c & 31);
    let most = lane & segment | clamp & !segment & 31;
    let least = lane & segment;
    let (from, is_valid) = match mode {
        "up" => (lane - b, lane - b >= most),
        "down" => (lane + b, lane + b <= most),
        "bfly" => (lane ^ b, lane ^ b <= most),
        _ => (least | b & !segment & 31, least | b & !segment & 31 <= most),
    };
    if is_valid {
        (from, true)
    } else {
        (lane, false)
    }
}

#[test]
fn shuffles() {
    for mode in ["up", "down", "bfly", "idx"] {
        for by in [0, 1, 5, 16, 31] {
            for clamp in [0, 31, 0x1F00 | 31, 0x1800 | 31, 0x1C1F, 0x181C, 7] {
                let body = format!(
                    "mad.lo.u32 %r3, %r1, 3, 100; shfl.sync.{mode}.b32 %r0|%p0, %r3, {by}, {clamp}, -1; @%p0 add.u32 %r0, %r0, 1000;"
                );
                check(&run("", &body, 1, 64), |thread| {
                    let lane = thread % 32;
                    let (from, is_valid) = shuffled(mode, lane as i32, by, clamp);
                    let from = thread - lane + from as u32;
                    3 * from + 100 + if is_valid { 1000 } else { 0 }
                });
            }
        }
    }
}

/// Lanes that come later are waited for.
#[test]
fn shuffles_wait_for_their_lanes() {
    let body = "mov.u32 %r3, %r1; setp.lt.u32 %p0, %r2, 7; @!%p0 bra ALL; mov.u32 %r4, 0;\n\
        LOOP: add.u32 %r3, %r3, 10; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 5; @%p1 bra LOOP;\n\
        ALL: shfl.sync.bfly.b32 %r0, %r3, 1, 31, 0xffffffff;";
    check(&run("", body, 1, 32), |thread| {
        (thread ^ 1) + if thread ^ 1 < 7 { 50 } else { 0 }
    });
    // Half of the warp, with its own mask.
    let body = "setp.lt.u32 %p0, %r2, 16; @%p0 bra LOW; shfl.sync.idx.b32 %r0, %r1, 20, 31, 0xffff0000; bra END;\n\
        LOW: shfl.sync.idx.b32 %r0, %r1, 3, 31, 0x0000ffff;\nEND: bar.warp.sync -1;";
    check(
        &run("", body, 1, 32),
        |thread| if thread < 16 { 3 } else { 20 },
    );
    // Lanes that have ended are not waited for, and barriers may be at different instructions.
    let body = "setp.gt.u32 %p0, %r2, 20; @%p0 exit; setp.lt.u32 %p0, %r2, 9; @%p0 bra OTHER; bar.warp.sync -1; mov.u32 %r0, 1; bra END;\n\
        OTHER: mov.u32 %r0, 2; bar.warp.sync -1;\nEND: activemask.b32 %r3; vote.sync.ballot.b32 %r3, 1, 0x1fffff; add.u32 %r0, %r0, %r3;";
    check(&run("", body, 1, 32), |thread| match thread {
        0..9 => 0x1F_FFFF + 2,
        9..=20 => 0x1F_FFFF + 1,
        _ => 0,
    });
}

#[test]
fn votes_and_matches() {
    let body = "and.b32 %r3, %r1, 5; setp.eq.u32 %p0, %r3, 4; vote.sync.ballot.b32 %r0, %p0, -1; vote.sync.any.pred %p1, %p0, -1;\n\
        vote.sync.all.pred %p2, %p0, -1; vote.sync.uni.pred %p3, !%p0, -1; @%p1 xor.b32 %r0, %r0, 1; @%p2 xor.b32 %r0, %r0, 2; @%p3 xor.b32 %r0, %r0, 8;";
    let ballot = (0..32)
        .filter(|own| own & 5 == 4)
        .fold(0, |all, own| all | 1 << own);
    check(&run("", body, 1, 64), |_| ballot ^ 1);
    let body = "rem.u32 %r3, %r1, 5; match.any.sync.b32 %r0, %r3, -1;";
    check(&run("", body, 1, 32), |thread| {
        (0..32)
            .filter(|own| own % 5 == thread % 5)
            .fold(0, |all, own| all | 1 << own)
    });
    let body = "shr.u32 %r3, %r1, 5; cvt.u64.u32 %rd2, %r3; match.all.sync.b64 %r0|%p0, %rd2, -1; @!%p0 mov.u32 %r0, 7;\n\
        match.all.sync.b32 %r4|%p0, %r1, -1; @%p0 mov.u32 %r0, 9; add.u32 %r0, %r0, %r4;";
    check(&run("", body, 1, 64), |_| u32::MAX);
    let body = "elect.sync %r0|%p0, -1; @%p0 add.u32 %r0, %r0, 1;";
    check(&run("", body, 1, 32), |thread| u32::from(thread == 0));
}

#[test]
fn reductions() {
    let lanes = |thread: u32| {
        (0..32).map(move |lane| (thread / 32 * 32 + lane).wrapping_mul(2_654_435_761))
    };
    for (name, f) in [
        ("add.u32", (|a, b| a + b) as fn(i64, i64) -> i64),
        ("min.u32", |a, b| (a as u32).min(b as u32).into()),
        ("max.u32", |a, b| (a as u32).max(b as u32).into()),
        ("min.s32", |a, b| (a as i32).min(b as i32).into()),
        ("max.s32", |a, b| (a as i32).max(b as i32).into()),
        ("and.b32", |a, b| a & b),
        ("or.b32", |a, b| a | b),
        ("xor.b32", |a, b| a ^ b),
    ] {
        let body = format!("mul.lo.u32 %r3, %r1, -1640531535; redux.sync.{name} %r0, %r3, -1;");
        check(&run("", &body, 1, 64), |thread| {
            lanes(thread).map(i64::from).reduce(f).unwrap() as u32
        });
    }
}

#[test]
fn barriers_of_blocks() {
    let shared = ".shared .align 4 .b8 s[1024];";
    let body = "mov.u32 %r3, s; mad.lo.u32 %r4, %r2, 4, %r3; st.shared.u32 [%r4], %r1; bar.sync 0; sub.u32 %r5, 199, %r2; mad.lo.u32 %r4, %r5, 4, %r3; ld.shared.u32 %r0, [%r4];";
    check(&run(shared, body, 2, 200), |thread| {
        200 * (thread / 200) + 199 - thread % 200
    });
    let body = "setp.lt.u32 %p0, %r2, 37; bar.red.popc.u32 %r0, 3, %p0; bar.red.and.pred %p1, 0, %p0; bar.red.or.pred %p2, 0, %p0; barrier.cta.red.and.aligned.pred %p3, 1, !%p1;\n\
        @%p1 add.u32 %r0, %r0, 100; @%p2 add.u32 %r0, %r0, 200; @%p3 add.u32 %r0, %r0, 400;";
    check(&run("", body, 1, 100), |_| 637);
    // Two warps produce, two consume.
    let body = "mov.u32 %r3, s; setp.lt.u32 %p0, %r2, 64; @%p0 bra PRODUCE; bar.sync 5, 128; sub.u32 %r4, %r2, 64; mad.lo.u32 %r4, %r4, 4, %r3; ld.shared.u32 %r0, [%r4]; bra END;\n\
        PRODUCE: mad.lo.u32 %r4, %r2, 4, %r3; st.shared.u32 [%r4], %r2; bar.arrive 5, 128;\nEND:";
    check(&run(shared, body, 1, 128), |thread| {
        thread.saturating_sub(64) * u32::from(thread >= 64)
    });
}

#[test]
fn clusters() {
    let body = "mov.u32 %r3, s; mad.lo.u32 %r4, %r2, 4, %r3; st.shared.u32 [%r4], %r1; barrier.cluster.arrive; barrier.cluster.wait;\n\
        mov.u32 %r5, %cluster_ctarank; mov.u32 %r6, %cluster_nctarank; add.u32 %r5, %r5, 1; rem.u32 %r5, %r5, %r6;\n\
        mapa.shared::cluster.u32 %r4, %r4, %r5; ld.shared::cluster.u32 %r0, [%r4]; barrier.cluster.arrive; barrier.cluster.wait;";
    let module = Module::new(&text(".shared .align 4 .b8 s[256];", body)).unwrap();
    let device = Device::new();
    let to = device.upload(&[0u32; 384]);
    let launch = Launch {
        cluster: [3, 1, 1],
        ..launch("k", 6, 64)
    };
    device.run(&module, &launch, &[U64(to)]).unwrap();
    check(&device.read(to, 384), |thread| {
        let (cluster, rank) = (thread / 192, thread / 64 % 3);
        cluster * 192 + (rank + 1) % 3 * 64 + thread % 64
    });
}

#[test]
fn special_registers() {
    let read = |name: &str| run("", &format!("mov.u32 %r0, %{name};"), 2, 40);
    check(&read("laneid"), |thread| thread % 40 % 32);
    check(&read("warpid"), |thread| thread % 40 / 32);
    check(&read("nctaid.x"), |_| 2);
    check(&read("ntid.x"), |_| 40);
    check(&read("ntid.y"), |_| 1);
    check(&read("lanemask_lt"), |thread| (1 << (thread % 40 % 32)) - 1);
    check(&read("lanemask_ge"), |thread| {
        !((1 << (thread % 40 % 32)) - 1)
    });
    let body = "add.u32 %r0, %tid.x, 5; mov.u64 %rd2, %clock64; mov.u64 %rd3, %clock64; setp.le.u64 %p0, %rd3, %rd2; @%p0 mov.u32 %r0, 0;";
    check(&run("", body, 1, 32), |thread| thread + 5);
}

#[test]
fn atomic_operations() {
    type Operation = fn(u32, u32) -> u32;
    let cases: [(&str, u32, Operation); 9] = [
        ("add.u32", 5, |old, b| old.wrapping_add(b)),
        ("min.u32", 900, |old, b| old.min(b)),
        ("max.s32", 3, |old, b| (old as i32).max(b as i32) as u32),
        ("and.b32", u32::MAX, |old, b| old & b),
        ("or.b32", 0, |old, b| old | b),
        ("xor.b32", 17, |old, b| old ^ b),
        ("inc.u32", 0, |old, b| if old >= b { 0 } else { old + 1 }),
        (
            "dec.u32",
            40,
            |old, b| if old == 0 || old > b { b } else { old - 1 },
        ),
        ("exch.b32", 1, |_, b| b),
    ];
    for (name, first, f) in cases {
        for space in ["global", "shared"] {
            let variable = if space == "global" {
                format!(".global .u32 v = {first};")
            } else {
                ".shared .u32 v;".to_owned()
            };
            let body = format!(
                "setp.eq.u32 %p0, %r2, 0; @%p0 st.{space}.u32 [v], {first}; bar.sync 0; rem.u32 %r3, %r1, 11; add.u32 %r3, %r3, 60; atom.{space}.{name} %r0, [v], %r3;"
            );
            let mut value = first;
            let step = |own: u32| {
                let old = value;
                value = f(old, own % 11 + 60);
                old
            };
            let expected: Vec<u32> = (0..64).map(step).collect();
            assert_eq!(run(&variable, &body, 1, 64), expected, "{name} {space}");
        }
    }
    let body = "mov.f32 %f0, 0f3F000000; atom.global.add.f32 %f1, [v], %f0; cvt.rzi.u32.f32 %r0, %f1; red.relaxed.gpu.global.add.u64 [w], 3; bar.sync 0;\n\
        ld.global.u64 %rd2, [w]; cvt.u32.u64 %r3, %rd2; mad.lo.u32 %r0, %r3, 1000, %r0;";
    check(
        &run(".global .f32 v; .global .u64 w;", body, 1, 32),
        |thread| 96_000 + thread / 2,
    );
    let body = "mov.b16 %h0, 0x3C00; atom.global.add.noftz.f16 %h1, [v], %h0; mov.b16 %h2, 7; atom.global.cas.b16 %h3, [w], %h2, %h0; cvt.u32.u16 %r0, %h1;\n\
        cvt.u32.u16 %r3, %h3; shl.b32 %r3, %r3, 16; or.b32 %r0, %r0, %r3;";
    check(
        &run(".global .b16 v; .global .b16 w = 7;", body, 1, 4),
        |thread| {
            let counts = [0, 0x3C00, 0x4000, 0x4200];
            let old = if thread == 0 { 7 } else { 0x3C00 };
            counts[thread as usize] | old << 16
        },
    );
}

#[test]
fn printed_text() {
    let declarations = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
        .global .b8 format[] = {37, 100, 58, 37, 46, 50, 102, 32, 37, 115, 10, 0}; .global .b8 word[] = {104, 105, 0};";
    let body = ".local .align 8 .b8 l[24]; setp.gt.u32 %p0, %r2, 2; @%p0 exit; mov.u64 %rd2, l; cvta.local.u64 %rd3, %rd2; st.local.u32 [%rd2], %r2;\n\
        cvt.rn.f64.u32 %rd4, %r2; st.local.b64 [%rd2+8], %rd4; mov.u64 %rd5, word; st.local.u64 [%rd2+16], %rd5; mov.u64 %rd6, format;\n\
        { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %rd6; st.param.b64 [a], %rd3; call (r), vprintf, (f, a); ld.param.b32 %r0, [r]; }";
    let device = Device::new();
    let to = device.upload(&[0u32; 32]);
    device
        .launch(&text(declarations, body), "k", 1, 32, &[U64(to)])
        .unwrap();
    assert_eq!(
        *device.printed.lock().unwrap(),
        "0:0.00 hi\n1:1.00 hi\n2:2.00 hi\n"
    );
    assert_eq!(device.read::<u32>(to, 4), [3, 3, 3, 0]);
}
