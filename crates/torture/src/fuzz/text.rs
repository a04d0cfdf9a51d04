//! Settings and files of text.

use cuguard_report::match_suppressions;
use cuguard_sim::Config;

use super::bounded;

/// Any text as `CUGUARD_SIM`.
///
/// # Panics
///
/// Where a configuration differs from its own text, an error says nothing, or memory is not bounded.
pub fn sim_setting(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // An error has the word that is wrong, and the words that are right.
    let parsed = bounded(bytes.len(), 16, 4 << 10, || {
        let parsed = text.parse::<Config>();
        if let Err(error) = &parsed {
            assert!(!error.to_string().is_empty());
        }
        parsed
    });
    if let Ok(config) = parsed {
        assert_eq!(config.to_string().parse(), Ok(config));
    }
}

/// A file of suppressions, up to a NUL, and a name behind it.
///
/// # Panics
///
/// Where a pattern matches the name and the plainest matcher disagrees, or memory is not bounded.
pub fn suppressions(bytes: &[u8]) {
    let (file, name) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &b"app::load"[..]),
    };
    let name = String::from_utf8_lossy(name);
    // A pattern of one character and its line break is a structure of a hundred bytes, and in a set by its text.
    let matched = bounded(bytes.len(), 256, 4 << 10, || {
        match_suppressions(file, &name)
    });
    let file = String::from_utf8_lossy(file);
    for (pattern, is_match) in matched {
        assert!(!pattern.starts_with('#') && !pattern.is_empty());
        assert!(file.contains(&pattern));
        assert_eq!(is_match, plain(&pattern, &name), "{pattern:?} {name:?}");
    }
}

/// The syntax of LeakSanitizer, in the plainest way: which ends of the name each prefix of the pattern reaches.
fn plain(pattern: &str, name: &str) -> bool {
    let bare = pattern
        .strip_prefix("leak:")
        .map_or(pattern, str::trim_start);
    let (begin, bare) = bare
        .strip_prefix('^')
        .map_or((false, bare), |bare| (true, bare));
    let (end, bare) = bare
        .strip_suffix('$')
        .map_or((false, bare), |bare| (true, bare));
    let mut reached = vec![!begin; name.len() + 1];
    reached[0] = true;
    for byte in bare.bytes() {
        if byte == b'*' {
            let first = reached.iter().position(|reached| *reached);
            let first = first.unwrap_or(reached.len());
            reached[first..].fill(true);
        } else {
            for at in (1..reached.len()).rev() {
                reached[at] = reached[at - 1] && name.as_bytes()[at - 1] == byte;
            }
            reached[0] = false;
        }
    }
    let matches = match end {
        true => reached[name.len()],
        false => reached.contains(&true),
    };
    matches && !name.is_empty()
}
