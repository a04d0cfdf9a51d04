//! Tests of the report. Stacks are numbers of an interpreter's frames, which the tests resolve themselves, so that names and
//! lines are the same in each run.

use std::time::Duration;

use cuguard_registry::{
    Amount, Fate, Group, History, Origin, Peak, ResourceKind, SiteHistory, SiteSteps, Steps, Totals,
};
use serde_json::json;

use super::{Failure, Process, Refused, Rendered, Search, render};
use crate::fail_on::FailOn;
use crate::foreign::{FOREIGN_FRAME, ForeignFrame, register_frames};
use crate::settings::ReportSettings;
use crate::stats::{SiteNames, Stats};
use crate::tests_support::{member_names, read};

mod annotations;
mod fates;
mod growing;
mod json;

const LOAD: usize = FOREIGN_FRAME | 10;
const TRAIN: usize = FOREIGN_FRAME | 20;
const MAIN: usize = FOREIGN_FRAME | 30;
/// In a package that allocates for its caller.
const TORCH: usize = FOREIGN_FRAME | 40;
const EVIL: usize = FOREIGN_FRAME | 50;

fn resolve(number: usize) -> Option<ForeignFrame> {
    let line = (number & !FOREIGN_FRAME) as u32;
    let (function, file) = match number {
        LOAD => ("load", "/nowhere/model.py"),
        TRAIN => ("train", "/nowhere/train.py"),
        MAIN => ("<module>", "/nowhere/train.py"),
        TORCH => ("empty", "/x/site-packages/torch/nn/x.py"),
        EVIL => ("a\x1b[31m\nb", "/nowhere/\u{202e}.py"),
        // Functions of one call each.
        _ if (100..200).contains(&line) => ("step", "/nowhere/train.py"),
        _ => return None,
    };
    let (function, file) = (function.to_owned(), file.to_owned());
    Some(ForeignFrame {
        function,
        file,
        line,
    })
}

fn origin(stack: &'static [usize]) -> Origin {
    register_frames(resolve);
    Origin { site: None, stack }
}

fn group(fate: Fate, kind: ResourceKind, amount: (u64, u64), stack: &'static [usize]) -> Group {
    Group {
        fate,
        origin: origin(stack),
        threads: vec!["main"],
        oldest: Duration::from_millis(1500),
        youngest: Duration::from_millis(1500),
        addresses: vec![0x7f00],
        ..Group::new(kind, "", amount.0, amount.1)
    }
}

/// A call site that holds `live` blocks of `bytes` bytes after each of 32 steps.
fn site(stack: &'static [usize], bytes: u64, live: impl Fn(u64) -> u64) -> SiteHistory {
    let live: Vec<u64> = (0..32).map(live).collect();
    SiteHistory {
        origin: origin(stack),
        bytes: live.iter().map(|live| live * bytes).collect(),
        steps: SiteSteps {
            live,
            ..SiteSteps::default()
        },
    }
}

fn process() -> Process {
    let mut reachable = group(
        Fate::Reachable,
        ResourceKind::Device,
        (12, 3 << 30),
        &[TORCH, LOAD, MAIN],
    );
    reachable.holder = Some("global `cache` in libfoo.so");
    let times: Vec<_> = (0..32).map(Duration::from_secs).collect();
    Process {
        pid: 4711,
        command: "python train.py".to_owned(),
        reason: "exit".to_owned(),
        duration: Duration::from_millis(32_400),
        groups: vec![
            reachable,
            group(
                Fate::DestroyedWithContext,
                ResourceKind::Event,
                (2, 0),
                &[MAIN],
            ),
            group(
                Fate::Lost,
                ResourceKind::Device,
                (2, 8 << 20),
                &[TRAIN, MAIN],
            ),
            group(Fate::Lost, ResourceKind::Stream, (1, 0), &[TRAIN, MAIN]),
            group(Fate::FreedLate, ResourceKind::Device, (1, 100), &[MAIN]),
            group(
                Fate::Reachable,
                ResourceKind::AddressRange,
                (1, 1 << 40),
                &[LOAD, MAIN],
            ),
        ],
        totals: vec![(
            ResourceKind::Device,
            Totals {
                allocated: 100,
                ..Totals::default()
            },
        )],
        history: History {
            steps: Steps {
                times,
                work: (1..=32).map(|step| step * 10).collect(),
                ..Steps::default()
            },
            sites: vec![
                site(&[TRAIN, MAIN], 1 << 20, |step| step),
                site(&[LOAD, MAIN], 1 << 28, |_| 12),
            ],
        },
        peak: Some(Peak {
            time: Duration::from_millis(12_300),
            bytes: (3 << 30) + (8 << 20),
            sites: vec![
                (origin(&[TORCH, LOAD, MAIN]), Amount::new(12, 3 << 30)),
                (origin(&[TRAIN, MAIN]), Amount::new(2, 8 << 20)),
            ],
        }),
        unrecorded: vec![("cuFooAlloc".to_owned(), 3), ("cuBarCreate".to_owned(), 1)],
        search: Some(Search {
            bytes: 987 << 20,
            elapsed: Duration::from_millis(420),
            cut_short: None,
        }),
        failure: None,
        refused: vec![Refused {
            function: "cuMemAlloc_v2".to_owned(),
            kind: Some(ResourceKind::Device),
            bytes: Some(1 << 30),
            largest: Some(2 << 30),
            count: 3,
            origin: origin(&[LOAD, MAIN]),
            diagnosis: "why\n  because\n".to_owned(),
        }],
    }
}

