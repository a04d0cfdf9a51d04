//! The words of `LEAK_REPORT`: what each does, and how mistakes are named.

use proptest::prelude::*;

use super::Problem;
use crate::dump_signal::DumpSignal;
use crate::fail_on::FailOn;
use crate::settings::{Colour, ReportSettings};
use cuguard_registry::TrackingLevel;

fn parse(text: &str) -> (ReportSettings, Vec<Problem>) {
    let parsed = super::parse(text);
    (parsed.settings, parsed.problems)
}

#[test]
fn nothing_and_the_words_for_off_are_off() {
    for text in ["", "  ", "0", "off", "No", "FALSE", "0,off", " 0 ,"] {
        let (settings, problems) = parse(text);
        assert!(!settings.is_on() && problems.is_empty(), "{text}");
    }
}

#[test]
fn a_word_for_off_turns_everything_off_and_names_what_it_ignores() {
    for (text, problem) in [
        (
            "0,exitcode=23",
            r#""0" turns everything off; ignored beside it: "exitcode=23""#,
        ),
        (
            "text,Off,max=3,,bogus",
            r#""Off" turns everything off; ignored beside it: "text", "max=3" and "bogus""#,
        ),
        ("0,1", r#""0" turns everything off; ignored beside it: "1""#),
    ] {
        let (settings, problems) = parse(text);
        assert_eq!(settings, ReportSettings::silent(), "{text}");
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, [problem]);
    }
}

#[test]
fn the_nearest_word_is_suggested() {
    for (word, suggestion) in [
        ("jsno", "json"),
        ("jsn", "json"),
        ("exit_code=3", "exitcode"),
        ("colours=never", "colour"),
        ("File=x", "file"),
        ("surpress=x", "suppress"),
    ] {
        let text = parse(word).1[0].to_string();
        let words = format!(" (did you mean {suggestion}?); known words: 0 (off");
        assert!(text.contains(&words), "{text}");
    }
    let long = "json".repeat(1000);
    for word in ["verbose", "bogus", "2", &long] {
        let text = parse(word).1[0].to_string();
        assert!(!text.contains("did you mean"), "{text}");
    }
    let text = parse("1,,json").1[0].to_string();
    let words = r#"there is an empty word in "1,,json"; known words: 0 (off"#;
    assert!(text.starts_with(words), "{text}");
}

#[test]
fn every_word_does_what_it_says() {
    let parsed = super::parse(
        " text, file = x-%p.txt ,exitcode=23,max=20,depth=64,frames=all,level=sites,sample=100,free_leaks=no,colour=always,suppress=a,suppress=b,fail_on=growth+lost,python=no,dump-signal=usr1",
    );
    assert_eq!(parsed.problems, []);
    let mut expected = ReportSettings::text()
        .file("x-%p.txt")
        .unwrap()
        .exit_code(23)
        .max(20)
        .depth(64)
        .all_frames(true)
        .level(TrackingLevel::Sites)
        .sample(100)
        .free_leaks(false)
        .colour(Colour::Always);
    expected.fail_on = Some(FailOn {
        lost: true,
        growth: true,
        ..FailOn::NONE
    });
    expected.python = Some(false);
    expected.dump_signal = Some(DumpSignal::Usr1);
    assert_eq!(
        parsed.suppress_files,
        ["a", "b"].map(std::path::PathBuf::from)
    );
    assert_eq!(parsed.settings, expected);
    assert_eq!(parse("1,color=never").0.wanted_colour(), Colour::Never);
    assert_eq!(parse("1,exitcode=0").0.wanted_exit_code(), None);
    assert_eq!(parse("1,free_leaks=yes").0.wanted_free_leaks(), Some(true));
    assert_eq!(
        parse("1,free_leaks=yes,free_leaks=no")
            .0
            .wanted_free_leaks(),
        Some(false)
    );
    assert_eq!(parse("1").0.wanted_free_leaks(), None);
    for (value, free) in [("true", true), ("on", true), ("1", true), ("0", false)] {
        let (settings, problems) = parse(&format!("free_leaks={value}"));
        assert_eq!(
            (settings.wanted_free_leaks(), problems),
            (Some(free), Vec::new())
        );
    }
    for value in ["false", "off"] {
        let settings = parse(&format!("free_leaks={value}")).0;
        assert_eq!(settings.wanted_free_leaks(), Some(false));
    }
    assert_eq!(parse("1").0.wanted_sample(), 1);
    assert_eq!(parse("1,sample=4294967295").0.wanted_sample(), u32::MAX);
    assert_eq!(
        parse("level=sites,level=counts").0.wanted_level(),
        Some(TrackingLevel::Counts)
    );
}

