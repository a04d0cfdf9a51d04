//! User objects: data of the program that graphs keep alive.

use std::ffi::c_void;

use cuguard_sys::{CUgraph, CUhostFn, CUresult, CUuserObject};

use super::write_out;
use crate::graph::{HostFunction, UserObject};
use crate::handle::{self, Kind};
use crate::result::{DriverResult, valid};
use crate::state::lock;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, without which no object can be created.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the graph takes over references of the caller.
const MOVE: u32 = 1;

/// A call changes at least one reference.
fn check_count(count: u32) -> DriverResult {
    valid(count > 0)
}

pub unsafe fn cuUserObjectCreate(
    out: *mut CUuserObject,
    data: *mut c_void,
    destroy: Option<CUhostFn>,
    references: u32,
    flags: u32,
) -> DriverResult {
    let function = destroy.ok_or(CUresult::INVALID_VALUE)?;
    valid(!out.is_null() && flags == NO_DESTRUCTOR_SYNC)?;
    check_count(references)?;
    let mut state = lock();
    let id = state.ids.next(Kind::UserObject);
    let object = UserObject {
        destroy: HostFunction { function, data },
        references: references.into(),
    };
    state.graphs.objects.insert(id, object);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUuserObject(handle::encode(Kind::UserObject, id))) }
}

pub unsafe fn cuUserObjectRetain(object: CUuserObject, count: u32) -> DriverResult {
    let mut state = lock();
    let id = state.user_object(object)?;
    check_count(count)?;
    state.graphs.retain(id, count.into());
    Ok(())
}

pub unsafe fn cuUserObjectRelease(object: CUuserObject, count: u32) -> DriverResult {
    let mut state = lock();
    let id = state.user_object(object)?;
    check_count(count)?;
    let destroyed = state.graphs.release(id, count.into());
    state.destroyed_objects.extend(destroyed);
    Ok(())
}

pub unsafe fn cuGraphRetainUserObject(
    graph: CUgraph,
    object: CUuserObject,
    count: u32,
    flags: u32,
) -> DriverResult {
    let mut state = lock();
    let graph = state.graph(graph)?;
    let id = state.user_object(object)?;
    check_count(count)?;
    valid(flags & !MOVE == 0)?;
    let data = state.graphs.graphs.get_mut(&graph);
    let held = data.ok_or(CUresult::INVALID_VALUE)?.objects.entry(id);
    let held = held.or_default();
    *held = held.checked_add(count).ok_or(CUresult::INVALID_VALUE)?;
    if flags & MOVE == 0 {
        state.graphs.retain(id, count.into());
    }
    Ok(())
}

/// Like a real driver, ignores a release of more references than the graph holds.
pub unsafe fn cuGraphReleaseUserObject(
    graph: CUgraph,
    object: CUuserObject,
    count: u32,
) -> DriverResult {
    let mut state = lock();
    let graph = state.graph(graph)?;
    let id = state.user_object(object)?;
    check_count(count)?;
    let data = state.graphs.graphs.get_mut(&graph);
    let held = data.and_then(|graph| graph.objects.get_mut(&id));
    let Some(held) = held.filter(|held| **held >= count) else {
        return Ok(());
    };
    *held -= count;
    let destroyed = state.graphs.release(id, count.into());
    state.destroyed_objects.extend(destroyed);
    Ok(())
}
