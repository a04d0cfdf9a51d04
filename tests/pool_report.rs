//! Pools in snapshots and reports: what they hold, and pools that are never dropped.

use std::mem;
use std::sync::{Arc, Mutex};

use crate::support::pool_blocks::{MIB, take};
use crate::support::*;
use cuguard::report::Report;
use cuguard::snapshot::PoolUsage;
use cuguard::{
    Context, DeviceBox, DeviceBuffer, Pool, ResourceKind, Result, Stream, TrackingLevel,
    assert_no_leaks,
};

/// The only pool of a context.
fn only(context: &Context) -> PoolUsage {
    let mut pools = context.snapshot().pools;
    assert_eq!(pools.len(), 1);
    pools.remove(0)
}

#[test]
fn a_snapshot_has_what_each_pool_holds() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    assert!(context.snapshot().pools.is_empty());
    let pool = Pool::builder()
        .with_label("scratch")
        .decay(std::time::Duration::MAX)
        .build(&context)?;
    let empty = only(&context);
    assert_eq!((empty.name().as_str(), empty.held), ("pool \"scratch\"", 0));
    assert!(!empty.of_context);

    let stream = Stream::new(&context)?;
    let long = take(&pool.on(&stream), 5 * MIB)?;
    let short = take(&pool.on(&stream), MIB)?;
    let full = only(&context);
    assert_eq!(full.used, 6 << 20);
    assert_eq!(full.held, pool.stats().held);
    assert_eq!((full.pages, full.pinned_pages), (full.held >> 21, 0));
    assert_eq!(full.idle(), full.held - full.used);

    // Its two whole pages, and the one that it shares.
    pool.pin(&long)?;
    assert_eq!(only(&context).pinned_pages, 3);
    pool.unpin(&long)?;
    assert_eq!(only(&context).pinned_pages, 0);

    // The thread keeps the short one, the pool the long one.
    drop((long, short));
    let freed = only(&context);
    assert_eq!((freed.used, freed.held), (0, full.held));
    assert_eq!(freed.cached_by_threads, 1 << 20);
    assert_eq!(freed.cached, 5 << 20);
    // What the stream still writes to is not released.
    stream.synchronize()?;
    pool.trim()?;
    assert_eq!(only(&context).held, 0);
    drop((pool, stream));
    assert!(context.snapshot().pools.is_empty());
    assert_no_leaks!(context);
    Ok(())
}

/// Code that has the address may use it without the knowledge of the pool.
#[test]
fn an_address_pins_a_box_of_the_pool() -> Result<()> {
    let _turn = turn();
    let context = Context::builder().pool(Pool::builder()).build()?;
    let counter = DeviceBox::new(&context, &7)?;
    assert_eq!(
        (only(&context).used > 0, only(&context).pinned_pages),
        (true, 0)
    );
    assert!(!counter.as_device_ptr().is_null());
    assert_eq!(only(&context).pinned_pages, 1);
    drop(counter);
    assert_eq!(only(&context).pinned_pages, 0);
    context.close()
}

#[test]
fn reports_show_what_pools_hold() -> Result<()> {
    let _turn = turn();
    let context = Context::builder()
        .pool(
            Pool::builder()
                .with_label("own")
                .decay(std::time::Duration::MAX),
        )
        .build()?;
    let other = Pool::new(&context)?;
    let nothing = context.snapshot().display().to_string();
    assert!(!nothing.contains("held"), "{nothing}");
    drop(DeviceBuffer::<u8>::zeroed(&context, 4 * MIB)?);
    let block = take(&other, 3 * MIB)?;
    let snapshot = context.snapshot();
    let text = snapshot.display().to_string();
    let line = "pool \"own\": 4 MiB held in 2 pages, 0 B in live blocks, 4 MiB idle (4 MiB in free blocks)";
    assert!(text.contains(line), "{text}");
    let name = snapshot.pools[1].name();
    let line = format!("{name}: 4 MiB held in 2 pages, 3 MiB in live blocks, 1 MiB idle");
    assert!(text.contains(&line), "{text}");

    let value = serde_json::from_str::<serde_json::Value>(&snapshot.to_json()).expect("it is JSON");
    let pools = value["pools"].as_array().expect("an array");
    assert_eq!(pools[0]["label"], "own");
    assert_eq!(pools[0]["of_context"], true);
    assert_eq!(pools[0]["held_bytes"], 4 << 20);
    assert_eq!(pools[0]["cached_bytes"], 4 << 20);
    assert_eq!(pools[0]["idle_bytes"], 4 << 20);
    assert_eq!(pools[1]["used_bytes"], 3 << 20);
    assert_eq!(pools[1]["page_count"], 2);
    assert_eq!(pools[1]["of_context"], false);

    // Idle memory alone is shown where the program asks, and is no leak.
    drop((block, other));
    let idle = context.snapshot();
    assert!(idle.is_clean());
    let text = idle.display().to_string();
    assert!(text.contains("pool \"own\": 4 MiB held"), "{text}");
    assert!(text.ends_with("cuguard: nothing is live"), "{text}");
    assert_no_leaks!(context);
    context.close()
}

