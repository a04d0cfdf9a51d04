//! The options of the functions that compile. Only those about the log have an effect: nothing is compiled.

use std::ffi::c_void;

use cuguard_sys::{CUjit_option, CUresult, jit_option};

use crate::code::ImageError;
use crate::result::{DriverResult, valid};

/// Where the program wants the errors of the compiler.
#[derive(Debug)]
pub(super) struct JitLog {
    buffer: *mut u8,
    size: usize,
    /// The option value that becomes the length of the log.
    len: *mut *mut c_void,
}

impl Default for JitLog {
    fn default() -> Self {
        Self {
            buffer: std::ptr::null_mut(),
            size: 0,
            len: std::ptr::null_mut(),
        }
    }
}

impl JitLog {
    /// Reads the options.
    ///
    /// # Safety
    ///
    /// There are `count` options and values, and the buffers among them have the sizes among them, until the log is
    /// written.
    pub(super) unsafe fn new(
        count: u32,
        options: *const CUjit_option,
        values: *mut *mut c_void,
    ) -> DriverResult<Self> {
        let mut log = Self::default();
        if count == 0 {
            return Ok(log);
        }
        valid(!options.is_null() && !values.is_null())?;
        for index in 0..count as usize {
            // SAFETY: as the caller guarantees.
            let (option, slot) = unsafe { (options.add(index).read(), values.add(index)) };
            // SAFETY: as the caller guarantees.
            let value = unsafe { slot.read() };
            match option {
                jit_option::ERROR_LOG_BUFFER => log.buffer = value.cast(),
                jit_option::ERROR_LOG_BUFFER_SIZE_BYTES => {
                    // The driver reads 32 bits of the value.
                    log.size = value.addr() as u32 as usize;
                    log.len = slot;
                }
                // Nothing to say.
                jit_option::INFO_LOG_BUFFER_SIZE_BYTES => {
                    // SAFETY: as the caller guarantees.
                    unsafe { slot.write(std::ptr::null_mut()) };
                }
                jit_option::WALL_TIME => {
                    // SAFETY: as the caller guarantees.
                    unsafe { slot.write(std::ptr::null_mut()) };
                }
                _ => {}
            }
        }
        Ok(log)
    }

    /// Writes the errors of the compiler, and returns the code.
    pub(super) fn failed(&mut self, error: &ImageError) -> CUresult {
        self.write(&error.log);
        error.code
    }

    fn write(&mut self, text: &str) {
        if self.buffer.is_null() || self.size == 0 {
            return;
        }
        let len = text.len().min(self.size - 1);
        // SAFETY: the program guarantees that the buffer has `size` bytes.
        unsafe {
            self.buffer.copy_from_nonoverlapping(text.as_ptr(), len);
            self.buffer.add(len).write(0);
        }
        if !self.len.is_null() {
            // SAFETY: the option's value can be written to.
            unsafe { self.len.write(std::ptr::without_provenance_mut(len)) };
        }
    }
}