#[test]
fn the_file_beside_record_is_that_of_the_recording() {
    for text in ["record,file=a-%p.cgr,json", "json,file=a-%p.cgr,record"] {
        let (settings, problems) = parse(text);
        assert_eq!(problems, []);
        assert_eq!(settings, ReportSettings::json().record("a-%p.cgr").unwrap());
        assert_eq!(settings.file_of(1, 1), None);
    }
    let (settings, _) = parse("record");
    let expected = format!("cuguard-{}.cgr", std::process::id());
    assert_eq!(settings.recording_file(), Some(expected.into()));
    assert!(settings.is_on() && settings.named_level() == Some(TrackingLevel::Stacks));
    assert_eq!(parse("file=a.txt").0.recording_file(), None);
}

#[test]
fn sizes_have_units() {
    for (value, expected) in [
        ("1048576", 1 << 20),
        ("2048K", 2 << 20),
        ("256MiB", 256 << 20),
        ("3 gib", 3 << 30),
        ("1700000b", 1_700_000),
    ] {
        let (settings, problems) = parse(&format!("record-limit={value}"));
        assert_eq!((settings.record_limit, problems), (Some(expected), vec![]));
    }
    for value in [
        "MiB",
        "-1",
        "1.5G",
        "99999999999999999999",
        "17179869184G",
        "5T",
    ] {
        let (settings, problems) = parse(&format!("record-limit={value}"));
        assert_eq!(settings.record_limit, None);
        let problem = problems[0].to_string();
        let expected = format!(
            "cannot use \"record-limit={value}\": {value:?} is not a size of at least 1 MiB, in bytes, or with K, M or G: 256MiB"
        );
        assert_eq!(problem, expected);
    }
    for value in ["0", "1048575", "64K"] {
        let (settings, problems) = parse(&format!("record,record-limit={value}"));
        assert_eq!(settings.recording_options().unwrap().limit, 1 << 20);
        let expected = format!(
            "cannot use \"record-limit={value}\": {value:?} is not a size of at least 1 MiB, in bytes, or with K, M or G: 256MiB"
        );
        let with_limit = format!("{expected}; the recording's limit is 1 MiB");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].to_string(), with_limit);
        // Without a recording nothing is said of its limit.
        let (_, problems) = parse(&format!("1,record-limit={value}"));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].to_string(), expected);
    }
    let problem = parse("record-policy=first").1[0].to_string();
    let expected = "cannot use \"record-policy=first\": \"first\" is none of all, last, aggregate";
    assert_eq!(problem, expected);
    let problem = parse("record=yes").1[0].to_string();
    assert_eq!(problem, "cannot use \"record=yes\": record takes no value");
}

#[test]
fn what_is_wrong_is_named_and_the_rest_holds() {
    let (settings, problems) = parse(
        "1,colour=purple,exitcode=,max,depth=0,level=all,file=%q,json=1,bogus,max=-1,exitcode=256,max=7,\
         sample=0,sample=4294967296,sample=,free_leaks=maybe,free_leaks=2,free_leaks,frames=mine,off=1,fail_on=lost+lots,fail_on=,python=3,dump-signal=KILL,",
    );
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let starts = [
        "cannot use \"colour=purple\": \"purple\" is none of auto, always, never",
        "cannot use \"exitcode=\": exitcode needs a value: a number from 0 to 255",
        "cannot use \"max\": max needs a value: a number of groups",
        "cannot use \"depth=0\": \"0\" is not a number of frames from 1 to 128",
        "cannot use \"level=all\": \"all\" is none of counts, sites, stacks",
        "cannot use \"file=%q\": %q means nothing",
        "cannot use \"json=1\": json takes no value",
        "unknown word \"bogus\"; known words: 0 (off, no, false), 1 (on, yes, true), text, json, github, file=PATTERN",
        "cannot use \"max=-1\": \"-1\" is not a number of groups",
        "cannot use \"exitcode=256\": \"256\" is not a number from 0 to 255",
        "cannot use \"sample=0\": \"0\" is not a number from 1 to 4294967295",
        "cannot use \"sample=4294967296\": \"4294967296\" is not a number from 1 to 4294967295",
        "cannot use \"sample=\": sample needs a value: a number from 1 to 4294967295",
        "cannot use \"free_leaks=maybe\": \"maybe\" is none of yes, no",
        "cannot use \"free_leaks=2\": \"2\" is none of yes, no",
        "cannot use \"free_leaks\": free_leaks needs a value: one of yes, no",
        "cannot use \"frames=mine\": \"mine\" is none of program, all",
        "cannot use \"off=1\": off takes no value",
        "cannot use \"fail_on=lost+lots\": \"lost+lots\" is not one or more of lost, reachable, growth, oom, destroyed, joined by +",
        "cannot use \"fail_on=\": fail_on needs a value: one or more of lost, reachable, growth, oom, destroyed, joined by +",
        "cannot use \"python=3\": \"3\" is none of yes, no",
        "cannot use \"dump-signal=KILL\": \"KILL\" is none of USR1, USR2, HUP, IO, PWR, none",
        "there is an empty word in \"1,colour=purple",
    ];
    assert_eq!(texts.len(), starts.len(), "{texts:#?}");
    for (text, start) in texts.iter().zip(starts) {
        assert!(text.starts_with(start), "{text}");
    }
    assert_eq!(
        settings,
        ReportSettings {
            mode: settings.mode,
            ..ReportSettings::text().max(7)
        }
    );
    assert!(settings.is_on());
}

