//! The preloaded library of `cuguard run`: records the CUDA resources of any program, unchanged.
//!
//! ```text
//!     program ──► intercept ──► calls ──► real driver
//!                                 │
//!                                 └──► state (registry) ──► search ──► report
//! ```
//!
//! No Rust crate links this library: the dynamic linker loads it, and its functions interpose those of the driver.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod cached;
mod calls;
mod cancel;
mod heap;
mod intercept;
mod lifecycle;
mod modules;
mod origin;
mod output;
mod process;
mod python;
mod real;
mod report;
mod search;
mod shortage;
mod state;
mod stderr;
mod thread_end;
mod turn;
