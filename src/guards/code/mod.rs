//! Device code: modules, their kernels and variables, the driver's compiler and linker, launch configurations.

#[cfg(feature = "nvrtc")]
mod cuda_source;
mod dim3;
mod function;
mod function_attributes;
mod function_info;
mod global;
mod jit;
mod launch_config;
mod linker;
mod module;
mod module_builder;
mod occupancy;

pub use dim3::Dim3;
pub use function::Function;
pub use function_attributes::FunctionAttributes;
pub use global::Global;
pub use launch_config::{LaunchConfig, SuggestedBlock};
pub use linker::{LinkedImage, Linker};
pub use module::Module;
pub use module_builder::ModuleBuilder;
