//! Guards as types of `cust`, with the feature `cust`.
//!
//! What `cust`'s types need of the guards is here, but for the slice that [`DeviceBuffer`](crate::DeviceBuffer) stores and
//! [`DevicePointer`](crate::memory::DevicePointer), which is `cust`'s with the feature. Without it, everything else of the
//! crate stays the same.

mod device_slice;
mod error;
mod function;
mod launch_config;
mod stream;
