//! Definitions: what the numbers in events mean, each written once, before the first event with it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use super::file::{Chunk, ChunkFile, NoChunk};
use super::once::Once;
use crate::data::{Embedded, Module};
use crate::definition::Definition;
use crate::foreign;
use crate::options::{Definitions, StackDefinition};

#[derive(Debug, Default)]
struct Inner {
    chunk: Option<Chunk>,
    /// Modules that were loaded when they were listed last. All are written.
    modules: Vec<Module>,
    /// How often modules were loaded or unloaded until then.
    changes: u64,
    /// Libraries that can be unloaded and are written, by the number of their first byte.
    libraries: HashSet<u64>,
    /// Frames of interpreters that are written.
    foreign: HashSet<u64>,
    /// Names whose number is too large for a bit: threads without a name.
    names: HashSet<u32>,
    /// The addresses of all stacks, where their symbols are to be embedded.
    addresses: HashSet<u64>,
}

/// Writes definitions.
#[derive(Debug, Default)]
pub(super) struct Definer {
    inner: Mutex<Inner>,
    stacks: Once,
    names: Once,
    keep_addresses: bool,
}

impl Definer {
    pub(super) fn new(keep_addresses: bool) -> Self {
        Self {
            keep_addresses,
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        cuguard_sync::lock(&self.inner)
    }

    /// Writes the kinds, and the modules that are loaded now.
    pub(super) fn begin(&self, file: &ChunkFile, source: &dyn Definitions) -> Result<(), NoChunk> {
        let loaded = Loaded::now();
        let mut inner = self.lock();
        for (index, kind) in (0..=u8::MAX).zip(source.kinds()) {
            inner.write(file, &Definition::Kind { index, kind })?;
        }
        inner.set_modules(file, loaded)
    }

    /// Writes a call site, unless it is written.
    #[inline]
    pub(super) fn stack(
        &self,
        file: &ChunkFile,
        source: &dyn Definitions,
        id: u32,
    ) -> Result<(), NoChunk> {
        match id == 0 || self.stacks.has(id) {
            true => Ok(()),
            false => self.new_stack(file, source, id),
        }
    }

    #[cold]
    #[inline(never)]
    fn new_stack(
        &self,
        file: &ChunkFile,
        source: &dyn Definitions,
        id: u32,
    ) -> Result<(), NoChunk> {
        let StackDefinition {
            site,
            type_name,
            frames,
        } = source.stack(id).unwrap_or_default();
        let frames: Vec<u64> = frames.iter().map(|frame| *frame as u64).collect();
        // Looked up without the lock: other threads may hold locks of the interpreter or the dynamic linker, and wait
        // for this one.
        let foreign: Vec<Definition> = frames.iter().filter_map(|frame| foreign(*frame)).collect();
        let is_native = |frame: &&u64| {
            let same = |definition: &Definition| matches!(definition, Definition::Foreign { address, .. } if address == *frame);
            !foreign.iter().any(same)
        };
        let native: Vec<u64> = frames.iter().filter(is_native).copied().collect();
        let libraries: Vec<Module> = native.iter().filter_map(|frame| library(*frame)).collect();
        let loaded = match native.is_empty() {
            true => None,
            false => self.changed_modules(),
        };

        let mut inner = self.lock();
        if let Some(loaded) = loaded {
            inner.set_modules(file, loaded)?;
        }
        for library in libraries {
            if inner.libraries.insert(library.bias) {
                inner.write(file, &Definition::Module(library))?;
            }
        }
        if self.keep_addresses {
            inner.addresses.extend(&native);
        }
        for definition in foreign {
            if let Definition::Foreign { address, .. } = definition
                && inner.foreign.insert(address)
            {
                inner.write(file, &definition)?;
            }
        }
        let definition = Definition::Stack {
            id,
            site,
            type_name: type_name.to_owned(),
            frames,
        };
        inner.write(file, &definition)?;
        self.stacks.add(id);
        Ok(())
    }

    /// The modules, if they are not those that were listed last. A library may have replaced another at its addresses.
    fn changed_modules(&self) -> Option<Loaded> {
        let known = self.lock().changes;
        (cuguard_stack::module_changes() != known).then(Loaded::now)
    }

    /// Writes a name, unless it is written.
    #[inline]
    pub(super) fn name(
        &self,
        file: &ChunkFile,
        source: &dyn Definitions,
        id: u32,
    ) -> Result<(), NoChunk> {
        match id == 0 || self.names.has(id) {
            true => Ok(()),
            false => self.new_name(file, source, id),
        }
    }

    #[cold]
    #[inline(never)]
    fn new_name(&self, file: &ChunkFile, source: &dyn Definitions, id: u32) -> Result<(), NoChunk> {
        if self.lock().names.contains(&id) {
            return Ok(());
        }
        let text = source.name(id).unwrap_or_default();
        let mut inner = self.lock();
        inner.write(file, &Definition::Name { id, text })?;
        self.names.add(id);
        if !self.names.has(id) {
            inner.names.insert(id);
        }
        Ok(())
    }

    /// Writes what is known at the end.
    pub(super) fn write(&self, file: &ChunkFile, definition: &Definition) -> Result<(), NoChunk> {
        self.lock().write(file, definition)
    }

    /// Writes names of functions.
    pub(super) fn symbols(
        &self,
        file: &ChunkFile,
        symbols: impl Iterator<Item = Embedded>,
    ) -> Result<(), NoChunk> {
        // Collected first: resolving may allocate and record.
        let symbols: Vec<Embedded> = symbols.collect();
        let mut inner = self.lock();
        for symbol in symbols {
            inner.write(file, &Definition::Symbol(symbol))?;
        }
        Ok(())
    }

    /// The addresses of all stacks so far, in order, but those of modules that are no longer loaded.
    pub(super) fn addresses(&self) -> Vec<u64> {
        if let Some(loaded) = self.changed_modules() {
            self.lock().forget_unloaded(&loaded);
        }
        let mut addresses: Vec<u64> = self.lock().addresses.iter().copied().collect();
        addresses.sort_unstable();
        addresses
    }
}

impl Inner {
    fn write(&mut self, file: &ChunkFile, definition: &Definition) -> Result<(), NoChunk> {
        let record = definition.encode();
        if let Some(chunk) = &mut self.chunk
            && chunk.append(&record)
        {
            return Ok(());
        }
        let mut chunk = file.definitions()?;
        // A new chunk has room for the largest definition.
        chunk.append(&record);
        self.chunk = Some(chunk);
        Ok(())
    }

