//! Batches of copies in one call.

use crate::case::Case;
use crate::driver::*;
use crate::tools::*;
use memcpy_src_access_order as order;

cases! {"batch_copies":
    copies,
    streams,
    counts,
    attributes,
    hints,
    a_copy_at_fault,
    any_memory,
    without_a_context,
}

/// The arguments of a batch.
pub(crate) struct Batch {
    dsts: Vec<CUdeviceptr>,
    srcs: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    attributes: Vec<CUmemcpyAttributes>,
    starts: Vec<usize>,
    pub(crate) stream: CUstream,
}

/// No copy is at fault.
pub(crate) const NONE: usize = usize::MAX;

impl Batch {
    /// By the function of CUDA 13.
    fn run(&mut self) -> CUresult {
        cuMemcpyBatchAsync_v2(
            self.dsts.as_mut_ptr(),
            self.srcs.as_mut_ptr(),
            self.sizes.as_mut_ptr(),
            self.dsts.len(),
            self.attributes.as_mut_ptr(),
            self.starts.as_mut_ptr(),
            self.starts.len(),
            self.stream,
        )
    }

    /// By the function of CUDA 12.8, which reports the copy at fault.
    fn run_first(&mut self) -> (CUresult, usize) {
        let mut failed = 99;
        let result = cuMemcpyBatchAsync(
            self.dsts.as_mut_ptr(),
            self.srcs.as_mut_ptr(),
            self.sizes.as_mut_ptr(),
            self.dsts.len(),
            self.attributes.as_mut_ptr(),
            self.starts.as_mut_ptr(),
            self.starts.len(),
            &mut failed,
            self.stream,
        );
        (result, failed)
    }

    fn invalid(&mut self, c: &Case, what: &str, copy: usize) {
        c.invalid(what, self.run());
        let (result, failed) = self.run_first();
        c.invalid(format_args!("{what}, CUDA 12.8"), result);
        c.same(format_args!("{what}: the copy at fault"), failed, copy);
    }

    fn ok(&mut self, c: &Case, what: &str) {
        c.ok(what, self.run());
        let (result, failed) = self.run_first();
        c.ok(format_args!("{what}, CUDA 12.8"), result);
        c.same(format_args!("{what}: no copy at fault"), failed, NONE);
    }
}

fn in_order(order: u32) -> CUmemcpyAttributes {
    CUmemcpyAttributes {
        srcAccessOrder: order,
        ..CUmemcpyAttributes::default()
    }
}

/// Three copies: from `a` to `b`, from `a` to `c`, from ordinary memory to `b`.
pub(crate) fn set_up(c: &Case) -> (Batch, [CUdeviceptr; 3], Vec<u8>) {
    primary(c);
    let blocks = [alloc(c, 4096), alloc(c, 4096), alloc(c, 4096)];
    for (value, block) in (1..).zip(blocks) {
        c.require("fill", cuMemsetD8_v2(block, value, 4096));
    }
    synchronize(c);
    let host = vec![7_u8; 4096];
    let batch = Batch {
        dsts: vec![blocks[1], blocks[2], blocks[1] + 100],
        srcs: vec![blocks[0], blocks[0], host.as_ptr().addr() as u64],
        sizes: vec![10, 20, 30],
        attributes: vec![in_order(order::STREAM)],
        starts: vec![0],
        stream: independent(c),
    };
    (batch, blocks, host)
}

/// All copies of a batch are executed.
fn copies(c: &Case) {
    let (mut batch, [_, b, d], _host) = set_up(c);
    batch.ok(c, "copy");
    wait_for(c, batch.stream);
    let mut want = vec![2_u8; 130];
    want[..10].fill(1);
    want[100..].fill(7);
    c.yes("the first and the third", read(c, b, 130) == want);
    let mut want = vec![3_u8; 30];
    want[..20].fill(1);
    c.yes("the second", read(c, d, 30) == want);
}

/// A batch is on any stream but the legacy default stream.
fn streams(c: &Case) {
    let (mut batch, ..) = set_up(c);
    batch.stream = CUstream::NULL;
    batch.invalid(c, "the default stream", 99);
    batch.stream = CUstream::LEGACY;
    batch.invalid(c, "the legacy default stream", NONE);
    batch.stream = CUstream::PER_THREAD;
    batch.ok(c, "the thread's own stream");
    let mut run = |stream| {
        cuMemcpyBatchAsync_v2_ptsz(
            batch.dsts.as_mut_ptr(),
            batch.srcs.as_mut_ptr(),
            batch.sizes.as_mut_ptr(),
            batch.dsts.len(),
            batch.attributes.as_mut_ptr(),
            batch.starts.as_mut_ptr(),
            1,
            stream,
        )
    };
    // Also where the default stream is the thread's own.
    c.invalid("no stream", run(CUstream::NULL));
    c.invalid("the legacy stream", run(CUstream::LEGACY));
    c.ok(
        "the thread's own stream by its name",
        run(CUstream::PER_THREAD),
    );
    synchronize(c);
}

