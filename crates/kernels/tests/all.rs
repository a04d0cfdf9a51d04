//! The tests of this crate. Each module runs in a process of its own.

cuguard_testing::run_modules_apart!();
mod corpus;
mod replay;
