//! The words of `LEAK_REPORT`.

use std::path::PathBuf;
use std::str::FromStr;

use cuguard_registry::MAX_DEPTH;

use crate::format::ReportMode;
use crate::pattern::FilePattern;
use crate::problem::{Problem, VALUES};
use crate::settings::{Colour, ReportSettings};

/// The environment variable.
pub(crate) const VARIABLE: &str = "LEAK_REPORT";

impl ReportSettings {
    /// Parses a list of words as in `LEAK_REPORT`. Returns the settings that the usable words make, and
    /// what cannot be used. Reads files of suppressions.
    ///
    /// ```
    /// let (settings, problems) = cuguard::report::ReportSettings::parse("1,colour=purple,max=3");
    /// assert!(settings.is_on());
    /// assert_eq!(
    ///     problems[0].to_string(),
    ///     "cannot use \"colour=purple\": \"purple\" is none of auto, always, never"
    /// );
    /// ```
    pub fn parse(text: &str) -> (Self, Vec<Problem>) {
        let mut parsed = parse(text);
        for path in parsed.suppress_files {
            if let Err(error) = parsed.settings.suppressions.read(&path) {
                let reason = error.to_string();
                parsed.problems.push(Problem::CannotRead { path, reason });
            }
        }
        (parsed.settings, parsed.problems)
    }
}

/// A list of words, before files are read.
#[derive(Default)]
struct Parsed {
    settings: ReportSettings,
    suppress_files: Vec<PathBuf>,
    problems: Vec<Problem>,
    /// Whether there is the word `record`.
    record: bool,
}

/// An empty list sets nothing. One with `0` in it turns everything off. Any other turns the report on,
/// also one without a known word: a misspelled word must not hide the report.
fn parse(list: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let words = || list.split(',').map(str::trim);
    if list.trim().is_empty() {
        return parsed;
    }
    if let Some(off) = words().find(|word| is_off(word)) {
        let others = words().filter(|word| !word.is_empty() && !is_off(word));
        let words: Vec<_> = others.map(str::to_owned).collect();
        if !words.is_empty() {
            let off = off.to_owned();
            parsed.problems.push(Problem::Ignored { off, words });
        }
        parsed.settings = ReportSettings::silent();
        return parsed;
    }
    parsed.settings.mode = ReportMode::Implied;
    for word in words() {
        let problem = if word.is_empty() {
            let list = list.to_owned();
            Some(Problem::EmptyWord { list }).filter(|problem| !parsed.problems.contains(problem))
        } else {
            let problem = parsed.apply(word).err();
            problem.map(|problem| match word.contains(';') {
                true => Problem::BadValue {
                    word: word.to_owned(),
                    why: "words are separated by commas".to_owned(),
                },
                false => problem,
            })
        };
        parsed.problems.extend(problem);
    }
    if parsed.record {
        // The file is that of the recording, wherever it stands in the list.
        let settings = &mut parsed.settings;
        settings.record = settings.file.take().or(FilePattern::of_recording().ok());
    }
    parsed
}

fn is_off(word: &str) -> bool {
    ReportMode::Off.with_word(word) == Some(ReportMode::Silent)
}

