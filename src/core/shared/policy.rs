//! The out-of-memory policy of a context.

use std::time::Duration;

/// The recovery steps before an allocation fails, and what its diagnosis contains; see
/// [`ContextBuilder::oom_policy`](crate::context::ContextBuilder::oom_policy). It applies to everything that needs device
/// memory: buffers, streams, events, modules, memory pools and launches.
///
/// A step runs only if it can free memory, and the allocation is retried after it. An allocation that succeeds at
/// once pays nothing for this.
///
/// [Scratch memory](crate::Scope::zeroed) inside a [capture](crate::Stream::capture) has no recovery steps: a stream
/// that is captured must not be waited for. It fails at once, with the diagnosis.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::Context;
/// use cuguard::oom::OomPolicy;
///
/// let policy = OomPolicy::new().wait(false).probe_largest(true);
/// let context = Context::builder().oom_policy(policy).build()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing by themselves"]
pub struct OomPolicy {
    pub(crate) compact: bool,
    pub(crate) callbacks: bool,
    pub(crate) wait: bool,
    pub(crate) wait_at_most: Duration,
    pub(crate) trim: bool,
    pub(crate) other_processes: bool,
    pub(crate) ask_processes: bool,
    pub(crate) probe_largest: bool,
}

impl Default for OomPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl OomPolicy {
    /// All recovery steps within this process, and a diagnosis that lists other processes but does not probe for the largest block.
    ///
    /// ```
    /// assert_eq!(cuguard::oom::OomPolicy::new(), cuguard::oom::OomPolicy::default());
    /// ```
    pub const fn new() -> Self {
        Self {
            compact: true,
            callbacks: true,
            wait: true,
            wait_at_most: Duration::from_secs(10),
            trim: true,
            other_processes: false,
            ask_processes: true,
            probe_largest: false,
        }
    }

    /// No recovery steps: an allocation fails at once. The error still has the diagnosis.
    pub const fn fail_at_once() -> Self {
        Self {
            compact: false,
            callbacks: false,
            wait: false,
            trim: false,
            other_processes: false,
            ..Self::new()
        }
    }

    /// Whether a [`Pool`](crate::Pool) releases idle memory and merges half-empty pages, if the device has one. To merge, it
    /// waits for all work of the context, but not longer than [`wait_at_most`](Self::wait_at_most); see
    /// [`Pool::compact`](crate::Pool::compact).
    pub const fn compact(mut self, compact: bool) -> Self {
        self.compact = compact;
        self
    }

    /// Whether [callbacks](crate::Context::release_on_oom) are called.
    pub const fn callbacks(mut self, call: bool) -> Self {
        self.callbacks = call;
        self
    }

    /// Whether to wait for pending frees. Two cases: blocks of a [`Pool`](crate::Pool), with [`compact`](Self::compact) off only if the
    /// allocation is from a pool of the same context; and driver memory pools that hold unused memory, or that cuguard cannot
    /// inspect because other code has set them for the device. Also for frees that streams have already executed: the driver
    /// does not make the memory available before the host synchronizes with the stream, however long it is idle. An
    /// allocation may then take as long as the work on these streams, but not longer than
    /// [`wait_at_most`](Self::wait_at_most).
    pub const fn wait(mut self, wait: bool) -> Self {
        self.wait = wait;
        self
    }

    /// The longest wait for pending frees, for callbacks that another thread runs, and for the device before pages are
    /// merged; 10 seconds by default. Work that itself waits for something which the allocating thread does later would
    /// never end.
    pub const fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait_at_most = time;
        self
    }

    /// Whether pools are trimmed: they return unused memory to the device.
    pub const fn trim(mut self, trim: bool) -> Self {
        self.trim = trim;
        self
    }

    /// Whether other processes are asked to have each [`Pool`](crate::Pool) release idle memory of the device, for one
    /// second at most; off by default, because it slows down every allocation that fails, and the other processes. It
    /// reaches processes of the same user that run with `LEAK_REPORT` turned on; see the [guide](crate::guide::pools).
    pub const fn other_processes(mut self, ask: bool) -> Self {
        self.other_processes = ask;
        self
    }

    /// Whether the diagnosis lists the processes that use memory of the device. Loads NVML when memory first runs out;
    /// without NVML the diagnosis says so.
    pub const fn ask_processes(mut self, ask: bool) -> Self {
        self.ask_processes = ask;
        self
    }

    /// Whether the diagnosis contains the largest block that can be allocated. It is found by dozens of allocations and
    /// frees, which take some milliseconds; allocations of other threads may fail meanwhile.
    pub const fn probe_largest(mut self, probe: bool) -> Self {
        self.probe_largest = probe;
        self
    }
}
