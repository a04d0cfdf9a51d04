//! Waiting: of lanes, warps, blocks and clusters for each other, and what can never end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cuguard_ptx::{FaultKind, Host, Launch, Memory, Module, Order, Region, Statistics};

use crate::common::Argument::U64;
use crate::common::{Device, launch};

const HEADER: &str = ".version 8.7\n.target sm_90\n.address_size 64\n";

/// A kernel `k(u64 p)`: `%rd0` is the address, `%r0` the lane, `%r1` the block.
fn text(body: &str) -> String {
    format!(
        "{HEADER}.visible .entry k(.param .u64 p)\n{{\n.reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .pred %p<8>;\n\
         ld.param.u64 %rd0, [p]; mov.u32 %r0, %laneid; mov.u32 %r1, %ctaid.x;\n{body}\nret;\n}}"
    )
}

/// Executes a kernel with 16 words of memory, and returns these.
fn run(body: &str, with: &Launch<'_>) -> Result<Vec<u32>, FaultKind> {
    let device = Device::new();
    let to = device.upload(&[0u32; 16]);
    let module = Module::new(&text(body)).unwrap();
    let launched = device.run(&module, with, &[U64(to)]);
    launched.map_err(|error| error.kind)?;
    Ok(device.read(to, 16))
}

/// The last block lets the others go on; what they wait with differs.
#[test]
fn blocks_wait_with_any_load() {
    for load in [
        "ld.global.cg.u32",
        "ld.global.cv.u32",
        "ld.global.u32",
        "ld.volatile.u32",
    ] {
        let body = format!(
            "mov.u32 %r2, %nctaid.x; sub.u32 %r2, %r2, 1; setp.eq.u32 %p0, %r1, %r2; @%p0 bra SET;\n\
             WAIT: {load} %r3, [%rd0]; setp.eq.u32 %p0, %r3, 0; @%p0 bra WAIT; ret;\n\
             SET: mov.u32 %r3, 1; st.global.u32 [%rd0], %r3;"
        );
        for workers in [1, 2] {
            let with = Launch {
                workers,
                max_steps: 50_000_000,
                ..launch("k", 3, 32)
            };
            assert_eq!(run(&body, &with).map(|own| own[0]), Ok(1), "{load}");
        }
    }
}

/// Memory with an address at which the host's code panics.
struct Panicking<'a>(&'a Device);

const PANICS: u64 = 0x4000;

// SAFETY: as for the device.
unsafe impl Memory for Panicking<'_> {
    fn find(&self, address: u64) -> Option<Region<'_>> {
        assert!(address != PANICS, "the memory panics");
        self.0.find(address)
    }
}

#[test]
fn a_panic_of_one_worker_stops_the_others() {
    let body = format!(
        "setp.eq.u32 %p0, %r1, 0; @%p0 bra FIRST;\n\
         WAIT: ld.global.u32 %r3, [%rd0]; setp.eq.u32 %p0, %r3, 0; @%p0 bra WAIT; ret;\n\
         FIRST: mov.u64 %rd1, {PANICS}; ld.global.u32 %r3, [%rd1];"
    );
    let device = Device::new();
    let to = device.upload(&[0u32; 16]);
    let module = Module::new(&text(&body)).unwrap();
    let with = Launch {
        workers: 2,
        arguments: &to.to_le_bytes(),
        ..launch("k", 2, 32)
    };
    let memory = Panicking(&device);
    let launched = catch_unwind(AssertUnwindSafe(|| module.launch(&with, &memory, &device)));
    assert!(launched.is_err());
}

