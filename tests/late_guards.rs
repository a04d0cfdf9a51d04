//! A context that was closed before its guards were dropped.

use crate::support::*;
use cuguard::{Context, DeviceBuffer, Error, Result, TrackingLevel};

/// One guard is enough for the line at exit.
#[test]
fn a_single_late_drop_is_reported_at_exit() {
    const TEST: &str = "a_single_late_drop_is_reported_at_exit";
    if part().is_some() {
        let context = Context::new(0).unwrap();
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000).unwrap();
        context.close().unwrap();
        drop(buffer);
        return;
    }
    let output = child(TEST, "child", &[("LEAK_REPORT", "1")]);
    succeeded(&output);
    let err = String::from_utf8_lossy(&output.stderr);
    let line = "1 guard was dropped after it was closed at ";
    assert_eq!(err.matches(line).count(), 1, "{err}");
}

/// It holds nothing, although a guard of it lives on, and at level counts nothing shows that it was freed.
#[test]
fn a_closed_context_is_not_in_the_diagnosis_of_another() -> Result<()> {
    let _turn = turn();
    let closed = Context::builder()
        .dedicated()
        .level(TrackingLevel::Counts)
        .build()?;
    let late = DeviceBuffer::<u8>::zeroed(&closed, 1 << 20)?;
    let context = Context::builder().dedicated().build()?;
    let holds = || {
        let Err(Error::OutOfMemory(why)) = DeviceBuffer::<u8>::zeroed(&context, 1 << 46) else {
            panic!("64 TiB were allocated");
        };
        why.contexts.iter().map(|other| other.bytes).sum::<u64>()
    };
    assert_eq!(holds(), 1 << 20);
    closed.close()?;
    assert_eq!(holds(), 0);
    drop(late);
    Ok(())
}
