//! Instantiated graphs: creation, launches, destruction.

use std::collections::HashMap;

use cuguard_sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream,
    graph_instantiate_flags as flag, graph_instantiate_result as outcome,
};

use super::graph::node_handle;
use super::{begin_work, copy, copy_sides, event, fill, launch, read, stream, write_out};
use crate::graph::{Exec, Mapping, NodeParams, Step};
use crate::handle::{self, Id, Kind};
use crate::misuse;
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, Launch, allocations, lock};
use crate::streams::Run;

/// The flags of graphs that the host launches, and of those that a device may launch too.
const FLAGS: u64 = (flag::AUTO_FREE_ON_LAUNCH | flag::USE_NODE_PRIORITY) as u64;
const DEVICE_LAUNCH: u64 = flag::DEVICE_LAUNCH as u64;
const DEVICE_FLAGS: u64 = (flag::DEVICE_LAUNCH | flag::USE_NODE_PRIORITY) as u64;

/// Why a graph cannot be instantiated.
struct Failure {
    code: CUresult,
    /// `CUgraphInstantiateResult`
    outcome: u32,
    node: Option<Id>,
}

impl From<CUresult> for Failure {
    fn from(code: CUresult) -> Self {
        Self {
            code,
            outcome: outcome::ERROR,
            node: None,
        }
    }
}

fn instantiate(graph: CUgraph, flags: u64) -> Result<Id, Failure> {
    let mut state = lock();
    let graph = state.graph(graph)?;
    let on_device = flags & DEVICE_LAUNCH != 0;
    let (allowed, flags) = match on_device {
        // As measured, the priority is not kept.
        true => (flags & !DEVICE_FLAGS == 0, DEVICE_LAUNCH),
        false => (flags & !FLAGS == 0, flags),
    };
    valid(allowed)?;
    state.current()?;
    let Some(steps) = state.steps(graph) else {
        return Err(Failure {
            code: CUresult::INVALID_VALUE,
            outcome: outcome::INVALID_STRUCTURE,
            node: state.graph_data(graph)?.node_of_cycle(),
        });
    };
    if on_device {
        check_device_launch(&steps)?;
    }
    let id = state.ids.next(Kind::GraphExec);
    let has_memory = state.graphs.has_memory_nodes(graph);
    let data = state.graphs.graphs.get_mut(&graph);
    let data = data.ok_or(CUresult::INVALID_VALUE)?;
    if has_memory {
        check(data.instance.is_none(), CUresult::NOT_SUPPORTED)?;
        data.instance = Some(id);
    }
    let objects = data.objects.clone();
    for (object, count) in &objects {
        state.graphs.retain(*object, (*count).into());
    }
    state.share_graph_memory(&steps);
    let exec = Exec {
        flags,
        steps,
        objects,
        graph,
        last: None,
        lanes: HashMap::new(),
    };
    state.graphs.execs.insert(id, exec);
    Ok(id)
}

/// Fails unless a device could launch the graph: there are nodes, and all of them are kernels, copies and fills.
fn check_device_launch(steps: &[Step]) -> Result<(), Failure> {
    valid(!steps.is_empty())?;
    let on_device = |step: &&Step| {
        use NodeParams::{Child, Copy, Fill, Kernel};
        matches!(step.params, Kernel(_) | Copy(_) | Fill(_) | Child(_))
    };
    match steps.iter().find(|step| !on_device(step)) {
        None => Ok(()),
        Some(step) => Err(Failure {
            code: CUresult::INVALID_VALUE,
            outcome: outcome::NODE_OPERATION_NOT_SUPPORTED,
            node: Some(step.node),
        }),
    }
}

pub unsafe fn cuGraphInstantiateWithFlags(
    out: *mut CUgraphExec,
    graph: CUgraph,
    flags: u64,
) -> DriverResult {
    valid(!out.is_null())?;
    let exec = instantiate(graph, flags).map_err(|failure| failure.code)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUgraphExec(handle::encode(Kind::GraphExec, exec))) }
}

pub unsafe fn cuGraphInstantiateWithParams(
    out: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let mut found = unsafe { read(params) }?;
    valid(!out.is_null())?;
    let upload = u64::from(flag::UPLOAD);
    if found.flags & upload != 0 {
        lock().stream(found.hUploadStream)?;
    }
    let instantiated = instantiate(graph, found.flags & !upload);
    let (outcome, node) = match &instantiated {
        Ok(_) => (outcome::SUCCESS, None),
        Err(failure) => (failure.outcome, failure.node),
    };
    found.result_out = outcome;
    found.hErrNode_out = node.map_or(CUgraphNode::NULL, node_handle);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(params, found) }?;
    let exec = instantiated.map_err(|failure| failure.code)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUgraphExec(handle::encode(Kind::GraphExec, exec))) }
}

pub unsafe fn cuGraphExecGetFlags(exec: CUgraphExec, out: *mut u64) -> DriverResult {
    let state = lock();
    let exec = state.exec(exec)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, state.graphs.execs[&exec].flags) }
}

