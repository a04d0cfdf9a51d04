//! What is kept once the size limit is reached.

use super::*;

#[test]
fn the_last_events_are_kept() {
    let scratch = Scratch::new();
    let limit = 16 * u64::from(MIN_CHUNK_SIZE);
    let options = scratch.options().limit(limit, Policy::Last);
    let events = pairs(50_000);
    let recording = round_trip(&events, &options, &scratch);
    assert!(std::fs::metadata(&scratch.0).unwrap().len() <= limit);
    let kept = recording.events.len();
    assert_eq!(kept as u64 + recording.dropped, events.len() as u64);
    assert!(kept > 3000, "{kept}");
    let times = |events: &[Event]| events.iter().map(|event| event.time).collect::<Vec<_>>();
    assert_eq!(
        times(&recording.events),
        times(&events[events.len() - kept..])
    );
    assert!(
        recording.problems[0].contains("dropped"),
        "{:?}",
        recording.problems
    );
    // What the first events defined is still known.
    let What::Allocated { stack, .. } = recording.events.iter().find_map(as_allocation).unwrap()
    else {
        unreachable!()
    };
    assert_eq!(recording.stacks[stack as usize].frames.len(), 3);
}

fn as_allocation(event: &Event) -> Option<What> {
    matches!(event.what, What::Allocated { .. }).then_some(event.what)
}

#[test]
fn beyond_the_limit_short_lived_allocations_are_left_out() {
    let scratch = Scratch::new();
    let limit = 8 * u64::from(MIN_CHUNK_SIZE);
    let options = scratch.options().limit(limit, Policy::Aggregate);
    let mut events = pairs(100_000);
    // One in a thousand stays.
    events.retain(|event| match event.what {
        What::Freed { address, .. } => (address >> 9) % 1000 != 0,
        _ => true,
    });
    let recording = round_trip(&events, &options, &scratch);
    assert!(std::fs::metadata(&scratch.0).unwrap().len() <= 2 * limit);
    assert_eq!(
        recording.events.len() as u64 + recording.dropped,
        events.len() as u64
    );
    assert!(recording.dropped > 100_000);
    let mut alive = BTreeMap::new();
    for event in &recording.events {
        match event.what {
            What::Allocated { address, .. } => alive.insert(address, event.time),
            What::Freed { address, .. } => alive.remove(&address),
            _ => None,
        };
    }
    let expected: BTreeMap<u64, u64> = (1..=100).map(|n| ((n * 1000) << 9, n * 10_000)).collect();
    assert_eq!(alive, expected);
}

/// Thread 7 allocates, 2 frees and allocates the address again, 7 frees it.
#[test]
fn beyond_the_limit_an_address_may_cross_threads() {
    let scratch = Scratch::new();
    let limit = 8 * u64::from(MIN_CHUNK_SIZE);
    let options = scratch.options().limit(limit, Policy::Aggregate);
    let mut events = pairs(10_000);
    let address = 0x7f00_0000_0000;
    let by = |event: Event, thread| Event { thread, ..event };
    // The second thread is beyond the limit, too, from its second event on.
    events.push(by(allocated(200_000, 0x1000), 2));
    let crossing = [
        by(allocated(200_010, address), 7),
        by(freed(200_020, address), 2),
        by(allocated(200_030, address), 2),
        by(freed(200_040, address), 7),
    ];
    events.extend(crossing);
    let recording = round_trip(&events, &options, &scratch);
    let is_crossing = |event: &&Event| match event.what {
        What::Allocated { address: at, .. } | What::Freed { address: at, .. } => at == address,
        _ => false,
    };
    let times = recording.events.iter().filter(is_crossing);
    let times: Vec<u64> = times.map(|event| event.time).collect();
    assert_eq!(times, [200_010, 200_020, 200_030, 200_040]);
}

#[test]
fn aggregation_ends_at_twice_the_limit() {
    let scratch = Scratch::new();
    let limit = 8 * u64::from(MIN_CHUNK_SIZE);
    let options = scratch.options().limit(limit, Policy::Aggregate);
    let events: Vec<Event> = (1..50_000).map(|n| allocated(n, n << 9)).collect();
    let recording = round_trip(&events, &options, &scratch);
    assert!(std::fs::metadata(&scratch.0).unwrap().len() <= 3 * limit);
    assert!(
        recording
            .problems
            .iter()
            .any(|problem| problem.contains("size limit is reached"))
    );
    assert_eq!(recording.end, End::Open);
}

/// Thread 7 frees what it allocated, sooner and later. Nothing else needs the slots.
#[test]
fn beyond_the_limit_long_lived_allocations_are_kept() {
    const SECOND: u64 = 1_000_000_000;
    let scratch = Scratch::new();
    let limit = 8 * u64::from(MIN_CHUNK_SIZE);
    let options = scratch.options().limit(limit, Policy::Aggregate);
    let mut events = pairs(10_000);
    let lifetimes = [SECOND / 100, SECOND / 10, SECOND / 10 + 1, 60 * SECOND];
    for (number, lifetime) in (1..).zip(lifetimes) {
        let (begin, address) = (number * 100 * SECOND, number << 32);
        events.push(allocated(begin, address));
        events.push(freed(begin + lifetime, address));
    }
    let recording = round_trip(&events, &options, &scratch);
    assert_eq!(
        recording.events.len() as u64 + recording.dropped,
        events.len() as u64
    );
    let read = resolved(&recording);
    let expected = expected(&events[events.len() - 4..]);
    assert_eq!(read[read.len() - 4..], expected);
}
