//! Whether a text is JSON.

/// Fails unless the text is one JSON value.
pub fn check(text: &str) -> serde_json::Result<()> {
    serde_json::from_str::<serde_json::Value>(text).map(drop)
}
