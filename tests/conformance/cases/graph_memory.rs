//! Memory that graphs allocate and free.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::graphs::*;
use crate::tools::*;

cases! {"graph_memory":
    parameters,
    nodes_stay,
    kinds_of_allocations,
    an_address_without_memory,
    allocated_by_a_launch,
    freed_by_the_program,
    freed_by_the_graph,
    instances_outlive_their_graph,
    freed_by_another_graph,
    freed_at_the_next_launch,
    frees,
    what_such_graphs_do_not_support,
    usage,
    high_water_marks,
    launches_that_do_not_fit,
    an_upload_that_does_not_fit,
    unused_memory_of_pools,
    launches_add_to_what_is_kept,
}

/// An allocation of device memory.
fn allocation(bytes: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps {
            allocType: mem_allocation_type::PINNED,
            location: CUmemLocation {
                type_: mem_location_type::DEVICE,
                id: 0,
            },
            ..CUmemPoolProps::default()
        },
        bytesize: bytes,
        ..CUDA_MEM_ALLOC_NODE_PARAMS::default()
    }
}

/// Any node of a graph that allocates stays.
fn nodes_stay(c: &Case) {
    primary(c);
    let graph = graph(c);
    let other = empty(c, graph, &[]);
    let (node, _) = allocate(c, graph, MIB);
    for (what, node) in [("another node", other), ("the allocation", node)] {
        let result = cuGraphDestroyNode(node);
        c.expect(what, result, Code::NOT_SUPPORTED);
    }
}

/// What is allocated: page-locked memory of a device, or managed memory, which is memory of the device here.
fn kinds_of_allocations(c: &Case) {
    primary(c);
    let graph = graph(c);
    let add = |kind, location, id| {
        let (mut node, mut params) = (CUgraphNode::NULL, allocation(MIB));
        params.poolProps.allocType = kind;
        params.poolProps.location = CUmemLocation {
            type_: location,
            id,
        };
        let null = std::ptr::null();
        let result = cuGraphAddMemAllocNode(&mut node, graph, null, 0, &mut params);
        (result, params.dptr)
    };
    let (invalid, unsupported) = (Code::INVALID_VALUE, Code::NOT_SUPPORTED);
    let (pinned, managed) = (mem_allocation_type::PINNED, mem_allocation_type::MANAGED);
    for (kind, location, id, want) in [
        (0, 1, 0, invalid),
        (pinned, 0, 0, invalid),
        (pinned, 2, 0, unsupported),
        (pinned, 4, 0, invalid),
        (managed, 0, 0, unsupported),
        (managed, 1, 99, invalid),
        (managed, 2, 0, unsupported),
    ] {
        let what = format_args!("kind {kind}, location {location}, id {id}");
        c.expect(what, add(kind, location, id).0, want);
    }
    let (result, address) = add(managed, mem_location_type::DEVICE, 0);
    c.ok("managed memory of a device", result);
    let (stream, exec) = (independent(c), instantiate(c, graph));
    run(c, exec, stream);
    c.ok("fill", cuMemsetD8_v2(address, 7, 16));
    c.same("filled", read(c, address, 2), vec![7, 7]);
    let mut value = 9_u32;
    let which = pointer_attribute::IS_MANAGED;
    let result = cuPointerGetAttribute((&raw mut value).cast(), which, address);
    c.ok("cuPointerGetAttribute", result);
    c.same("it is not managed", value, 0);
}

/// A node that allocates, and the address.
fn allocate(c: &Case, graph: CUgraph, bytes: usize) -> (CUgraphNode, CUdeviceptr) {
    let (mut node, mut params) = (CUgraphNode::NULL, allocation(bytes));
    let result = cuGraphAddMemAllocNode(&mut node, graph, std::ptr::null(), 0, &mut params);
    c.require("cuGraphAddMemAllocNode", result);
    (node, params.dptr)
}

fn add_free(graph: CUgraph, address: CUdeviceptr, after: &[CUgraphNode]) -> CUresult {
    let mut node = CUgraphNode::NULL;
    cuGraphAddMemFreeNode(&mut node, graph, after.as_ptr(), after.len(), address)
}

/// What graphs use and have reserved, and the high-water marks of both, in MiB.
fn attributes(c: &Case) -> [u64; 4] {
    [0, 1, 2, 3].map(|attribute| {
        let mut value = 0_u64;
        let result = cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut value).cast());
        c.require("cuDeviceGetGraphMemAttribute", result);
        value / MIB as u64
    })
}

