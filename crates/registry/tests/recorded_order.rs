//! The order of recorded events that have no time between them. The only test of its process, which records once.

use std::time::{Duration, Instant};

use cuguard_recording::{End, Options, Policy, Recording, What};
use cuguard_registry::{
    Entry, Key, Registry, ResourceKind, TrackingLevel, end_recording, start_recording,
};

/// An address appears again without a free that was seen. With the policy `aggregate`, its free and its second allocation
/// are in chunks whose order is the reverse of theirs.
#[test]
fn an_address_that_appears_again_is_alive() {
    const ADDRESS: u64 = 0x7f00_0000_0000;
    let name = format!("cuguard-order-{}.cgr", std::process::id());
    let path = std::env::temp_dir().join(name);
    start_recording(&Options::new(&path).limit(512 << 10, Policy::Aggregate)).unwrap();
    let registry = Registry::new(TrackingLevel::Stacks, 32);
    let insert = |address: u64| {
        let entry = Entry {
            bytes: 4096,
            type_name: "",
            stream: 0,
        };
        registry.insert_stack(
            Key::by_address(ResourceKind::Device, address),
            entry,
            &[7],
            1,
        );
    };
    insert(ADDRESS);
    // Beyond the limit, until the thread has another chunk for events than the one it had there.
    for other in 1..=80_000 {
        insert(other << 12);
    }
    // Which is so if a pair is left out: one that is freed within 100 ms, which may take more on a busy machine.
    for address in (1_u64..).map(|number| (1 << 40) + (number << 12)) {
        let begin = Instant::now();
        insert(address);
        let removed = registry.remove_any(&[ResourceKind::Device], address);
        assert!(removed.is_some());
        if begin.elapsed() < Duration::from_millis(90) {
            break;
        }
    }
    insert(ADDRESS);
    end_recording();
    let recording = Recording::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(recording.dropped, 2, "{:?}", recording.problems);
    assert!(matches!(recording.end, End::Exit { .. }));
    let of_address = recording
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::Allocated { address, .. } if address == ADDRESS => Some("allocated"),
            What::Freed { address, .. } if address == ADDRESS => Some("freed"),
            _ => None,
        });
    let of_address: Vec<&str> = of_address.collect();
    assert_eq!(of_address, ["allocated", "freed", "allocated"]);
}
