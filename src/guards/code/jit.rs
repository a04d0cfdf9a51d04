//! The options and logs of the driver's compiler and linker.

use std::ffi::c_void;
use std::ptr;

use cuguard_driver::result;
use cuguard_driver::sys::{CUjit_option, jit_option};

use crate::core::{Entered, Failed};
use crate::error::{Error, Result};

/// The size of a log. The driver cuts a longer one.
const LOG: u32 = 16 << 10;

/// The highest optimization level.
const OPTIMIZATION: u32 = 4;

/// What a [`ModuleBuilder`](super::ModuleBuilder) or a [`Linker`](super::Linker) sets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JitOptions {
    pub(super) max_registers: Option<u32>,
    pub(super) optimization: Option<u32>,
    pub(super) target: Option<(u32, u32)>,
    pub(super) line_info: bool,
    pub(super) debug_info: bool,
    pub(super) info_log: bool,
}

impl JitOptions {
    /// Fails for values that no driver accepts.
    pub(super) fn check(&self, operation: &'static str) -> Result<()> {
        match self.optimization {
            Some(level) if level > OPTIMIZATION => Err(Error::OutsideLimits {
                operation,
                subject: String::new(),
                what: "the optimization level",
                value: level.into(),
                least: 0,
                most: OPTIMIZATION.into(),
            }),
            _ => Ok(()),
        }
    }
}

/// The options and the logs of one call, or of a linker as long as it lives: the driver keeps the addresses.
pub(super) struct JitCall {
    options: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
    error: Vec<u8>,
    info: Vec<u8>,
}

impl JitCall {
    pub(super) fn new(set: &JitOptions) -> Self {
        let mut call = Self {
            options: Vec::new(),
            values: Vec::new(),
            error: vec![0; LOG as usize],
            info: vec![0; if set.info_log { LOG as usize } else { 0 }],
        };
        let error = call.error.as_mut_ptr().cast();
        call.set(jit_option::ERROR_LOG_BUFFER, error);
        call.set_number(jit_option::ERROR_LOG_BUFFER_SIZE_BYTES, LOG);
        if set.info_log {
            let info = call.info.as_mut_ptr().cast();
            call.set(jit_option::INFO_LOG_BUFFER, info);
            call.set_number(jit_option::INFO_LOG_BUFFER_SIZE_BYTES, LOG);
            call.set_number(jit_option::LOG_VERBOSE, 1);
        }
        if let Some(registers) = set.max_registers {
            call.set_number(jit_option::MAX_REGISTERS, registers);
        }
        if let Some(level) = set.optimization {
            call.set_number(jit_option::OPTIMIZATION_LEVEL, level);
        }
        if let Some((major, minor)) = set.target {
            // The numbers of `CUjit_target`.
            let target = major.saturating_mul(10).saturating_add(minor);
            call.set_number(jit_option::TARGET, target);
        }
        if set.line_info {
            call.set_number(jit_option::GENERATE_LINE_INFO, 1);
        }
        if set.debug_info {
            call.set_number(jit_option::GENERATE_DEBUG_INFO, 1);
        }
        call
    }

    fn set(&mut self, option: CUjit_option, value: *mut c_void) {
        self.options.push(option);
        self.values.push(value);
    }

    /// Numbers are passed as pointers, of which the driver reads 32 bits.
    fn set_number(&mut self, option: CUjit_option, value: u32) {
        self.set(option, ptr::without_provenance_mut(value as usize));
    }

    /// The options and their values. They stay where they are until this is dropped.
    pub(super) fn options(&mut self) -> (&mut [CUjit_option], &mut [*mut c_void]) {
        (&mut self.options, &mut self.values)
    }

    /// The compiler's information, if it was requested.
    pub(super) fn info_log(&self) -> Option<String> {
        (!self.info.is_empty()).then(|| text(&self.info))
    }

    /// Converts the error of a call that compiles, with the compiler's log.
    pub(super) fn check<T>(
        &self,
        entered: &Entered<'_>,
        result: result::Result<T>,
    ) -> Result<T, Failed> {
        let log = text(&self.error);
        if log.is_empty() {
            return Failed::check(entered, result);
        }
        // Even if the code is out-of-memory: the compiler runs on the host, and its log has the cause.
        match entered.check(result) {
            Err(Error::Driver(error)) => Err(Error::Compile { error, log }.into()),
            result => Ok(result?),
        }
    }
}

/// The text before the first NUL.
fn text(log: &[u8]) -> String {
    let log = log.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(log).trim().to_owned()
}