/// Device memory, at least a byte of it, not shared with other processes.
fn parameters(c: &Case) {
    primary(c);
    let graph = graph(c);
    let mut node = CUgraphNode::NULL;
    let mut try_with = |mut params: CUDA_MEM_ALLOC_NODE_PARAMS| {
        cuGraphAddMemAllocNode(&mut node, graph, std::ptr::null(), 0, &mut params)
    };
    c.invalid("no bytes", try_with(allocation(0)));
    let mut params = allocation(64);
    params.poolProps.location.id = 99;
    c.invalid("device 99", try_with(params));
    params = allocation(64);
    params.poolProps.allocType = 0;
    c.invalid("no type", try_with(params));
    params = allocation(64);
    params.poolProps.handleTypes = 1;
    c.expect("shared", try_with(params), Code::NOT_SUPPORTED);
    params = allocation(64);
    params.poolProps.location.type_ = mem_location_type::HOST;
    c.expect("host memory", try_with(params), Code::NOT_SUPPORTED);
    c.expect("1 PiB", try_with(allocation(1 << 50)), Code::OUT_OF_MEMORY);
    let null = std::ptr::null();
    let result = cuGraphAddMemAllocNode(&mut node, graph, null, 0, std::ptr::null_mut());
    c.invalid("no parameters", result);
    c.same("nodes", types(c, graph), vec![]);
    let (node, address) = allocate(c, graph, 1000);
    let mut found = CUDA_MEM_ALLOC_NODE_PARAMS::default();
    c.ok(
        "its parameters",
        cuGraphMemAllocNodeGetParams(node, &mut found),
    );
    c.same("bytes", found.bytesize, 1000);
    c.yes("the address", found.dptr == address && address != 0);
}

/// The address of an allocation is known from the beginning, but is not allocated.
fn an_address_without_memory(c: &Case) {
    primary(c);
    let (_, address) = allocate(c, graph(c), MIB);
    let (mut base, mut size, mut kind) = (0, 0, 0_u32);
    let result = cuMemGetAddressRange_v2(&mut base, &mut size, address);
    c.expect("its range", result, Code::NOT_FOUND);
    let which = pointer_attribute::MEMORY_TYPE;
    let result = cuPointerGetAttribute((&raw mut kind).cast(), which, address);
    c.invalid("its memory type", result);
    c.invalid("fill", cuMemsetD8_v2(address, 1, 8));
    c.invalid("free", cuMemFree_v2(address));
}

/// A launch allocates, and the memory is the program's.
fn allocated_by_a_launch(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (node, address) = allocate(c, graph, MIB);
    let params = fill_of(address, 66, 64);
    let (mut none, null) = (CUgraphNode::NULL, CUcontext::NULL);
    let result = cuGraphAddMemsetNode(&mut none, graph, &node, 1, &params, null);
    c.invalid("fill without a context", result);
    fill(c, graph, &params, &[node]);
    let exec = instantiate(c, graph);
    run(c, exec, stream);
    c.same("filled", read(c, address, 2), vec![66, 66]);
    let (mut base, mut size) = (0, 0);
    let result = cuMemGetAddressRange_v2(&mut base, &mut size, address + 5);
    c.ok("its range", result);
    c.same("size", size, MIB);
    c.yes("base", base == address);
    c.invalid("launch while it is allocated", cuGraphLaunch(exec, stream));
    c.ok("destroy the instance", cuGraphExecDestroy(exec));
    c.ok("destroy the graph", cuGraphDestroy(graph));
    c.same("it is still allocated", read(c, address, 2), vec![66, 66]);
    c.ok("free", cuMemFreeAsync(address, stream));
    c.invalid("free twice", cuMemFreeAsync(address, stream));
}

/// The program frees with both free functions, and the graph can be launched again.
fn freed_by_the_program(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (_, address) = allocate(c, graph, MIB);
    let exec = instantiate(c, graph);
    run(c, exec, stream);
    c.ok("free on the stream", cuMemFreeAsync(address, stream));
    c.invalid("again", cuMemFreeAsync(address, stream));
    run(c, exec, stream);
    c.ok("free at once", cuMemFree_v2(address));
    c.invalid("again", cuMemFree_v2(address));
    run(c, exec, stream);
    c.ok("destroy the instance", cuGraphExecDestroy(exec));
    let again = instantiate(c, graph);
    c.ok("free", cuMemFreeAsync(address, stream));
    run(c, again, stream);
    c.ok("free", cuMemFreeAsync(address, stream));
}

