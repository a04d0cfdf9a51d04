//! A device for tests: memory in vectors, and launches with arguments of any type.

pub mod corpus;
pub mod instruction;

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_ptx::{Host, Launch, LaunchError, Memory, Module, Region, Statistics};

/// Memory that nothing moves or frees before the device is dropped.
#[derive(Debug, Default)]
pub struct Device {
    allocations: Mutex<BTreeMap<u64, Allocation>>,
    /// What kernels printed.
    pub printed: Mutex<String>,
    clock: AtomicU64,
}

#[derive(Debug)]
struct Allocation {
    // Words of 16 bytes, for the alignment.
    words: Box<[u128]>,
    len: u64,
    is_freed: bool,
}

/// Where the first allocation is.
const START: u64 = 0x7_0000_0000;

impl Device {
    /// A device without allocations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates zeroed memory. Between allocations is a gap.
    pub fn allocate_bytes(&self, len: usize) -> u64 {
        let len = len.max(1);
        let words = vec![0; len.div_ceil(16)].into_boxed_slice();
        let mut all = self.allocations.lock().unwrap();
        let last = all.last_key_value();
        let end = last.map_or(START, |(start, own)| {
            (start + own.len + 4096).next_multiple_of(512)
        });
        let len = len as u64;
        all.insert(
            end,
            Allocation {
                words,
                len,
                is_freed: false,
            },
        );
        end
    }

    /// Copies values to new memory.
    pub fn upload<T: Plain>(&self, values: &[T]) -> u64 {
        let address = self.allocate_bytes(size_of_val(values));
        self.write(address, values);
        address
    }

    /// Copies values to memory.
    pub fn write<T: Plain>(&self, address: u64, values: &[T]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        let to = self.host(address, bytes.len());
        // SAFETY: `host` checks the bounds; no kernel runs.
        unsafe { to.as_ptr().copy_from(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies `count` values from memory.
    pub fn read<T: Plain>(&self, address: u64, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * size_of::<T>()];
        let from = self.host(address, bytes.len());
        // SAFETY: as in `write`.
        unsafe { bytes.as_mut_ptr().copy_from(from.as_ptr(), bytes.len()) };
        bytes.chunks(size_of::<T>()).map(T::of).collect()
    }

    fn host(&self, address: u64, len: usize) -> NonNull<u8> {
        let region = self.lookup(address).expect("an allocation");
        let (start, size, host) = region;
        assert!(
            address - start + len as u64 <= size,
            "within the allocation"
        );
        // SAFETY: within the allocation.
        unsafe { host.add((address - start) as usize) }
    }

    fn lookup(&self, address: u64) -> Option<(u64, u64, NonNull<u8>)> {
        let mut all = self.allocations.lock().unwrap();
        let (start, own) = all.range_mut(..=address).next_back()?;
        let host = NonNull::new(own.words.as_mut_ptr().cast())?;
        (address - start < own.len && !own.is_freed).then_some((*start, own.len, host))
    }

    /// The variables of a module, with their initial values.
    pub fn load(&self, module: &Module) -> Vec<u64> {
        let sizes = module
            .variables()
            .map(|own| self.allocate_bytes(own.size as usize));
        let addresses: Vec<u64> = sizes.collect();
        for (index, address) in addresses.iter().enumerate() {
            self.write(*address, &module.initial_value(index, &addresses));
        }
        addresses
    }

    /// Loads a module and launches a kernel of it on one thread.
    pub fn launch(
        &self,
        text: &str,
        kernel: &str,
        grid: u32,
        block: u32,
        arguments: &[Argument],
    ) -> Result<Statistics, LaunchError> {
        let module = Module::new(text).unwrap_or_else(|errors| panic!("{errors}"));
        self.run(&module, &launch(kernel, grid, block), arguments)
    }

    /// Launches a kernel. The arguments and variables of `launch` are replaced.
    pub fn run(
        &self,
        module: &Module,
        launch: &Launch<'_>,
        arguments: &[Argument],
    ) -> Result<Statistics, LaunchError> {
        let variables = self.load(module);
        let mut bytes = Vec::new();
        for argument in arguments {
            let own = argument.bytes();
            bytes.resize(bytes.len().next_multiple_of(own.len()), 0);
            bytes.extend(own);
        }
        let launch = Launch {
            arguments: &bytes,
            variables: &variables,
            ..launch.clone()
        };
        module.launch(&launch, self, self)
    }
}

/// A launch on one thread.
pub fn launch(kernel: &str, grid: u32, block: u32) -> Launch<'_> {
    Launch {
        kernel,
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        cluster: [1; 3],
        dynamic_shared: 0,
        arguments: &[],
        variables: &[],
        workspace: 0,
        order: cuguard_ptx::Order::Sequential,
        workers: 1,
        max_steps: u64::MAX,
        cancel: None,
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    U32(u32),
    U64(u64),
    F32(f32),
}

impl Argument {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::U32(value) => value.to_le_bytes().into(),
            Self::U64(value) => value.to_le_bytes().into(),
            Self::F32(value) => value.to_le_bytes().into(),
        }
    }
}

/// A number.
pub trait Plain: Copy {
    fn bytes(self) -> Vec<u8>;
    fn of(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($type:ty)*) => { $(
        impl Plain for $type {
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().into()
            }
            fn of(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    )* };
}

plain! { u8 i8 u16 i16 u32 i32 u64 i64 u128 f32 f64 }

// SAFETY: allocations stay where they are until the device is dropped.
unsafe impl Memory for Device {
    fn find(&self, address: u64) -> Option<Region<'_>> {
        let (start, len, host) = self.lookup(address)?;
        // SAFETY: as above; only kernels use the memory while one runs.
        Some(unsafe { Region::new(start, len, host) })
    }
}

impl Host for Device {
    fn print(&self, text: &str) {
        self.printed.lock().unwrap().push_str(text);
    }

    fn allocate(&self, bytes: u64) -> u64 {
        match bytes {
            0 => 0,
            bytes if bytes > 8 << 20 => 0,
            bytes => self.allocate_bytes(bytes as usize),
        }
    }

    fn free(&self, address: u64) -> bool {
        let mut all = self.allocations.lock().unwrap();
        match all.get_mut(&address) {
            Some(own) => !std::mem::replace(&mut own.is_freed, true),
            None => false,
        }
    }

    fn nanoseconds(&self) -> u64 {
        self.clock.fetch_add(1000, Ordering::Relaxed)
    }
}
