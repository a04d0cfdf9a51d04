//! Graphs as data: nodes and edges, instantiated graphs, captures of streams, user objects.
//!
//! Must not know memory, contexts and streams (other than their ids), the state's lock or the driver
//! functions.

mod capture;
mod exec;
mod nesting;
mod nodes;
mod params;
mod steps;
mod table;
mod user_object;

pub(crate) use capture::{Capture, CaptureTable, CapturedPosition};
pub(crate) use exec::{Exec, Mapping, Step, UpdateFailure};
pub(crate) use nodes::{Graph, Node};
pub(crate) use params::{AllocateParams, HostFunction, KernelParams, NodeParams};
pub(crate) use table::GraphTable;
pub(crate) use user_object::UserObject;