/// The first block of a cluster ends after it has arrived: it must not count for one that has not arrived.
#[test]
fn the_barrier_of_a_cluster_waits_for_each_thread() {
    let body = "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p0, %r1, 0; @%p0 bra A; setp.eq.u32 %p0, %r1, 1; @%p0 bra B;\n\
        mov.u32 %r2, 200000; LOOP: sub.u32 %r2, %r2, 1; setp.ne.u32 %p0, %r2, 0; @%p0 bra LOOP;\n\
        mov.u32 %r3, 7; st.shared.u32 [s], %r3; barrier.cluster.arrive; barrier.cluster.wait; ret;\n\
        A: barrier.cluster.arrive; exit;\n\
        B: barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r3, s; mapa.shared::cluster.u32 %r4, %r3, 2;\n\
        ld.shared::cluster.u32 %r5, [%r4]; st.global.u32 [%rd0], %r5;";
    let body = format!(".shared .b32 s;\n{body}");
    let with = Launch {
        cluster: [3, 1, 1],
        ..launch("k", 3, 32)
    };
    assert_eq!(run(&body, &with).map(|own| own[0]), Ok(7));
}

/// Lanes with different masks at the same instruction must part for good, or nothing is found to be stuck.
#[test]
fn lanes_that_can_never_meet_are_a_deadlock() {
    let masks = "and.b32 %r2, %r0, 8; setp.lt.u32 %p1, %r0, 16; selp.b32 %r3, 0xFFFF, 0xFFFF0000, %p1;\n\
        setp.eq.u32 %p0, %r2, 0;";
    let apart = format!("{masks} @!%p0 bra C; bar.warp.sync %r3; ret; C: barrier.sync 1, 64;");
    let behind = format!("{masks} @%p0 bra W; bar.sync 1, 64; W: bar.warp.sync %r3;");
    for body in [apart, behind] {
        let with = Launch {
            max_steps: 1_000_000,
            ..launch("k", 1, 32)
        };
        let found = run(&body, &with);
        assert!(matches!(found, Err(FaultKind::Deadlock(_))), "{found:?}");
    }
    let masks = "setp.lt.u32 %p1, %r0, 16; selp.b32 %r3, 0xFFFF, 0xFFFF0000, %p1; mov.u32 %r4, 0;\n\
        vote.sync.ballot.b32 %r4, %p1, %r3; st.global.u32 [%rd0], %r4;";
    assert_eq!(run(masks, &launch("k", 1, 32)).map(|own| own[0]), Ok(0));
}

/// All blocks wait for the first, and there are more than can be resident.
#[test]
fn those_who_are_waited_for_start_in_any_order() {
    let body = "setp.eq.u32 %p0, %r1, 0; @%p0 bra SET;\n\
        WAIT: ld.volatile.global.u32 %r2, [%rd0]; setp.eq.u32 %p0, %r2, 0; @%p0 bra WAIT; ret;\n\
        SET: mov.u32 %r2, 1; st.volatile.global.u32 [%rd0], %r2;";
    for seed in 1..4 {
        let with = Launch {
            order: Order::Random(seed),
            max_steps: 100_000,
            ..launch("k", 5000, 1)
        };
        assert_eq!(run(body, &with).map(|own| own[0]), Ok(1), "seed {seed}");
    }
}

/// More blocks with much shared memory than are started unless all that have started wait.
#[test]
fn large_blocks_wait_too() {
    let body = "mov.u32 %r2, %nctaid.x; sub.u32 %r2, %r2, 1; setp.eq.u32 %p0, %r1, %r2; @%p0 bra SET;\n\
        WAIT: ld.volatile.global.u32 %r3, [%rd0]; setp.eq.u32 %p0, %r3, 0; @%p0 bra WAIT; ret;\n\
        SET: mov.u32 %r3, 1; st.volatile.global.u32 [%rd0], %r3;";
    let with = Launch {
        dynamic_shared: 8 << 20,
        ..launch("k", 140, 32)
    };
    assert_eq!(run(body, &with).map(|own| own[0]), Ok(1));
}

/// The second warp passes the barrier twice before the third has its turn.
#[test]
fn a_reduction_is_that_of_the_barrier_that_was_waited_for() {
    let body = ".shared .b32 f; mov.u32 %r2, %warpid; setp.eq.u32 %p0, %r2, 0; @%p0 bra B; setp.eq.u32 %p0, %r2, 1; @%p0 bra C;\n\
        bar.red.popc.u32 %r3, 1, 64, %p0; st.global.u32 [%rd0], %r3; ret;\n\
        B: setp.eq.u32 %p1, 0, 0; bar.red.popc.u32 %r4, 1, 64, %p1; mov.u32 %r5, 1; st.volatile.shared.u32 [f], %r5;\n\
        bar.red.popc.u32 %r4, 1, 64, %p1; ret;\n\
        C: ld.volatile.shared.u32 %r5, [f]; setp.eq.u32 %p0, %r5, 0; @%p0 bra C; setp.eq.u32 %p1, 0, 0;\n\
        bar.red.popc.u32 %r4, 1, 64, %p1; st.global.u32 [%rd0+4], %r4;";
    let found = run(body, &launch("k", 1, 96)).unwrap();
    assert_eq!(found[..2], [32, 64]);
}

