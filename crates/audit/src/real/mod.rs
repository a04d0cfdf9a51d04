//! The driver's own functions, behind the wrappers.
//!
//! This module finds the driver among the loaded libraries, by their dynamic symbol tables: no lookup here changes the
//! state of `dlerror`, takes the dynamic linker's lock for loading, or finds the wrappers of this library. It loads
//! nothing: a program gets a wrapper only where it has the driver.
//!
//! Must not know what is recorded.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "unit tests do not export functions in front of the driver's"
    )
)]

mod driver;
mod elf;
mod keep;
mod linker;
pub(crate) mod queries;
mod simulation;

pub(crate) use driver::{Driver, attach, driver, open_driver};
pub(crate) use elf::{Module, find_module};
pub(crate) use keep::keep_soon;
pub(crate) use linker::{call_dlsym, dlsym};
pub(crate) use simulation::{expect_simulation, other_driver};
