//! A registered vector that outlives its context: it is the program's again where the driver has certainly
//! unregistered it, and stays allocated where the driver may still access it. At level counts, where teardown has
//! no record of it to unregister it by.

use crate::support::*;
use cuguard::{Context, Error, RegisteredVec, Result, TrackingLevel};

/// A destroyed context has unregistered everything.
#[test]
fn a_destroyed_context_returns_the_vector() -> Result<()> {
    let _turn = turn();
    let context = Context::builder()
        .dedicated()
        .level(TrackingLevel::Counts)
        .build()?;
    let registered = RegisteredVec::new(&context, vec![7_u32; 5000])?;
    context.close()?;
    assert_eq!(registered.into_vec()?, [7; 5000]);
    Ok(())
}

/// The primary context stays, because another `Context` holds it, and the vector stays registered.
#[test]
fn a_context_that_stays_keeps_the_vector() -> Result<()> {
    let _turn = turn();
    let other = Context::new(0)?;
    let context = Context::builder().level(TrackingLevel::Counts).build()?;
    let registered = RegisteredVec::new(&context, vec![7_u32; 5000])?;
    context.close()?;
    let result = registered.into_vec();
    assert!(
        matches!(result, Err(Error::ContextClosed { .. })),
        "{result:?}"
    );
    other.close()
}
