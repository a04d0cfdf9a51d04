//! A library that a program loads while it runs, and that keeps buffers on the GPU: it stays loaded
//! when the program lets go of it, and what is still there at the end of the process is reported
//! then.
//!
//! ```console
//! $ cargo build --example plugin        # target/debug/examples/libplugin.so
//! ```
//!
//! tests/exits loads it.

use std::sync::{Mutex, PoisonError};

use cuguard::prelude::*;

/// What the plug-in has between calls.
static STATE: Mutex<Option<(Context, Vec<DeviceBuffer<u8>>)>> = Mutex::new(None);

fn keep(bytes: usize) -> cuguard::Result<u64> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let (context, buffers) = match &mut *state {
        Some(state) => state,
        none => none.insert((Context::new(0)?, Vec::new())),
    };
    buffers.push(DeviceBuffer::zeroed(context, bytes)?.with_label("left behind"));
    Ok(context.live_bytes())
}

/// Keeps so many bytes of the GPU's memory, and returns how many the plug-in holds now; 0 where it
/// got none.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_keep(bytes: usize) -> u64 {
    keep(bytes).unwrap_or_else(|error| {
        eprintln!("plugin: {error}");
        0
    })
}

/// Lets go of all that the plug-in has.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_end() {
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((context, buffers)) = state {
        drop(buffers);
        if let Err(error) = context.close() {
            eprintln!("plugin: {error}");
        }
    }
}
