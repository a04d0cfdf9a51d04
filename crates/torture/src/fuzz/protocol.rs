//! What the two sides of a live process's socket send each other.

use cuguard_live::{Request, parse_reply, parse_request};

use super::bounded;

/// Any bytes as a request, as the server reads it.
///
/// # Panics
///
/// Where a request differs from its own text, or memory is not bounded.
pub fn live_request(bytes: &[u8]) {
    // Words are slices of 16 bytes, in a list that doubles.
    let request = bounded(bytes.len(), 64, 1 << 10, || parse_request(bytes));
    let Some(request) = request else { return };
    let line = format!("{request}\n");
    assert!(line.len() <= 64, "the server reads no longer line: {line}");
    assert_eq!(parse_request(line.as_bytes()), Some(request));
    if let Request::Stats { sites } = request {
        assert!(sites <= 1000);
    }
}

/// Any bytes as a reply, as the client reads it.
///
/// # Panics
///
/// Where an error can control a terminal, or memory is not bounded.
pub fn live_reply(bytes: &[u8]) {
    // Each byte that is not UTF-8 becomes a character of three, in texts that double.
    let reply = bounded(bytes.len(), 8, 16 << 10, || parse_reply(bytes));
    match reply {
        Some(Err(why)) => {
            assert!(!why.contains(char::is_control));
            assert!(why.chars().count() <= 500);
        }
        Some(Ok(body)) => {
            assert!(bytes.starts_with(b"ok\n"));
            if let Ok(text) = str::from_utf8(bytes) {
                assert_eq!(text[3..], body);
            }
        }
        None => assert!(!bytes.starts_with(b"ok\n")),
    }
}
