//! Members of JSON objects: what is missing or of another type is empty or 0, so that the rest can be read.

use serde_json::Value;

pub(super) fn number(value: &Value, member: &str) -> u64 {
    value[member].as_u64().unwrap_or_default()
}

pub(super) fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

pub(super) fn items<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value[member].as_array().map_or(&[], Vec::as_slice)
}

/// Seconds as nanoseconds.
pub(super) fn nanoseconds(value: &Value, member: &str) -> u64 {
    let seconds = value[member].as_f64().unwrap_or_default();
    // Saturates, and is 0 for what is below.
    (seconds * 1e9).round() as u64
}

/// A number in hexadecimal, as text: `0x7f00`.
pub(super) fn hexadecimal(value: &Value) -> u64 {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{hexadecimal, items, nanoseconds, number, text};

    #[test]
    fn members_of_another_type_are_empty() {
        let value = json!({"a": "x", "b": 1.5, "c": -3, "d": [1], "e": 1e300});
        assert_eq!((number(&value, "a"), text(&value, "b")), (0, ""));
        assert!(items(&value, "a").is_empty() && items(&value, "d").len() == 1);
        assert_eq!(nanoseconds(&value, "b"), 1_500_000_000);
        assert_eq!(nanoseconds(&value, "c"), 0);
        assert_eq!(nanoseconds(&value, "e"), u64::MAX);
        assert_eq!(hexadecimal(&json!("0xff")), 255);
        assert_eq!((hexadecimal(&json!("ff")), hexadecimal(&json!(3))), (0, 0));
    }
}
