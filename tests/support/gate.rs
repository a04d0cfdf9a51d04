//! A gate in a stream: work behind it is in flight until the gate opens.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cuguard::driver::api;
use cuguard::driver::sys::CUstream;
use cuguard::{Context, Stream};

/// The time limit of a wait.
const LONG: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub struct Gate {
    state: Arc<(Mutex<bool>, Condvar)>,
}

/// The host function on the stream: it returns when the gate is open.
unsafe extern "C" fn pass(state: *mut c_void) {
    // SAFETY: `put` made this pointer from an `Arc`, for this one call.
    let state = unsafe { Arc::from_raw(state.cast::<(Mutex<bool>, Condvar)>()) };
    let open = state.0.lock().unwrap();
    drop(
        state
            .1
            .wait_timeout_while(open, LONG, |open| !*open)
            .unwrap(),
    );
}

impl Gate {
    /// Enqueues a closed gate.
    pub fn on(context: &Context, stream: &Stream) -> Self {
        Self::put(context, stream.as_raw())
    }

    /// The same on the default stream of the context.
    pub fn on_default_stream(context: &Context) -> Self {
        Self::put(context, CUstream::NULL)
    }

    fn put(context: &Context, stream: CUstream) -> Self {
        let gate = Self {
            state: Arc::default(),
        };
        let state = Arc::into_raw(gate.state.clone());
        let _bound = context.make_current().unwrap();
        // SAFETY: the function takes back the pointer that it is given, and does not unwind.
        let code = unsafe { api::cuLaunchHostFunc(stream, Some(pass), state.cast_mut().cast()) };
        assert!(code.is_success(), "{code}");
        gate
    }

    pub fn open(&self) {
        *self.state.0.lock().unwrap() = true;
        self.state.1.notify_all();
    }

    pub fn is_open(&self) -> bool {
        *self.state.0.lock().unwrap()
    }

    /// Opens it a little later: a call that does not wait returns before.
    pub fn open_later(&self) -> JoinHandle<()> {
        let gate = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            gate.open();
        })
    }
}
