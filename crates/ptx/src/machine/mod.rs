//! The state that instructions work on: registers, memory, identity of threads.

mod access;
mod access_full;
mod address;
mod fault;
mod fused;
mod grid;
mod lanes;
mod local;
mod operand;
pub(crate) mod region;
mod registers;
mod shared;
mod special;
mod value;
mod warp;

pub(crate) use access::{SHARED_RANK_SHIFT, in_space};
pub(crate) use address::{Address, LOCAL_WINDOW, PARAM_WINDOW, Place, SHARED_WINDOW, place_of};
pub use fault::FaultKind;
pub(crate) use fault::{Fault, Stop};
pub(crate) use fused::fused_multiply_add;
pub(crate) use grid::{BlockId, Grid, function_address, function_at};
pub use grid::{Host, Memory};
pub(crate) use lanes::{LANES, Lanes, lanes};
pub(crate) use local::{Local, MAX_LOCAL};
pub(crate) use operand::{Destination, Predicate, Source};
pub use region::Region;
pub(crate) use region::{Regions, Word};
pub(crate) use registers::{Base, Registers};
pub(crate) use shared::SharedMemory;
pub(crate) use value::{Row, Value};
pub(crate) use warp::{Cluster, Warp};
