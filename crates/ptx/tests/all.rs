//! The tests of this crate. Each module runs in a process of its own.

cuguard_testing::run_modules_apart!();

mod algorithms;
mod bits;
mod calls;
mod common;
mod control;
mod conversions;
mod floats;
mod halves;
mod integers;
mod kernels;
mod language;
mod loading;
mod matrices;
mod memory;
mod mutations;
mod numbers;
mod predicates;
mod waiting;
mod warps;
