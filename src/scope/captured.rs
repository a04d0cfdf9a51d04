//! The memory that a capture has bound and allocated: a part of the [end of its scope](super::end).

use std::ops::Range;
use std::sync::Mutex;

use cuguard_driver::sys::CUdeviceptr;

use crate::core::lock::lock;
use crate::guards::GraphRange;

/// What a capture in progress has bound and allocated.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(super) number: u64,
    /// Memory that nodes of the graph allocate, and that nodes before its end free: address and size.
    pub(super) scratch: Mutex<Vec<(CUdeviceptr, usize)>>,
    /// The size of all of it, once the capture has ended.
    pub(super) scratch_bytes: usize,
    /// What is borrowed here and below, is borrowed for longer than the capture lasts.
    pub(super) memory: Mutex<Vec<GraphRange<'static>>>,
    /// For a recapture: the memory of the executable.
    pub(super) reusable: Vec<GraphRange<'static>>,
    /// Of that, what this capture has bound.
    pub(super) reused: Mutex<Vec<(Range<CUdeviceptr>, bool)>>,
}

impl Capture {
    pub(super) fn new(number: u64, reusable: Vec<GraphRange<'static>>) -> Self {
        Self {
            number,
            scratch: Mutex::default(),
            scratch_bytes: 0,
            memory: Mutex::default(),
            reusable,
            reused: Mutex::default(),
        }
    }

    /// Records memory that the graph keeps borrowed.
    ///
    /// # Safety
    ///
    /// It is borrowed for longer than the capture lasts, and for as long as the graph exists.
    pub(crate) unsafe fn add_memory(&self, range: &GraphRange<'_>) {
        // SAFETY: as the caller ensures.
        lock(&self.memory).push(unsafe { range.for_capture() });
    }
}