impl Parsed {
    fn apply(&mut self, word: &str) -> Result<(), Problem> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim_start())),
            None => (word, None),
        };
        let bad = |why: String| Problem::BadValue {
            word: word.to_owned(),
            why,
        };
        let settings = &mut self.settings;
        if let Some(mode) = settings.mode.with_word(name) {
            if value.is_some() {
                return Err(bad(format!("{name} takes no value")));
            }
            settings.mode = mode;
            return Ok(());
        }
        if let "record" | "embed-symbols" = name {
            if value.is_some() {
                return Err(bad(format!("{name} takes no value")));
            }
            match name {
                "record" => self.record = true,
                _ => settings.embed_symbols = Some(true),
            }
            return Ok(());
        }
        if name == "reclaim" {
            return Err(bad("`reclaim` is now `free_leaks`".to_owned()));
        }
        let name = match name {
            "color" => "colour",
            "dump_signal" => "dump-signal",
            name => name,
        };
        let known = VALUES.iter().find(|(known, _)| *known == name);
        let Some((_, expected)) = known else {
            let word = word.to_owned();
            return Err(Problem::UnknownWord { word });
        };
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            let name = word.split('=').next().unwrap_or_default().trim_end();
            return Err(bad(format!("{name} needs a value: {expected}")));
        };
        let not_expected = || match expected.strip_prefix("one of ") {
            Some(choices) => bad(format!("{value:?} is none of {choices}")),
            None => bad(format!("{value:?} is not {expected}")),
        };
        match (name, value) {
            ("file", _) => {
                let pattern = FilePattern::new(value).map_err(|error| bad(error.to_string()))?;
                settings.file = Some(pattern);
            }
            ("exitcode", _) => settings.exit_code = Some(number(value).ok_or_else(not_expected)?),
            ("max", _) => {
                let max: u64 = number(value).ok_or_else(not_expected)?;
                settings.max = Some(max.try_into().unwrap_or(usize::MAX));
            }
            ("depth", _) => {
                let depth = number(value).filter(|depth| (1..=MAX_DEPTH).contains(depth));
                settings.depth = Some(depth.ok_or_else(not_expected)?);
            }
            ("sample", _) => {
                let sample = number(value).filter(|one_in| *one_in != 0);
                settings.sample = Some(sample.ok_or_else(not_expected)?);
            }
            ("suppress", _) => self.suppress_files.push(value.into()),
            ("level", _) => settings.level = Some(value.parse().map_err(|_| not_expected())?),
            ("frames", "program") => settings.all_frames = Some(false),
            ("frames", "all") => settings.all_frames = Some(true),
            ("free_leaks", "yes" | "true" | "on" | "1") => settings.free_leaks = Some(true),
            ("free_leaks", "no" | "false" | "off" | "0") => settings.free_leaks = Some(false),
            ("dump-signal", _) => {
                settings.dump_signal = Some(value.parse().map_err(|_| not_expected())?);
            }
            ("python", "yes" | "true" | "on" | "1") => settings.python = Some(true),
            ("python", "no" | "false" | "off" | "0") => settings.python = Some(false),
            ("fail_on", _) => settings.fail_on = Some(value.parse().map_err(|_| not_expected())?),
            ("record-limit", _) => {
                settings.record_limit = Some(bytes(value).ok_or_else(not_expected)?);
            }
            ("record-policy", _) => {
                settings.record_policy = Some(value.parse().map_err(|_| not_expected())?);
            }
            ("colour", "auto") => settings.colour = Some(Colour::Auto),
            ("colour", "always") => settings.colour = Some(Colour::Always),
            ("colour", "never") => settings.colour = Some(Colour::Never),
            _ => return Err(not_expected()),
        }
        Ok(())
    }
}

/// A number in digits alone, without a sign.
fn number<N: FromStr>(value: &str) -> Option<N> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|_| digits)
}

/// A size in bytes: digits, and a unit of 1024, 1024² or 1024³ bytes (`K`, `KiB`, `M`, `MiB`, `G`, `GiB`).
fn bytes(value: &str) -> Option<u64> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = value.split_at(digits);
    let unit: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return None,
    };
    number::<u64>(count)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Problem;
    use crate::dump_signal::DumpSignal;
    use crate::fail_on::FailOn;
    use crate::settings::{Colour, ReportSettings};
    use cuguard_registry::Level;

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
            .level(Level::Sites)
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
            Some(Level::Counts)
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
        assert!(settings.is_on() && settings.named_level() == Some(Level::Stacks));
        assert_eq!(parse("file=a.txt").0.recording_file(), None);
    }

    #[test]
    fn sizes_have_units() {
        for (value, expected) in [
            ("1000", 1000),
            ("64K", 64 << 10),
            ("256MiB", 256 << 20),
            ("3 gib", 3 << 30),
            ("17b", 17),
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
            let problem = parse(&format!("record-limit={value}")).1[0].to_string();
            let expected = format!(
                "cannot use \"record-limit={value}\": {value:?} is not a size in bytes, or with K, M or G: 256MiB"
            );
            assert_eq!(problem, expected);
        }
        let problem = parse("record-policy=first").1[0].to_string();
        let expected =
            "cannot use \"record-policy=first\": \"first\" is none of all, last, aggregate";
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
            "cannot use \"fail_on=lost+lots\": \"lost+lots\" is not one or more of lost, reachable, growth, oom, joined by +",
            "cannot use \"fail_on=\": fail_on needs a value: one or more of lost, reachable, growth, oom, joined by +",
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
        "fail_on=lost+growth+oom",
        "python=no",
        "dump-signal=none",
        "record",
        "record-limit=1G",
        "record-policy=last",
        "embed-symbols",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

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
}