fn with(words: &str, process: &Process) -> Rendered {
    let (settings, problems) = ReportSettings::parse(words);
    assert_eq!(problems, []);
    render(process, &settings)
}

#[test]
fn the_whole_text() {
    let report = with("1,colour=never", &process());
    let expected = "\
cuguard: process 4711 (python train.py): lost 8 MiB in 2 allocations and 1 stream; reachable 3 GiB in 12 allocations and 1 reserved address range; destroyed with their context 2 events; freed after their context was destroyed 100 B in 1 allocation; 1 call site growing; 3 allocations refused for lack of memory
  100 resources allocated, ran for 32.4 s, ended by exit

where to look:
  refused  2 GiB                     load  /nowhere/model.py:10
  lost     8 MiB in 2 allocations    train  /nowhere/train.py:20, and 1 more group
  growing  31 MiB in 31 allocations  train  /nowhere/train.py:20

refused 3 allocations of device memory for lack of memory, the largest of 2 GiB, by cuMemAlloc_v2
    load      /nowhere/model.py:10
    <module>  /nowhere/train.py:30

lost 8 MiB in 2 allocations of device memory
  thread main, allocated 1.5 s ago, 0x7f00
    train     /nowhere/train.py:20
    <module>  /nowhere/train.py:30

lost 1 stream
  thread main, allocated 1.5 s ago, 0x7f00
    train     /nowhere/train.py:20
    <module>  /nowhere/train.py:30

growing by 31 MiB in 31 allocations over 30.0 s
    train     /nowhere/train.py:20
    <module>  /nowhere/train.py:30

reachable 3 GiB in 12 allocations of device memory, from global `cache` in libfoo.so
  thread main, allocated 1.5 s ago, 0x7f00
    load      /nowhere/model.py:10
    <module>  /nowhere/train.py:30
    … empty (PyTorch)

reachable 1 reserved address range of 1 TiB
  thread main, allocated 1.5 s ago, 0x7f00
    load      /nowhere/model.py:10
    <module>  /nowhere/train.py:30

destroyed with their context 2 events
  thread main, allocated 1.5 s ago, 0x7f00
    <module>  /nowhere/train.py:30

freed after their context was destroyed 100 B in 1 allocation of device memory
  thread main, allocated 1.5 s ago, 0x7f00
    <module>  /nowhere/train.py:30

by call site:
  3 GiB in 13                  load  /nowhere/model.py:10
  8 MiB in 3, lost 8 MiB in 3  train  /nowhere/train.py:20

by library:
  3 GiB in 12                  x.py
  8 MiB in 3, lost 8 MiB in 3  train.py
  1 resource                   model.py

at the peak, 3.01 GiB of device memory after 12.3 s (within 2 %): all of it is still alive

not recorded, and may allocate: cuFooAlloc (3 calls) and cuBarCreate (1 call)
searched 987 MiB of the process in 420 ms
";
    assert_eq!(report.text, expected);
    assert_eq!(report.lost, Amount::new(3, 8 << 20));
    assert_eq!(report.reachable, Amount::new(13, 3 << 30));
    // Of handles that is not a finding.
    assert_eq!(report.destroyed, Amount::default());
    assert_eq!((report.growing, report.refused), (1, 3));
    assert!(report.json.is_empty() && report.github.is_empty());
}

