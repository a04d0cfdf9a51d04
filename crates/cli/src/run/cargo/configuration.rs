//! For which targets cargo builds, and by which runners the user has it start programs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use cargo_config2::Config;

use super::super::failure::Failure;

/// What cargo calls the machine's own target in place of its name.
const HOST: &str = "host-tuple";

/// The targets, with the user's runner of each, which is empty where there is none.
pub(super) fn targets(arguments: &[OsString]) -> Result<BTreeMap<String, Vec<OsString>>, Failure> {
    let failure = |error: cargo_config2::Error| Failure::Cargo {
        why: format!("cargo's configuration cannot be read: {error}"),
    };
    let config = Config::load().map_err(failure)?;
    for option in values(arguments, "--config") {
        check_option(&option)?;
    }
    let named = values(arguments, "--target");
    let targets = config.build_target_for_config(named.iter().map(String::as_str));
    let mut runners = BTreeMap::new();
    for target in targets.map_err(failure)? {
        let triple = match target.triple() {
            HOST => config.host_triple().map_err(failure)?,
            triple => triple,
        };
        // A target of its own format is named after its file.
        let runner = match target.triple() {
            HOST => config.runner(triple),
            _ => config.runner(&target),
        };
        let words = runner.map_err(failure)?.map_or_else(Vec::new, |runner| {
            let mut words = vec![runner.path.into_os_string()];
            words.extend(runner.args);
            words
        });
        runners.insert(triple.to_owned(), words);
    }
    Ok(runners)
}

/// Refuses a value of `--config` by which cargo would not start programs by the runner of this command: it counts more than the
/// environment. The value is `KEY=VALUE`, or the path of a file.
fn check_option(option: &str) -> Result<(), Failure> {
    let refuse = |why: &str| {
        let why = format!("--config {option}: {why}");
        Err(Failure::Cargo { why })
    };
    let text = match Path::new(option).is_file() {
        true => fs::read_to_string(option).unwrap_or_default(),
        false => option.to_owned(),
    };
    // Cargo says what is wrong with it.
    let Ok(table) = text.parse::<toml::Table>() else {
        return Ok(());
    };
    let targets = table.get("target").and_then(toml::Value::as_table);
    let mut targets = targets.into_iter().flatten();
    if targets.any(|(_, target)| target.get("runner").is_some()) {
        return refuse(
            "it would replace the runner of this command; set it in a configuration file of cargo, or by CARGO_TARGET_<TRIPLE>_RUNNER",
        );
    }
    if table
        .get("build")
        .is_some_and(|build| build.get("target").is_some())
    {
        return refuse(
            "it would build for a target of which this command does not know; use --target",
        );
    }
    Ok(())
}

/// The values of an option of cargo, which may be given several times.
fn values(arguments: &[OsString], option: &str) -> Vec<String> {
    let mut words = arguments
        .iter()
        .map(|word| word.to_string_lossy())
        .take_while(|word| word != "--");
    let mut values = Vec::new();
    while let Some(word) = words.next() {
        if word == option {
            values.extend(words.next().map(|value| value.into_owned()));
        } else if let Some(value) = word.strip_prefix(option) {
            values.extend(value.strip_prefix('=').map(str::to_owned));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{check_option, targets, values};

    #[test]
    fn targets_are_those_of_the_command_line_or_the_machine() {
        let words = [
            "test",
            "--target",
            "a",
            "--lib",
            "--target=b",
            "--",
            "--target=c",
        ];
        let words = words.map(OsString::from);
        assert_eq!(values(&words, "--target"), ["a", "b"]);
        assert!(values(&words, "--tar").is_empty());
        let words = ["test", "--target", "x86_64-unknown-linux-musl"];
        let found = targets(&words.map(Into::into)).expect("a configuration");
        assert_eq!(found.into_keys().collect::<Vec<_>>(), [words[2]]);
        let words = ["test", "--target", "host-tuple"];
        let found = targets(&words.map(Into::into)).expect("a configuration");
        let own = targets(&["test".into()]).expect("a configuration");
        assert_eq!(found, own);
    }

    #[test]
    fn what_would_bypass_the_runner_is_refused() {
        let file = std::env::temp_dir().join(format!("cuguard-config-{}", std::process::id()));
        for (text, is_refused) in [
            ("target.a.runner = 'b'", true),
            ("target.'cfg(unix)'={runner=['b', 'c']}", true),
            ("build.target='a'", true),
            ("build={jobs=1, target=['a']}", true),
            ("target.a.linker='runner'", false),
            ("build.jobs=1", false),
            ("env.runner='b'", false),
            ("no TOML", false),
        ] {
            assert_eq!(check_option(text).is_err(), is_refused, "{text}");
            std::fs::write(&file, text).expect("own file");
            let option = file.display().to_string();
            assert_eq!(check_option(&option).is_err(), is_refused, "{text}");
        }
        std::fs::remove_file(&file).expect("own file");
    }
}
