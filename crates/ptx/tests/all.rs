//! The tests of this crate. Each module runs in a process of its own.

cuguard_testing::run_modules_apart!();

mod bits;
mod calls;
mod common;
mod control;
mod conversions;
mod corpus;
mod floats;
mod halves;
mod integers;
mod kernels;
mod loading;
mod matrices;
mod memory;
mod mutations;
mod predicates;
mod waiting;
mod warps;
