//! A program on cust, linked with libcuda, that forgets two buffers, keeps one in a `static` and drops one.

use std::mem;
use std::sync::Mutex;

use cust::error::CudaResult;
use cust::memory::DeviceBuffer;
use expectation::{MIB, clobber_stack, expected};

/// A buffer of cust is not `Send`, so the address alone is kept.
static KEPT: Mutex<u64> = Mutex::new(0);

#[inline(never)]
fn forget_buffer(bytes: usize) -> CudaResult<()> {
    mem::forget(DeviceBuffer::from_slice(&vec![1_u8; bytes])?);
    Ok(())
}

#[inline(never)]
fn keep_one_drop_one() -> CudaResult<()> {
    let kept = DeviceBuffer::from_slice(&vec![1_u8; 4 * MIB])?;
    *KEPT.lock().expect("no thread panics") = kept.as_device_ptr().as_raw();
    mem::forget(kept);
    drop(DeviceBuffer::from_slice(&vec![1_u8; MIB])?);
    Ok(())
}

fn main() -> CudaResult<()> {
    // Dropped, it would release the primary context, and the driver would destroy the memory with it.
    mem::forget(cust::quick_init()?);
    forget_buffer(MIB)?;
    forget_buffer(2 * MIB)?;
    keep_one_drop_one()?;
    clobber_stack();
    expected("device", (2, 3 * MIB), (1, 4 * MIB), "forget_buffer");
    Ok(())
}
