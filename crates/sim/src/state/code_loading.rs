//! Loading and unloading modules and libraries.

use std::collections::BTreeMap;
use std::sync::Arc;

use cuguard_sys::CUresult;

use super::driver_state::DriverState;
use super::loaded_code::{Function, Library, LibraryKernel, Module, Settings};
use crate::code::{Image, Variable};
use crate::fault;
use crate::handle::{Id, Kind};
use crate::memory::{MemoryBlock, MemoryKind, MemoryRange};
use crate::result::DriverResult;

impl DriverState {
    /// Loads an image into a context. Its variables use device memory.
    pub(crate) fn add_module(
        &mut self,
        context: Id,
        image: Arc<Image>,
        library: Option<Id>,
    ) -> DriverResult<Id> {
        let mut variables = Vec::new();
        for variable in &image.variables {
            match self.add_variable(context, variable) {
                Ok(base) => variables.push(base),
                Err(code) => {
                    self.free_variables(&variables);
                    return Err(code);
                }
            }
        }
        self.set_values(&image, &variables);
        let id = self.ids.next(Kind::Module);
        let mut functions = Vec::new();
        for index in 0..image.kernels.len() {
            let function = self.ids.next(Kind::Function);
            functions.push(function);
            let settings = Settings::default();
            let own = Function {
                module: id,
                index,
                settings,
            };
            self.code.functions.insert(function, own);
        }
        let module = Module {
            context,
            image,
            functions,
            variables,
            library,
        };
        self.code.modules.insert(id, module);
        Ok(id)
    }

    /// Sets the variables of a program, whose values may be addresses of others.
    fn set_values(&self, image: &Image, variables: &[u64]) {
        let Some(program) = &image.program else {
            return;
        };
        for (index, base) in variables.iter().enumerate() {
            let value = program.initial_value(index, variables);
            if let Some(range) = self.map.at(*base).filter(|_| !value.is_empty()) {
                // SAFETY: new memory, whose address the program does not have yet.
                unsafe { range.block.set(&value) };
            }
        }
    }

    fn add_variable(&mut self, context: Id, variable: &Variable) -> DriverResult<u64> {
        // So that each has an address of its own.
        let bytes = variable.size.max(1);
        let size = bytes as u64;
        fault::on_allocation(size)?;
        let device = self.device_of(context);
        if variable.is_managed {
            let block = MemoryBlock::allocate_pages_with(bytes, &variable.value);
            let block = block.ok_or(CUresult::OUT_OF_MEMORY)?;
            let base = block.start().as_ptr() as u64;
            self.add_host_range(MemoryRange {
                context: Some(context),
                ..MemoryRange::new(base, size, MemoryKind::Managed, device, block)
            })?;
            return Ok(base);
        }
        let block = MemoryBlock::allocate_with(bytes, &variable.value);
        let block = block.ok_or(CUresult::OUT_OF_MEMORY)?;
        let base = self.allocate_device_memory(context, size)?;
        self.add_range(MemoryRange {
            context: Some(context),
            ..MemoryRange::new(base, size, MemoryKind::Variable, device, block)
        });
        Ok(base)
    }

    fn free_variables(&mut self, bases: &[u64]) {
        for base in bases {
            if let Some(range) = self.map.remove(*base) {
                self.expect_release(&range);
                self.release_range(range);
            }
        }
    }

    /// Unloads a module. No work may use its variables.
    pub(crate) fn remove_module(&mut self, id: Id) {
        if let Some(module) = self.forget_module(id) {
            self.free_variables(&module.variables);
        }
    }

    /// Removes a module and its functions, but not the memory of its variables.
    fn forget_module(&mut self, id: Id) -> Option<Module> {
        let module = self.code.modules.remove(&id)?;
        for function in &module.functions {
            self.code.functions.remove(function);
            self.code.old_launches.remove(function);
        }
        let library = module
            .library
            .and_then(|id| self.code.libraries.get_mut(&id));
        if let Some(library) = library {
            library.modules.remove(&module.context);
        }
        Some(module)
    }

    /// Forgets the modules of a context, whose memory is released with all of the context's.
    pub(super) fn forget_modules(&mut self, context: Id) {
        let modules = self.code.modules.iter();
        let ended = modules.filter(|(_, module)| module.context == context);
        for id in ended.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.forget_module(id);
        }
    }

    /// Adds a library.
    pub(crate) fn add_library(&mut self, image: DriverResult<Arc<Image>>) -> Id {
        let id = self.ids.next(Kind::Library);
        let mut kernels = Vec::new();
        for index in 0..image.as_ref().map_or(0, |image| image.kernels.len()) {
            let kernel = self.ids.next(Kind::Kernel);
            kernels.push(kernel);
            let own = LibraryKernel {
                library: id,
                index,
                settings: BTreeMap::new(),
            };
            self.code.kernels.insert(kernel, own);
        }
        let library = Library {
            image,
            kernels,
            modules: BTreeMap::new(),
        };
        self.code.libraries.insert(id, library);
        id
    }

    /// Unloads a library from all contexts.
    pub(crate) fn remove_library(&mut self, id: Id) {
        let Some(library) = self.code.libraries.remove(&id) else {
            return;
        };
        for module in library.modules.values() {
            self.remove_module(*module);
        }
        for kernel in &library.kernels {
            self.code.kernels.remove(kernel);
        }
    }

    /// The module of a library in a context, loaded at its first use.
    pub(crate) fn library_module(&mut self, library: Id, context: Id) -> DriverResult<Id> {
        let own = self.code.libraries.get(&library);
        let own = own.ok_or(CUresult::INVALID_HANDLE)?;
        if let Some(module) = own.modules.get(&context) {
            return Ok(*module);
        }
        let image = own.image.clone()?;
        let module = self.add_module(context, image, Some(library))?;
        if let Some(own) = self.code.libraries.get_mut(&library) {
            own.modules.insert(context, module);
        }
        Ok(module)
    }

    /// The function of a library's kernel in a context.
    pub(crate) fn kernel_function(&mut self, kernel: Id, context: Id) -> DriverResult<Id> {
        let (own, ..) = self.code.kernel(kernel)?;
        let (library, index) = (own.library, own.index);
        let module = self.library_module(library, context)?;
        let module = self.code.modules.get(&module);
        let function = module.and_then(|module| module.functions.get(index));
        function.copied().ok_or(CUresult::INVALID_HANDLE)
    }
}
