//! Parts of sentences, for reports and commands: counts, lists, and text of the program.

use std::borrow::Cow;

/// A count with its noun.
///
/// ```
/// use cuguard_report::phrase::count;
///
/// assert_eq!(count(1, "leak"), "1 leak");
/// assert_eq!(count(2, "peer access"), "2 peer accesses");
/// assert_eq!(count(0, "library"), "0 libraries");
/// ```
#[must_use]
pub fn count(count: u64, noun: &str) -> String {
    if let (2.. | 0, Some(stem)) = (count, noun.strip_suffix('y')) {
        return format!("{count} {stem}ies");
    }
    let ending = match count {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}

/// The parts of a list with commas, and `and` before the last.
///
/// ```
/// use cuguard_report::phrase::list;
///
/// assert_eq!(list(&["a", "b"]), "a and b");
/// assert_eq!(list(&["a", "b", "c"]), "a, b and c");
/// ```
#[must_use]
pub fn list<S: AsRef<str>>(parts: &[S]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
    }
}

/// The first `most` of a list, and how many more there are.
///
/// ```
/// use cuguard_report::phrase::list_some;
///
/// assert_eq!(list_some(&[1, 2, 3, 4], 2, u32::to_string), "1, 2 and 2 more");
/// ```
#[must_use]
pub fn list_some<T>(items: &[T], most: usize, word: impl Fn(&T) -> String) -> String {
    let mut words: Vec<_> = items.iter().take(most).map(word).collect();
    if items.len() > most {
        words.push(format!("{} more", items.len() - most));
    }
    list(&words)
}

/// What CUDA calls the default streams, by their handles; otherwise the handle.
fn stream_word(handle: u64) -> String {
    match handle {
        1 => "legacy default".to_owned(),
        2 => "per-thread default".to_owned(),
        handle => format!("{handle:#x}"),
    }
}

/// A stream by its handle. `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD` have the names that CUDA has for them.
///
/// ```
/// use cuguard_report::phrase::stream;
///
/// assert_eq!(stream(0x7f00), "stream 0x7f00");
/// assert_eq!(stream(1), "legacy default stream");
/// assert_eq!(stream(2), "per-thread default stream");
/// ```
#[must_use]
pub fn stream(handle: u64) -> String {
    match handle {
        1 | 2 => format!("{} stream", stream_word(handle)),
        _ => format!("stream {}", stream_word(handle)),
    }
}

/// The first `most` of several streams. Empty for none.
///
/// ```
/// use cuguard_report::phrase::streams;
///
/// assert_eq!(streams(&[2], 4), "per-thread default stream");
/// assert_eq!(streams(&[1, 0x7f00], 4), "streams legacy default and 0x7f00");
/// ```
#[must_use]
pub fn streams(handles: &[u64], most: usize) -> String {
    match handles {
        [] => String::new(),
        [handle] => stream(*handle),
        handles => {
            let words = list_some(handles, most, |handle| stream_word(*handle));
            format!("streams {words}")
        }
    }
}

/// Text of a program, such as a label, a command line or the name of a function, with those characters escaped that a terminal
/// would obey: control characters, and those that turn the direction of writing.
///
/// ```
/// use cuguard_report::phrase::printable;
///
/// assert_eq!(printable("weights"), "weights");
/// assert_eq!(printable("a\u{1b}[2J\u{202e}"), "a\\u{1b}[2J\\u{202e}");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_obeyed = |character: char| {
        character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let mut plain = String::new();
    for character in text.chars() {
        match is_obeyed(character) {
            true => plain.extend(character.escape_default()),
            false => plain.push(character),
        }
    }
    plain.into()
}

/// A command line for one line of a report, of at most 120 characters. Where it is longer, the program is written without
/// its folder, so that its arguments are shown: processes of one program differ in these.
///
/// ```
/// use cuguard_report::phrase::short_command;
///
/// assert_eq!(short_command("bin/python train.py"), "bin/python train.py");
/// let long = format!("/{}/bin/python train.py", "home".repeat(30));
/// assert_eq!(short_command(&long), "python train.py");
/// ```
#[must_use]
pub fn short_command(command: &str) -> String {
    const LONGEST: usize = 120;
    let is_long = |command: &str| command.chars().nth(LONGEST).is_some();
    if !is_long(command) {
        return printable(command).into_owned();
    }
    let end = command.find(' ').unwrap_or(command.len());
    let folder = command[..end].rfind('/').map_or(0, |slash| slash + 1);
    let command = &command[folder..];
    let shown: String = command.chars().take(LONGEST).collect();
    let rest = if is_long(command) { "…" } else { "" };
    format!("{}{rest}", printable(&shown))
}
