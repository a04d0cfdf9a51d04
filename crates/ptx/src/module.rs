//! A module: loaded from text, launched from kernels.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicBool;

use crate::error::LoadErrors;
use crate::execute::{Code, LaunchError, Order, Shape, Statistics, launch};
use crate::machine::{Grid, Host, LOCAL_WINDOW, Memory, SHARED_WINDOW, function_address};
use crate::program::{Place, Program, Symbol, resolve};
use crate::text::parse;
use crate::text::syntax::Linkage;
use crate::types::Space;

/// A module that is parsed, checked and decoded. It has no addresses yet: several contexts can use the same.
pub struct Module {
    program: Program,
    code: Code,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// A variable that the driver allocates.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Variable<'a> {
    /// The name.
    pub name: &'a str,
    /// The bytes.
    pub size: u64,
    /// The alignment in bytes.
    pub align: u64,
    /// Whether it is in constant memory.
    pub is_constant: bool,
    /// Whether other modules and the host see it.
    pub is_visible: bool,
    /// Whether it is in managed memory.
    pub is_managed: bool,
}

/// A kernel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Kernel<'a> {
    /// The name.
    pub name: &'a str,
    /// Offset and size of each parameter in the arguments.
    pub parameters: Vec<(usize, usize)>,
    /// Bytes of static shared memory.
    pub static_shared: u32,
    /// Bytes of local memory of a thread, without what it calls.
    pub local: u32,
    /// `.reqntid`
    pub required_threads: Option<[u32; 3]>,
    /// `.maxntid`
    pub max_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`
    pub required_cluster: Option<[u32; 3]>,
}

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The kernel's name.
    pub kernel: &'a str,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster; `[1; 3]` without clusters.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The arguments, at the offsets of the parameters.
    pub arguments: &'a [u8],
    /// The addresses of the module's variables, in the order of [`Module::variables`].
    pub variables: &'a [u64],
    /// For a cooperative launch, the address of 16 bytes of device memory that are zero: the barrier of the grid, as
    /// `cooperative_groups` expects it. Else 0.
    pub workspace: u64,
    /// The order of blocks and warps.
    pub order: Order,
    /// Threads of the host that execute it; 0 for all processors. See [`Order::Sequential`] for when it is one.
    pub workers: usize,
    /// Instructions that a warp may execute before the launch fails.
    pub max_steps: u64,
    /// Another thread may set it to end the launch soon, with [`FaultKind::Cancelled`](crate::FaultKind::Cancelled).
    pub cancel: Option<&'a AtomicBool>,
}

impl Module {
    /// Loads PTX.
    ///
    /// # Errors
    ///
    /// Syntax errors, and each instruction that is not supported, with its line.
    pub fn new(text: &str) -> Result<Self, LoadErrors> {
        let program = resolve(&parse(text)?)?;
        let code = Code::new(&program)?;
        Ok(Self { program, code })
    }

    /// The variables in global and constant memory.
    pub fn variables(&self) -> impl ExactSizeIterator<Item = Variable<'_>> {
        self.program.variables.iter().map(|own| Variable {
            name: &own.name,
            size: own.size,
            align: own.align,
            is_constant: own.space == Space::Const,
            is_visible: own.linkage != Linkage::Internal,
            is_managed: own.is_managed,
        })
    }

    /// The initial value of a variable, given the addresses of all. Its rest is zero.
    ///
    /// # Panics
    ///
    /// If there is no such variable, or `addresses` are not as many as the variables.
    pub fn initial_value(&self, variable: usize, addresses: &[u64]) -> Vec<u8> {
        assert_eq!(
            addresses.len(),
            self.program.variables.len(),
            "an address per variable"
        );
        let own = &self.program.variables[variable];
        let mut bytes = own.initial.clone();
        for relocation in &own.relocations {
            let address = match relocation.symbol {
                Symbol::Variable(index) => addresses[index],
                Symbol::Function(index) => function_address(index),
                Symbol::Shared(_) => SHARED_WINDOW,
                Symbol::Frame(..) | Symbol::Argument(_) => LOCAL_WINDOW,
            };
            let value = address.wrapping_add_signed(relocation.addend) >> relocation.shift;
            let to = bytes.get_mut(relocation.at..relocation.at + relocation.len);
            if let Some(to) = to {
                let value = u128::from(value).to_le_bytes();
                to.copy_from_slice(&value[..relocation.len]);
            }
        }
        bytes
    }

    /// The kernels.
    pub fn kernels(&self) -> impl Iterator<Item = Kernel<'_>> {
        let kernels = self.program.functions.iter().enumerate();
        let kernels = kernels.filter(|(_, own)| own.is_entry && own.body.is_some());
        kernels.map(|(index, own)| Kernel {
            name: &own.name,
            parameters: own
                .params
                .iter()
                .map(|own| (offset(own.place), own.size as usize))
                .collect(),
            static_shared: self.shared_layout(index).1,
            local: own.frame,
            required_threads: own.tuning.required_threads,
            max_threads: own.tuning.max_threads,
            required_cluster: own.tuning.required_cluster,
        })
    }

    /// The functions that a kernel may call, and itself.
    fn reachable(&self, kernel: usize) -> BTreeSet<usize> {
        let mut functions = BTreeSet::new();
        let mut open = vec![kernel];
        while let Some(index) = open.pop() {
            if functions.insert(index) {
                let own = &self.program.functions[index];
                open.extend(&own.uses_functions);
                if own.calls_pointers {
                    open.extend(&self.program.in_variables);
                }
            }
        }
        functions
    }

    /// The offsets of the shared variables that a kernel and what it calls use, and the bytes of those that are not
    /// dynamic.
    fn shared_layout(&self, kernel: usize) -> (Vec<Option<u32>>, u32) {
        let (program, functions) = (&self.program, self.reachable(kernel));
        let used: BTreeSet<usize> = functions
            .iter()
            .flat_map(|own| &program.functions[*own].uses_shared)
            .copied()
            .collect();
        let mut offsets = vec![None; program.shared.len()];
        let mut end = 0u32;
        for index in &used {
            let own = &program.shared[*index];
            if !own.is_dynamic {
                let start = end.checked_next_multiple_of(own.align).unwrap_or(u32::MAX);
                offsets[*index] = Some(start);
                end = start.saturating_add(own.size);
            }
        }
        // All dynamic variables begin at the same place.
        let dynamic = used.iter().filter(|own| program.shared[**own].is_dynamic);
        let align = dynamic.clone().map(|own| program.shared[*own].align).max();
        if let Some(align) = align {
            end = end.checked_next_multiple_of(align).unwrap_or(u32::MAX);
        }
        for index in dynamic {
            offsets[*index] = Some(end);
        }
        (offsets, end)
    }

    /// Executes a kernel, and returns when all threads have ended.
    ///
    /// # Errors
    ///
    /// A fault of a thread. The others stop where they are.
    ///
    /// # Panics
    ///
    /// If there is no such kernel, an extent is zero or not a multiple of the cluster's, or the addresses of the
    /// variables are not as many as these.
    pub fn launch(
        &self,
        of: &Launch<'_>,
        memory: &dyn Memory,
        host: &dyn Host,
    ) -> Result<Statistics, LaunchError> {
        let mut functions = self.program.functions.iter();
        let kernel = functions.position(|own| own.is_entry && own.name == of.kernel);
        let kernel = kernel.expect("the module has the kernel");
        let extents = [of.grid, of.block, of.cluster];
        assert!(
            extents.iter().flatten().all(|own| *own > 0),
            "extents are not zero"
        );
        let fits = (0..3).all(|axis| of.grid[axis].is_multiple_of(of.cluster[axis]));
        assert!(fits, "a grid consists of whole clusters");
        assert_eq!(
            of.variables.len(),
            self.program.variables.len(),
            "an address per variable"
        );
        let (shared, static_shared) = self.shared_layout(kernel);
        let tuning = &self.program.functions[kernel].tuning;
        let grid = Grid {
            memory,
            host,
            blocks: of.grid,
            threads: of.block,
            cluster: of.cluster,
            is_explicit_cluster: of.cluster != [1; 3] || tuning.explicit_cluster,
            arguments: of.arguments,
            variables: of.variables,
            shared,
            static_shared,
            dynamic_shared: of.dynamic_shared,
            grid_id: 1,
            workspace: of.workspace,
        };
        let communicates = self
            .reachable(kernel)
            .into_iter()
            .any(|own| self.code.communicates(own));
        let available = || std::thread::available_parallelism().map_or(1, |own| own.get());
        let shape = Shape {
            kernel,
            order: of.order,
            workers: match of.workers {
                _ if communicates && of.order == Order::Sequential => 1,
                0 => available(),
                workers => workers,
            },
            limit: of.max_steps,
            cancel: of.cancel,
        };
        launch(&self.code, &grid, shape).map_err(|failed| {
            let named = |(file, line)| Some((self.program.files.get(&file)?.clone(), line));
            LaunchError {
                kind: failed.kind,
                kernel: of.kernel.to_owned(),
                block: failed.block,
                thread: failed.thread,
                line: failed.line,
                source: failed.location.and_then(named),
            }
        })
    }
}

fn offset(place: Place) -> usize {
    match place {
        Place::Frame(offset) => offset as usize,
        Place::Register(_) => 0,
    }
}
