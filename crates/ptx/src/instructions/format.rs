//! Formats the output of `printf` as C does.

/// An argument of `printf`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Argument {
    Integer(u64),
    Double(f64),
    Text(Vec<u8>),
}

/// What a conversion asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With its number of bytes.
    Integer(u32),
    Double,
    Text,
}

/// A conversion such as `%-08.3lld`.
#[derive(Clone, Debug, Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    bytes: u32,
    letter: u8,
}

/// Formats; `next` returns the next argument. Returns the text and the number of arguments.
pub(super) fn format<E>(
    format: &[u8],
    mut next: impl FnMut(Kind) -> Result<Argument, E>,
) -> Result<(Vec<u8>, u32), E> {
    let mut out = Vec::new();
    let mut count = 0;
    let mut rest = format;
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'%' {
            out.push(*first);
            rest = behind;
            continue;
        }
        let mut take = |kind| {
            count += 1;
            next(kind)
        };
        let (conversion, behind) = parse(behind, &mut take)?;
        rest = behind;
        match conversion.letter {
            b'%' => out.push(b'%'),
            b's' => {
                let Argument::Text(text) = take(Kind::Text)? else {
                    continue;
                };
                let len = conversion.precision.unwrap_or(text.len()).min(text.len());
                pad(&mut out, &conversion, b"", &text[..len], false);
            }
            b'c' => {
                let Argument::Integer(value) = take(Kind::Integer(4))? else {
                    continue;
                };
                pad(&mut out, &conversion, b"", &[value as u8], false);
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                let Argument::Double(value) = take(Kind::Double)? else {
                    continue;
                };
                double(&mut out, &conversion, value);
            }
            b'p' => {
                let Argument::Integer(value) = take(Kind::Integer(8))? else {
                    continue;
                };
                pad(
                    &mut out,
                    &conversion,
                    b"",
                    format!("{value:#x}").as_bytes(),
                    false,
                );
            }
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
                let bytes = if conversion.bytes == 8 { 8 } else { 4 };
                let Argument::Integer(value) = take(Kind::Integer(bytes))? else {
                    continue;
                };
                integer(&mut out, &conversion, value);
            }
            // An unknown conversion stays as it is.
            0 => out.push(b'%'),
            letter => out.extend([b'%', letter]),
        }
    }
    Ok((out, count))
}

fn parse<'a, E>(
    mut rest: &'a [u8],
    take: &mut impl FnMut(Kind) -> Result<Argument, E>,
) -> Result<(Conversion, &'a [u8]), E> {
    let mut found = Conversion {
        bytes: 4,
        ..Conversion::default()
    };
    while let Some((first, behind)) = rest.split_first() {
        match first {
            b'-' => found.left = true,
            b'+' => found.plus = true,
            b' ' => found.space = true,
            b'#' => found.alternate = true,
            b'0' => found.zero = true,
            _ => break,
        }
        rest = behind;
    }
    let width;
    (width, rest) = number(rest, take)?;
    if let Some(width) = width {
        found.left |= width < 0;
        found.width = width.unsigned_abs().min(1 << 16) as usize;
    }
    if let Some(behind) = rest.strip_prefix(b".") {
        let precision;
        (precision, rest) = number(behind, take)?;
        let precision = precision.unwrap_or(0);
        found.precision = usize::try_from(precision).ok().map(|own| own.min(1 << 12));
    }
    loop {
        (found.bytes, rest) = match rest {
            [b'h', b'h', behind @ ..] => (1, behind),
            [b'h', behind @ ..] => (2, behind),
            [b'l' | b'z' | b'j' | b't', behind @ ..] => (8, behind),
            _ => break,
        };
    }
    if let Some((letter, behind)) = rest.split_first() {
        found.letter = *letter;
        rest = behind;
    }
    Ok((found, rest))
}

/// A number, or `*` for that of an argument.
fn number<'a, E>(
    mut rest: &'a [u8],
    take: &mut impl FnMut(Kind) -> Result<Argument, E>,
) -> Result<(Option<i64>, &'a [u8]), E> {
    if let Some(behind) = rest.strip_prefix(b"*") {
        let value = match take(Kind::Integer(4))? {
            Argument::Integer(value) => i64::from(value as i32),
            _ => 0,
        };
        return Ok((Some(value), behind));
    }
    let mut found = None;
    while let [digit @ b'0'..=b'9', behind @ ..] = rest {
        let value = found.unwrap_or(0i64).saturating_mul(10);
        found = Some(value.saturating_add((digit - b'0').into()));
        rest = behind;
    }
    Ok((found, rest))
}

