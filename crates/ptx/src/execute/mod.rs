//! Executes decoded code: groups of lanes, warps, blocks, the grid.

mod barriers;
mod block;
mod calls;
mod cluster;
mod code;
mod communication;
mod control;
mod group;
mod launch;
mod warp;

pub(crate) use code::Code;
pub use launch::{LaunchError, Order, Statistics};
pub(crate) use launch::{Shape, launch};
