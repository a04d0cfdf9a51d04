//! What of each fate is shown, and how much of it.

use super::super::DUMP;
use super::*;

/// Of what is reachable, more than a few groups are in tables.
#[test]
fn many_reachable_groups_are_in_tables() {
    let stacks: [&[usize]; 4] = [&[TRAIN, MAIN], &[LOAD, MAIN], &[MAIN], &[TORCH, LOAD]];
    let groups = stacks.map(|stack| {
        let mut group = group(Fate::Reachable, ResourceKind::Device, (1, 10), stack);
        group.holder = Some("the heap");
        group
    });
    let mut process = Process {
        groups: groups.into(),
        ..Process::default()
    };
    let text = with("1,colour=never", &process).text;
    let expected = "
… 4 groups of what is reachable in the tables below; max=4 shows each

by call site:
  20 B in 2  load  /nowhere/model.py:10
  10 B in 1  <module>  /nowhere/train.py:30
  10 B in 1  train  /nowhere/train.py:20
";
    assert!(text.contains(expected), "{text}");
    let from = "\nreachable from:\n  40 B in 4  the heap\n";
    assert!(text.contains(from), "{text}");
    // The words are those of a process that runs already.
    process.reason = DUMP.to_owned();
    let text = with("1,colour=never", &process).text;
    let line = "\n… 4 groups of what is reachable in the tables below\n";
    assert!(text.contains(line) && !text.contains("max="), "{text}");
    process.reason = "exit".to_owned();
    for words in ["1,max=4", "1,frames=all"] {
        let text = with(words, &process).text;
        assert_eq!(text.matches("\nreachable 10 B").count(), 4, "{text}");
        assert!(!text.contains("reachable from:"), "{text}");
    }
    process.groups.pop();
    let text = with("1,colour=never", &process).text;
    assert_eq!(text.matches("\nreachable 10 B").count(), 3, "{text}");
    assert!(!text.contains("by call site"), "{text}");
    // No table follows.
    process.groups.truncate(1);
    let text = with("1,max=0,colour=never", &process).text;
    let line = "\n… 0 of 1 group shown of what is reachable; max=1 shows all\n";
    assert!(text.contains(line) && !text.contains("tables"), "{text}");
}

/// "Nothing is lost" would be an all-clear, though a program that ends its context frees all that it has forgotten.
#[test]
fn memory_that_ends_with_its_context_was_not_freed() {
    let memory = group(
        Fate::DestroyedWithContext,
        ResourceKind::Device,
        (1, 12 << 20),
        &[TRAIN, MAIN],
    );
    let event = group(
        Fate::DestroyedWithContext,
        ResourceKind::Event,
        (2, 0),
        &[MAIN],
    );
    let reachable = group(Fate::Reachable, ResourceKind::Context, (1, 0), &[MAIN]);
    let lost = group(Fate::Lost, ResourceKind::Stream, (1, 0), &[MAIN]);
    let destroyed: FailOn = "destroyed".parse().unwrap();
    for (groups, line, amount) in [
        (
            vec![memory.clone()],
            "12 MiB in 1 allocation not freed before their context was destroyed",
            Amount::new(1, 12 << 20),
        ),
        (
            vec![memory.clone(), event.clone(), reachable.clone()],
            "12 MiB in 1 allocation and 2 events not freed before their context was destroyed; reachable 1 context",
            Amount::new(1, 12 << 20),
        ),
        (
            vec![lost, memory.clone()],
            "lost 1 stream; 12 MiB in 1 allocation not freed before their context was destroyed",
            Amount::new(1, 12 << 20),
        ),
        (
            vec![event.clone()],
            "nothing is lost; destroyed with their context 2 events",
            Amount::default(),
        ),
    ] {
        let process = Process {
            groups,
            ..Process::default()
        };
        let report = with("1,colour=never", &process);
        assert_eq!((report.line.as_str(), report.destroyed), (line, amount));
        assert_eq!(report.fails(destroyed), amount.count != 0, "{line}");
        let is_lost = report.lost.count != 0;
        assert_eq!(report.fails(FailOn::default()), is_lost, "{line}");
    }
    let process = Process {
        groups: vec![memory, event],
        ..Process::default()
    };
    let annotations = |words| with(words, &process).github.matches("::error ").count();
    assert_eq!(annotations("github"), 0);
    assert_eq!(annotations("github,fail_on=destroyed"), 1);
    // What can fail the run can be suppressed.
    let file = std::env::temp_dir().join(format!("cuguard-destroyed-{}", std::process::id()));
    std::fs::write(&file, "leak:train\n").unwrap();
    let suppressed = with(&format!("1,suppress={}", file.display()), &process);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(
        suppressed.line,
        "nothing is lost; destroyed with their context 2 events; suppressed 12 MiB in 1 allocation"
    );
    assert!(!suppressed.fails(destroyed));
}

#[test]
fn the_number_of_groups_is_limited_for_each_fate() {
    let stacks: [&[usize]; 3] = [&[TRAIN], &[LOAD], &[MAIN]];
    let groups = stacks.map(|stack| group(Fate::Lost, ResourceKind::Device, (1, 10), stack));
    let process = Process {
        groups: groups.into(),
        ..Process::default()
    };
    let text = with("1,max=2,colour=never", &process).text;
    let few = "… 2 of 3 groups shown of what is lost; max=3 shows all\n";
    assert_eq!(
        text.matches("\nlost 10 B in 1 allocation").count(),
        2,
        "{text}"
    );
    assert!(text.contains(few), "{text}");
}

/// One forgotten block does not fill the screen with the handles that ended with it.
#[test]
fn of_handles_that_were_destroyed_a_few_are_shown() {
    let ended = |kind: ResourceKind, line: usize| {
        let bytes = if kind.is_memory() { 10 } else { 0 };
        let stack: &'static [usize] = Box::leak(Box::new([FOREIGN_FRAME | line]));
        group(Fate::DestroyedWithContext, kind, (1, bytes), stack)
    };
    for (blocks, events, shown) in [(1, 19, 4), (0, 19, 3), (8, 19, 11), (30, 19, 20), (2, 1, 3)] {
        let blocks = (100..100 + blocks).map(|line| ended(ResourceKind::Device, line));
        let events = (150..150 + events).map(|line| ended(ResourceKind::Event, line));
        let process = Process {
            groups: events.chain(blocks).collect(),
            ..Process::default()
        };
        let all = process.groups.len();
        let text = with("1,colour=never", &process).text;
        let rows = text.matches("\ndestroyed with their context ").count();
        assert_eq!(rows, shown, "{text}");
        let hint =
            format!("… {shown} of {all} groups shown of what is destroyed; max={all} shows all");
        assert_eq!(text.contains(&hint), shown < all, "{text}");
        let text = with("1,max=100,colour=never", &process).text;
        let rows = text.matches("\ndestroyed with their context ").count();
        assert_eq!(rows, all, "{text}");
    }
}
