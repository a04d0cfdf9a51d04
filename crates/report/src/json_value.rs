//! JSON values, printed on one line.
//!
//! Not `serde_json`: its comparisons of integers with JSON values would make `assert_eq!(vec_of_u32, [])` ambiguous
//! in every program that links this crate.

use std::fmt::{self, Write};

/// A JSON value. Names of members are constants without special characters.
#[derive(Debug)]
pub(crate) enum Value {
    Literal(String),
    Array(Vec<Value>),
    Object(Vec<(&'static str, Value)>),
}

/// `object! { "name": value, … }`
macro_rules! object {
    ($($name:literal: $value:expr),* $(,)?) => {
        $crate::json_value::Value::Object(vec![$(($name, $value.into())),*])
    };
}
pub(crate) use object;

impl Value {
    /// Adds a member to an object.
    pub(crate) fn push(&mut self, name: &'static str, value: impl Into<Self>) {
        if let Self::Object(members) = self {
            members.push((name, value.into()));
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = |index: usize| if index == 0 { "" } else { "," };
        match self {
            Self::Literal(text) => f.write_str(text),
            Self::Array(items) => {
                f.write_char('[')?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", comma(index))?;
                }
                f.write_char(']')
            }
            Self::Object(members) => {
                f.write_char('{')?;
                for (index, (name, value)) in members.iter().enumerate() {
                    write!(f, "{}\"{name}\":{value}", comma(index))?;
                }
                f.write_char('}')
            }
        }
    }
}

macro_rules! from_display {
    ($($number:ty)*) => {$(
        impl From<$number> for Value {
            fn from(value: $number) -> Self {
                Self::Literal(value.to_string())
            }
        }
    )*};
}
from_display!(bool u32 u64 usize i64);

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        let mut literal = String::from('"');
        for character in text.chars() {
            let _ = match character {
                '"' | '\\' => write!(literal, "\\{character}"),
                // The last two are allowed, but end a line in some readers.
                '\0'..' ' | '\x7f' | '\u{2028}' | '\u{2029}' => {
                    write!(literal, "\\u{:04x}", u32::from(character))
                }
                character => literal.write_char(character),
            };
        }
        literal.push('"');
        Self::Literal(literal)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(|| Self::Literal("null".to_owned()), Into::into)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Value;
    use crate::tests_support::read;

    proptest! {
        #![proptest_config(cuguard_testing::property_config!())]

        #[test]
        fn any_text_can_be_read_back(text in any::<String>()) {
            prop_assert_eq!(read(&Value::from(text.as_str()).to_string()), text);
        }
    }
}
