//! Paths of source files that an editor or a terminal can open.
//!
//! The compiler stores paths relative to the folder that it was started in, or absolute. A report is read
//! elsewhere: in the folder of one package of a workspace, or on another machine. So a path is shown
//! relative to the current folder if the file is below it, and absolute otherwise. If the file is not on
//! this machine, the path inside its package is shown.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};

use cuguard_registry::Site;

/// Folders of a package that hold code.
const CODE_FOLDERS: [&str; 4] = ["src", "examples", "tests", "benches"];

/// The files of one report.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    current: Option<PathBuf>,
    /// What relative paths may be relative to: the folders above the program, which is in `target/debug` of
    /// its workspace, and above the current folder.
    roots: RefCell<Vec<PathBuf>>,
    /// The result for each relative path.
    found: RefCell<HashMap<String, Option<String>>>,
    /// What is shown for relative paths whose absolute path is known.
    learned: RefCell<HashMap<String, String>>,
}

impl Paths {
    /// For reports of this process, from its current folder.
    #[must_use]
    pub fn new() -> Self {
        let program = env::current_exe().ok();
        Self::of(
            env::current_dir().ok(),
            program.as_deref().and_then(Path::parent),
        )
    }

    fn of(current: Option<PathBuf>, program: Option<&Path>) -> Self {
        let above = [program, current.as_deref()].into_iter().flatten();
        // But for the root: no workspace is there.
        let roots = above
            .flat_map(Path::ancestors)
            .filter(|folder| folder.parent().is_some())
            .map(Path::to_owned);
        Self {
            roots: RefCell::new(roots.collect()),
            // In `/` every path would be relative.
            current: current.filter(|folder| folder.parent().is_some()),
            found: RefCell::default(),
            learned: RefCell::default(),
        }
    }

    /// The path that is shown for a file of the debug information or a call site.
    #[must_use]
    pub fn shorten<'a>(&self, path: &'a str) -> Cow<'a, str> {
        if path.is_empty() {
            return path.into();
        }
        if !path.starts_with('/') {
            return self.find(path).map_or(path.into(), Cow::from);
        }
        match self.below_current(path) {
            Some(rest) => rest.into(),
            None if Path::new(path).is_file() => path.into(),
            None => in_known_package(path),
        }
    }

    /// A call site as it is shown.
    pub(crate) fn site(&self, site: Site) -> String {
        let file = self.shorten(site.file);
        format!("{file}:{}:{}", site.line, site.column)
    }

    /// Learns what paths are relative to, from one file with both its paths: a call site has the relative
    /// one, debug information the absolute one.
    pub(crate) fn learn(&self, relative: &str, absolute: &str) {
        let root = absolute.strip_suffix(relative);
        let root = root.and_then(|root| root.strip_suffix('/'));
        let Some(root) = root.filter(|root| root.len() > 1 && root.starts_with('/')) else {
            return;
        };
        if self.learned.borrow().contains_key(relative) {
            return;
        }
        let shown = self.shorten(absolute).into_owned();
        self.learned.borrow_mut().insert(relative.to_owned(), shown);
        let mut roots = self.roots.borrow_mut();
        if !roots.iter().any(|known| known == Path::new(root)) {
            roots.insert(0, root.into());
            self.found.borrow_mut().clear();
        }
    }

    fn below_current<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(self.current.as_ref()?.to_str()?)?;
        rest.strip_prefix('/')
    }

    /// The file of a relative path, if it exists.
    fn find(&self, path: &str) -> Option<String> {
        if let Some(learned) = self.learned.borrow().get(path) {
            return Some(learned.clone());
        }
        if let Some(known) = self.found.borrow().get(path) {
            return known.clone();
        }
        let roots = self.roots.borrow();
        let found = roots
            .iter()
            .map(|root| root.join(path))
            .find(|path| path.is_file());
        let found = found.and_then(|path| path.into_os_string().into_string().ok());
        let shown = found.map(|found| match self.below_current(&found) {
            Some(rest) => rest.to_owned(),
            None => found,
        });
        self.found
            .borrow_mut()
            .insert(path.to_owned(), shown.clone());
        shown
    }
}

/// The path of a file that is not on this machine, inside its package.
fn in_known_package(path: &str) -> Cow<'_, str> {
    // ~/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/log-0.4.0/src/lib.rs
    if let Some((_, rest)) = path.split_once("/registry/src/")
        && let Some((_, in_crate)) = rest.split_once('/')
    {
        return in_crate.into();
    }
    // ~/.cargo/git/checkouts/log-7f3c2a/1a2b3c4/src/lib.rs
    if let Some((_, rest)) = path.split_once("/git/checkouts/")
        && let Some((name, rest)) = rest.split_once('/')
        && let Some((_, in_crate)) = rest.split_once('/')
    {
        let name = name.rsplit_once('-').map_or(name, |(name, _)| name);
        return format!("{name}/{in_crate}").into();
    }
    in_library(path).unwrap_or_else(|| in_package(path)).into()
}

/// The part of a path inside the sources of the standard library: as it was built,
/// `/rustc/59807616e1f/library/std/src/rt.rs`, or as its sources are installed.
pub(crate) fn in_library(path: &str) -> Option<&str> {
    let known = path.starts_with("/rustc/") || path.contains("/lib/rustlib/src/");
    path.split_once("/library/")
        .filter(|_| known)
        .map(|(_, rest)| rest)
}