/// Frames of libraries are counted in one line, so that groups that differ in them alone are one.
#[test]
fn groups_that_differ_in_frames_of_libraries_are_one() {
    let process = Process {
        groups: vec![
            group(
                Fate::Lost,
                ResourceKind::Device,
                (1, 10),
                &[TORCH, LOAD, MAIN],
            ),
            group(
                Fate::Lost,
                ResourceKind::Device,
                (2, 30),
                &[LOAD, TORCH, MAIN],
            ),
        ],
        ..Process::default()
    };
    let text = with("1,colour=never", &process).text;
    assert!(text.contains("lost 40 B in 3 allocations"), "{text}");
    assert_eq!(text.matches("… empty (PyTorch)").count(), 1, "{text}");
    let all = with("1,frames=all,colour=never", &process).text;
    assert_eq!(all.matches("\nlost ").count(), 2, "{all}");
    assert!(!all.contains('…'), "{all}");
    assert!(
        all.contains("    empty     /x/site-packages/torch/nn/x.py:40\n"),
        "{all}"
    );
}

/// A function through which all allocations go tells nothing: its callers do.
#[test]
fn an_allocation_helper_is_looked_through() {
    let stacks: [&[usize]; 4] = [&[EVIL, TRAIN, MAIN], &[EVIL, LOAD], &[EVIL, MAIN], &[TRAIN]];
    let groups = stacks.map(|stack| group(Fate::Lost, ResourceKind::Device, (1, 10), stack));
    let process = Process {
        groups: groups.into(),
        ..Process::default()
    };
    let value = read(with("json", &process).json.trim_end());
    let rows = value["by_frame"].as_array().unwrap().iter();
    let names: Vec<_> = rows.map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["train", "<module>", "load"]);
    let github = with("github", &process).github;
    let annotated: Vec<_> = github
        .lines()
        .filter(|line| line.starts_with("::"))
        .collect();
    assert_eq!(annotated.len(), 4, "{github}");
    for line in annotated {
        let at_caller = ["model.py,line=10", "train.py,line=20", "train.py,line=30"];
        assert!(at_caller.iter().any(|at| line.contains(at)), "{line}");
    }
}

/// Also in the figures of a running process.
#[test]
fn figures_name_call_sites_after_callers() {
    let stacks: [&[usize]; 3] = [&[EVIL, TRAIN, MAIN], &[EVIL, LOAD], &[TRAIN]];
    let stats = Stats {
        tool: "cuguard-audit",
        sites: stacks
            .map(|stack| group(Fate::Unclassified, ResourceKind::Device, (1, 10), stack))
            .into(),
        ..Stats::default()
    };
    let mut names = SiteNames::default();
    for _ in 0..2 {
        let value = read(stats.to_json(10, &mut names).trim_end());
        let sites = value["sites"].as_array().unwrap().iter();
        let mut functions: Vec<_> = sites
            .map(|site| site["function"].as_str().unwrap())
            .collect();
        functions.sort_unstable();
        assert_eq!(functions, ["load", "train", "train"]);
    }
}

#[test]
fn a_process_without_leaks_is_two_lines() {
    let process = Process {
        pid: 7,
        totals: process().totals,
        ..Process::default()
    };
    let report = with("1", &process);
    assert_eq!(
        report.text,
        "cuguard: process 7: nothing is lost\n  100 resources allocated\n"
    );
    assert_eq!((report.lost, report.growing), (Amount::default(), 0));
}

#[test]
fn suppressed_groups_are_counted_and_not_shown() {
    let file = std::env::temp_dir().join(format!("cuguard-audit-{}", std::process::id()));
    std::fs::write(&file, "leak:train$\nleak:never\n").unwrap();
    let words = format!("text,json,colour=never,suppress={}", file.display());
    let report = with(&words, &process());
    std::fs::remove_file(file).unwrap();
    assert!(report.lost.is_zero() && report.growing == 0);
    assert!(
        report.line.starts_with("nothing is lost; reachable 3 GiB")
            && report
                .line
                .contains("; suppressed 8 MiB in 2 allocations and 1 stream; "),
        "{}",
        report.line
    );
    let suppressed = "suppressed 8 MiB in 2 allocations and 1 stream in 2 groups\n";
    assert!(report.text.contains(suppressed), "{}", report.text);
    let unused = "suppressions that matched nothing: leak:never\n";
    assert!(report.text.contains(unused), "{}", report.text);
    let value = read(report.json.trim_end());
    assert_eq!(value["suppressed"]["count"], 3);
    assert_eq!(value["suppressed"]["unused"], json!(["leak:never"]));
}

