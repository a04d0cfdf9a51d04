//! What is to happen when memory runs out.

use std::time::Duration;

/// What is tried before something fails for want of memory, and what its error finds out; see
/// [`ContextBuilder::oom_policy`](crate::ContextBuilder::oom_policy). Mostly that is an allocation; a stream,
/// an event, a module, a memory pool and a launch take memory too, and what stands here of allocations
/// holds for them.
///
/// Each rung is climbed only where there is something to gain, and the allocation is asked for again
/// after it. Where an allocation succeeds at once, none of this costs anything.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::Context;
/// use cuguard::oom::OomPolicy;
///
/// let context = Context::builder().oom_policy(OomPolicy::new().wait(false)).build()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing by themselves"]
pub struct OomPolicy {
    pub(crate) callbacks: bool,
    pub(crate) wait: bool,
    pub(crate) wait_at_most: Duration,
    pub(crate) trim: bool,
    pub(crate) ask_processes: bool,
    pub(crate) probe_largest: bool,
}

impl Default for OomPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl OomPolicy {
    /// All rungs, and other processes are asked for; the largest block is not.
    ///
    /// ```
    /// assert_eq!(cuguard::oom::OomPolicy::new(), cuguard::oom::OomPolicy::default());
    /// ```
    pub const fn new() -> Self {
        Self {
            callbacks: true,
            wait: true,
            wait_at_most: Duration::from_secs(10),
            trim: true,
            ask_processes: true,
            probe_largest: false,
        }
    }

    /// No rungs: an allocation that is refused fails at once. The error still says why.
    ///
    /// ```
    /// let settings = cuguard::oom::OomPolicy::fail_at_once().trim(true);
    /// ```
    pub const fn fail_at_once() -> Self {
        Self {
            callbacks: false,
            wait: false,
            trim: false,
            ..Self::new()
        }
    }

    /// Whether [callbacks](crate::Context::release_on_oom) are called.
    ///
    /// ```
    /// let settings = cuguard::oom::OomPolicy::new().callbacks(false);
    /// ```
    pub const fn callbacks(mut self, call: bool) -> Self {
        self.callbacks = call;
        self
    }

    /// Whether frees are waited for that were given to streams, where pools have memory that they do
    /// not use, or other code has set a pool for the device that nobody here looks at. Also those that
    /// the streams have done: the driver does not bring the memory back before somebody waits for the
    /// stream, however long it is idle. An allocation may take as long then as the work of these
    /// streams, but not longer than [`wait_at_most`](Self::wait_at_most).
    ///
    /// ```
    /// let settings = cuguard::oom::OomPolicy::new().wait(false);
    /// ```
    pub const fn wait(mut self, wait: bool) -> Self {
        self.wait = wait;
        self
    }

    /// How long frees are waited for, 10 seconds if not told otherwise. Work that waits for something
    /// which the allocating thread does later would never end.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let settings = cuguard::oom::OomPolicy::new().wait_at_most(Duration::from_millis(100));
    /// ```
    pub const fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait_at_most = time;
        self
    }

    /// Whether pools are asked to give back what they do not use.
    ///
    /// ```
    /// let settings = cuguard::oom::OomPolicy::new().trim(false);
    /// ```
    pub const fn trim(mut self, trim: bool) -> Self {
        self.trim = trim;
        self
    }

    /// Whether the error tells which processes hold memory of the device. NVML is loaded for it, the
    /// first time memory runs out; where there is none, the error says so.
    ///
    /// ```
    /// let settings = cuguard::oom::OomPolicy::new().ask_processes(false);
    /// ```
    pub const fn ask_processes(mut self, ask: bool) -> Self {
        self.ask_processes = ask;
        self
    }

    /// Whether the error tells the largest block that could be had. It is found by trying, with
    /// dozens of allocations and frees, which takes some milliseconds; other threads may be refused
    /// meanwhile what they would have got.
    ///
    /// ```
    /// let settings = cuguard::oom::OomPolicy::new().probe_largest(true);
    /// ```
    pub const fn probe_largest(mut self, probe: bool) -> Self {
        self.probe_largest = probe;
        self
    }
}