/// A graph that frees what it allocates can be launched any number of times.
fn freed_by_the_graph(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (node, address) = allocate(c, graph, MIB);
    let filled = fill(c, graph, &fill_of(address, 1, 64), &[node]);
    let result = pinned(c, 64);
    let copied = copy(c, graph, &download_of(result, address, 64), &[filled]);
    c.ok("free", add_free(graph, address, &[copied]));
    c.invalid("free twice", add_free(graph, address, &[copied]));
    let exec = instantiate(c, graph);
    for _ in 0..3 {
        c.ok("launch", cuGraphLaunch(exec, stream));
    }
    wait_for(c, stream);
    c.same("executed", peek(result as u64 + 63), 1);
    let mut byte = 0_u8;
    let result = cuMemcpyDtoH_v2((&raw mut byte).cast(), address, 1);
    c.invalid("read it afterwards", result);
    c.invalid("free it afterwards", cuMemFreeAsync(address, stream));
}

/// An instance is launched when its graph is destroyed: allocations are at the same addresses.
fn instances_outlive_their_graph(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (node, address) = allocate(c, graph, MIB);
    let filled = fill(c, graph, &fill_of(address, 5, 64), &[node]);
    let result = pinned(c, 64);
    let copied = copy(c, graph, &download_of(result, address, 64), &[filled]);
    c.ok("free", add_free(graph, address, &[copied]));
    let exec = instantiate(c, graph);
    c.ok("destroy the graph", cuGraphDestroy(graph));
    // The instance keeps the address.
    let another = self::graph(c);
    let (_, other) = allocate(c, another, MIB);
    c.same("another allocation is elsewhere", other != address, true);
    c.ok("destroy the other graph", cuGraphDestroy(another));
    for _ in 0..3 {
        run(c, exec, stream);
    }
    c.same("executed", peek(result as u64 + 63), 5);
    c.ok("destroy the instance", cuGraphExecDestroy(exec));
}

/// A graph may free what another one allocated.
fn freed_by_another_graph(c: &Case) {
    primary(c);
    let (stream, one, other) = (independent(c), graph(c), graph(c));
    let (_, address) = allocate(c, one, MIB);
    c.ok("free in another graph", add_free(other, address, &[]));
    let (one, other) = (instantiate(c, one), instantiate(c, other));
    c.invalid("free first", cuGraphLaunch(other, stream));
    for _ in 0..2 {
        c.ok("allocate", cuGraphLaunch(one, stream));
        c.ok("free", cuGraphLaunch(other, stream));
    }
    c.ok("allocate", cuGraphLaunch(one, stream));
    c.ok("free by the program", cuMemFreeAsync(address, stream));
    c.invalid("free by the graph", cuGraphLaunch(other, stream));
    wait_for(c, stream);
}

/// With automatic free, a launch frees what the one before left.
fn freed_at_the_next_launch(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (_, address) = allocate(c, graph, MIB);
    let mut exec = CUgraphExec::NULL;
    let automatic = graph_instantiate_flags::AUTO_FREE_ON_LAUNCH.into();
    let result = cuGraphInstantiateWithFlags(&mut exec, graph, automatic);
    c.ok("instantiate", result);
    run(c, exec, stream);
    run(c, exec, stream);
    run(c, exec, independent(c));
    c.ok("destroy the instance", cuGraphExecDestroy(exec));
    c.ok("destroy the graph", cuGraphDestroy(graph));
    c.ok("free", cuMemFreeAsync(address, stream));
    wait_for(c, stream);
}

/// A graph frees only what a graph allocates.
fn frees(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (node, address) = allocate(c, graph, MIB);
    c.invalid("cuMemAlloc", add_free(graph, alloc(c, 64), &[node]));
    let pooled = alloc_async(c, 64, stream);
    c.invalid("cuMemAllocAsync", add_free(graph, pooled, &[node]));
    c.invalid("null", add_free(graph, 0, &[node]));
    c.invalid("an inner address", add_free(graph, address + 512, &[node]));
    let mut freed = CUgraphNode::NULL;
    let result = cuGraphAddMemFreeNode(&mut freed, graph, &node, 1, address);
    c.ok("the allocation", result);
    let mut found = 0;
    c.ok(
        "its parameters",
        cuGraphMemFreeNodeGetParams(freed, &mut found),
    );
    c.yes("the address", found == address);
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::default();
    let result = cuGraphMemAllocNodeGetParams(freed, &mut params);
    c.invalid("parameters of an allocation", result);
}