#[test]
fn a_file_has_the_diagnosis_of_what_was_refused() {
    let text = with("text,file=/nowhere/x.txt", &process()).text;
    let expected = "
refused 3 allocations of device memory for lack of memory, the largest of 2 GiB, by cuMemAlloc_v2
    load      /nowhere/model.py:10
    <module>  /nowhere/train.py:30
  | why
  |   because
";
    assert!(text.contains(expected), "{text}");
    let mut process = process();
    process.refused[0].kind = Some(ResourceKind::Context);
    (process.refused[0].count, process.refused[0].largest) = (1, None);
    let text = with("1", &process).text;
    assert!(
        text.contains("refused 1 context for lack of memory, by cuMemAlloc_v2\n"),
        "{text}"
    );
}

#[test]
fn a_report_that_the_program_asked_for_is_no_end() {
    let process = Process {
        reason: "requested".to_owned(),
        ..process()
    };
    let text = with("1,colour=never", &process).text;
    let line = "\n  100 resources allocated, ran for 32.4 s, and still runs: the program asked for this report\n";
    assert!(text.contains(line), "{text}");
}

/// Text of the program does not reach a terminal as it is, nor does it end a line.
#[test]
fn text_of_the_program_is_escaped() {
    let mut process = Process {
        pid: 1,
        command: "x\x1b]0;title\x07\ny".to_owned(),
        reason: "re\x1bason".to_owned(),
        groups: vec![group(Fate::Lost, ResourceKind::Device, (1, 1), &[EVIL])],
        unrecorded: vec![("cu\x1bEvil".to_owned(), 1)],
        ..Process::default()
    };
    process.groups[0].threads = vec!["th\x1bread\n"];
    process.groups[0].holder = Some("global `\x1b`");
    for words in ["1,colour=never", "github", "json"] {
        let report = with(words, &process);
        let all = report.text + &report.github + report.json.trim_end();
        assert!(!all.is_empty());
        for character in ['\x1b', '\x07', '\u{202e}'] {
            let allowed = words == "json" && character == '\u{202e}';
            assert!(allowed || !all.contains(character), "{words}: {all:?}");
        }
    }
    let text = with("1,colour=never", &process).text;
    assert!(text.contains("a\\u{1b}[31m\\nb"), "{text}");
}

#[test]
fn a_search_that_was_cut_short_is_named() {
    let mut process = process();
    process.search = Some(Search {
        cut_short: Some("more than 10 s".to_owned()),
        ..Search::default()
    });
    process.groups = vec![group(
        Fate::Unclassified,
        ResourceKind::Device,
        (1, 4096),
        &[MAIN],
    )];
    let report = with("1,colour=never", &process);
    assert!(report.lost.is_zero());
    assert!(
        report
            .line
            .starts_with("nothing is lost; alive 4 KiB in 1 allocation"),
        "{}",
        report.line
    );
    let cut = "  the search for addresses was cut short: more than 10 s\n";
    assert!(report.text.contains(cut), "{}", report.text);
}

#[test]
fn groups_with_the_same_lines_are_one() {
    let process = Process {
        groups: vec![
            group(Fate::Lost, ResourceKind::Device, (1, 10), &[TRAIN, MAIN]),
            group(Fate::Lost, ResourceKind::Device, (2, 30), &[TRAIN, MAIN]),
            group(
                Fate::Reachable,
                ResourceKind::Device,
                (2, 30),
                &[TRAIN, MAIN],
            ),
        ],
        ..Process::default()
    };
    let value = read(with("json", &process).json.trim_end());
    assert_eq!(value["groups"].as_array().unwrap().len(), 2);
    assert_eq!(value["groups"][0]["bytes"], 40);
}

/// At level *sites* all that is shown of a stack is the call site, and what it called.
#[test]
fn call_sites_alone() {
    let process = Process {
        groups: vec![
            group(
                Fate::Lost,
                ResourceKind::Device,
                (1, 10),
                &[TORCH, LOAD, TRAIN, MAIN],
            ),
            group(
                Fate::Lost,
                ResourceKind::Device,
                (2, 30),
                &[TORCH, LOAD, MAIN],
            ),
        ],
        ..Process::default()
    };
    let text = with("1,level=sites,colour=never", &process).text;
    let expected = "\
lost 40 B in 3 allocations of device memory
  thread main, allocated 1.5 s ago, 0x7f00
    load  /nowhere/model.py:10
    … empty (PyTorch)
";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn a_failure_of_the_device_is_named() {
    let mut process = process();
    process.failure = Some(Failure {
        function: "cuMemFree_v2".to_owned(),
        code: 700,
    });
    let text = with("1,colour=never", &process).text;
    let line = "  cuMemFree_v2 returned error 700, and so does every later call: what is alive could not be freed\n";
    assert!(text.contains(line), "{text}");
}
