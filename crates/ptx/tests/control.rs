//! Control flow: divergence, loops, calls, waiting between lanes.

use cuguard_ptx::{FaultKind, Launch, Module, Order};

use crate::common::Argument::U64;
use crate::common::{Device, launch};

const HEADER: &str = ".version 8.7\n.target sm_90\n.address_size 64\n";

/// Launches a kernel `k(u64 to)`, whose body leaves a number in `%r0`; `%r1` is the thread's number in the grid.
fn run(declarations: &str, body: &str, grid: u32, block: u32) -> Vec<u32> {
    let device = Device::new();
    let to = device.upload(&vec![0u32; (grid * block) as usize]);
    let text = text(declarations, body);
    let launched = device.launch(&text, "k", grid, block, &[U64(to)]);
    launched.unwrap_or_else(|error| panic!("{error}\n{text}"));
    device.read(to, (grid * block) as usize)
}

fn text(declarations: &str, body: &str) -> String {
    format!(
        "{HEADER}{declarations}\n.visible .entry k(.param .u64 to)\n{{\n\
         .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .pred %p<8>;\n\
         mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r1, %r0, %r1, %r2;\n\
         mov.u32 %r0, 0;\n{body}\nld.param.u64 %rd0, [to]; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd0, %rd0, %rd1;\n\
         st.global.u32 [%rd0], %r0;\n}}"
    )
}

fn check(found: &[u32], expected: impl Fn(u32) -> u32) {
    for (thread, found) in found.iter().enumerate() {
        assert_eq!(*found, expected(thread as u32), "thread {thread}");
    }
}

#[test]
fn nested_loops_of_different_lengths() {
    let body = "mov.u32 %r3, 0;\nOUTER: setp.ge.u32 %p0, %r3, %r1; @%p0 bra END; mov.u32 %r4, 0;\n\
        INNER: rem.u32 %r5, %r4, 3; setp.eq.u32 %p1, %r5, 1; @%p1 bra SKIP; add.u32 %r0, %r0, %r4; bra NEXT;\n\
        SKIP: add.u32 %r0, %r0, 100;\nNEXT: add.u32 %r4, %r4, 1; setp.le.u32 %p2, %r4, %r3; @%p2 bra INNER;\n\
        add.u32 %r3, %r3, 1; bra OUTER;\nEND:";
    check(&run("", body, 2, 40), |thread| {
        (0..thread)
            .map(|i| {
                (0..=i)
                    .map(|j| if j % 3 == 1 { 100 } else { j })
                    .sum::<u32>()
            })
            .sum()
    });
}

#[test]
fn early_exits_and_returns() {
    let body = "and.b32 %r3, %r1, 3; setp.eq.u32 %p0, %r3, 1; @%p0 ret; setp.eq.u32 %p0, %r3, 2; @%p0 exit;\n\
        mov.u32 %r0, 5; bar.sync 0; add.u32 %r0, %r0, %r3;";
    check(&run("", body, 1, 70), |thread| match thread % 4 {
        0 => 5,
        3 => 8,
        _ => 0,
    });
}

#[test]
fn branches_by_index_and_scoped_labels() {
    let body = "and.b32 %r3, %r1, 7;\nT: .branchtargets A, B, C;\nbrx.idx %r3, T;\nA: { L: add.u32 %r0, %r0, 10; bra OUT; }\n\
        B: { bra L; mov.u32 %r0, 99; L: add.u32 %r0, %r0, 20; } bra OUT;\nC: add.u32 %r0, %r0, 30;\nOUT:";
    check(&run("", body, 1, 64), |thread| match thread % 8 {
        0 => 10,
        1 => 20,
        _ => 30,
    });
}

/// A function that calls itself, with registers, parameters in memory, and results.
#[test]
fn recursion() {
    let fibonacci = ".func (.param .b32 out) fib(.param .b32 n) { .reg .b32 %r<6>; .reg .pred p; ld.param.b32 %r0, [n];\n\
        setp.lt.u32 p, %r0, 2; @p bra BASE; { .param .b32 a; .param .b32 r; sub.u32 %r1, %r0, 1; st.param.b32 [a], %r1;\n\
        call.uni (r), fib, (a); ld.param.b32 %r2, [r]; } { .param .b32 a; .param .b32 r; sub.u32 %r1, %r0, 2;\n\
        st.param.b32 [a], %r1; call.uni (r), fib, (a); ld.param.b32 %r3, [r]; } add.u32 %r0, %r2, %r3;\n\
        BASE: st.param.b32 [out], %r0; ret; }";
    let body = "and.b32 %r3, %r1, 15; { .param .b32 a; .param .b32 r; st.param.b32 [a], %r3; call (r), fib, (a); ld.param.b32 %r0, [r]; }";
    let expected = |thread: u32| (0..thread % 16).fold((0, 1), |(a, b), _| (b, a + b)).0;
    check(&run(fibonacci, body, 1, 48), expected);
    let registers = ".func (.reg .b32 out) fact(.reg .b32 n, .reg .b32 by) { .reg .b32 t, o; .reg .pred p; setp.le.u32 p, n, 1; @p bra ONE;\n\
        sub.u32 t, n, 1; call (o), fact, (t, by); mul.lo.u32 out, o, n; ret; ONE: mov.u32 out, by; ret; }";
    let body = "rem.u32 %r3, %r1, 9; call (%r0), fact, (%r3, 3);";
    check(&run(registers, body, 1, 33), |thread| {
        3 * (1..=thread % 9).product::<u32>().max(1)
    });
    let endless = ".func f() { .local .b8 l[1024]; call f, (); ret; }";
    let device = Device::new();
    let error = device
        .launch(&text(endless, "call f, ();"), "k", 1, 1, &[U64(0)])
        .unwrap_err();
    assert_eq!(error.kind, FaultKind::StackOverflow);
}

