//! A program on cudarc that forgets two buffers, keeps one in a `static` and drops one.

use std::mem;
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};
use expectation::{MIB, clobber_stack, expected};

static KEPT: Mutex<Option<CudaSlice<u8>>> = Mutex::new(None);

#[inline(never)]
fn forget_buffer(stream: &Arc<CudaStream>, bytes: usize) -> Result<(), DriverError> {
    mem::forget(stream.alloc_zeros::<u8>(bytes)?);
    Ok(())
}

#[inline(never)]
fn keep_one_drop_one(stream: &Arc<CudaStream>) -> Result<(), DriverError> {
    *KEPT.lock().expect("no thread panics") = Some(stream.alloc_zeros(4 * MIB)?);
    drop(stream.alloc_zeros::<u8>(MIB)?);
    Ok(())
}

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    forget_buffer(&stream, MIB)?;
    forget_buffer(&stream, 2 * MIB)?;
    keep_one_drop_one(&stream)?;
    stream.synchronize()?;
    clobber_stack();
    // cudarc allocates in stream order where the device can.
    let kind = if context.has_async_alloc() {
        "stream_ordered"
    } else {
        "device"
    };
    expected(kind, (2, 3 * MIB), (1, 4 * MIB), "forget_buffer");
    Ok(())
}
