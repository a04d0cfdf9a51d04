//! Page-locked host memory that is refused: no device memory is why.

use super::*;

const HOST: [ResourceKind; 3] = [
    ResourceKind::Pinned,
    ResourceKind::WriteCombined,
    ResourceKind::Registered,
];

/// A request for host memory, with everything on the device that is a cause otherwise.
fn refused(kind: ResourceKind, free: u64) -> OutOfMemory {
    let mut why = card(free, 16 * GIB);
    why.request.kind = Some(kind);
    why.settings.audited = true;
    own(&mut why, 40 * GIB);
    why.pools.push(pool("a pool", 20 * GIB, GIB));
    why.processes = Processes::Known(vec![process(7, 30 * GIB)]);
    for (kind, bytes) in [
        (ResourceKind::Device, 40 * GIB),
        (ResourceKind::Pinned, 3 * GIB),
    ] {
        why.call_sites
            .push(holder_of(Group::new(kind, "u8", 1, bytes)));
    }
    why
}

#[test]
fn host_memory_is_not_refused_for_lack_of_device_memory() {
    for kind in HOST {
        for free in [0, GIB, 60 * GIB] {
            let why = refused(kind, free);
            assert_eq!(why.causes(), [Cause::HostMemory { bytes: 0 }], "{kind}");
            let line = why.to_string();
            assert!(line.contains("page-lock"), "{line}");
            assert!(!line.contains("on device"), "{line}");
        }
    }
}

#[test]
fn all_kinds_of_page_locked_memory_count() {
    let mut why = refused(ResourceKind::Pinned, 60 * GIB);
    for (kind, bytes) in [
        (ResourceKind::Pinned, 3 * GIB),
        (ResourceKind::WriteCombined, 2 * GIB),
        (ResourceKind::Registered, GIB),
        (ResourceKind::Managed, 5 * GIB),
    ] {
        why.usage.push(held(kind, 1, bytes));
    }
    assert_eq!(why.causes(), [Cause::HostMemory { bytes: 6 * GIB }]);
    let report = read(&why.to_json());
    let cause = &items(&report["causes"])[0];
    assert_eq!(cause["cause"], "host_memory");
    assert_eq!(cause["bytes"], 6 * GIB);
}

/// The page has the limits of the host, and what is page-locked. Nothing of the device.
#[test]
fn the_page_is_about_the_host() {
    let mut why = refused(ResourceKind::Pinned, 60 * GIB);
    why.usage.push(held(ResourceKind::Pinned, 1, 3 * GIB));
    let text = why.to_text();
    for words in [
        "requested 16 GiB of pinned host memory\n",
        "why: the host did not page-lock that much; the program holds 3 GiB of page-locked memory\n",
        "control group",
        "ulimit -l",
        "free page-locked memory",
        "3 GiB in 1 allocation of pinned host memory",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    for words in ["60 GiB", "40 GiB", "a pool", "pid 7", "into_raw"] {
        assert!(!text.contains(words), "{words}: {text}");
    }
}

#[test]
fn without_page_locked_memory_none_is_to_be_freed() {
    let text = refused(ResourceKind::Registered, 0).to_text();
    assert!(
        text.contains("the program holds no other page-locked memory"),
        "{text}"
    );
    assert!(!text.contains("free page-locked memory"), "{text}");
}

/// A budget of the context that refused is still the cause.
#[test]
fn a_limit_is_named_where_it_refused() {
    let mut why = refused(ResourceKind::Pinned, 60 * GIB);
    why.limit = Some(Limit {
        bytes: GIB,
        held: 0,
        refused: true,
        of_pool: false,
    });
    assert_eq!(names(&why), ["memory_limit"]);
}

/// Managed memory is of the host and of the device.
#[test]
fn managed_memory_has_causes_on_the_device() {
    let why = refused(ResourceKind::Managed, GIB);
    assert!(!names(&why).contains(&"host_memory"), "{why}");
    assert!(names(&why).contains(&"other_processes"), "{why}");
}
