//! Modules, libraries and their kernels.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::sync::Arc;

use cuguard_sys::CUresult;

use crate::code::{Image, Kernel, Variable};
use crate::handle::{self, Id};
use crate::result::DriverResult;

/// A module in a context.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: Id,
    pub(crate) image: Arc<Image>,
    /// One for each kernel of the image.
    pub(crate) functions: Vec<Id>,
    /// The addresses of the image's variables.
    pub(crate) variables: Vec<u64>,
    /// The library that it belongs to.
    pub(crate) library: Option<Id>,
}

/// What a program may set about a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The most dynamic shared memory of a launch, once the program has set it.
    pub(crate) dynamic_shared: Option<i32>,
    /// The share of shared memory in percent; −1 for the driver's choice.
    pub(crate) carveout: i32,
    /// The dimensions of clusters, whether they may be other than portable, and how they are scheduled.
    pub(crate) cluster: [i32; 3],
    pub(crate) non_portable_cluster: i32,
    pub(crate) cluster_scheduling: i32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dynamic_shared: None,
            carveout: -1,
            cluster: [0; 3],
            non_portable_cluster: 0,
            cluster_scheduling: 0,
        }
    }
}

/// A kernel of a module.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) module: Id,
    pub(crate) index: usize,
    pub(crate) settings: Settings,
}

/// What the launch functions of CUDA 2.0 use: it is set by calls before the launch.
#[derive(Clone, Debug)]
pub(crate) struct OldLaunch {
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    /// The arguments, as far as they are set.
    pub(crate) arguments: Vec<u8>,
    /// How many bytes of arguments a launch has.
    pub(crate) size: usize,
}

impl Default for OldLaunch {
    fn default() -> Self {
        Self {
            block: [1; 3],
            shared: 0,
            arguments: Vec::new(),
            size: 0,
        }
    }
}

/// Code that is loaded into each context that uses it.
#[derive(Debug)]
pub(crate) struct Library {
    /// The code, or why it cannot be loaded.
    pub(crate) image: DriverResult<Arc<Image>>,
    /// One for each kernel of the image.
    pub(crate) kernels: Vec<Id>,
    /// Context → the library's module there.
    pub(crate) modules: BTreeMap<Id, Id>,
}

/// A kernel of a library.
#[derive(Debug)]
pub(crate) struct LibraryKernel {
    pub(crate) library: Id,
    pub(crate) index: usize,
    /// By device.
    pub(crate) settings: BTreeMap<u32, Settings>,
}

/// Code that is being linked.
#[derive(Debug, Default)]
pub(crate) struct Linker {
    pub(crate) image: Image,
    /// For each kernel of the image, the name of the input that defines it.
    pub(crate) inputs: Vec<String>,
    /// An error that a real driver returns for everything that follows.
    pub(crate) failed: Option<CUresult>,
    /// The architecture to link for, if it is not the device's own.
    pub(crate) target: Option<u32>,
    /// The linked file, once it is complete.
    pub(crate) output: Option<Vec<u8>>,
    /// The addresses of the program's buffer, its size and where its length is written.
    pub(crate) log: [usize; 3],
}

/// All code that the program has loaded.
#[derive(Debug, Default)]
pub(crate) struct LoadedCode {
    pub(crate) modules: HashMap<Id, Module>,
    pub(crate) functions: HashMap<Id, Function>,
    /// By function, once one of these settings is made.
    pub(crate) old_launches: HashMap<Id, OldLaunch>,
    pub(crate) libraries: HashMap<Id, Library>,
    pub(crate) kernels: HashMap<Id, LibraryKernel>,
    pub(crate) linkers: HashMap<Id, Linker>,
}

/// A function with all that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionInfo<'a> {
    pub(crate) module_id: Id,
    pub(crate) module: &'a Module,
    /// The number of the kernel in the image.
    pub(crate) index: usize,
    pub(crate) kernel: &'a Kernel,
    pub(crate) settings: Settings,
}

impl LoadedCode {
    pub(crate) fn function(&self, id: Id) -> DriverResult<FunctionInfo<'_>> {
        let invalid = CUresult::INVALID_HANDLE;
        let function = self.functions.get(&id).ok_or(invalid)?;
        let module = self.modules.get(&function.module).ok_or(invalid)?;
        let kernel = module.image.kernels.get(function.index).ok_or(invalid)?;
        let shared = self.kernel_of(id).and_then(|kernel| {
            let device = handle::device_of_context(module.context);
            self.kernels.get(&kernel)?.settings.get(&device)
        });
        Ok(FunctionInfo {
            module_id: function.module,
            module,
            index: function.index,
            kernel,
            settings: *shared.unwrap_or(&function.settings),
        })
    }

    /// The library's kernel that a function is in one context.
    fn kernel_of(&self, function: Id) -> Option<Id> {
        let function = self.functions.get(&function)?;
        let library = self.modules.get(&function.module)?.library?;
        let library = self.libraries.get(&library)?;
        library.kernels.get(function.index).copied()
    }

    /// Changes a function, and with it the kernel of the library that it is of.
    pub(crate) fn set_settings(&mut self, function: Id, settings: Settings) {
        let context = self.function(function).map(|own| own.module.context);
        match (self.kernel_of(function), context) {
            (Some(kernel), Ok(context)) => {
                self.set_kernel_settings(kernel, handle::device_of_context(context), settings);
            }
            _ => {
                if let Some(own) = self.functions.get_mut(&function) {
                    own.settings = settings;
                }
            }
        }
    }

    /// Changes a library's kernel on a device.
    pub(crate) fn set_kernel_settings(&mut self, kernel: Id, device: u32, settings: Settings) {
        if let Some(own) = self.kernels.get_mut(&kernel) {
            own.settings.insert(device, settings);
        }
    }

    /// The library and the code of a kernel.
    pub(crate) fn kernel(&self, id: Id) -> DriverResult<(&LibraryKernel, &Library, &Kernel)> {
        let invalid = CUresult::INVALID_HANDLE;
        let own = self.kernels.get(&id).ok_or(invalid)?;
        let library = self.libraries.get(&own.library).ok_or(invalid)?;
        let image = library.image.as_deref().map_err(|code| *code)?;
        let kernel = image.kernels.get(own.index).ok_or(invalid)?;
        Ok((own, library, kernel))
    }
}

impl Module {
    /// The function of this name.
    pub(crate) fn find_function(&self, name: &CStr) -> Option<Id> {
        let kernels = &self.image.kernels;
        let index = kernels.iter().position(|kernel| *kernel.name == *name)?;
        self.functions.get(index).copied()
    }

    /// Whether the variable of this name is in managed memory.
    pub(crate) fn is_managed(&self, name: &CStr) -> bool {
        let mut variables = self.image.variables.iter();
        variables.any(|variable| variable.is_managed && variable.name.as_bytes() == name.to_bytes())
    }

    /// The address and size of the variable of this name.
    pub(crate) fn find_variable(&self, name: &CStr) -> Option<(u64, usize)> {
        let is_it = |variable: &Variable| variable.name.as_bytes() == name.to_bytes();
        let index = self.image.variables.iter().position(is_it)?;
        let size = self.image.variables.get(index)?.size;
        Some((*self.variables.get(index)?, size))
    }
}
