//! Requests and replies.
//!
//! A connection is one request: a line of words. The reply is a line, `ok` or `error WHY`, and after `ok` the body up to the end
//! of the connection.

use std::fmt;

/// The longest request, with its line break.
pub(crate) const LONGEST: usize = 64;

/// The most call sites that a server names.
const MOST_SITES: usize = 100_000;

/// The longest error of a server that is shown, in characters.
pub(crate) const LONGEST_ERROR: usize = 500;

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of text.
    Text,
    /// One line of JSON for each report.
    Json,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A report as the reply.
    Dump {
        /// Its format.
        format: Format,
        /// Whether addresses are searched for, which stops the program's threads for that time.
        search: bool,
    },
    /// Figures and at most so many call sites, as one line of JSON.
    Stats {
        /// How many call sites.
        sites: usize,
    },
    /// A report that the process writes where its settings say. The reply is empty.
    Report,
    /// The most bytes of device memory that were alive since the last such request. The reply is how many, and begins anew.
    Peak,
    /// Pools release the idle memory of a device. The reply is how many bytes.
    Trim {
        /// The UUID of the device.
        device: [u8; 16],
    },
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dump { format, search } => {
                let format = match format {
                    Format::Text => "text",
                    Format::Json => "json",
                };
                let search = if *search { "search" } else { "no-search" };
                write!(f, "dump {format} {search}")
            }
            Self::Stats { sites } => write!(f, "stats {sites}"),
            Self::Report => f.write_str("report"),
            Self::Peak => f.write_str("peak"),
            Self::Trim { device } => write!(f, "trim {:032x}", u128::from_be_bytes(*device)),
        }
    }
}

/// Parses what a client sent: one line with its line break. `None` for what is not a request.
///
/// Public for fuzzing alone.
#[doc(hidden)]
#[must_use]
pub fn parse_request(bytes: &[u8]) -> Option<Request> {
    let text = bytes.strip_suffix(b"\n")?;
    str::from_utf8(text).ok().and_then(Request::parse)
}

/// Parses what a server sent: the body, or its error. `None` for what is not a reply.
///
/// Public for fuzzing alone.
#[doc(hidden)]
#[must_use]
pub fn parse_reply(bytes: &[u8]) -> Option<Result<String, String>> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (status, body) = (&bytes[..end], &bytes[end + 1..]);
    match status.strip_prefix(b"error ") {
        // Each byte is at least a quarter of a character.
        Some(why) => {
            let why = &why[..why.len().min(4 * LONGEST_ERROR)];
            Some(Err(printable(&String::from_utf8_lossy(why), LONGEST_ERROR)))
        }
        None if status == b"ok" => Some(Ok(String::from_utf8_lossy(body).into_owned())),
        None => None,
    }
}

/// The first characters of a text, without control characters: a terminal would obey them.
pub(crate) fn printable(text: &str, most: usize) -> String {
    text.chars()
        .take(most)
        .map(|character| {
            if character.is_control() {
                '?'
            } else {
                character
            }
        })
        .collect()
}

impl Request {
    /// Parses a line without its line break.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        Some(match words[..] {
            ["dump", format, search] => Self::Dump {
                format: match format {
                    "text" => Format::Text,
                    "json" => Format::Json,
                    _ => return None,
                },
                search: match search {
                    "search" => true,
                    "no-search" => false,
                    _ => return None,
                },
            },
            ["stats", sites] => Self::Stats {
                sites: sites.parse().ok().filter(|sites| *sites <= MOST_SITES)?,
            },
            ["report"] => Self::Report,
            ["peak"] => Self::Peak,
            ["trim", device] if device.len() == 32 => Self::Trim {
                device: u128::from_str_radix(device, 16).ok()?.to_be_bytes(),
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Format, LONGEST, Request};

    #[test]
    fn a_request_survives_its_line() {
        for request in [
            Request::Dump {
                format: Format::Text,
                search: true,
            },
            Request::Dump {
                format: Format::Json,
                search: false,
            },
            Request::Stats { sites: 100_000 },
            Request::Report,
            Request::Peak,
            Request::Trim { device: [0; 16] },
            Request::Trim {
                device: *b"0123456789abcdef",
            },
        ] {
            let line = request.to_string();
            assert_eq!(Request::parse(&line), Some(request));
            assert!(line.len() < LONGEST);
        }
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "dump",
            "dump text",
            "dump xml search",
            "stats -1",
            "stats 100001",
            "report now",
            "peak now",
            "stats  3",
            "trim",
            "trim 0",
            "trim 000000000000000000000000000000zz",
        ] {
            assert_eq!(Request::parse(line), None, "{line:?}");
        }
    }
}
