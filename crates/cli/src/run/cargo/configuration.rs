//! For which targets cargo builds, and by which runners the user has it start programs.

use std::collections::BTreeMap;
use std::ffi::OsString;

use cargo_config2::Config;

use super::super::failure::Failure;

/// The targets, with the user's runner of each, which is empty where there is none.
pub(super) fn targets(arguments: &[OsString]) -> Result<BTreeMap<String, Vec<OsString>>, Failure> {
    let failure = |error: cargo_config2::Error| Failure::Cargo {
        why: format!("cargo's configuration cannot be read: {error}"),
    };
    let config = Config::load().map_err(failure)?;
    let options = values(arguments, "--config");
    if let Some(option) = options.iter().find(|option| option.contains(".runner")) {
        return Err(Failure::Cargo {
            why: format!(
                "--config {option}: it would replace the runner of this command; set it in a configuration file of cargo, or by CARGO_TARGET_<TRIPLE>_RUNNER"
            ),
        });
    }
    let named = values(arguments, "--target");
    let targets = config.build_target_for_config(named.iter().map(String::as_str));
    let mut runners = BTreeMap::new();
    for target in targets.map_err(failure)? {
        let runner = config.runner(&target).map_err(failure)?;
        let words = runner.map_or_else(Vec::new, |runner| {
            let mut words = vec![runner.path.into_os_string()];
            words.extend(runner.args);
            words
        });
        runners.insert(target.triple().to_owned(), words);
    }
    Ok(runners)
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

    use super::{targets, values};

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
    }
}