/// Writes a sign or prefix and the digits, padded to the width.
fn pad(out: &mut Vec<u8>, conversion: &Conversion, prefix: &[u8], digits: &[u8], zeros: bool) {
    let fill = conversion.width.saturating_sub(prefix.len() + digits.len());
    let fill_with = |out: &mut Vec<u8>, byte| out.resize(out.len() + fill, byte);
    if !conversion.left && !zeros {
        fill_with(out, b' ');
    }
    out.extend(prefix);
    if !conversion.left && zeros {
        fill_with(out, b'0');
    }
    out.extend(digits);
    if conversion.left {
        fill_with(out, b' ');
    }
}

fn integer(out: &mut Vec<u8>, conversion: &Conversion, value: u64) {
    let shift = 64 - 8 * conversion.bytes;
    let unsigned = value << shift >> shift;
    let signed = (value << shift) as i64 >> shift;
    let (prefix, digits): (&[u8], String) = match conversion.letter {
        b'd' | b'i' => (
            sign(conversion, signed < 0),
            signed.unsigned_abs().to_string(),
        ),
        b'x' if conversion.alternate && unsigned != 0 => (b"0x", format!("{unsigned:x}")),
        b'X' if conversion.alternate && unsigned != 0 => (b"0X", format!("{unsigned:X}")),
        b'x' => (b"", format!("{unsigned:x}")),
        b'X' => (b"", format!("{unsigned:X}")),
        b'o' if conversion.alternate => (b"0", format!("{unsigned:o}")),
        b'o' => (b"", format!("{unsigned:o}")),
        _ => (b"", unsigned.to_string()),
    };
    let least = conversion.precision.unwrap_or(1);
    let digits = match (conversion.precision, value) {
        (Some(0), 0) => String::new(),
        _ => format!("{digits:0>least$}"),
    };
    let zeros = conversion.zero && conversion.precision.is_none();
    pad(out, conversion, prefix, digits.as_bytes(), zeros);
}

fn sign(conversion: &Conversion, is_negative: bool) -> &'static [u8] {
    match () {
        () if is_negative => b"-",
        () if conversion.plus => b"+",
        () if conversion.space => b" ",
        () => b"",
    }
}

fn double(out: &mut Vec<u8>, conversion: &Conversion, value: f64) {
    let prefix = sign(conversion, value.is_sign_negative());
    let magnitude = value.abs();
    let is_upper = conversion.letter.is_ascii_uppercase();
    let mut digits = if magnitude.is_nan() {
        "nan".to_owned()
    } else if magnitude.is_infinite() {
        "inf".to_owned()
    } else {
        let precision = conversion.precision.unwrap_or(6);
        match conversion.letter.to_ascii_lowercase() {
            b'f' => format!("{magnitude:.precision$}"),
            b'e' => exponential(magnitude, precision),
            b'a' => hexadecimal(magnitude, conversion.precision),
            _ => general(magnitude, precision, conversion.alternate),
        }
    };
    if is_upper {
        digits = digits.to_uppercase();
    }
    let zeros = conversion.zero && magnitude.is_finite();
    pad(out, conversion, prefix, digits.as_bytes(), zeros);
}

fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// The shorter of both forms, without zeros at the end.
fn general(value: f64, precision: usize, keeps_zeros: bool) -> String {
    let precision = precision.max(1);
    let text = exponential(value, precision - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let order: i32 = exponent.parse().unwrap_or(0);
    let strip = |text: &str| {
        if keeps_zeros || !text.contains('.') {
            return text.to_owned();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if order < -4 || order >= precision as i32 {
        return format!("{}e{exponent}", strip(mantissa));
    }
    let decimals = (precision as i32 - 1 - order) as usize;
    strip(&format!("{value:.decimals$}"))
}

fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    let stored = (bits >> 52 & 0x7FF) as i32;
    let mut mantissa = bits & ((1 << 52) - 1);
    let mut first = u64::from(stored != 0);
    let exponent = match stored {
        0 if mantissa == 0 => 0,
        0 => -1022,
        _ => stored - 1023,
    };
    let mut digits = 13;
    if let Some(precision) = precision.filter(|own| *own < 13) {
        digits = precision;
        let drop = 4 * (13 - precision) as u32;
        let all = first << 52 | mantissa;
        let half = 1 << (drop - 1);
        let is_up =
            all & (2 * half - 1) > half || all & (2 * half - 1) == half && all >> drop & 1 != 0;
        let rounded = (all >> drop) + u64::from(is_up);
        first = rounded >> (52 - drop);
        mantissa = (rounded << drop) & ((1 << 52) - 1);
    }
    let text = format!("{mantissa:013x}");
    let text = match precision {
        None => text.trim_end_matches('0').to_owned(),
        Some(precision) => format!("{:0<precision$}", &text[..digits]),
    };
    let point = if text.is_empty() { "" } else { "." };
    format!("0x{first}{point}{text}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(text: &str, arguments: &[Argument]) -> String {
        let mut arguments = arguments.iter();
        let next = |_| Ok::<_, ()>(arguments.next().cloned().unwrap_or(Argument::Integer(0)));
        let (bytes, _) = format(text.as_bytes(), next).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn integers() {
        let all = |value: i64| vec![Argument::Integer(value as u64)];
        for (text, value, expected) in [
            ("%d", -5, "-5"),
            ("[%5d]", 42, "[   42]"),
            ("[%-5d]", 42, "[42   ]"),
            ("%05d", -42, "-0042"),
            ("%+d", 7, "+7"),
            ("% d", 7, " 7"),
            ("%.3d", 7, "007"),
            ("%.0d", 0, ""),
            ("%u", -1, "4294967295"),
            ("%lu", -1, "18446744073709551615"),
            ("%lld", -1, "-1"),
            ("%x %%", 255, "ff %"),
            ("%#X", 255, "0XFF"),
            ("%o", 8, "10"),
            ("%hhd", 300, "44"),
            ("%hu", 65537, "1"),
            ("%c!", 65, "A!"),
            ("%p", 0x1234, "0x1234"),
            ("%zu", 12, "12"),
            ("%q", 1, "%q"),
            ("100%", 1, "100%"),
        ] {
            assert_eq!(print(text, &all(value)), expected, "{text}");
        }
    }

    #[test]
    fn doubles() {
        for (text, value, expected) in [
            ("%f", 1.5, "1.500000"),
            ("%.2f", -2.345, "-2.35"),
            ("%8.3f|", 2.71525, "   2.715|"),
            ("%08.2f", -1.5, "-0001.50"),
            ("%e", 12345.678, "1.234568e+04"),
            ("%.0e", 0.00026, "3e-04"),
            ("%g", 100000.0, "100000"),
            ("%g", 1000000.0, "1e+06"),
            ("%g", 0.0001, "0.0001"),
            ("%g", 0.00001234, "1.234e-05"),
            ("%G", 1e-10, "1E-10"),
            ("%#g", 1.0, "1.00000"),
            ("%g", 0.0, "0"),
            ("%f", f64::INFINITY, "inf"),
            ("%05f", f64::NEG_INFINITY, " -inf"),
            ("%a", 1.0, "0x1p+0"),
            ("%a", 0.15625, "0x1.4p-3"),
            ("%.1a", 1.96875, "0x2.0p+0"),
        ] {
            assert_eq!(
                print(text, &[Argument::Double(value)]),
                expected,
                "{text} {value}"
            );
        }
    }

    #[test]
    fn texts_and_widths_of_arguments() {
        let text = Argument::Text(b"hello".to_vec());
        assert_eq!(print("[%8s]", std::slice::from_ref(&text)), "[   hello]");
        assert_eq!(print("[%-8s]", std::slice::from_ref(&text)), "[hello   ]");
        assert_eq!(print("[%.2s]", std::slice::from_ref(&text)), "[he]");
        let width = Argument::Integer(-7i32 as u32 as u64);
        assert_eq!(print("[%*s]", &[width, text]), "[hello  ]");
    }
}
