//! `DriverPool::close` on a driver that refuses.

use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{DriverPool, ResourceKind, Result};

/// The error is returned, and recorded as a failed free.
#[test]
fn a_pool_that_is_not_destroyed_is_an_error() -> Result<()> {
    let _turn = turn();
    if !simulated("a_pool_that_is_not_destroyed_is_an_error") {
        return Ok(());
    }
    let context = context()?;
    let pool = DriverPool::new(&context)?;
    sim::inject(Fault::nth_call_of("cuMemPoolDestroy", 1)).unwrap();
    let closed = pool.close();
    sim::clear_faults();
    assert_eq!(closed.unwrap_err().code(), Some(CUresult::UNKNOWN));
    let failed = &context.snapshot().failed_frees;
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].allocated.kind, ResourceKind::MemoryPool);
    Ok(())
}
