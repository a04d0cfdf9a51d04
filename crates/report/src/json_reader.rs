//! A small reader of JSON, strict as the standard is, for the tests of what is written.

use std::ops::Index;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Boolean(bool),
    Number(f64),
    Text(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    pub(crate) fn items(&self) -> &[Value] {
        match self {
            Self::Array(items) => items,
            other => panic!("not an array: {other:?}"),
        }
    }
}

impl Index<&str> for Value {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        let Self::Object(members) = self else {
            panic!("not an object: {self:?}")
        };
        let found = members.iter().find(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("no member {name}")).1
    }
}

/// Reads one value and nothing else.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    let mut reader = Reader { rest: text };
    let value = reader.value()?;
    reader.space();
    if reader.rest.is_empty() {
        Ok(value)
    } else {
        Err(format!("left over: {}", reader.rest))
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn need(&mut self, token: &str) -> Result<(), String> {
        self.space();
        if self.take(token) {
            Ok(())
        } else {
            Err(format!("{token} expected at {}", self.rest))
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        self.space();
        match self.rest.chars().next() {
            Some('{') => self.object(),
            Some('[') => self.array(),
            Some('"') => Ok(Value::Text(self.string()?)),
            Some('-' | '0'..='9') => self.number(),
            _ if self.take("null") => Ok(Value::Null),
            _ if self.take("true") => Ok(Value::Boolean(true)),
            _ if self.take("false") => Ok(Value::Boolean(false)),
            _ => Err(format!("a value expected at {}", self.rest)),
        }
    }

    fn object(&mut self) -> Result<Value, String> {
        self.need("{")?;
        let mut members: Vec<(String, Value)> = Vec::new();
        self.space();
        if self.take("}") {
            return Ok(Value::Object(members));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.need(":")?;
            if members.iter().any(|(known, _)| *known == name) {
                return Err(format!("{name} twice"));
            }
            members.push((name, self.value()?));
            self.space();
            if !self.take(",") {
                self.need("}")?;
                return Ok(Value::Object(members));
            }
        }
    }

    fn array(&mut self) -> Result<Value, String> {
        self.need("[")?;
        let mut items = Vec::new();
        self.space();
        if self.take("]") {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value()?);
            self.space();
            if !self.take(",") {
                self.need("]")?;
                return Ok(Value::Array(items));
            }
        }
    }

    fn number(&mut self) -> Result<Value, String> {
        let end = self
            .rest
            .find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let digits = number.trim_start_matches('-');
        if digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.") {
            return Err(format!("a number that begins with 0: {number}"));
        }
        self.rest = rest;
        number
            .parse()
            .map(Value::Number)
            .map_err(|error| format!("{number}: {error}"))
    }

    fn string(&mut self) -> Result<String, String> {
        if !self.take("\"") {
            return Err(format!("a string expected at {}", self.rest));
        }
        let mut text = String::new();
        let mut letters = self.rest.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '"' => {
                    self.rest = letters.as_str();
                    return Ok(text);
                }
                '\\' => match letters.next() {
                    Some(c @ ('"' | '\\' | '/')) => text.push(c),
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('t') => text.push('\t'),
                    Some('u') => {
                        let hex: String = letters.by_ref().take(4).collect();
                        let code = u32::from_str_radix(&hex, 16).map_err(|e| e.to_string())?;
                        text.push(char::from_u32(code).ok_or("half a pair")?);
                    }
                    other => return Err(format!("unknown escape {other:?}")),
                },
                '\0'..' ' => return Err(format!("a raw control character {letter:?}")),
                letter => text.push(letter),
            }
        }
        Err("a string without an end".to_owned())
    }
}

#[test]
fn the_reader_is_strict() {
    assert!(read(r#"{"a":[1,-2.5,"x\u0041",null,true,{}]}"#).is_ok());
    for wrong in [
        "",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "01",
        "\"\n\"",
        "1 2",
        "{\"a\":1,\"a\":2}",
        "nul",
        "'a'",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

/// The names of all members, at every depth.
pub(crate) fn member_names(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = vec![value];
    while let Some(value) = inside.pop() {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, value)| {
                found.push(name.clone());
                inside.push(value);
            }),
            Value::Array(items) => inside.extend(items),
            _ => {}
        }
    }
    found
}