#[test]
fn a_pool_has_a_record_until_its_guard_is_dropped() -> Result<()> {
    let _turn = turn();
    let context = Context::builder().level(TrackingLevel::Sites).build()?;
    let line = line!() + 1;
    let pool = Pool::builder().with_label("labelled").build(&context)?;
    let other = Pool::new(&context)?;
    assert_eq!(context.totals(ResourceKind::Pool).count, 2);
    let live = context.snapshot().live;
    let group = live
        .iter()
        .find(|group| group.label.is_some())
        .expect("its group");
    assert_eq!((group.kind, group.amount.bytes), (ResourceKind::Pool, 0));
    assert_eq!(group.label.as_deref(), Some("labelled"));
    let site = group.origin.site.expect("its call site");
    assert_eq!((site.file, site.line), (file!(), line));

    // A block keeps the memory, and not the record.
    let block = take(&other, MIB)?;
    drop(other);
    assert_eq!(context.totals(ResourceKind::Pool).count, 1);
    assert_eq!(context.snapshot().pools.len(), 2);
    drop((block, pool));
    assert_eq!(context.totals(ResourceKind::Pool).count, 0);
    assert_eq!(context.totals(ResourceKind::Pool).allocated, 2);
    assert_no_leaks!(context);
    Ok(())
}

#[test]
fn a_pool_that_outlives_the_close_of_its_context_is_inert() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let block = take(&pool, 3 * MIB)?;
    context.close()?;
    turn.all_came_back();
    assert!(take(&pool, 1).is_err());
    drop((block, pool));
    Ok(())
}

#[test]
fn a_pool_that_is_dropped_in_a_host_function_is_no_leak() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let pool = Arc::new(Mutex::new(Some(Pool::new(&context)?)));
    let inside = pool.clone();
    stream.scope(|scope| {
        scope.call(move || drop(inside.lock().unwrap().take()))?;
        Ok(())
    })?;
    assert!(pool.lock().unwrap().is_none());
    assert_eq!(context.totals(ResourceKind::Pool).count, 0);
    drop(stream);
    assert_no_leaks!(context);
    Ok(())
}

/// Forgets a pool with a live block and a freed one.
fn forget() -> Result<Context> {
    let context = context()?;
    let pool = Pool::builder().with_label("forgotten").build(&context)?;
    drop(take(&pool, 6 * MIB)?);
    mem::forget(take(&pool, MIB)?);
    mem::forget(pool);
    Ok(context)
}

/// A pool that nothing drops, because it is part of a cycle.
struct Cycle {
    _pool: Pool,
    next: Mutex<Option<Arc<Cycle>>>,
}

#[test]
fn a_forgotten_pool_is_in_the_leak_report() {
    const TEST: &str = "a_forgotten_pool_is_in_the_leak_report";
    match part().as_deref() {
        Some("close") => return forget().unwrap().close().unwrap(),
        Some("exit") => return drop(forget().unwrap()),
        Some("cycle") => {
            let context = context().unwrap();
            let cycle = Arc::new(Cycle {
                _pool: Pool::new(&context).unwrap(),
                next: Mutex::new(None),
            });
            *cycle.next.lock().unwrap() = Some(cycle.clone());
            return;
        }
        _ => {}
    }
    for how in ["close", "exit", "cycle"] {
        let output = child(TEST, how, &[("LEAK_REPORT", "1")]);
        let (_, text) = succeeded(&output);
        let (function, what) = match how {
            "cycle" => ("a_forgotten_pool_is_in_the_leak_report", "leaked 1 pool\n"),
            _ => ("forget", "leaked 1 pool, \"forgotten\"\n  holding 8 MiB"),
        };
        assert!(text.contains(what), "{how}: {text}");
        let (_, group) = text.split_once(what).expect("its group");
        let group = group.split("\n\n").next().unwrap_or_default();
        assert!(
            group.contains(function) && group.contains("pool_report.rs"),
            "{how}: {text}"
        );
        if how == "cycle" {
            continue;
        }
        // The block is a leak of its own.
        assert!(
            text.contains("leaked 1 MiB in 1 allocation"),
            "{how}: {text}"
        );
        let line = "pool \"forgotten\": 8 MiB held in 4 pages, 1 MiB in live blocks, 7 MiB idle";
        assert!(text.contains(line), "{how}: {text}");
    }
    let output = child(TEST, "close", &[("LEAK_REPORT", "json")]);
    let (_, text) = succeeded(&output);
    let line = text.lines().find(|line| line.starts_with('{'));
    let value =
        serde_json::from_str::<serde_json::Value>(line.expect("a report")).expect("it is JSON");
    let leaks = value["leaks"].as_array().expect("an array");
    let pool = leaks.iter().find(|leak| leak["kind"] == "pool");
    let pool = pool.expect("its group");
    assert_eq!(pool["label"], "forgotten");
    assert_eq!(value["pools"][0]["held_bytes"], 8 << 20);
    let number = value["pools"][0]["number"].as_u64().expect("its number");
    assert_eq!(pool["addresses"][0], format!("{number:#x}"));
}
