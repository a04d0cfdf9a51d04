//! A context of a driver: modules, memory, launches. What fails is an error with the function's name.

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use cuguard_sys::*;

use crate::Driver;

/// The first device of a driver, with its primary context current on this thread.
#[derive(Debug)]
pub struct Device<'a> {
    driver: &'a Driver,
}

/// A loaded module. Unloaded when dropped.
#[derive(Debug)]
pub struct Loaded<'a> {
    device: &'a Device<'a>,
    module: CUmodule,
}

/// A kernel of a loaded module.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    device: &'a Device<'a>,
    function: CUfunction,
}

/// The extents of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks.
    pub blocks: [u32; 3],
    /// Threads of a block.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Whether the blocks can wait for each other.
    pub cooperative: bool,
}

impl<'a> Device<'a> {
    /// Starts the driver and makes the primary context of the first device current.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn new(driver: &'a Driver) -> Result<Self, String> {
        let device = Self { driver };
        let (mut first, mut context) = (0, CUcontext::NULL);
        // SAFETY: the pointers are those of local variables.
        unsafe {
            device.check("cuInit", (driver.cuInit)(0))?;
            device.check("cuDeviceGet", (driver.cuDeviceGet)(&mut first, 0))?;
            let retained = (driver.cuDevicePrimaryCtxRetain)(&mut context, first);
            device.check("cuDevicePrimaryCtxRetain", retained)?;
            device.check("cuCtxSetCurrent", (driver.cuCtxSetCurrent)(context))?;
        }
        Ok(device)
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = [0; 256];
        // SAFETY: the buffer has that many bytes.
        let result = unsafe { (self.driver.cuDeviceGetName)(name.as_mut_ptr(), 255, 0) };
        let end = name.iter().position(|own| *own == 0).unwrap_or(0);
        let bytes: Vec<u8> = name[..end].iter().map(|own| own.to_ne_bytes()[0]).collect();
        match self.check("cuDeviceGetName", result) {
            Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => error,
        }
    }

    fn check(&self, what: &str, result: CUresult) -> Result<(), String> {
        if result.is_success() {
            return Ok(());
        }
        Err(format!("{what} returned {result}"))
    }

    /// Loads PTX.
    ///
    /// # Errors
    ///
    /// What the driver returns, and its JIT log.
    pub fn load(&'a self, ptx: &str) -> Result<Loaded<'a>, String> {
        let text = CString::new(ptx).map_err(|error| error.to_string())?;
        let mut module = CUmodule::NULL;
        let mut log = vec![0u8; 16 << 10];
        let mut options = [
            jit_option::ERROR_LOG_BUFFER,
            jit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values = [
            log.as_mut_ptr().cast::<c_void>(),
            ptr::without_provenance_mut(log.len()),
        ];
        // SAFETY: the image ends with a zero, and each option has its value.
        let result = unsafe {
            let image = text.as_ptr().cast();
            (self.driver.cuModuleLoadDataEx)(
                &mut module,
                image,
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        self.check("cuModuleLoadDataEx", result).map_err(|error| {
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default();
            format!("{error}\n{}", log.to_string_lossy())
        })?;
        Ok(Loaded {
            device: self,
            module,
        })
    }

    /// Copies bytes to new memory.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn upload(&self, bytes: &[u8]) -> Result<u64, String> {
        let mut address = 0;
        // SAFETY: the pointer is that of a local variable.
        let result = unsafe { (self.driver.cuMemAlloc_v2)(&mut address, bytes.len().max(16)) };
        self.check("cuMemAlloc", result)?;
        self.write(address, bytes)?;
        Ok(address)
    }

    /// Copies bytes to memory that [`upload`](Self::upload) returned.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        // SAFETY: the bytes can be read; the driver checks the address.
        let result =
            unsafe { (self.driver.cuMemcpyHtoD_v2)(address, bytes.as_ptr().cast(), bytes.len()) };
        self.check("cuMemcpyHtoD", result)
    }

    /// Copies bytes from memory, after the kernels before.
    ///
    /// # Errors
    ///
    /// What the driver returns; also the failure of a kernel.
    pub fn read(&self, address: u64, count: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; count];
        // SAFETY: the bytes can be written; the driver checks the address.
        let result =
            unsafe { (self.driver.cuMemcpyDtoH_v2)(bytes.as_mut_ptr().cast(), address, count) };
        self.check("cuMemcpyDtoH", result)?;
        Ok(bytes)
    }

    /// Frees memory.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn free(&self, address: u64) -> Result<(), String> {
        // SAFETY: takes no pointers of the host.
        let result = unsafe { (self.driver.cuMemFree_v2)(address) };
        self.check("cuMemFree", result)
    }

    /// Waits for the kernels.
    ///
    /// # Errors
    ///
    /// The failure of a kernel.
    pub fn synchronize(&self) -> Result<(), String> {
        // SAFETY: takes no pointers.
        let result = unsafe { (self.driver.cuCtxSynchronize)() };
        self.check("cuCtxSynchronize", result)
    }
}

impl Loaded<'_> {
    /// A kernel by its name.
    ///
    /// # Errors
    ///
    /// There is none of this name.
    pub fn function(&self, name: &str) -> Result<Function<'_>, String> {
        let text = CString::new(name).map_err(|error| error.to_string())?;
        let mut function = CUfunction::NULL;
        // SAFETY: the name ends with a zero.
        let result = unsafe {
            (self.device.driver.cuModuleGetFunction)(&mut function, self.module, text.as_ptr())
        };
        self.device
            .check(&format!("cuModuleGetFunction({name})"), result)?;
        Ok(Function {
            device: self.device,
            function,
        })
    }
}

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        // A failure is that of a kernel before, which was reported.
        // SAFETY: the module is loaded.
        let _ = unsafe { (self.device.driver.cuModuleUnload)(self.module) };
    }
}

impl Function<'_> {
    /// Launches the kernel. Each argument is the bytes of its value.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    ///
    /// # Safety
    ///
    /// The arguments are those that the kernel takes, and on a real GPU the kernel accesses only memory that is its own.
    pub unsafe fn launch(&self, grid: &Grid, arguments: &mut [Vec<u8>]) -> Result<(), String> {
        let driver = self.device.driver;
        if grid.shared > 48 << 10 {
            let size = grid.shared as i32;
            // SAFETY: takes no pointers of the host.
            let result = unsafe {
                (driver.cuFuncSetAttribute)(
                    self.function,
                    function_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    size,
                )
            };
            self.device.check("cuFuncSetAttribute", result)?;
        }
        let mut list: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|own| own.as_mut_ptr().cast())
            .collect();
        let (list, stream) = (list.as_mut_ptr(), CUstream::NULL);
        let ([gx, gy, gz], [bx, by, bz]) = (grid.blocks, grid.threads);
        // SAFETY: as promised by the caller.
        let result = unsafe {
            match grid.cooperative {
                false => {
                    let extra = ptr::null_mut();
                    (driver.cuLaunchKernel)(
                        self.function,
                        gx,
                        gy,
                        gz,
                        bx,
                        by,
                        bz,
                        grid.shared,
                        stream,
                        list,
                        extra,
                    )
                }
                true => (driver.cuLaunchCooperativeKernel)(
                    self.function,
                    gx,
                    gy,
                    gz,
                    bx,
                    by,
                    bz,
                    grid.shared,
                    stream,
                    list,
                ),
            }
        };
        self.device.check("cuLaunchKernel", result)
    }
}
