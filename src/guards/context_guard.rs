//! Making a context current on a thread.

use std::marker::PhantomData;

use cuguard_driver::result::{context, memory};
use cuguard_driver::sys::CUresult;

use crate::error::{Error, Result};
use crate::guards::Context;

impl Context {
    /// Makes this context current on the calling thread until the guard is dropped. For `cust` and other code that needs
    /// a current context; this crate does not.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// let bound = context.make_current()?;
    /// let buffer = cust::memory::DeviceBuffer::from_slice(&[1, 2, 3])?; // not recorded by this crate
    /// drop(buffer);
    /// drop(bound);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    #[doc(alias("bind_to_thread", "cuCtxSetCurrent", "cuCtxPushCurrent"))]
    pub fn make_current(&self) -> Result<ContextGuard<'_>> {
        const OPERATION: &str = "Context::make_current";
        let Some(_inside) = self.state().try_enter() else {
            // Not closed, because it is borrowed.
            return Err(Error::ProcessEnding {
                operation: OPERATION,
            });
        };
        // SAFETY: the context is alive.
        let pushed = unsafe { context::push_current(self.state().context) };
        self.state().check(OPERATION, pushed, None)?;
        Ok(ContextGuard {
            context: self,
            _this_thread: PhantomData,
        })
    }
}

/// Keeps a context current on this thread until dropped; see [`Context::make_current`].
///
/// Several guards may be dropped in any order. A leaked guard leaves its context on the thread's context stack.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::context::ContextGuard;
/// use cuguard::Context;
///
/// let context = Context::new(0)?;
/// let current: ContextGuard<'_> = context.make_current()?;
/// assert!(cust::memory::DeviceBox::new(&1).is_ok());
/// drop(current);
/// assert!(cust::memory::DeviceBox::new(&1).is_err()); // no context is current
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the context is current only until this is dropped"]
#[doc(alias("CurrentContext", "ContextStack"))]
pub struct ContextGuard<'a> {
    context: &'a Context,
    /// Not `Send`: each thread has its own context stack.
    _this_thread: PhantomData<*const ()>,
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        let Some(_inside) = self.context.state().try_enter() else {
            return;
        };
        // The driver has a context stack for each thread. Contexts that were pushed since then stay on it.
        let ours = self.context.state().context;
        let mut others = Vec::new();
        while let Ok(Some(current)) = context::current() {
            // It was closed on another thread, and a guard that made it current was forgotten here.
            let is_destroyed = current != ours
                && memory::info().is_err_and(|error| error.code == CUresult::CONTEXT_IS_DESTROYED);
            if context::pop_current().is_err() || current == ours {
                break;
            }
            if !is_destroyed {
                others.push(current);
            }
        }
        for other in others.into_iter().rev() {
            // SAFETY: it was on the stack until the loop above, and is not destroyed.
            let _ = unsafe { context::push_current(other) };
        }
    }
}
