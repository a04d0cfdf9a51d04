//! Workflow commands of GitHub Actions, for all reports.
//!
//! ```text
//! ::error file=src/main.rs,line=12,col=5,title=cuguard%3A leaked 1 stream::leaked 1 stream%0A…
//! ```
//!
//! The runner reads them from the output of a step, one a line. Values escape percent signs and line breaks,
//! properties also colons and commas.

use std::fmt::Write;

use crate::paths::Paths;
use crate::phrase::printable;
use crate::symbols::Frame;

/// A line of the program: the file, the line and the column.
pub(crate) type Location<'a> = (&'a str, u32, Option<u32>);

/// Annotations, each on a line of its own.
pub(crate) struct Annotations<'a> {
    text: String,
    paths: &'a Paths,
    /// The folder of the repository, to which the runner expects relative files.
    root: Option<&'a str>,
}

impl<'a> Annotations<'a> {
    pub(crate) fn new(paths: &'a Paths, root: Option<&'a str>) -> Self {
        Self {
            text: String::new(),
            paths,
            root,
        }
    }

    /// Adds one. The command is `error` or `warning`; the message begins with the title.
    pub(crate) fn add(
        &mut self,
        command: &str,
        location: Option<Location<'_>>,
        title: &str,
        message: &str,
    ) {
        let _ = write!(self.text, "::{command} ");
        if let Some((file, line, column)) = location {
            let file = property(&printable(&self.file(file)));
            let _ = write!(self.text, "file={file},line={line},");
            if let Some(column) = column {
                let _ = write!(self.text, "col={column},");
            }
        }
        let title = property(&format!("cuguard: {title}"));
        let _ = writeln!(self.text, "title={title}::{}", value(message));
    }

    /// Appends a stack trace to a message.
    pub(crate) fn frames<'f>(
        &self,
        message: &mut String,
        frames: impl IntoIterator<Item = &'f Frame>,
    ) {
        for frame in frames {
            let _ = write!(message, "\n  {}", printable(&frame.name()));
            if let (Some(file), Some(line)) = (&frame.symbol.file, frame.symbol.line) {
                let file = self.paths.shorten(file);
                let _ = write!(message, "  {}:{line}", printable(&file));
            }
        }
    }

    /// All of them, and a last line of text.
    pub(crate) fn finish(mut self, last: &str) -> String {
        self.text.push_str(last);
        self.text.push('\n');
        self.text
    }

    /// The file, relative to the repository if it is inside.
    fn file(&self, file: &str) -> String {
        let shown = self.paths.shorten(file).into_owned();
        let whole = match std::path::absolute(&shown) {
            Ok(path) => path.to_string_lossy().into_owned(),
            Err(_) => return shown,
        };
        let root = self.root.map(|root| root.trim_end_matches('/'));
        let inside = root.and_then(|root| whole.strip_prefix(root)?.strip_prefix('/'));
        inside.map_or(shown, str::to_owned)
    }
}

fn value(text: &str) -> String {
    let text = text.replace('%', "%25");
    text.replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    value(text).replace(':', "%3A").replace(',', "%2C")
}
