//! Nodes that allocate and free memory, and what graphs use of a device's memory.

use std::ffi::c_void;

use cuguard_sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUgraph, CUgraphNode, CUmemLocation,
    CUmemPoolProps, CUresult, graph_mem_attribute, mem_allocation_type, mem_location_type,
};

use super::graph_nodes::{Place, add, get};
use super::{read, write_out};
use crate::graph::{AllocateParams, NodeParams};
use crate::handle::Id;
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, GraphUsage, lock};

/// The parameters of an allocation of device memory, with a new address.
pub(super) fn allocate_params(
    state: &mut DriverState,
    properties: CUmemPoolProps,
    bytes: usize,
) -> DriverResult<NodeParams> {
    let is_managed = properties.allocType == mem_allocation_type::MANAGED;
    valid(is_managed || properties.allocType == mem_allocation_type::PINNED)?;
    valid(bytes > 0)?;
    // As measured. What is called managed is memory of the device too.
    let location = properties.location;
    match location.type_ {
        mem_location_type::DEVICE => {}
        mem_location_type::HOST | mem_location_type::HOST_NUMA => {
            return Err(CUresult::NOT_SUPPORTED);
        }
        _ if is_managed => return Err(CUresult::NOT_SUPPORTED),
        _ => return Err(CUresult::INVALID_VALUE),
    }
    let device = state.check_device(location.id);
    let device = device.map_err(|_| CUresult::INVALID_VALUE)?;
    // Memory of graphs cannot be shared between processes.
    check(properties.handleTypes == 0, CUresult::NOT_SUPPORTED)?;
    let address = state.reserve_graph_address(device, bytes as u64)?;
    Ok(NodeParams::Allocate(AllocateParams {
        properties,
        bytes,
        address,
    }))
}

/// The parameters of a free of memory that a graph allocates, this one or another.
pub(super) fn free_params(
    state: &DriverState,
    graph: Id,
    address: CUdeviceptr,
) -> DriverResult<NodeParams> {
    valid(state.graph_addresses.contains_key(&address))?;
    let nodes = &state.graph_data(graph)?.nodes;
    let frees = |params: &NodeParams| matches!(params, NodeParams::Free(a) if *a == address);
    valid(!nodes.values().any(|node| frees(&node.params)))?;
    Ok(NodeParams::Free(address))
}

pub unsafe fn cuGraphAddMemAllocNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> DriverResult {
    let place = Place {
        out,
        graph,
        after,
        count,
    };
    let mut address = 0;
    // SAFETY: as the caller guarantees.
    unsafe {
        let mut found = read(params)?;
        add(place, |state, _| {
            let params = allocate_params(state, found.poolProps, found.bytesize)?;
            if let NodeParams::Allocate(allocation) = &params {
                address = allocation.address;
            }
            Ok(params)
        })?;
        found.dptr = address;
        write_out(params, found)
    }
}

pub unsafe fn cuGraphMemAllocNodeGetParams(
    node: CUgraphNode,
    out: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> DriverResult {
    let found = get(node, |params| match params {
        NodeParams::Allocate(allocation) => Some(allocation),
        _ => None,
    })?;
    let params = CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: found.properties,
        bytesize: found.bytes,
        dptr: found.address,
        ..CUDA_MEM_ALLOC_NODE_PARAMS::default()
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, params) }
}

pub unsafe fn cuGraphAddMemFreeNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    address: CUdeviceptr,
) -> DriverResult {
    let place = Place {
        out,
        graph,
        after,
        count,
    };
    // SAFETY: as the caller guarantees.
    unsafe { add(place, |state, graph| free_params(state, graph, address)) }
}

pub unsafe fn cuGraphMemFreeNodeGetParams(
    node: CUgraphNode,
    out: *mut CUdeviceptr,
) -> DriverResult {
    let address = get(node, |params| match params {
        NodeParams::Free(address) => Some(address),
        _ => None,
    })?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, address) }
}

/// A stream-ordered allocation on a capturing stream: the memory is allocated when the graph is launched.
pub(super) fn capture_allocation(
    state: &mut DriverState,
    stream: Id,
    bytes: usize,
) -> DriverResult<CUdeviceptr> {
    state.captured_graph(stream)?;
    if bytes == 0 {
        return Ok(0);
    }
    let context = state.streams[&stream].context;
    let properties = CUmemPoolProps {
        allocType: mem_allocation_type::PINNED,
        location: CUmemLocation {
            type_: mem_location_type::DEVICE,
            id: state.device_of(context) as i32,
        },
        ..CUmemPoolProps::default()
    };
    let params = allocate_params(state, properties, bytes)?;
    let address = match &params {
        NodeParams::Allocate(allocation) => allocation.address,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    state.capture(stream, params)?;
    Ok(address)
}

/// A free on a capturing stream.
pub(super) fn capture_free(state: &mut DriverState, stream: Id, address: u64) -> DriverResult {
    let graph = state.captured_graph(stream)?;
    let params = free_params(state, graph, address)?;
    state.capture(stream, params)
}

pub unsafe fn cuDeviceGraphMemTrim(device: CUdevice) -> DriverResult {
    let mut state = lock();
    let device = state.check_device(device)?;
    state.trim_graph_memory(device);
    Ok(())
}

pub unsafe fn cuDeviceGetGraphMemAttribute(
    device: CUdevice,
    attribute: u32,
    value: *mut c_void,
) -> DriverResult {
    let state = lock();
    let usage = state.device(state.check_device(device)?).graph_memory;
    let number = match attribute {
        // Like a real driver, counts memory as used until it is trimmed.
        graph_mem_attribute::USED_MEM_CURRENT => usage.used,
        graph_mem_attribute::RESERVED_MEM_CURRENT => usage.reserved(),
        graph_mem_attribute::USED_MEM_HIGH => usage.used_high,
        graph_mem_attribute::RESERVED_MEM_HIGH => usage.reserved_high,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    // SAFETY: these attributes are 64 bits wide.
    unsafe { write_out(value.cast(), number) }
}

/// The high-water marks can be reset to what is reserved now.
pub unsafe fn cuDeviceSetGraphMemAttribute(
    device: CUdevice,
    attribute: u32,
    value: *mut c_void,
) -> DriverResult {
    let mut state = lock();
    let device = state.check_device(device)?;
    // SAFETY: these attributes are 64 bits wide.
    valid(unsafe { read(value.cast::<u64>()) }? == 0)?;
    let usage: &mut GraphUsage = &mut state.device_mut(device).graph_memory;
    match attribute {
        graph_mem_attribute::USED_MEM_HIGH => usage.used_high = usage.used,
        graph_mem_attribute::RESERVED_MEM_HIGH => usage.reserved_high = usage.reserved(),
        _ => return Err(CUresult::INVALID_VALUE),
    }
    Ok(())
}
