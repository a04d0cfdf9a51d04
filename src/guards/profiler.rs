//! Ranges for profilers.

use cuguard_driver::result::context;

use crate::core::log_error;
use crate::error::Result;
use crate::guards::Context;

/// Profilers that are told to wait (`nsys profile --capture-range=cudaProfilerApi`) record until this is dropped.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::context::Profiler;
/// use cuguard::Context;
///
/// let context = Context::new(0)?;
/// let recording = Profiler::start(&context)?;
/// // ... the work of interest ...
/// recording.stop()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "stops when this is dropped"]
pub struct Profiler<'a> {
    context: &'a Context,
    running: bool,
}

impl<'a> Profiler<'a> {
    /// Starts the recording (`cuProfilerStart`). Without a profiler, nothing happens.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// for step in 0..100 {
    ///     // The first steps are slower, and of no interest.
    ///     let _recording = (step >= 10).then(|| cuguard::context::Profiler::start(&context)).transpose()?;
    ///     stream.synchronize()?; // the step
    /// }
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    pub fn start(context: &'a Context) -> Result<Self> {
        let entered = context.state().enter("Profiler::start")?;
        entered.check(context::profiler_start())?;
        drop(entered);
        Ok(Self {
            context,
            running: true,
        })
    }

    /// Stops the recording and returns the error. Drop does the same and logs the error.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let recording = cuguard::context::Profiler::start(&context)?;
    /// context.synchronize()?; // so that the work of interest is recorded to its end
    /// recording.stop()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.running) {
            return Ok(());
        }
        let entered = self.context.state().enter("Profiler::stop")?;
        entered.check(context::profiler_stop())
    }
}

impl Drop for Profiler<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            log_error(&error);
        }
    }
}