#[test]
fn calls_through_pointers() {
    let functions = ".func (.param .b32 o) add1(.param .b32 a) { .reg .b32 r; ld.param.b32 r, [a]; add.u32 r, r, 1; st.param.b32 [o], r; ret; }\n\
        .func (.param .b32 o) twice(.param .b32 a) { .reg .b32 r; ld.param.b32 r, [a]; add.u32 r, r, r; st.param.b32 [o], r; ret; }\n\
        .global .u64 table[2] = {add1, twice};";
    let body = "and.b32 %r3, %r1, 1; mul.wide.u32 %rd2, %r3, 8; mov.u64 %rd3, table; add.u64 %rd3, %rd3, %rd2; ld.global.u64 %rd4, [%rd3];\n\
        { .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; P: .callprototype (.param .b32 _) _ (.param .b32 _);\n\
        call (r), %rd4, (a), P; ld.param.b32 %r0, [r]; }\n\
        setp.eq.u32 %p0, %r3, 0; mov.u64 %rd5, twice; setp.eq.u64 %p1, %rd4, %rd5; xor.pred %p0, %p0, %p1; @!%p0 mov.u32 %r0, 0;";
    check(&run(functions, body, 1, 40), |thread| {
        if thread % 2 == 0 {
            thread + 1
        } else {
            2 * thread
        }
    });
    let device = Device::new();
    let body = "mov.u64 %rd4, 1234; P: .callprototype _ (); call %rd4, (), P;";
    let error = device
        .launch(&text("", body), "k", 1, 1, &[U64(0)])
        .unwrap_err();
    assert_eq!(error.kind, FaultKind::InvalidTarget(1234));
}

/// Lanes of a warp, warps and blocks that wait for a lock: the lane that has it must go on.
#[test]
fn spin_locks() {
    let variables = ".global .u32 lock; .global .u32 count;";
    let take = "TRY: atom.global.cas.b32 %r3, [lock], 0, 1; setp.ne.u32 %p0, %r3, 0; @%p0 bra TRY;\n\
        ld.volatile.global.u32 %r0, [count]; add.u32 %r4, %r0, 1; st.volatile.global.u32 [count], %r4; membar.gl;\n\
        atom.global.exch.b32 %r3, [lock], 0;";
    let mut found = run(variables, take, 3, 64);
    found.sort_unstable();
    assert_eq!(found, (0..192).collect::<Vec<_>>());
    // The loop ends behind the critical section.
    let other = "mov.u32 %r5, 0; TRY: atom.global.cas.b32 %r3, [lock], 0, 1; setp.ne.u32 %p0, %r3, 0; @%p0 bra NEXT;\n\
        ld.volatile.global.u32 %r0, [count]; add.u32 %r4, %r0, 1; st.volatile.global.u32 [count], %r4; membar.gl;\n\
        atom.global.exch.b32 %r3, [lock], 0; mov.u32 %r5, 1;\nNEXT: setp.eq.u32 %p1, %r5, 0; @%p1 bra TRY;";
    let mut found = run(variables, other, 2, 40);
    found.sort_unstable();
    assert_eq!(found, (0..80).collect::<Vec<_>>());
}

/// A lane waits for a later one of its own warp, and blocks for later blocks.
#[test]
fn flags() {
    let variables = ".global .u32 flags[256];";
    let body = "add.u32 %r3, %r1, 1; mul.wide.u32 %rd2, %r3, 4; mov.u64 %rd3, flags; add.u64 %rd2, %rd3, %rd2; setp.eq.u32 %p0, %r3, 192; @%p0 bra SET;\n\
        WAIT: ld.acquire.gpu.global.u32 %r0, [%rd2]; setp.eq.u32 %p1, %r0, 0; @%p1 bra WAIT;\n\
        SET: add.u32 %r0, %r0, 1; st.release.gpu.global.u32 [%rd2+-4], %r0;";
    check(&run(variables, body, 3, 64), |thread| 192 - thread);
}

