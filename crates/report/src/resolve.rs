//! Names of files in `LEAK_REPORT` that are relative to a folder.

use std::path::Path;

/// The words of a `LEAK_REPORT` with absolute names of files, for a program that changes its current folder, or that is
/// started in another one. A name stays as it is where the folder has a comma in its name, which separates words, or is not
/// Unicode.
///
/// ```
/// let words = cuguard_report::resolve_words("json,file=leaks-%p.json,max=3", "/home/me".as_ref());
/// assert_eq!(words, "json,file=/home/me/leaks-%p.json,max=3");
/// ```
#[must_use]
pub fn resolve_words(words: &str, folder: &Path) -> String {
    let Some(folder) = folder.to_str().filter(|folder| !folder.contains(',')) else {
        return words.to_owned();
    };
    let resolved = words.split(',').map(|word| {
        let Some((name, value)) = word.split_once('=') else {
            return word.to_owned();
        };
        let (name, value) = (name.trim(), value.trim());
        let folder = match name {
            // A percent sign has a meaning in this one.
            "file" => folder.replace('%', "%%"),
            "suppress" => folder.to_owned(),
            _ => return word.to_owned(),
        };
        if value.is_empty() || value.starts_with('/') {
            return word.to_owned();
        }
        format!("{name}={}/{value}", folder.trim_end_matches('/'))
    });
    resolved.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::resolve_words;

    #[test]
    fn only_relative_names_of_files_change() {
        for (words, expected) in [
            ("", ""),
            ("1, max=3", "1, max=3"),
            ("file=/x", "file=/x"),
            ("file=", "file="),
            (" file = x,suppress=y", "file=/a%%b/x,suppress=/a%b/y"),
        ] {
            assert_eq!(resolve_words(words, "/a%b".as_ref()), expected);
        }
        assert_eq!(resolve_words("file=x", "/".as_ref()), "file=/x");
        assert_eq!(resolve_words("file=x", "/a,b".as_ref()), "file=x");
    }
}
