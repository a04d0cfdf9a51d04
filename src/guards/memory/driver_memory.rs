//! Host memory that the driver allocates and frees with its context: managed and write-combined memory.
//!
//! The host accesses it only through a borrow of the context, which cannot be closed or dropped meanwhile.

use std::marker::PhantomData;
use std::sync::Arc;

use cuguard_driver::sys::CUdeviceptr;

use crate::core::{ContextState, OwnedResource, same_context};
use crate::error::Result;
use crate::guards::{Context, check_alignment};

/// Memory for `len` values, which its owner initializes.
#[derive(Debug)]
pub(super) struct DriverMemory<T> {
    len: usize,
    /// Owns nothing if the values need no memory.
    pub(super) owned: OwnedResource,
    values: PhantomData<T>,
}

impl<T> DriverMemory<T> {
    /// Takes the memory of `owned`, which has room for `len` values. Fails if it is not aligned for them.
    pub(super) fn new(operation: &'static str, len: usize, owned: OwnedResource) -> Result<Self> {
        // The host accesses values of `T` there. (Address 0 is no memory.) On failure `owned` frees the memory.
        check_alignment::<T>(operation, owned.address())?;
        Ok(Self {
            len,
            owned,
            values: PhantomData,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.owned.address()
    }

    pub(super) fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    /// The first value. The memory may be freed by a close of the context, unless that is borrowed or its gate entered.
    pub(super) fn start(&self) -> *mut T {
        match self.owned.address() {
            0 => std::ptr::dangling_mut(),
            address => std::ptr::with_exposed_provenance_mut(address as usize),
        }
    }

    /// Checks that the memory belongs to this context, which cannot be closed while it is borrowed.
    pub(super) fn check(&self, operation: &'static str, context: &Context) -> Result<()> {
        let argument = ("the argument `context`", context.state());
        same_context::check(operation, ("the buffer", self.state()), argument)?;
        self.state().enter(operation).map(|_| ())
    }
}