/// There must be copies, and all arrays.
fn counts(c: &Case) {
    let (mut batch, ..) = set_up(c);
    let all = batch.dsts.len();
    let stream = batch.stream;
    let mut run = |which: usize, count: usize| {
        let null = std::ptr::null_mut();
        let [dsts, srcs] = [&mut batch.dsts, &mut batch.srcs].map(|list| list.as_mut_ptr());
        cuMemcpyBatchAsync_v2(
            if which == 0 { null } else { dsts },
            if which == 1 { null } else { srcs },
            if which == 2 {
                std::ptr::null_mut()
            } else {
                batch.sizes.as_mut_ptr()
            },
            count,
            if which == 3 {
                std::ptr::null_mut()
            } else {
                batch.attributes.as_mut_ptr()
            },
            if which == 4 {
                std::ptr::null_mut()
            } else {
                batch.starts.as_mut_ptr()
            },
            1,
            stream,
        )
    };
    c.invalid("no copies", run(9, 0));
    for (which, what) in ["targets", "sources", "sizes", "attributes", "starts"]
        .iter()
        .enumerate()
    {
        c.invalid(format_args!("no {what}"), run(which, all));
    }
    c.ok("all of them", run(9, all));
    wait_for(c, stream);
}

/// Attributes are for the copies from their start on; the first is for the first copy.
fn attributes(c: &Case) {
    let (mut batch, ..) = set_up(c);
    for order in [order::STREAM, order::DURING_API_CALL, order::ANY] {
        batch.attributes = vec![in_order(order)];
        batch.ok(c, &format!("order {order}"));
    }
    for order in [0, 4] {
        batch.attributes = vec![in_order(order)];
        batch.invalid(c, &format!("order {order}"), NONE);
    }
    batch.attributes = vec![in_order(order::STREAM); 4];
    for (starts, valid) in [
        (vec![0, 1, 2], true),
        (vec![0, 2], true),
        (vec![], false),
        (vec![1], false),
        (vec![0, 0], false),
        (vec![0, 3], false),
        (vec![0, 1, 2, 3], false),
    ] {
        let what = format!("attributes from {starts:?}");
        batch.starts = starts;
        match valid {
            true => batch.ok(c, &what),
            false => batch.invalid(c, &what, NONE),
        }
    }
    batch.starts = vec![0];
    batch.attributes[0].flags = memcpy_flags::PREFER_OVERLAP_WITH_COMPUTE;
    batch.ok(c, "flags 1");
    batch.attributes[0].flags = 2;
    batch.invalid(c, "flags 2", NONE);
    wait_for(c, batch.stream);
}

/// A hint must be a location.
fn hints(c: &Case) {
    let (mut batch, ..) = set_up(c);
    for (type_, id, valid) in [
        (0, 0, true),
        (1, 0, true),
        (2, 0, true),
        (3, 0, true),
        (4, 0, true),
        (3, 9, true),
        (1, 9, false),
        (5, 0, false),
        (6, 0, false),
        (9, 0, false),
    ] {
        batch.attributes[0].srcLocHint = CUmemLocation { type_, id };
        let what = format!("location {type_} {id}");
        match valid {
            true => batch.ok(c, &what),
            false => batch.invalid(c, &what, NONE),
        }
    }
    batch.attributes[0] = in_order(order::STREAM);
    batch.attributes[0].dstLocHint = CUmemLocation { type_: 1, id: 9 };
    batch.invalid(c, "device 9 for the target", NONE);
    wait_for(c, batch.stream);
}

/// A copy at fault is reported. The copies before it are executed.
fn a_copy_at_fault(c: &Case) {
    let (mut batch, [a, b, d], host) = set_up(c);
    let host = host.as_ptr().addr() as u64;
    for (what, dst, src, size) in [
        ("0 bytes", d, a, 0),
        ("too large", d, a, 5000),
        ("no target", 0, a, 20),
        ("no source", d, 0, 20),
    ] {
        c.require("fill", cuMemsetD8_v2(b, 2, 4096));
        synchronize(c);
        (batch.dsts[1], batch.srcs[1], batch.sizes[1]) = (dst, src, size);
        batch.invalid(c, what, 1);
        wait_for(c, batch.stream);
        c.same(
            format_args!("{what}: the first copy"),
            read(c, b, 1),
            vec![1],
        );
    }
    (batch.dsts[1], batch.srcs[1], batch.sizes[1]) = (d, a, 20);
    batch.srcs[2] = host;
    batch.ok(c, "after that");
    wait_for(c, batch.stream);
}

/// Copies are between any memory.
fn any_memory(c: &Case) {
    let (mut batch, [a, ..], host) = set_up(c);
    let shared = managed(c, 4096);
    let mut back = vec![0_u8; 4096];
    let target = back.as_mut_ptr().addr() as u64;
    let source = host.as_ptr().addr() as u64;
    batch.dsts = vec![target, target + 100, shared];
    batch.srcs = vec![source, a, a];
    batch.sizes = vec![16, 16, 16];
    batch.ok(c, "copy");
    wait_for(c, batch.stream);
    let back = std::hint::black_box(&back);
    c.same(
        "ordinary memory",
        (back[0], back[100], back[116]),
        (7, 1, 0),
    );
    c.same("managed memory", peek(shared), 1);
}

/// Without a current context, no address is valid.
fn without_a_context(c: &Case) {
    let (mut batch, ..) = set_up(c);
    batch.dsts.truncate(1);
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    c.invalid("copy", batch.run());
}
