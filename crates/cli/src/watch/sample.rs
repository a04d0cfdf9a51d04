//! The figures of a process at one moment, read from its JSON (docs/live-schema.md).

use cuguard_live::{AskError, Request};
use cuguard_report::phrase::printable;
use serde::Deserialize;

use crate::live_process::{Reply, ask_when_ready, ask_with_descendants};

/// The figures of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) process: u32,
    pub(super) command: String,
    /// From any fixed moment of the process.
    pub(super) seconds: f64,
    /// Live bytes of device memory.
    pub(super) bytes: u64,
    pub(super) count: u64,
    /// Allocations of device memory since the start.
    pub(super) allocated: u64,
    pub(super) kinds: Vec<Kind>,
    /// The largest first.
    pub(super) sites: Vec<Site>,
    pub(super) sites_not_shown: u64,
}

/// What is alive of one kind.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Kind {
    pub(super) kind: String,
    pub(super) live_bytes: u64,
    pub(super) live_count: u64,
    pub(super) peak_bytes: u64,
}

/// What one call site holds.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Site {
    pub(super) kind: String,
    pub(super) bytes: u64,
    pub(super) count: u64,
    pub(super) label: Option<String>,
    pub(super) function: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

impl Site {
    /// `load at model.cc:41 "weights"`.
    pub(super) fn name(&self) -> String {
        let mut name = match &self.function {
            Some(function) => printable(function).into_owned(),
            None => "unknown call site".to_owned(),
        };
        if let Some(file) = &self.file {
            name += &format!(" at {}", printable(file));
            if let Some(line) = self.line {
                name += &format!(":{line}");
            }
        }
        if let Some(label) = &self.label {
            name += &format!(" \"{}\"", printable(label));
        }
        name
    }
}

/// The figures in one reply.
#[derive(Debug, Deserialize)]
struct Figures {
    command: String,
    seconds: f64,
    device_live_bytes: u64,
    device_live_count: u64,
    device_allocated_count: u64,
    kinds: Vec<Kind>,
    sites: Vec<Site>,
    sites_not_shown: u64,
}

/// Asks a process for its figures.
pub(super) fn take(process: u32, sites: usize) -> Result<Sample, String> {
    sample(
        ask_with_descendants(process, Request::Stats { sites }),
        sites,
    )
}

/// The same, once it has figures.
pub(super) fn take_first(process: u32, sites: usize) -> Result<Sample, String> {
    let replies = ask_when_ready("watch", process, Request::Stats { sites });
    sample(replies, sites)
}

fn sample(replies: Result<Vec<Reply>, AskError>, sites: usize) -> Result<Sample, String> {
    let replies = replies.map_err(|error| error.to_string())?;
    let reply = replies.first().ok_or("no reply")?;
    let texts = reply.texts.iter().map(String::as_str);
    read(reply.process, texts, sites).map_err(|error| {
        format!(
            "process {}: the reply cannot be read: {error}",
            reply.process
        )
    })
}

/// Adds up the replies of all libraries in a process.
fn read<'a>(
    process: u32,
    texts: impl Iterator<Item = &'a str>,
    sites: usize,
) -> Result<Sample, serde_json::Error> {
    let mut sample = Sample {
        process,
        ..Sample::default()
    };
    for text in texts {
        let mut reply: Figures = serde_json::from_str(text)?;
        let of_kinds = reply.kinds.iter_mut().map(|kind| &mut kind.kind);
        let of_sites = reply.sites.iter_mut().map(|site| &mut site.kind);
        for name in of_kinds.chain(of_sites) {
            *name = printable(name).into_owned();
        }
        sample.command = printable(&reply.command).into_owned();
        sample.seconds = sample.seconds.max(reply.seconds);
        sample.bytes = sample.bytes.saturating_add(reply.device_live_bytes);
        sample.count = sample.count.saturating_add(reply.device_live_count);
        sample.allocated = sample
            .allocated
            .saturating_add(reply.device_allocated_count);
        sample.kinds.extend(reply.kinds);
        sample.sites.extend(reply.sites);
        sample.sites_not_shown = sample.sites_not_shown.saturating_add(reply.sites_not_shown);
    }
    sample
        .sites
        .sort_by_key(|site| std::cmp::Reverse(site.bytes));
    let hidden = sample.sites.len().saturating_sub(sites) as u64;
    sample.sites_not_shown = sample.sites_not_shown.saturating_add(hidden);
    sample.sites.truncate(sites);
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::read;

    fn reply(bytes: u64) -> String {
        format!(
            r#"{{"version":1,"tool":"cuguard","process":7,"command":"a\u001b[31m.out","seconds":2.5,
            "device_live_bytes":{bytes},"device_live_count":2,"device_allocated_count":9,
            "kinds":[{{"kind":"device\u001b[2J","on_device":true,"live_count":2,"live_bytes":{bytes},"peak_bytes":99,"allocated_count":9}}],
            "sites":[{{"kind":"device\u001b]0;x","on_device":true,"count":2,"bytes":{bytes},"label":"w\u0007","function":"load","file":"m.cc","line":41}}],
            "sites_not_shown":0}}"#
        )
    }

    #[test]
    fn the_replies_of_several_libraries_are_added_up() {
        let texts = [reply(10), reply(30)];
        let sample = read(7, texts.iter().map(String::as_str), 1).unwrap();
        assert_eq!((sample.bytes, sample.count, sample.allocated), (40, 4, 18));
        assert_eq!(sample.kinds.len(), 2);
        assert_eq!((sample.sites.len(), sample.sites_not_shown), (1, 1));
        assert_eq!(sample.sites[0].bytes, 30);
    }

    /// A process of another user, which root asks, may reply with any numbers.
    #[test]
    fn sums_do_not_overflow() {
        let texts = [reply(u64::MAX), reply(u64::MAX)];
        let sample = read(7, texts.iter().map(String::as_str), 1).unwrap();
        assert_eq!(sample.bytes, u64::MAX);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let sample = read(7, [reply(1).as_str()].into_iter(), 5).unwrap();
        assert_eq!(sample.command, r"a\u{1b}[31m.out");
        assert_eq!(sample.kinds[0].kind, r"device\u{1b}[2J");
        assert_eq!(sample.sites[0].kind, r"device\u{1b}]0;x");
        assert_eq!(sample.sites[0].name(), "load at m.cc:41 \"w\\u{7}\"");
    }

    #[test]
    fn a_foreign_reply_is_an_error() {
        assert!(read(7, ["{}"].into_iter(), 5).is_err());
    }
}