    /// Writes those that are new since the last list: also a library that was unloaded and is loaded again, because the last
    /// one at an address counts.
    fn set_modules(&mut self, file: &ChunkFile, loaded: Loaded) -> Result<(), NoChunk> {
        if loaded.changes < self.changes {
            // Another thread has listed them since.
            return Ok(());
        }
        self.forget_unloaded(&loaded);
        for module in &loaded.modules {
            if !self.modules.contains(module) {
                self.write(file, &Definition::Module(module.clone()))?;
            }
        }
        (self.modules, self.changes) = (loaded.modules, loaded.changes);
        Ok(())
    }

    /// Forgets addresses whose names can no longer be looked up.
    fn forget_unloaded(&mut self, loaded: &Loaded) {
        let unloaded = self.modules.iter();
        for module in unloaded.filter(|module| !loaded.modules.contains(module)) {
            let range = module.start..module.end;
            self.addresses.retain(|address| !range.contains(address));
        }
    }
}

/// The modules of the process at one time.
#[derive(Debug)]
struct Loaded {
    modules: Vec<Module>,
    changes: u64,
}

impl Loaded {
    fn now() -> Self {
        // Before the list: if they change meanwhile, they are listed again.
        let changes = cuguard_stack::module_changes();
        Self {
            modules: loaded_modules(),
            changes,
        }
    }
}

/// The frame of an interpreter that an address stands for.
fn foreign(address: u64) -> Option<Definition> {
    let (function, file, line) = foreign::resolve(address as usize)?;
    Some(Definition::Foreign {
        address,
        function,
        file,
        line,
    })
}

/// The library of a frame, if it can be unloaded. In a recording it is at the numbers that stand for its frames, where no other
/// module is, whatever was loaded at its addresses before or later.
fn library(frame: u64) -> Option<Module> {
    let (module, offset) = cuguard_stack::locate(frame as usize)?;
    let bias = frame - offset as u64;
    let moved = |address: usize| bias + module.offset(address) as u64;
    Some(Module {
        path: module.path.to_string_lossy().into_owned(),
        build_id: hexadecimal(&module.build_id),
        start: moved(module.range().start),
        end: moved(module.range().end),
        bias,
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A library that was loaded as `./libx.so` is looked for from another folder later.
fn absolute(path: &Path) -> Cow<'_, Path> {
    // The kernel's own library has a name and no file.
    let is_file = path.components().nth(1).is_some();
    match std::path::absolute(path) {
        Ok(absolute) if is_file => absolute.into(),
        _ => path.into(),
    }
}

/// Those that have frames with addresses.
fn loaded_modules() -> Vec<Module> {
    let modules = cuguard_stack::modules();
    modules
        .iter()
        .filter(|module| !cuguard_stack::is_unloadable(module))
        .map(|module| Module {
            path: absolute(&module.path).to_string_lossy().into_owned(),
            build_id: hexadecimal(&module.build_id),
            start: module.range().start as u64,
            end: module.range().end as u64,
            bias: module.offset(0).wrapping_neg() as u64,
        })
        .collect()
}