/// The part of a path from the folder of its package: `app/src/main.rs` for `/build/1234/app/src/main.rs`.
///
/// The folder does not exist here, so the text decides: the last folder of code counts
/// (`/usr/src/app/src/main.rs`), and those right before it (`app/src/tests/a.rs`).
fn in_package(path: &str) -> &str {
    let is_code = |end: usize| {
        let folder = path[..end].rsplit('/').next();
        folder.is_some_and(|folder| CODE_FOLDERS.contains(&folder))
    };
    // Where each folder ends, from the last to the first.
    let mut ends = path.rmatch_indices('/').map(|(end, _)| end).peekable();
    while ends.next_if(|end| !is_code(*end)).is_some() {}
    if ends.peek().is_none() {
        return path;
    }
    while ends.next_if(|end| is_code(*end)).is_some() {}
    // The package's folder ends here, and starts after the slash before.
    ends.next();
    ends.next().map_or(&path[1..], |begin| &path[begin + 1..])
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::Paths;

    /// With one absolute path the folder is known, also where the program is elsewhere.
    #[test]
    fn an_absolute_path_tells_what_others_are_relative_to() {
        let folder = std::env::temp_dir().join(format!("cuguard-learn-{}", std::process::id()));
        let root = folder.to_str().unwrap();
        fs::create_dir_all(folder.join("src")).unwrap();
        for file in ["src/error.rs", "src/lib.rs"] {
            fs::write(folder.join(file), "").unwrap();
        }
        let paths = Paths::of(None, None);
        assert_eq!(paths.shorten("src/lib.rs"), "src/lib.rs");
        paths.learn("src/error.rs", "/elsewhere/app/src/main.rs");
        paths.learn("src/error.rs", &format!("{root}/src/error.rs"));
        for file in ["src/error.rs", "src/lib.rs"] {
            assert_eq!(paths.shorten(file), format!("{root}/{file}"));
        }
        // Not on this machine.
        paths.learn("src/main.rs", "/elsewhere/app/src/main.rs");
        assert_eq!(paths.shorten("src/main.rs"), "app/src/main.rs");
        assert_eq!(paths.shorten("src/no_such_file.rs"), "src/no_such_file.rs");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn files_that_do_not_exist_have_paths_inside_their_package() {
        let paths = Paths::of(Some(PathBuf::from("/home/ann/app")), None);
        for (path, expected) in [
            ("/home/ann/app/src/main.rs", "src/main.rs"),
            ("src/no-such-file.rs", "src/no-such-file.rs"),
            ("/home/ann/application/x.rs", "/home/ann/application/x.rs"),
            (
                "/home/ann/.cargo/registry/src/index.crates.io-1949/log-0.4.0/src/lib.rs",
                "log-0.4.0/src/lib.rs",
            ),
            (
                "/home/ann/.cargo/git/checkouts/my-log-7f3c/1a2b/src/lib.rs",
                "my-log/src/lib.rs",
            ),
            ("/rustc/59807616e1f/library/core/src/x.rs", "core/src/x.rs"),
            (
                "/x/lib/rustlib/src/rust/library/std/src/rt.rs",
                "std/src/rt.rs",
            ),
            ("/srv/library/src/x.rs", "library/src/x.rs"),
            ("/build/xyz/app/src/main.rs", "app/src/main.rs"),
            ("/build/app/examples/a/main.rs", "app/examples/a/main.rs"),
            ("/usr/src/app/src/net/http.rs", "app/src/net/http.rs"),
            ("/usr/src/app/benches/a.rs", "app/benches/a.rs"),
            ("/app/src/tests/a.rs", "app/src/tests/a.rs"),
            ("/src/main.rs", "src/main.rs"),
            ("/build/app/build.rs", "/build/app/build.rs"),
            ("/build/resources/src.rs", "/build/resources/src.rs"),
            ("/build/mysrc/a.rs", "/build/mysrc/a.rs"),
            ("/home/ann/other/src/a.rs", "other/src/a.rs"),
            ("build/app/src/a.rs", "build/app/src/a.rs"),
            ("", ""),
        ] {
            assert_eq!(paths.shorten(path), expected);
        }
        assert_eq!(Paths::default().shorten("/a/b.rs"), "/a/b.rs");
    }

    /// A workspace with two packages, and what is shown in its folders and elsewhere.
    #[test]
    fn files_that_exist_can_be_opened_from_any_folder() {
        let folder = std::env::temp_dir().join(format!("cuguard-paths-{}", std::process::id()));
        let (file, program) = ("one/src/lib.rs", folder.join("target/debug"));
        for made in ["one/src", "two/src", "target/debug"] {
            fs::create_dir_all(folder.join(made)).unwrap();
        }
        fs::write(folder.join(file), "").unwrap();
        let whole = folder.join(file).to_str().unwrap().to_owned();
        for current in ["", "one", "one/src", "two", "target"] {
            for program in [Some(program.as_path()), None] {
                let current = folder.join(current);
                // The shape that `current_dir` has.
                let current = current.components().collect::<PathBuf>();
                let paths = Paths::of(Some(current.clone()), program);
                for written in [file, &whole] {
                    let shown = paths.shorten(written);
                    assert!(current.join(&*shown).is_file(), "{shown} in {current:?}");
                }
            }
        }
        let elsewhere = Paths::of(Some(PathBuf::from("/")), Some(&program));
        for written in [file, &whole] {
            let shown = elsewhere.shorten(written);
            assert!(Path::new("/").join(&*shown).is_file(), "{shown}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
