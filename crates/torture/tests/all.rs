//! The tests of this crate. Each module runs in a process of its own.

cuguard_testing::run_modules_apart!("random_programs");

mod peers;
mod pool;
mod pools;
mod random_programs;
mod replay;
mod seeds;
mod support;
mod threads;
