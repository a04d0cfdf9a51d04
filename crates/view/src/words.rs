//! Times, shares and kinds as words.

use std::borrow::Cow;

use cuguard_report::phrase::{list_some, printable};

/// A time span with the precision that a reader needs: `8.21 s`, `15 ms`, `3 min 5 s`.
pub(crate) fn duration(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match nanoseconds {
        0 => "0 s".to_owned(),
        1..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{} µs", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", nanoseconds / 1_000_000),
        _ if seconds < 60 => format!("{}.{:02} s", seconds, nanoseconds / 10_000_000 % 100),
        _ if seconds < 3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// How many names of a list are shown.
pub(crate) const LISTED: usize = 4;

/// The first few of a list, and how many more there are.
pub(crate) fn some<T>(items: &[T], word: impl Fn(&T) -> String) -> String {
    list_some(items, LISTED, word)
}

/// A share in percent: `96 %`, `0.4 %`, nothing of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    match percent {
        0.0 => "0 %".to_owned(),
        ..0.1 => "< 0.1 %".to_owned(),
        ..10.0 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// What a kind is called in a sentence. Kinds that are not known keep the name of the recording.
pub(crate) fn kind(name: &str) -> Cow<'_, str> {
    let words = match name {
        "device" => "device memory",
        "stream_ordered" => "stream-ordered memory",
        "pooled" => "pool memory",
        "pinned" => "pinned host memory",
        "registered" => "registered host memory",
        "write_combined" => "write-combined host memory",
        "managed" => "managed memory",
        "array" => "array memory",
        "physical" => "physical memory",
        "mapped" => "mapped physical memory",
        "imported" => "imported memory",
        "graph_memory" => "graph memory",
        "memory_pool" => "memory pool",
        "peer_access" => "peer access",
        "graph_exec" => "executable graph",
        "address_range" => "reserved address range",
        other => return printable(other),
    };
    words.into()
}

#[cfg(test)]
mod tests {
    use super::{duration, percent, some};

    #[test]
    fn words_read_well() {
        assert_eq!(duration(1_500), "1 µs");
        assert_eq!(duration(8_210_000_000), "8.21 s");
        assert_eq!(duration(185_000_000_000), "3 min 5 s");
        assert_eq!(
            some(&[1, 2, 3, 4, 5, 6], i32::to_string),
            "1, 2, 3, 4 and 2 more"
        );
        assert_eq!(percent(1, 3), "33 %");
        assert_eq!(percent(1, 3_000), "< 0.1 %");
        assert_eq!(percent(1, 0), "");
    }
}