#[test]
fn random_orders_give_the_same_results() {
    let body = "mov.u32 %r3, %smid; bar.sync 0; shl.b32 %r0, %r1, 1;";
    let module = Module::new(&text("", body)).unwrap();
    for (order, workers) in [
        (Order::Random(1), 1),
        (Order::Random(2), 3),
        (Order::Sequential, 2),
    ] {
        let device = Device::new();
        let to = device.upload(&[0u32; 1000]);
        let launch = Launch {
            order,
            workers,
            ..launch("k", 10, 100)
        };
        device.run(&module, &launch, &[U64(to)]).unwrap();
        check(&device.read(to, 1000), |thread| 2 * thread);
    }
}

#[test]
fn what_never_ends_is_stopped() {
    let module = Module::new(&text("", "HERE: bra HERE;")).unwrap();
    let device = Device::new();
    let launch = Launch {
        max_steps: 10_000,
        ..launch("k", 1, 32)
    };
    let error = device.run(&module, &launch, &[U64(0)]).unwrap_err();
    assert_eq!(error.kind, FaultKind::StepLimit(10_000));
    let error = device.launch(
        &text(
            "",
            "setp.lt.u32 %p0, %r1, 5; @%p0 bar.sync 1; @!%p0 bar.sync 2;",
        ),
        "k",
        1,
        64,
        &[U64(0)],
    );
    assert!(matches!(error.unwrap_err().kind, FaultKind::Deadlock(_)));
}

#[test]
fn faults_say_where() {
    let body = ".loc 1 7 3\nsetp.eq.u32 %p0, %r1, 70;\n@%p0 trap;";
    let text = text(".file 1 \"kernel.cu\"", body);
    let device = Device::new();
    let to = device.upload(&[0u32; 128]);
    let error = device.launch(&text, "k", 2, 64, &[U64(to)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "k: trap; block (1, 0, 0), thread (6, 0, 0), PTX line 12, kernel.cu:7"
    );
}

#[test]
fn assertions() {
    let declarations = ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n\
        .global .b8 m[] = {120, 62, 48, 0}; .global .b8 f[] = {97, 46, 99, 117, 0}; .global .b8 n[] = {107, 0};";
    let body = "{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; mov.u64 %rd2, m; cvta.global.u64 %rd2, %rd2;\n\
        st.param.b64 [a], %rd2; mov.u64 %rd2, f; st.param.b64 [b], %rd2; st.param.b32 [c], 12; mov.u64 %rd2, n; st.param.b64 [d], %rd2;\n\
        st.param.b64 [e], 1; call __assertfail, (a, b, c, d, e); }";
    let text = text(declarations, body);
    let error = Device::new()
        .launch(&text, "k", 1, 1, &[U64(0)])
        .unwrap_err();
    assert_eq!(
        error.kind,
        FaultKind::Assertion("a.cu:12: k: assertion `x>0` failed".to_owned())
    );
    // That of the call, not that of the declaration.
    let line = text.lines().nth(error.line as usize - 1).unwrap();
    assert!(line.contains("call __assertfail"), "{line}");
}

/// Blocks that see what others did execute in turn, however many threads there are; others need not.
#[test]
fn results_are_the_same_each_time() {
    let body = "atom.global.add.u32 %r0, [count], 1; atom.global.add.u32 %r3, [other], 1;";
    let module = Module::new(&text(".global .u32 count; .global .u32 other;", body)).unwrap();
    let device = Device::new();
    let to = device.upload(&[0u32; 4000]);
    let launch = Launch {
        workers: 4,
        ..launch("k", 40, 100)
    };
    device.run(&module, &launch, &[U64(to)]).unwrap();
    check(&device.read(to, 4000), |thread| thread);
}

/// A loop that waits, whose branch is `brx`, and one with a barrier of lanes in it.
#[test]
fn loops_that_wait_in_other_ways() {
    let variables = ".global .u32 flag;";
    let body = "setp.eq.u32 %p0, %r2, 31; @%p0 bra SET; T: .branchtargets WAIT, OUT;\n\
        WAIT: ld.volatile.global.u32 %r0, [flag]; brx.idx %r0, T;\nSET: mov.u32 %r0, 1; st.volatile.global.u32 [flag], %r0;\nOUT:";
    check(&run(variables, body, 1, 32), |_| 1);
    let body = "setp.eq.u32 %p0, %r2, 31; @%p0 bra SET;\n\
        WAIT: ld.volatile.global.u32 %r0, [flag]; bar.warp.sync 0x7fffffff; setp.eq.u32 %p1, %r0, 0; @%p1 bra WAIT; bra OUT;\n\
        SET: mov.u32 %r0, 1; st.volatile.global.u32 [flag], %r0;\nOUT:";
    check(&run(variables, body, 1, 32), |_| 1);
}
