//! Which call sites a report calls growing.

use super::*;

/// The functions that a report calls growing: each by the innermost frame that tells it apart.
fn growing(sites: Vec<SiteHistory>, groups: Vec<Group>) -> Vec<(u64, Vec<String>)> {
    let mut process = process();
    (process.history.sites, process.groups) = (sites, groups);
    let value = read(with("json", &process).json.trim_end());
    let rows = value["growth"].as_array().unwrap().iter();
    let rows = rows.map(|row| {
        let frames = row["stack"].as_array().unwrap().iter();
        let names = frames.map(|frame| frame["function"].as_str().unwrap().to_owned());
        (row["blocks"].as_u64().unwrap(), names.collect())
    });
    rows.collect()
}

#[test]
fn a_function_that_allocates_for_others_is_looked_through() {
    let leak = || site(&[LOAD, TRAIN, MAIN], 1 << 20, |step| step);
    let shrinks = || site(&[LOAD, MAIN], 1 << 20, |step| 32 - step);
    assert_eq!(
        growing(vec![shrinks(), leak()], vec![]),
        [(
            31,
            vec!["load".to_owned(), "train".to_owned(), "<module>".to_owned()]
        )]
    );
    // Neither of its callers has enough by itself.
    let half =
        |stack: &'static [usize], odd| site(stack, 1 << 20, move |step| (step + odd) / 6 / 2);
    let found = growing(
        vec![half(&[LOAD, TRAIN, MAIN], 0), half(&[LOAD, MAIN], 6)],
        vec![],
    );
    assert_eq!(found, [(5, vec!["load".to_owned()])], "no caller is named");
}

#[test]
fn what_is_lost_grows_also_where_it_was_allocated_at_once() {
    let burst = || vec![site(&[LOAD, MAIN], 1 << 20, |_| 60)];
    assert_eq!(growing(burst(), vec![]), []);
    let lost = |count| {
        group(
            Fate::Lost,
            ResourceKind::Device,
            (count, count << 20),
            &[LOAD, MAIN],
        )
    };
    assert_eq!(growing(burst(), vec![lost(4)]), []);
    // Here once and there once.
    let both = || {
        let stacks: [&'static [usize]; 2] = [&[LOAD, TRAIN, MAIN], &[LOAD, MAIN]];
        let lost = |stack| group(Fate::Lost, ResourceKind::Device, (4, 4 << 20), stack);
        let sites = stacks.map(|stack| site(stack, 1 << 20, |_| 4));
        growing(sites.into(), stacks.map(lost).into())
    };
    assert_eq!(both(), []);
    // Only what is lost.
    assert_eq!(growing(burst(), vec![lost(20)])[0].0, 20);
}

/// `load` and `train` allocate through `alloc`, from one function: none of them has enough by itself.
fn through_a_helper() -> Process {
    const ALLOC: usize = FOREIGN_FRAME | 100;
    const RUN: usize = FOREIGN_FRAME | 101;
    let half =
        |stack: &'static [usize], odd| site(stack, 1 << 20, move |step| (step + odd) / 6 / 2);
    let mut process = process();
    process.history.sites = vec![
        half(&[ALLOC, LOAD, RUN, MAIN], 0),
        half(&[ALLOC, TRAIN, RUN, MAIN], 6),
    ];
    process
}

/// Neither caller is blamed: not in the summary, not in the annotation.
#[test]
fn call_sites_that_grow_together_are_named_after_what_they_have_in_common() {
    let text = with("1,colour=never", &through_a_helper()).text;
    let line = "  growing  5 MiB in 5 allocations  step  /nowhere/train.py:100\n";
    assert!(text.contains(line), "{text}");
    let stack = " over 24.0 s\n    step  /nowhere/train.py:100\n\n";
    assert!(text.contains(stack), "{text}");
    let github = with("github", &through_a_helper()).github;
    let line = "::warning file=/nowhere/train.py,line=100,title=cuguard%3A growing by 5 MiB";
    assert!(github.contains(line), "{github}");
}

/// Suppressions match the stack traces, also what is not shown of them.
#[test]
fn growth_is_suppressed_by_whole_stack_traces() {
    let growing = |patterns: &str, process: &Process| {
        let name = format!("cuguard-growing-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, patterns).unwrap();
        let words = format!("1,suppress={}", file.display());
        let report = with(&words, process);
        std::fs::remove_file(&file).unwrap();
        let growth: FailOn = "growth".parse().unwrap();
        assert_eq!(report.fails(growth), report.growing != 0);
        let is_unused = report.text.contains("matched nothing");
        assert_eq!(is_unused, patterns.contains("never"), "{}", report.text);
        report.growing
    };
    for (patterns, expected) in [
        ("leak:never\n", 1),
        ("leak:<module>\n", 0),
        ("leak:^step\n", 0),
        // What is left is too little.
        ("leak:^load\n", 0),
        ("leak:^train\n", 0),
        ("leak:^load\nleak:^train\n", 0),
    ] {
        assert_eq!(
            growing(patterns, &through_a_helper()),
            expected,
            "{patterns}"
        );
    }
    // One line of the program allocates through two paths of a library, through one of them at the beginning alone.
    const LAZY: usize = FOREIGN_FRAME | 102;
    const ALLOC: usize = FOREIGN_FRAME | 100;
    let mut process = process();
    process.history.sites = vec![
        site(&[ALLOC, LAZY, TRAIN, MAIN], 1 << 20, |_| 1),
        site(&[ALLOC, TRAIN, MAIN], 1 << 20, |step| step),
        site(&[LOAD, MAIN], 1 << 20, |step| step),
    ];
    for (patterns, expected) in [
        ("leak:never\n", 2),
        ("leak:^train\n", 1),
        ("leak:^load\n", 1),
        ("leak:^train\nleak:^load\n", 0),
    ] {
        assert_eq!(growing(patterns, &process), expected, "{patterns}");
    }
}