#[test]
fn old_words_and_other_separators_are_explained() {
    for (text, problem) in [
        (
            "reclaim=no",
            r#"cannot use "reclaim=no": `reclaim` is now `free_leaks`"#,
        ),
        (
            "1;exitcode=2",
            r#"cannot use "1;exitcode=2": words are separated by commas"#,
        ),
        (
            "exitcode=2;json",
            r#"cannot use "exitcode=2;json": words are separated by commas"#,
        ),
    ] {
        let (settings, problems) = parse(text);
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, [problem]);
        assert!(settings.is_on());
    }
    assert_eq!(parse("file=a;b").1, []);
}

#[test]
fn a_list_of_unknown_words_is_on() {
    let (settings, problems) = parse("verbose");
    assert!(settings.is_on());
    assert!(matches!(&problems[..], [Problem::UnknownWord { .. }]));
}

const GOOD: [&str; 21] = [
    "1",
    "text",
    "json",
    "github",
    "yes",
    "file=a%p",
    "exitcode=3",
    "max=0",
    "depth=9",
    "frames=program",
    "level=stacks",
    "sample=8",
    "free_leaks=no",
    "color=auto",
    "fail_on=lost+growth+oom+destroyed",
    "python=no",
    "dump-signal=none",
    "record",
    "record-limit=1G",
    "record-policy=last",
    "embed-symbols",
];

proptest! {
    #![proptest_config(cuguard_testing::property_config!())]

    #[test]
    fn any_text_is_taken_without_a_panic(text in "\\PC*") {
        let _ = parse(&text);
    }

    /// Bad words among good ones: each bad one is named, no good one is, and the settings are
    /// those of the good ones.
    #[test]
    fn every_bad_word_is_named(
        words in prop::collection::vec(
            prop_oneof![
                prop::sample::select(GOOD.to_vec()).prop_map(|word| (word.to_owned(), true)),
                "[a-z]{1,6}xx(=[a-z0-9%]{0,5})?".prop_map(|word| (word, false)),
                "(exitcode|max|depth|frames|level|sample|free_leaks|colour|fail_on|python|dump-signal|record|record-limit|record-policy)=[g-z]{0,4}q".prop_map(|word| (word, false)),
            ],
            1..12,
        )
    ) {
        let join = |good_only: bool| {
            let words = words.iter().filter(|(_, good)| *good || !good_only);
            words.map(|(word, _)| word.as_str()).collect::<Vec<_>>().join(",")
        };
        let (settings, problems) = parse(&join(false));
        let named: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let bad: Vec<_> = words.iter().filter(|(_, good)| !good).collect();
        prop_assert_eq!(named.len(), bad.len());
        for (text, (word, _)) in named.iter().zip(bad) {
            prop_assert!(text.contains(&format!("{word:?}")), "{} in {}", word, text);
        }
        let (mut good, none) = parse(&join(true));
        prop_assert!(none.is_empty());
        if !good.is_on() {
            good.mode = settings.mode;
        }
        prop_assert_eq!(settings, good);
    }
}
