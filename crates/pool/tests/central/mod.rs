//! The engine of the pool against a model of a GPU's virtual memory.

mod fake;
mod fragmentation;
mod leftovers;
mod locks;
mod model;
mod order;
mod pins;
mod random;
mod refusals;
mod resize;
mod reuse;
