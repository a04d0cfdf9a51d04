//! The description of a launch: a line of text.

use super::content::{Content, Type};
use crate::Grid;

/// A launch of a kernel, and what it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel.
    pub kernel: String,
    /// The extents.
    pub grid: Grid,
    /// The arguments.
    pub arguments: Vec<Argument>,
    /// The checksum of the buffers and, if it prints, that of the lines. `None` if it is not known yet.
    pub expected: Option<(u64, Option<u64>)>,
}

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The bytes of a value.
    Value(Vec<u8>),
    /// The address of a buffer.
    Buffer(Content),
    /// An array of numba.
    Array(Content),
}

impl Launch {
    /// Parses the lines of a file. Empty lines and those that begin with `#` do not count.
    ///
    /// # Errors
    ///
    /// The line that is not understood.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| Self::parse(line).ok_or_else(|| format!("not a launch: {line}")))
            .collect()
    }

    /// The expected sums as the line has them.
    #[must_use]
    pub fn expected_text(&self) -> String {
        self.expected.map_or("?".to_owned(), sums_text)
    }

    fn parse(line: &str) -> Option<Self> {
        let (head, rest) = line.split_once(" :")?;
        let (arguments, expected) = rest.split_once('=')?;
        let mut head = head.split_whitespace();
        let kernel = head.next()?.to_owned();
        let (blocks, threads) = head.next()?.split_once('x')?;
        let mut grid = Grid {
            blocks: extents(blocks)?,
            threads: extents(threads)?,
            shared: 0,
            cooperative: false,
        };
        for option in head {
            match option.split_once('=') {
                Some(("shared", bytes)) => grid.shared = bytes.parse().ok()?,
                None if option == "cooperative" => grid.cooperative = true,
                _ => return None,
            }
        }
        let arguments = arguments
            .split_whitespace()
            .map(Argument::parse)
            .collect::<Option<_>>()?;
        let expected = match expected.trim() {
            "?" => None,
            sums => {
                let (buffers, lines) = sums
                    .split_once('+')
                    .map_or((sums, None), |(one, two)| (one, Some(two)));
                let number = |text: &str| u64::from_str_radix(text, 16).ok();
                let lines = match lines {
                    Some(text) => Some(number(text)?),
                    None => None,
                };
                Some((number(buffers)?, lines))
            }
        };
        Some(Self {
            kernel,
            grid,
            arguments,
            expected,
        })
    }
}

/// Sums as a line has them.
pub(super) fn sums_text(sums: (u64, Option<u64>)) -> String {
    match sums {
        (buffers, None) => format!("{buffers:016x}"),
        (buffers, Some(lines)) => format!("{buffers:016x}+{lines:016x}"),
    }
}

fn extents(text: &str) -> Option<[u32; 3]> {
    let mut extents = [1; 3];
    let numbers = text.split(',');
    for (index, number) in numbers.enumerate() {
        *extents.get_mut(index)? = number.parse().ok()?;
    }
    Some(extents)
}

impl Argument {
    fn parse(text: &str) -> Option<Self> {
        if let Some(content) = text.strip_prefix('@') {
            return Some(Argument::Array(Content::parse(content)?));
        }
        let Some((of, value)) = text.split_once(':') else {
            return Some(Argument::Buffer(Content::parse(text)?));
        };
        let bytes = match Type::named(of)? {
            Type::F32 => value.parse::<f32>().ok()?.to_le_bytes().to_vec(),
            Type::F64 => value.parse::<f64>().ok()?.to_le_bytes().to_vec(),
            of => value.parse::<i128>().ok()?.to_le_bytes()[..of.size()].to_vec(),
        };
        Some(Argument::Value(bytes))
    }
}
