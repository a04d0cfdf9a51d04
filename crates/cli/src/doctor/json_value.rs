//! JSON as a tree, and how it is written: one line, members in the order they were put in.

use std::fmt::{self, Write};

/// A value of JSON.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Boolean(bool),
    Number(u64),
    /// Seconds, with three digits behind the point.
    Seconds(std::time::Duration),
    Text(String),
    Array(Vec<Value>),
    Object(Vec<(&'static str, Value)>),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Number(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Number(value.into())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::Array(items.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Seconds(time) => write!(f, "{}.{:03}", time.as_secs(), time.subsec_millis()),
            Self::Text(text) => string(f, text),
            Self::Array(items) => {
                f.write_char('[')?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index > 0 { "," } else { "" })?;
                }
                f.write_char(']')
            }
            Self::Object(members) => {
                f.write_char('{')?;
                for (index, (name, value)) in members.iter().enumerate() {
                    f.write_str(if index > 0 { "," } else { "" })?;
                    string(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

fn string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for letter in text.chars() {
        match letter {
            '"' | '\\' => write!(f, "\\{letter}")?,
            '\n' => f.write_str("\\n")?,
            // Control characters must be escaped; the last two may stand, yet end a line in some
            // readers.
            '\0'..' ' | '\x7f' | '\u{2028}' | '\u{2029}' => {
                write!(f, "\\u{:04x}", u32::from(letter))?
            }
            letter => f.write_char(letter)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn values_read_back() {
        let odd = "quote \" slash \\ line \n\t\x1b\x7f\u{2028} ü";
        let value = Value::Object(vec![
            ("null", Value::Null),
            ("yes", true.into()),
            ("most", u64::MAX.into()),
            ("seconds", Value::Seconds(Duration::from_millis(1050))),
            ("odd", odd.into()),
            ("list", ["a", "b"].into_iter().collect()),
            ("none", None::<u32>.into()),
            ("empty", Value::Object(Vec::new())),
            ("nothing", Value::Array(Vec::new())),
        ]);
        let text = value.to_string();
        assert!(!text.contains('\n'));
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["null"], serde_json::Value::Null);
        assert_eq!(read["yes"], true);
        assert_eq!(read["most"], u64::MAX);
        assert_eq!(read["seconds"], 1.05);
        assert_eq!(read["odd"], odd);
        assert_eq!(read["list"], serde_json::json!(["a", "b"]));
        assert_eq!(read["empty"], serde_json::json!({}));
        assert_eq!(read["nothing"], serde_json::json!([]));
    }
}
