//! Names of functions and variables as their source has them. Symbols come out of files that nobody checked, and a symbol of a
//! hundred bytes can stand for a name of gigabytes: each of its parts may refer to earlier ones.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// The most bytes of a demangled name; longer names are cut. Nobody reads more.
const LONGEST: usize = 4 << 10;

/// A longer symbol is shown as it is, and cut: to parse it takes a hundred times its memory.
const LONGEST_SYMBOL: usize = 64 << 10;

/// The same for C++, whose parser tries alternatives one after the other: the time and memory of a damaged symbol double with
/// each that is nested in another, up to the parser's limit of depth. A symbol of 76 bytes took 15 MiB.
const LONGEST_CPP_SYMBOL: usize = 8 << 10;

/// The prefixes of mangled names. The name of a C function is what it is: read as a mangled type, `w` would be `wchar_t`.
const PREFIXES: [&str; 3] = ["_Z", "_R", "__Z"];

/// What the functions of the static CUDA runtime are called that have a hash for a name.
const STATIC_RUNTIME: &str = "libcudart_static";

/// The name behind a symbol of Rust or C++: without the hash at the end of Rust's, and at most 4 KiB of it. Functions inside of the
/// static CUDA runtime, which have hashes for names, all have its name. Other symbols are returned as they are.
///
/// ```
/// use cuguard_report::demangle;
///
/// assert_eq!(demangle("_Z4leakPKc"), "leak(char const*)");
/// assert_eq!(demangle("_ZN4test5CACHE17h0123456789abcdefE"), "test::CACHE");
/// assert_eq!(demangle("main"), "main");
/// assert_eq!(demangle("libcudart_static_5382377d5c772c9d197c0cda9fd9742ee6ad893c"), "libcudart_static");
/// ```
#[must_use]
pub fn demangle(symbol: &str) -> String {
    let is_hash = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    let rest = symbol.strip_prefix(STATIC_RUNTIME);
    if rest
        .and_then(|rest| rest.strip_prefix('_'))
        .is_some_and(is_hash)
    {
        return STATIC_RUNTIME.to_owned();
    }
    let is_mangled = PREFIXES.iter().any(|prefix| symbol.starts_with(prefix));
    let mut name = Name::default();
    if is_mangled && symbol.len() <= LONGEST_SYMBOL {
        let written = match rustc_demangle::try_demangle(symbol) {
            Ok(rust) => write!(name, "{rust:#}").is_ok(),
            Err(_) => of_cpp(symbol, &mut name),
        };
        if written || name.is_cut {
            return name.text;
        }
    }
    let mut name = Name::default();
    // Truncation is not an error.
    let _ = name.write_str(symbol);
    name.text
}

fn of_cpp(symbol: &str, name: &mut Name) -> bool {
    if symbol.len() > LONGEST_CPP_SYMBOL {
        return false;
    }
    Symbol::new(symbol).is_ok_and(|parsed| {
        let options = DemangleOptions::default();
        parsed.structured_demangle(name, &options).is_ok()
    })
}

/// A name up to its limit. Writing more fails, which ends the demangling.
#[derive(Debug, Default)]
struct Name {
    text: String,
    is_cut: bool,
}

impl Write for Name {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.is_cut {
            return Err(fmt::Error);
        }
        let mut end = part.len().min(LONGEST - self.text.len());
        while !part.is_char_boundary(end) {
            end -= 1;
        }
        self.text.push_str(&part[..end]);
        if end < part.len() {
            self.text.push('…');
            self.is_cut = true;
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, LONGEST_CPP_SYMBOL, LONGEST_SYMBOL, demangle};

    #[test]
    fn only_mangled_names_are_demangled() {
        for (symbol, expected) in [
            ("w", "w"),
            ("main", "main"),
            ("cache", "cache"),
            ("_Z4leakPKc", "leak(char const*)"),
            ("_ZN5model4loadEi", "model::load(int)"),
            ("_ZN5model5cacheE", "model::cache"),
            ("_ZZ4mainE5cache", "main::cache"),
            ("_ZN4test5CACHE17h0123456789abcdefE", "test::CACHE"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_Znonsense", "_Znonsense"),
        ] {
            assert_eq!(demangle(symbol), expected);
        }
    }

    /// Each type has the one before twice: the name doubles with every ten bytes of the symbol.
    #[test]
    fn a_name_of_gigabytes_is_cut() {
        // `f(a<int, int>, a<a<int, int>, a<int, int>>, …)`
        let mut symbol = String::from("_Z1f1aIiiE");
        for earlier in '0'..='9' {
            symbol.push_str(&format!("S_IS{earlier}_S{earlier}_E"));
        }
        let name = demangle(&symbol);
        assert!(name.starts_with("f(a<int, int>, a<a<int, int>"), "{name}");
        assert!(name.ends_with('…') && name.len() <= LONGEST + "…".len());
        let long = "_R".to_owned() + &"x".repeat(1 << 20);
        assert!(demangle(&long).len() <= LONGEST + "…".len());
        for length in [LONGEST_CPP_SYMBOL, LONGEST_SYMBOL] {
            let long = "_Z".to_owned() + &"1a".repeat(length);
            assert!(demangle(&long).starts_with("_Z1a1a"));
        }
        // Cut between two characters.
        let long = "é".repeat(LONGEST);
        assert_eq!(demangle(&long).chars().count(), LONGEST / 2 + 1);
    }
}