/// Memory nodes stay, with their edges, and there is one instance at a time.
fn what_such_graphs_do_not_support(c: &Case) {
    primary(c);
    let (graph, other) = (graph(c), graph(c));
    let (node, address) = allocate(c, graph, MIB);
    let filled = fill(c, graph, &fill_of(address, 1, 64), &[node]);
    let unsupported = Code::NOT_SUPPORTED;
    let (mut clone, mut child) = (CUgraph::NULL, CUgraphNode::NULL);
    c.expect("clone", cuGraphClone(&mut clone, graph), unsupported);
    c.expect("destroy the node", cuGraphDestroyNode(node), unsupported);
    let result = cuGraphRemoveDependencies(graph, &node, &filled, 1);
    c.expect("remove its edge", result, unsupported);
    let null = std::ptr::null();
    let result = cuGraphAddChildGraphNode(&mut child, other, null, 0, graph);
    c.expect("a child graph", result, unsupported);
    let exec = instantiate(c, graph);
    let mut second = CUgraphExec::NULL;
    let result = cuGraphInstantiateWithFlags(&mut second, graph, 0);
    c.expect("a second instance", result, unsupported);
    c.ok("destroy the first", cuGraphExecDestroy(exec));
    let result = cuGraphInstantiateWithFlags(&mut second, graph, 0);
    c.ok("another instance", result);
    let mut info = CUgraphExecUpdateResultInfo::default();
    let result = cuGraphExecUpdate_v2(second, graph, &mut info);
    c.ok("update it from its own graph", result);
}

/// What a launch allocates stays reserved until it is trimmed, and counts as used.
fn usage(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (_, address) = allocate(c, graph, MIB);
    c.same("an address", attributes(c), [0; 4]);
    let exec = instantiate(c, graph);
    c.same("an instance", attributes(c), [0; 4]);
    run(c, exec, stream);
    c.same("a launch", attributes(c), [32; 4]);
    c.ok("free", cuMemFreeAsync(address, stream));
    wait_for(c, stream);
    c.same("freed", attributes(c), [32; 4]);
    c.ok("trim", cuDeviceGraphMemTrim(0));
    c.same("trimmed", attributes(c), [0, 32, 0, 32]);
    c.expect("no device", cuDeviceGraphMemTrim(99), Code::INVALID_DEVICE);
}

/// The high-water marks can be reset, and nothing else be set.
fn high_water_marks(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (_, address) = allocate(c, graph, MIB);
    run(c, instantiate(c, graph), stream);
    c.ok("free", cuMemFreeAsync(address, stream));
    wait_for(c, stream);
    c.ok("trim", cuDeviceGraphMemTrim(0));
    let set = |attribute, mut value: u64| {
        cuDeviceSetGraphMemAttribute(0, attribute, (&raw mut value).cast())
    };
    c.ok("used", set(1, 0));
    c.ok("reserved", set(3, 0));
    c.same("reset", attributes(c), [0; 4]);
    c.invalid("to 5", set(1, 5));
    c.invalid("what is used", set(0, 0));
    let mut value = 0_u64;
    let into = (&raw mut value).cast();
    c.invalid("no attribute", cuDeviceGetGraphMemAttribute(0, 9, into));
    let result = cuDeviceGetGraphMemAttribute(0, 0, std::ptr::null_mut());
    c.invalid("into null", result);
    let result = cuDeviceGetGraphMemAttribute(99, 0, into);
    c.expect("no device", result, Code::INVALID_DEVICE);
}

/// A graph that allocates and frees, and an instance.
fn with_scratch(c: &Case, bytes: usize) -> (CUgraph, CUgraphExec) {
    let graph = graph(c);
    let (node, address) = allocate(c, graph, bytes);
    c.ok("free", add_free(graph, address, &[node]));
    (graph, instantiate(c, graph))
}

