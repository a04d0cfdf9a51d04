//! Who holds the memory: this process outside of guards, escaped, managed, other processes.

use super::*;

/// This process as NVML lists it.
fn this(bytes: u64) -> ProcessUse {
    ProcessUse {
        own: true,
        ..process(std::process::id(), bytes)
    }
}

fn bytes(why: &OutOfMemory) -> Vec<u64> {
    why.causes().iter().map(Cause::bytes).collect()
}

/// Looks whether all shares together are what is taken.
#[track_caller]
fn adds_up(why: &OutOfMemory) {
    let shares = why.shares();
    let used = why.total.unwrap() - why.free.unwrap();
    let managed = shares.managed + shares.managed_elsewhere;
    let known = shares.here + shares.escaped + managed + shares.others + shares.rest;
    assert_eq!(known + shares.outside.unwrap_or(0), used, "{shares:?}");
}

/// Other libraries of this process, and code that calls the driver itself.
#[test]
fn memory_that_no_guard_took() {
    let mut why = card(20 * GIB, 40 * GIB);
    why.processes = Processes::Known(vec![this(119 * GIB)]);
    assert_eq!(names(&why), ["outside_guards"]);
    assert_eq!(bytes(&why), [119 * GIB]);
    adds_up(&why);
    let text = why.to_text();
    assert!(
        text.contains("why: this process holds 119 GiB outside of its guards"),
        "{text}"
    );
    assert!(text.contains("cuBLAS") && text.contains("from_raw"));
    assert!(!text.contains("another container"), "{text}");
    assert!(text.contains("  outside guards    119 GiB"), "{text}");
    // What guards hold is not among it.
    own(&mut why, 30 * GIB);
    assert_eq!(names(&why), ["outside_guards"]);
    assert_eq!(bytes(&why), [89 * GIB]);
    adds_up(&why);
    // Unknown stays unknown.
    why.processes = Processes::Unknown("no NVML".to_owned());
    assert!(!names(&why).contains(&"outside_guards"));
    assert!(!why.to_text().contains("outside guards"), "{why:#}");
    adds_up(&why);
    assert!(why.to_text().contains("libraries of this process"));
}

