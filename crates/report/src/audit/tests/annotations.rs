//! Annotations of files, and what is annotated.

use super::*;

#[test]
fn annotations_are_at_the_lines_of_the_user() {
    let report = with("github", &process());
    let lines: Vec<_> = report.github.lines().collect();
    assert_eq!(
        lines[0],
        "::warning file=/nowhere/model.py,line=10,title=cuguard%3A refused 3 allocations of device memory for lack of memory%2C the largest of 2 GiB::\
         refused 3 allocations of device memory for lack of memory, the largest of 2 GiB%0A  load  /nowhere/model.py:10%0A  <module>  /nowhere/train.py:30%0Awhy%0A  because"
    );
    assert_eq!(
        lines[1],
        "::error file=/nowhere/train.py,line=20,title=cuguard%3A lost 8 MiB in 2 allocations of device memory::\
         lost 8 MiB in 2 allocations of device memory%0A  train  /nowhere/train.py:20%0A  <module>  /nowhere/train.py:30"
    );
    assert!(
        lines[2]
            .starts_with("::error file=/nowhere/train.py,line=20,title=cuguard%3A lost 1 stream::")
    );
    assert!(
        lines[3].starts_with(
            "::warning file=/nowhere/train.py,line=20,title=cuguard%3A growing by 31 MiB in 31 allocations"
        )
    );
    assert!(lines[4].starts_with("cuguard: process 4711 (python train.py): lost 8 MiB"));
    assert_eq!(lines.len(), 5);
}

/// What fails the run is an error at its line, also what is no leak.
#[test]
fn what_fails_the_run_is_annotated() {
    let commands = |words: &str| {
        let report = with(words, &process());
        let lines = report.github.lines().filter(|line| line.starts_with("::"));
        let commands = lines.map(|line| {
            let command = line.split_once(' ').expect("a command").0.to_owned();
            let title = line.split_once("title=cuguard%3A ").expect("a title").1;
            let title = title.split(' ').next().unwrap_or_default();
            format!("{command} {title}")
        });
        commands.collect::<Vec<_>>()
    };
    let lost = ["::error lost", "::error lost"];
    let mut expected = vec!["::warning refused"];
    expected.extend(lost);
    expected.push("::warning growing");
    assert_eq!(commands("github"), expected);
    let mut expected = vec!["::error refused"];
    expected.extend(lost);
    expected.extend(["::error reachable", "::error reachable", "::error growing"]);
    assert_eq!(
        commands("github,fail_on=lost+reachable+growth+oom"),
        expected
    );
    let report = with("github,fail_on=reachable,max=1", &process());
    let last = "; 1 of 2 groups shown of what is lost, max=2 shows all; 1 of 2 groups shown of what is reachable, max=2 shows all\n";
    assert!(report.github.ends_with(last), "{}", report.github);
}