/// A launch that does not fit reserves the chunks that do, and the process has lost them: nothing releases them, and no
/// launch uses them.
fn launches_that_do_not_fit(c: &Case) {
    primary(c);
    let stream = independent(c);
    let (graph, exec) = with_scratch(c, 256 * MIB);
    let data = leave(c, 144 * MIB);
    c.expect("launch", cuGraphLaunch(exec, stream), Code::OUT_OF_MEMORY);
    wait_for(c, stream);
    stuck(c, "128 MiB are reserved and not used");
    c.expect("again", cuGraphLaunch(exec, stream), Code::OUT_OF_MEMORY);
    stuck(c, "there is no chunk left");
    let mut block = 0;
    let result = cuMemAlloc_v2(&mut block, 64 * MIB);
    c.expect("allocate 64 MiB", result, Code::OUT_OF_MEMORY);
    c.ok("trim", cuDeviceGraphMemTrim(0));
    stuck(c, "after a trim");
    free(c, data);
    run(c, exec, stream);
    c.same("a launch that fits", usage_now(c), [256, 384]);
    c.ok("trim", cuDeviceGraphMemTrim(0));
    stuck(c, "trimmed");
    c.ok("destroy the instance", cuGraphExecDestroy(exec));
    c.ok("destroy the graph", cuGraphDestroy(graph));
    c.ok("destroy the stream", cuStreamDestroy_v2(stream));
    synchronize(c);
    c.ok("trim", cuDeviceGraphMemTrim(0));
    stuck(c, "at the end");
}

/// The same without a launch.
fn an_upload_that_does_not_fit(c: &Case) {
    primary(c);
    let stream = independent(c);
    let (_, exec) = with_scratch(c, 256 * MIB);
    let data = leave(c, 144 * MIB);
    c.expect("upload", cuGraphUpload(exec, stream), Code::OUT_OF_MEMORY);
    stuck(c, "128 MiB are reserved and not used");
    free(c, data);
    c.ok("trim", cuDeviceGraphMemTrim(0));
    stuck(c, "trimmed");
}

/// A launch does not take what pools keep and do not use; physical memory does.
fn unused_memory_of_pools(c: &Case) {
    primary(c);
    let stream = independent(c);
    let (_, exec) = with_scratch(c, 128 * MIB);
    let mut pool = CUmemoryPool::NULL;
    c.require("the pool", cuDeviceGetDefaultMemPool(&mut pool, 0));
    let mut all = u64::MAX;
    let threshold = pool_attribute::RELEASE_THRESHOLD;
    let set = cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast());
    c.require("the threshold", set);
    let _data = leave(c, 304 * MIB);
    let block = alloc_async(c, 256 * MIB, stream);
    c.ok("free", cuMemFreeAsync(block, stream));
    wait_for(c, stream);
    c.expect("launch", cuGraphLaunch(exec, stream), Code::OUT_OF_MEMORY);
    let lost = usage_now(c);
    c.same("one chunk is lost", lost, [0, 32]);
    let mut memory = 0;
    let created = cuMemCreate(&mut memory, 128 * MIB, &device_properties(0), 0);
    c.ok("physical memory", created);
    c.ok("release", cuMemRelease(memory));
    run(c, exec, stream);
    c.same("a launch that fits now", usage_now(c), [128, 160]);
}

/// What earlier launches left is room for a larger one, together with free memory.
fn launches_add_to_what_is_kept(c: &Case) {
    primary(c);
    let stream = independent(c);
    let (_, small) = with_scratch(c, 128 * MIB);
    let (_, large) = with_scratch(c, 256 * MIB);
    run(c, small, stream);
    let _data = leave(c, 144 * MIB);
    run(c, large, stream);
    c.same("of both", usage_now(c), [256, 256]);
    run(c, small, stream);
    c.same("the small one again", usage_now(c), [256, 256]);
}

/// Allocates all but that much, which is not a multiple of what graphs reserve at a time.
fn leave(c: &Case, bytes: usize) -> CUdeviceptr {
    alloc(c, (free_bytes(c) - bytes) & !(2 * MIB - 1))
}

/// What graphs use and have reserved, in MiB.
fn usage_now(c: &Case) -> [u64; 2] {
    let [used, _, reserved, _] = attributes(c);
    [used, reserved]
}

fn stuck(c: &Case, when: &str) {
    c.same(when, usage_now(c), [0, 128]);
}