/// Launches that were submitted still execute, and hold the references to user objects until then.
pub unsafe fn cuGraphExecDestroy(exec: CUgraphExec) -> DriverResult {
    let mut state = lock();
    let id = state.exec(exec)?;
    let mut steps = state.graphs.execs[&id].steps.iter();
    if steps.any(|step| step.mapping == Mapping::ContextDestroyed) {
        let what = "a graph is destroyed after the context of host memory that it copies; a real driver crashes";
        return Err(state.misuse(CUresult::INVALID_VALUE, what.to_owned()));
    }
    let Some(exec) = state.graphs.execs.remove(&id) else {
        return Err(CUresult::INVALID_VALUE);
    };
    for lane in exec.lanes.into_values().flatten() {
        state.destroy_stream(lane);
    }
    state.unshare_graph_memory(&exec.steps);
    if let Some(graph) = state.graphs.graphs.get_mut(&exec.graph)
        && graph.instance == Some(id)
    {
        graph.instance = None;
    }
    state.release_objects(exec.objects, exec.last);
    Ok(())
}

/// Reserves the memory of a launch; the simulated device needs no more.
pub unsafe fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) -> DriverResult {
    let mut state = lock();
    let exec = state.exec(exec)?;
    let stream = state.stream(stream)?;
    state.check_not_capturing(stream)?;
    let steps = state.graphs.execs[&exec].steps.clone();
    let left = check_memory(&state, &steps)?;
    state.reserve_graph_memory(&steps, &left)
}

pub unsafe fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> DriverResult {
    lock().exec(exec)?;
    let (mut state, stream) = begin_work(stream)?;
    state.check_not_capturing(stream)?;
    let id = state.exec(exec)?;
    let exec = &state.graphs.execs[&id];
    let steps = exec.steps.clone();
    let automatic = exec.flags & u64::from(flag::AUTO_FREE_ON_LAUNCH) != 0;
    let left = check_memory(&state, &steps)?;
    valid(automatic || left.is_empty())?;
    state.reserve_graph_memory(&steps, &left)?;
    let mut submission = Launch::begin(&mut state, id, stream)?;
    for address in left {
        state.free_on_stream(address, stream)?;
    }
    let mut outcome = Ok(());
    for step in &steps {
        let lane = submission.lane(&mut state, &step.after)?;
        if step.enabled {
            outcome = outcome.and(submit_checked(&mut state, lane, step));
        }
        submission.submitted(&state);
    }
    submission.end(&mut state)?;
    outcome
}

/// Fails if a graph would free memory that is not allocated. Returns the addresses at which it would
/// allocate and memory is allocated already.
fn check_memory(state: &DriverState, steps: &[Step]) -> DriverResult<Vec<u64>> {
    let own: Vec<_> = allocations(steps).collect();
    for step in steps {
        if let NodeParams::Free(address) = step.params {
            valid(own.contains(&address) || state.is_graph_memory_allocated(address))?;
        }
    }
    let allocated = own
        .into_iter()
        .filter(|address| state.is_graph_memory_allocated(*address));
    Ok(allocated.collect())
}

/// Submits the work of a node. It fails if the graph uses memory that was freed or unregistered since the node was
/// created, which is misuse: a real device would access it.
fn submit_checked(state: &mut DriverState, stream: Id, step: &Step) -> DriverResult {
    let params = &step.params;
    if step.mapping != Mapping::Valid {
        let what = "a graph is launched that copies host memory which was unregistered after the graph was instantiated";
        return Err(state.misuse(CUresult::INVALID_VALUE, what.to_owned()));
    }
    let before = misuse::count();
    let submitted = submit(state, stream, params);
    let accesses = matches!(params, NodeParams::Copy(_) | NodeParams::Fill(_));
    match submitted {
        Err(CUresult::INVALID_VALUE) if accesses && misuse::count() == before => {
            let what = "a graph is launched that copies or fills memory that is not allocated";
            Err(state.misuse(CUresult::INVALID_VALUE, what.to_owned()))
        }
        other => other,
    }
}

/// Submits the work of a node to a stream.
fn submit(state: &mut DriverState, stream: Id, params: &NodeParams) -> DriverResult {
    let run: Option<Run> = match params {
        NodeParams::Empty | NodeParams::Child(_) => None,
        NodeParams::Copy(copy) => {
            let plan = copy_sides::plan_3d(copy)(state, stream)?;
            plan.map(|plan| Box::new(copy::work(plan)) as Run)
        }
        NodeParams::Fill(fill) => {
            let work = fill::work(state, stream, fill)?;
            work.map(|work| Box::new(work) as Run)
        }
        NodeParams::Host(host) => Some(stream::host_work(*host)),
        NodeParams::Kernel(kernel) => launch::node_work(state, stream, kernel)?,
        NodeParams::Record(event) => {
            event::check_live(state, *event)?;
            return event::record(state, *event, stream);
        }
        NodeParams::Wait(event) => {
            event::check_live(state, *event)?;
            let position = event::position(state, *event).cloned();
            return state
                .submit(stream, position.as_ref(), None, None)
                .map(drop);
        }
        NodeParams::Allocate(allocation) => {
            return state.allocate_graph_memory(allocation.address, stream);
        }
        NodeParams::Free(address) => {
            valid(state.is_graph_memory_allocated(*address))?;
            return state.free_on_stream(*address, stream);
        }
    };
    match run {
        Some(run) => state.submit(stream, None, Some(run), None).map(drop),
        None => Ok(()),
    }
}