/// What graphs have reserved is not called unknown memory of this process, and what a failed launch left behind is told from it.
#[test]
fn memory_that_graphs_have_reserved() {
    let mut why = card(GIB, 2 * GIB);
    why.processes = Processes::Known(vec![this(138 * GIB)]);
    why.graphs.reserved = 138 * GIB;
    assert_eq!(names(&why), ["reserved_for_graphs"]);
    assert_eq!(bytes(&why), [138 * GIB]);
    adds_up(&why);
    let text = why.to_text();
    let words =
        "why: 138 GiB are reserved for graphs and unused: launches that failed for lack of memory";
    assert!(text.contains(words), "{text}");
    assert!(text.contains("restart the process"), "{text}");
    let row =
        "  graphs            138 GiB reserved, 0 B in use or kept for launches, 138 GiB lost until";
    assert!(text.contains(row), "{text}");
    assert!(!text.contains("outside of its guards"), "{text}");
    why.graphs.used = 100 * GIB;
    let text = why.to_text();
    assert!(
        text.contains("138 GiB are reserved for graphs, 38 GiB of it unused: "),
        "{text}"
    );
    let json = why.to_json();
    let graphs = format!(
        r#""graphs":{{"reserved":{},"used":{}}}"#,
        138 * GIB,
        100 * GIB
    );
    assert!(json.contains(&graphs), "{json}");
    assert!(json.contains(&format!(r#""lost":{}"#, 38 * GIB)), "{json}");
    why.graphs.used = 138 * GIB;
    let text = why.to_text();
    assert!(
        text.contains("why: 138 GiB are reserved for graphs\n"),
        "{text}"
    );
    assert!(
        !text.contains("restart") && !text.contains("lost"),
        "{text}"
    );
    // An audited program has records of what is allocated.
    why.settings.audited = true;
    why.usage
        .push(held(ResourceKind::GraphMemory, 1, 138 * GIB));
    assert_eq!(names(&why), ["own_data"]);
    adds_up(&why);
}

/// A graph is not launched where it needs a chunk more than is free.
#[test]
fn a_graph_needs_whole_chunks() {
    let mut why = card(40 * MIB, 33 * MIB);
    why.total = Some(256 * MIB);
    own(&mut why, 216 * MIB);
    why.request.kind = Some(ResourceKind::GraphMemory);
    assert_eq!(names(&why), ["own_data"]);
    let line = why.to_string();
    assert!(
        line.contains(": not launched, because its memory does not fit: the context's own data"),
        "{line}"
    );
}

/// A pool says what is in use, whoever uses it.
#[test]
fn memory_of_pools_that_no_guard_took() {
    let mut why = card(10 * GIB, 20 * GIB);
    why.pools.push(pool("", 130 * GIB, 130 * GIB));
    assert_eq!(why.causes(), [Cause::OutsideGuards { bytes: 130 * GIB }]);
    // Small blocks take more than they were asked for.
    why.usage
        .push(held(ResourceKind::StreamOrdered, 20 << 21, 64 * GIB));
    assert_eq!(names(&why), ["own_data", "outside_guards"]);
    assert_eq!(bytes(&why), [64 * GIB, 130 * GIB - 64 * GIB - 20 * GIB]);
}

/// Also where other contexts have some of it, and frees wait.
#[test]
fn memory_of_pools_that_several_share() {
    let mut why = card(10 * GIB, 20 * GIB);
    why.pools.push(pool("", 130 * GIB, 130 * GIB));
    let mut other = other_context(2, 512);
    (other.pooled, other.pooled_blocks) = (512, 1);
    why.contexts.push(other);
    (why.busy_streams, why.pending_bytes) = (1, 512);
    assert_eq!(names(&why), ["outside_guards"]);
    assert_eq!(bytes(&why), [130 * GIB - 1024]);
}

/// What another context gave away may be freed long since: it takes nothing from who has the memory.
#[test]
fn what_another_context_gave_away() {
    let mut why = card(GIB, 20 * GIB);
    let mut other = other_context(2, 0);
    (other.escaped, other.taken) = (100 * GIB, Some(0));
    why.contexts.push(other);
    why.processes = Processes::Known(vec![process(4711, 139 * GIB), this(0)]);
    assert_eq!(names(&why), ["other_processes"]);
    assert_eq!(bytes(&why), [139 * GIB]);
    adds_up(&why);
    why.processes = Processes::Known(vec![this(139 * GIB)]);
    assert_eq!(names(&why), ["escaped", "outside_guards"]);
    assert_eq!(bytes(&why), [100 * GIB, 39 * GIB]);
    adds_up(&why);
    assert!(
        why.to_text().contains("released 100 GiB with into_raw"),
        "{why:#}"
    );
}

/// Small blocks of another context, and its managed memory, are its own and no library's.
#[test]
fn pages_and_managed_memory_of_another_context() {
    let mut why = card(0, 20 * GIB);
    let mut other = other_context(2, 60 * GIB);
    (other.taken, other.managed) = (Some(100 * GIB), 30 * GIB);
    why.contexts.push(other);
    why.processes = Processes::Known(vec![this(140 * GIB)]);
    assert_eq!(names(&why), ["other_contexts", "outside_guards"]);
    assert_eq!(bytes(&why), [130 * GIB, 10 * GIB]);
    adds_up(&why);
    let text = why.to_text();
    assert!(text.contains("its guards hold 60 GiB; takes 100 GiB in pages"));
    // Where the list counts this process without its managed memory.
    why.processes = Processes::Known(vec![this(110 * GIB)]);
    assert_eq!(bytes(&why), [130 * GIB]);
    adds_up(&why);
}

/// The last little bit that is free hides no leak.
#[test]
fn a_full_card_with_a_little_left() {
    let mut why = card(5 * MIB, 4 * MIB);
    own(&mut why, 138 * GIB);
    assert_eq!(names(&why), ["own_data"]);
}

/// Half-filled pages of guards' blocks do not count as outside of guards.
#[test]
fn what_may_be_pages_is_not_blamed_on_libraries_alone() {
    let mut why = card(0, 20 * GIB);
    why.settings.level = TrackingLevel::Counts;
    why.usage
        .push(held(ResourceKind::Device, 30_721, 109 * GIB));
    why.processes = Processes::Known(vec![this(140 * GIB)]);
    assert_eq!(names(&why), ["own_data", "outside_guards"]);
    let text = why.to_text();
    assert!(text.contains("or pages that blocks of guards do not fill"));
    assert!(text.contains("level=sites"), "{text}");
}

/// What contexts take themselves is named only where there is nothing else.
#[test]
fn what_a_context_takes() {
    let mut why = card(0, 64 * MIB);
    own(&mut why, 139 * GIB);
    why.processes = Processes::Known(vec![this(140 * GIB - 100 * MIB)]);
    assert_eq!(names(&why), ["own_data"]);

    let mut why = card(140 * GIB - 523 * MIB, 140 * GIB - MIB);
    let advice = "a context itself takes some hundred MiB";
    for processes in [
        Processes::Known(Vec::new()),
        Processes::Known(vec![this(523 * MIB)]),
        Processes::Unknown("no NVML".to_owned()),
    ] {
        why.processes = processes;
        let text = why.to_text();
        assert!(text.contains(advice), "{text}");
        assert!(!text.contains("another container"), "{text}");
        assert_eq!(bytes(&why), [523 * MIB]);
    }
}

#[test]
fn what_escaped_is_named_as_far_as_memory_is_in_use() {
    let mut why = card(10 * GIB, 40 * GIB);
    why.escaped.push(held(ResourceKind::Device, 1, 100 * GIB));
    own(&mut why, 20 * GIB);
    assert_eq!(names(&why), ["escaped", "own_data"]);
    assert_eq!(bytes(&why)[0], 100 * GIB);
    adds_up(&why);
    let text = why.to_text();
    assert!(
        text.contains("why: up to 100 GiB were released with into_raw"),
        "{text}"
    );
    assert!(text.contains("pass it to from_raw"), "{text}");
    // Some of it must be free by now.
    why.free = Some(35 * GIB);
    assert_eq!(bytes(&why)[0], 85 * GIB);
    why.processes = Processes::Known(vec![this(50 * GIB), process(3, 40 * GIB)]);
    assert_eq!(why.shares().escaped, 30 * GIB);
    assert_eq!(why.shares().outside, Some(0));
    adds_up(&why);
    // Stream-ordered memory lies in pools.
    let mut why = card(10 * GIB, 40 * GIB);
    why.escaped
        .push(held(ResourceKind::StreamOrdered, 1, 100 * GIB));
    why.pools.push(pool("", 80 * GIB, 70 * GIB));
    assert_eq!(why.shares().escaped, 70 * GIB);
}

#[test]
fn managed_memory_is_named() {
    let mut why = card(GIB, 10 * GIB);
    why.usage.push(held(ResourceKind::Managed, 1, 138 * GIB));
    assert_eq!(names(&why), ["managed"]);
    assert_eq!(bytes(&why), [138 * GIB]);
    assert!(why.to_text().contains("up to 138 GiB"), "{why:#}");
    adds_up(&why);
    why.processes = Processes::Known(vec![this(100 * GIB)]);
    assert_eq!(bytes(&why), [138 * GIB]);
    adds_up(&why);
}

/// In a container NVML may list this process under another number.
#[test]
fn the_advice_is_not_to_end_this_process() {
    let mut why = card(5 * GIB, 10 * GIB);
    own(&mut why, 130 * GIB);
    why.info.context = 1;
    let others = vec![process(48_211, 131 * GIB), process(9, GIB)];
    why.processes = Processes::Known(others);
    assert_eq!(names(&why), ["own_data", "other_processes"]);
    let text = why.to_text();
    assert!(
        text.contains("at most 5 GiB (pid 48211 and 9, one of which may be this process)"),
        "{text}"
    );
    // The other one has too little to be this one.
    assert!(text.contains("pid 48211 may be this process"), "{text}");
    assert!(!text.contains("pid 9 may be"), "{text}");
    assert!(!text.contains("or end them"), "{text}");
    assert!(text.contains("listed with 131 GiB: pid 48211"), "{text}");
    assert!(text.contains("no more than 5 GiB of that can be theirs"));
    assert!(why.to_json().contains("\"may_be_own\":true"));
    // Where this one is listed, the others are others.
    let listed = vec![this(131 * GIB), process(48_211, 4 * GIB)];
    why.processes = Processes::Known(listed);
    let text = why.to_text();
    assert!(!text.contains("may be this process"), "{text}");
    assert!(text.contains("another process holds 4 GiB (pid 48211)"));
    assert!(text.contains("wait for these processes or end them"));
}

#[test]
fn many_processes_are_counted() {
    let mut why = card(GIB, 40 * GIB);
    let many = (1..=20).map(|pid| process(pid, 6 * GIB));
    why.processes = Processes::Known(many.collect());
    let text = why.to_text();
    assert!(text.contains("(pid 1, 2, 3 and 17 more)"), "{text}");
    assert!(text.contains("     … and 12 more\n"), "{text}");
}
