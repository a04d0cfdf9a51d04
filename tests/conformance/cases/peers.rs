//! Contexts of one device that use each other's memory, and default streams by their handles.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"peers":
    default_streams_by_handle,
    access_within_a_device,
    copies_between_contexts,
    events_between_contexts,
    bus_ids,
}

/// The three handles of default streams mean those of the current context.
fn default_streams_by_handle(c: &Case) {
    start(c);
    let created = create(c);
    for (name, stream) in [
        ("null", CUstream::NULL),
        ("legacy", CUstream::LEGACY),
        ("per-thread", CUstream::PER_THREAD),
    ] {
        let (mut address, mut priority, mut flags) = (0, 99, 99);
        let (mut event, mut context) = (CUevent::NULL, CUcontext::NULL);
        c.ok(
            format!("{name}: cuMemAllocAsync"),
            cuMemAllocAsync(&mut address, 4096, stream),
        );
        c.ok(
            format!("{name}: cuMemsetD8Async"),
            cuMemsetD8Async(address, 7, 4096, stream),
        );
        c.ok(
            format!("{name}: cuEventCreate"),
            cuEventCreate(&mut event, 2),
        );
        c.ok(
            format!("{name}: cuEventRecord"),
            cuEventRecord(event, stream),
        );
        c.ok(
            format!("{name}: cuStreamWaitEvent"),
            cuStreamWaitEvent(stream, event, 0),
        );
        c.ok(
            format!("{name}: cuStreamGetPriority"),
            cuStreamGetPriority(stream, &mut priority),
        );
        c.ok(
            format!("{name}: cuStreamGetFlags"),
            cuStreamGetFlags(stream, &mut flags),
        );
        c.same(
            format!("{name}: priority and flags"),
            (priority, flags),
            (0, 0),
        );
        c.ok(
            format!("{name}: cuStreamGetCtx"),
            cuStreamGetCtx(stream, &mut context),
        );
        c.yes(format!("{name}: the current context"), context == created);
        c.ok(
            format!("{name}: cuMemFreeAsync"),
            cuMemFreeAsync(address, stream),
        );
        c.ok(
            format!("{name}: cuStreamSynchronize"),
            cuStreamSynchronize(stream),
        );
        c.expect(
            format!("{name}: cuStreamDestroy"),
            cuStreamDestroy_v2(stream),
            Code::INVALID_HANDLE,
        );
        c.ok(format!("{name}: cuEventDestroy"), cuEventDestroy_v2(event));
        let mut popped = CUcontext::NULL;
        c.ok(format!("{name}: pop"), cuCtxPopCurrent_v2(&mut popped));
        let want = Code::INVALID_CONTEXT;
        c.expect(
            format!("{name}: allocate without a context"),
            cuMemAllocAsync(&mut address, 4096, stream),
            want,
        );
        c.expect(
            format!("{name}: query without a context"),
            cuStreamQuery(stream),
            want,
        );
        c.ok(format!("{name}: push"), cuCtxPushCurrent_v2(created));
    }
}

/// Peer access is between two devices.
fn access_within_a_device(c: &Case) {
    start(c);
    let other = create(c);
    let own = create(c);
    let mut can = 7;
    c.ok(
        "cuDeviceCanAccessPeer",
        cuDeviceCanAccessPeer(&mut can, 0, 0),
    );
    c.same("a device and itself", can, 0);
    for (name, peer) in [("another context", other), ("itself", own)] {
        c.expect(
            format!("enable: {name}"),
            cuCtxEnablePeerAccess(peer, 0),
            Code::PEER_ACCESS_UNSUPPORTED,
        );
    }
    c.invalid("enable with flags", cuCtxEnablePeerAccess(other, 1));
    let want = Code::INVALID_CONTEXT;
    c.expect(
        "enable: null",
        cuCtxEnablePeerAccess(CUcontext::NULL, 0),
        want,
    );
    c.expect(
        "disable: null",
        cuCtxDisablePeerAccess(CUcontext::NULL),
        want,
    );
    c.expect(
        "disable what is not enabled",
        cuCtxDisablePeerAccess(other),
        Code::PEER_ACCESS_NOT_ENABLED,
    );
}

/// Copies between the memory of two contexts, on streams of either.
fn copies_between_contexts(c: &Case) {
    start(c);
    let other = create(c);
    let (mut there, mut here, mut on_other, mut on_own) = (0, 0, CUstream::NULL, CUstream::NULL);
    c.ok("allocate there", cuMemAlloc_v2(&mut there, 4096));
    c.ok("fill there", cuMemsetD8_v2(there, 9, 4096));
    c.ok("a stream there", cuStreamCreate(&mut on_other, 1));
    c.ok("synchronize there", cuCtxSynchronize());
    let own = create(c);
    c.ok("allocate here", cuMemAlloc_v2(&mut here, 4096));
    c.ok("a stream here", cuStreamCreate(&mut on_own, 1));
    c.ok(
        "copy on a stream of the destination",
        cuMemcpyPeerAsync(here, own, there, other, 4096, on_own),
    );
    c.ok("synchronize", cuStreamSynchronize(on_own));
    let mut byte = [0_u8];
    c.ok("read", cuMemcpyDtoH_v2(byte.as_mut_ptr().cast(), here, 1));
    c.same("the value", byte[0], 9);
    c.ok(
        "copy to the other context",
        cuMemcpyPeerAsync(there, other, here, own, 4096, on_own),
    );
    c.ok("synchronize", cuStreamSynchronize(on_own));
    c.ok(
        "copy on a stream of the source",
        cuMemcpyPeerAsync(here, own, there, other, 4096, on_other),
    );
    c.ok("synchronize", cuStreamSynchronize(on_other));
    c.ok("synchronous", cuMemcpyPeer(here, own, there, other, 4096));
    c.ok(
        "no bytes",
        cuMemcpyPeerAsync(here, own, there, other, 0, on_own),
    );
    c.ok(
        "contexts exchanged",
        cuMemcpyPeerAsync(here, other, there, own, 4096, on_own),
    );
    c.ok("synchronize", cuStreamSynchronize(on_own));
}

/// A stream waits for an event of another context.
fn events_between_contexts(c: &Case) {
    start(c);
    let (mut event, mut on_other, mut on_own) = (CUevent::NULL, CUstream::NULL, CUstream::NULL);
    create(c);
    c.ok("a stream there", cuStreamCreate(&mut on_other, 1));
    c.ok("an event there", cuEventCreate(&mut event, 2));
    c.ok("record", cuEventRecord(event, on_other));
    create(c);
    c.ok("a stream here", cuStreamCreate(&mut on_own, 1));
    c.ok("wait", cuStreamWaitEvent(on_own, event, 0));
    c.ok("synchronize", cuStreamSynchronize(on_own));
}

/// A text that is not an address, and an address without a device.
fn bus_ids(c: &Case) {
    start(c);
    let mut device = 7;
    for text in [c"nowhere", c""] {
        c.invalid(
            format!("{text:?}"),
            cuDeviceGetByPCIBusId(&mut device, text.as_ptr()),
        );
    }
    c.expect(
        "an address without a device",
        cuDeviceGetByPCIBusId(&mut device, c"ffff:ff:1f.7".as_ptr()),
        Code::INVALID_DEVICE,
    );
}