#[test]
fn all_threads_may_be_named_or_not() {
    let body = "mov.u32 %r2, %tid.x; setp.lt.u32 %p0, %r2, 32; @%p0 bra A; bar.sync 0, 64; ret; A: bar.sync 0;";
    assert!(run(body, &launch("k", 1, 64)).is_ok());
    let found = run(body, &launch("k", 1, 96));
    assert!(matches!(found, Err(FaultKind::Undefined(_))), "{found:?}");
}

/// Even lanes of two warps meet at one barrier, odd ones at another.
#[test]
fn lanes_may_arrive_at_different_barriers() {
    let body = "and.b32 %r2, %r0, 1; add.u32 %r2, %r2, 1; mov.u32 %r3, 32; barrier.sync %r2, %r3;\n\
        mov.u32 %r4, 1; st.global.u32 [%rd0], %r4;";
    assert_eq!(run(body, &launch("k", 1, 64)).map(|own| own[0]), Ok(1));
}

/// Bytes may arrive before they are announced.
#[test]
fn bytes_may_come_before_they_are_expected() {
    let body = ".shared .align 8 .b64 s; setp.ne.u32 %p0, %r0, 0; @%p0 exit; mbarrier.init.shared.b64 [s], 1;\n\
        mbarrier.complete_tx.relaxed.cta.shared.b64 [s], 16; mbarrier.arrive.shared.b64 _, [s];\n\
        mbarrier.expect_tx.relaxed.cta.shared.b64 [s], 16; mbarrier.test_wait.parity.shared.b64 %p1, [s], 0;\n\
        selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd0], %r2;";
    assert_eq!(run(body, &launch("k", 1, 32)).map(|own| own[0]), Ok(1));
    let much = ".shared .align 8 .b64 s; mov.u64 %rd1, 0x3FFFFF0000000001; st.shared.u64 [s], %rd1;\n\
        mbarrier.expect_tx.relaxed.cta.shared.b64 [s], 2147483647;";
    assert!(run(much, &launch("k", 1, 1)).is_ok());
}

/// A device whose clock lets a test act while a kernel runs.
struct Clock<'a, F>(&'a Device, F);

impl<F: Fn() + Sync> Host for Clock<'_, F> {
    fn print(&self, text: &str) {
        self.0.print(text);
    }
    fn allocate(&self, bytes: u64) -> u64 {
        self.0.allocate(bytes)
    }
    fn free(&self, address: u64) -> bool {
        self.0.free(address)
    }
    fn nanoseconds(&self) -> u64 {
        (self.1)();
        0
    }
}

fn spin(
    cancel: &std::sync::atomic::AtomicBool,
    act: impl Fn() + Sync,
) -> Result<Statistics, FaultKind> {
    let module = Module::new(&text("mov.u64 %rd1, %globaltimer; HERE: bra HERE;")).unwrap();
    let device = Device::new();
    let with = Launch {
        arguments: &0u64.to_le_bytes(),
        cancel: Some(cancel),
        workers: 2,
        ..launch("k", 4, 64)
    };
    let launched = module.launch(&with, &device, &Clock(&device, act));
    launched.map_err(|error| error.kind)
}

#[test]
fn a_launch_can_be_cancelled() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let cancel = AtomicBool::new(false);
    let found = spin(&cancel, || cancel.store(true, Ordering::Relaxed));
    assert_eq!(found, Err(FaultKind::Cancelled));
    // Before it starts.
    assert_eq!(spin(&cancel, || {}), Err(FaultKind::Cancelled));
}
