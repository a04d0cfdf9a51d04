//! JSON as text, written value by value.

use std::fmt::Write;
use std::time::Duration;

use cuguard_registry::{FailedCall, Site};

/// Writes JSON, and puts the commas where they belong.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    text: String,
    /// Whether a value stands before, so that a comma must come first.
    after_value: bool,
}

impl Writer {
    /// What was written.
    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// Before a value or a key.
    fn comma(&mut self) {
        if std::mem::replace(&mut self.after_value, true) {
            self.text.push(',');
        }
    }

    fn raw(&mut self, text: impl AsRef<str>) {
        self.comma();
        self.text.push_str(text.as_ref());
    }

    pub(crate) fn key(&mut self, name: &str) -> &mut Self {
        self.string(name);
        self.text.push(':');
        self.after_value = false;
        self
    }

    pub(crate) fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.raw("{");
        self.after_value = false;
        fill(self);
        self.text.push('}');
        self.after_value = true;
    }

    pub(crate) fn array<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.raw("[");
        self.after_value = false;
        items.iter().for_each(|item| each(self, item));
        self.text.push(']');
        self.after_value = true;
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.raw("\"");
        for letter in text.chars() {
            match letter {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                // Control characters must be escaped; the last two are allowed, yet end a line in
                // some readers.
                '\0'..' ' | '\x7f' | '\u{2028}' | '\u{2029}' => {
                    let _ = write!(self.text, "\\u{:04x}", u32::from(letter));
                }
                letter => self.text.push(letter),
            }
        }
        self.text.push('"');
    }

    pub(crate) fn optional_address(&mut self, address: Option<u64>) {
        match address {
            Some(address) => self.address(address),
            None => self.raw("null"),
        }
    }

    pub(crate) fn optional(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.string(text),
            None => self.raw("null"),
        }
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.raw(number.to_string());
    }

    pub(crate) fn optional_number<N: Into<u64>>(&mut self, number: Option<N>) {
        match number {
            Some(number) => self.number(number.into()),
            None => self.raw("null"),
        }
    }

    pub(crate) fn signed(&mut self, number: Option<i64>) {
        match number {
            Some(number) => self.raw(number.to_string()),
            None => self.raw("null"),
        }
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        self.raw(if value { "true" } else { "false" });
    }

    pub(crate) fn refusal(&mut self, refusal: Option<&FailedCall>) {
        match refusal {
            None => self.raw("null"),
            Some(refusal) => self.object(|json| {
                json.key("operation").string(refusal.operation);
                json.key("function").string(refusal.function);
                json.key("code").number(refusal.code.into());
                json.key("code_name").string(refusal.code_name);
            }),
        }
    }

    pub(crate) fn seconds(&mut self, time: Duration) {
        self.raw(format!("{}.{:06}", time.as_secs(), time.subsec_micros()));
    }

    /// Text, as not every reader keeps all digits of a number of 64 bits.
    pub(crate) fn address(&mut self, address: u64) {
        self.string(&format!("{address:#x}"));
    }

    pub(crate) fn site(&mut self, site: Option<Site>) {
        match site {
            None => self.raw("null"),
            Some(site) => self.object(|json| {
                json.key("file").string(site.file);
                json.key("line").number(site.line.into());
                json.key("column").number(site.column.into());
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Writer;
    use crate::json_reader::{Value, read};

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_can_be_read_back(text in any::<String>()) {
            let mut json = Writer::default();
            json.string(&text);
            prop_assert_eq!(read(&json.finish()), Ok(Value::Text(text)));
        }
    }
}
