//! The functions at an address of a file: inlined ones first.

use addr2line::Loader;
use cuguard_report::demangle;

/// A function and the line that runs, as far as the file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) function: Option<String>,
    pub(super) file: Option<String>,
    /// 0 where it is unknown.
    pub(super) line: u32,
}

/// What the file has of an address: from its debug information, or its symbol table. Empty for nothing.
pub(super) fn at(loader: &Loader, address: u64) -> Vec<Name> {
    let mut names = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref();
            let function = function.and_then(|function| function.raw_name().ok());
            let location = frame.location.as_ref();
            names.push(Name {
                function: function.map(|name| demangle(&name)),
                file: location.and_then(|location| Some(location.file?.to_owned())),
                line: location
                    .and_then(|location| location.line)
                    .unwrap_or_default(),
            });
        }
    }
    let has_name = names.last().is_some_and(|name| name.function.is_some());
    if !has_name && let Some(symbol) = loader.find_symbol(address) {
        if names.is_empty() {
            names.push(Name::default());
        }
        // The symbol table has no inlined functions: the name is the outermost one's.
        if let Some(last) = names.last_mut() {
            last.function = Some(demangle(symbol));
        }
    }
    names
}

/// Whether no other file can have more.
pub(super) fn have_lines(names: &[Name]) -> bool {
    names
        .last()
        .is_some_and(|name| name.function.is_some() && name.file.is_some())
}

/// Whether these say more than those.
pub(super) fn are_better(these: &[Name], those: &[Name]) -> bool {
    let score = |names: &[Name]| {
        let named = names.iter().filter(|name| name.function.is_some()).count();
        (have_lines(names), named)
    };
    score(these) > score(those)
}

#[cfg(test)]
mod tests {
    use super::{Name, are_better};

    #[test]
    fn lines_are_better_than_names_and_names_than_nothing() {
        let name = |function: &str, file: &str| Name {
            function: Some(function.to_owned()).filter(|name| !name.is_empty()),
            file: Some(file.to_owned()).filter(|file| !file.is_empty()),
            line: 1,
        };
        let order = [vec![], vec![name("f", "")], vec![name("f", "f.c")]];
        assert!(are_better(&order[1], &order[0]) && are_better(&order[2], &order[1]));
        assert!(!are_better(&order[1], &order[1]) && !are_better(&order[0], &[name("", "")]));
    }
}
