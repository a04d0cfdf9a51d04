//! The options of the functions that compile. Only those about logs have an effect: nothing is compiled.

use std::ffi::c_void;

use cuguard_sys::{CUjit_option, CUresult, jit_option};

use crate::code::ImageError;
use crate::result::{DriverResult, valid};

/// The architecture of the simulated device, in the numbers of `CUjit_target`.
const ARCHITECTURE: usize = 90;

/// Where the program wants the errors of the compiler.
#[derive(Debug)]
pub(super) struct JitLog {
    buffer: *mut u8,
    size: usize,
    /// The option value that becomes the length of the log.
    len: *mut *mut c_void,
    /// The architecture to compile for, if it is not the device's own.
    pub(super) target: Option<u32>,
}

/// Whether there is an architecture of this number.
pub(super) fn is_known(target: u32) -> bool {
    (30..=121).contains(&(target & 0xffff))
}

impl Default for JitLog {
    fn default() -> Self {
        Self {
            buffer: std::ptr::null_mut(),
            size: 0,
            len: std::ptr::null_mut(),
            target: None,
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
        let (mut info, mut info_size) = (std::ptr::null_mut::<u8>(), 0);
        for index in 0..count as usize {
            // SAFETY: as the caller guarantees.
            valid(unsafe { options.add(index).read() } < jit_option::NUM_OPTIONS)?;
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
                jit_option::INFO_LOG_BUFFER => info = value.cast(),
                // There is no information: the length becomes 0.
                jit_option::INFO_LOG_BUFFER_SIZE_BYTES | jit_option::WALL_TIME => {
                    if option == jit_option::INFO_LOG_BUFFER_SIZE_BYTES {
                        info_size = value.addr() as u32;
                    }
                    // SAFETY: as the caller guarantees.
                    unsafe { slot.write(std::ptr::null_mut()) };
                }
                jit_option::TARGET if value.addr() != ARCHITECTURE => {
                    log.target = Some(value.addr() as u32);
                }
                _ => {}
            }
        }
        if !info.is_null() && info_size > 0 {
            // SAFETY: the caller guarantees that the buffer has this size.
            unsafe { info.write(0) };
        }
        Ok(log)
    }

    /// The addresses of a log that is written later.
    pub(super) fn into_addresses(self) -> [usize; 3] {
        [
            self.buffer.expose_provenance(),
            self.size,
            self.len.expose_provenance(),
        ]
    }

    /// The log of which these are the addresses.
    ///
    /// # Safety
    ///
    /// They are from [`into_addresses`](Self::into_addresses), and the program's buffers are still valid.
    pub(super) unsafe fn from_addresses([buffer, size, len]: [usize; 3]) -> Self {
        Self {
            buffer: std::ptr::with_exposed_provenance_mut(buffer),
            size,
            len: std::ptr::with_exposed_provenance_mut(len),
            target: None,
        }
    }

    /// Fails unless code is compiled for the device's own architecture, as code that is loaded at once must be.
    pub(super) fn check_target(&self) -> DriverResult {
        match self.target {
            None => Ok(()),
            Some(target) if is_known(target) => Err(CUresult::INVALID_SOURCE),
            Some(_) => Err(CUresult::INVALID_IMAGE),
        }
    }

    /// Writes that there are no errors.
    pub(super) fn succeeded(&mut self) {
        self.write("");
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
            // A text that is too long fills the buffer, its NUL included.
            let len = text.len().min(self.size);
            // SAFETY: the option's value can be written to.
            unsafe { self.len.write(std::ptr::without_provenance_mut(len)) };
        }
    }
}
