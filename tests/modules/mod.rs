//! Modules: code on the device, where there is a device that runs code.

mod kernels;
mod linking;
mod loading;
mod symbols;

const SAXPY: &str = include_str!("../../kernels/saxpy.ptx");

/// A module with a variable of four numbers, as the kernels of this repository have none.
const TABLE: &str = "
.version 6.4
.target sm_52
.address_size 64
.visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};
.visible .entry nothing() { ret; }
";
