//! Options of the compiler.

use std::ffi::OsString;
use std::path::Path;

/// What is compiled, and how. The defaults are NVRTC's.
///
/// ```
/// use cuguard_nvrtc::Options;
///
/// let options = Options::new()
///     .name("reduce.cu")
///     .arch(9, 0)
///     .define("FAST")
///     .define_value("BLOCK", "256")
///     .include_dir("/usr/local/cuda/include")
///     .header("shape.h", "struct Shape { int rows, columns; };")
///     .option("--std=c++17");
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Options {
    pub(crate) name: Option<String>,
    pub(crate) arch: Option<(u32, u32)>,
    /// Paths among them need not be UTF-8.
    pub(crate) arguments: Vec<OsString>,
    /// Name and text.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) expressions: Vec<String>,
}

impl Options {
    /// NVRTC's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name of the source in messages. The default is `default_program`.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// The compute capability to compile for, as major and minor number: `compute_90` for PTX, `sm_90` for a cubin. The
    /// default is the oldest that NVRTC supports, or an older one still.
    pub fn arch(mut self, major: u32, minor: u32) -> Self {
        self.arch = Some((major, minor));
        self
    }

    /// The compute capability that was set.
    #[must_use]
    pub fn target(&self) -> Option<(u32, u32)> {
        self.arch
    }

    /// A folder to search for `#include`. NVRTC has no folders of its own. The path is passed on byte by byte.
    pub fn include_dir(mut self, folder: impl AsRef<Path>) -> Self {
        let mut argument = OsString::from("--include-path=");
        argument.push(folder.as_ref());
        self.arguments.push(argument);
        self
    }

    /// Defines a macro as 1.
    pub fn define(self, name: &str) -> Self {
        self.option(&format!("--define-macro={name}"))
    }

    /// Defines a macro.
    pub fn define_value(self, name: &str, value: &str) -> Self {
        self.option(&format!("--define-macro={name}={value}"))
    }

    /// A header in memory: `#include "name"` finds this text.
    pub fn header(mut self, name: &str, text: &str) -> Self {
        self.headers.push((name.to_owned(), text.to_owned()));
        self
    }

    /// An expression such as `scale<float>` or `&table` whose symbol name is wanted:
    /// [`Ptx::lowered_name`](crate::Ptx::lowered_name). It instantiates a template.
    pub fn name_expression(mut self, expression: &str) -> Self {
        self.expressions.push(expression.to_owned());
        self
    }

    /// Any other option of NVRTC, such as `--use_fast_math` or `--generate-line-info`.
    pub fn option(mut self, option: &str) -> Self {
        self.arguments.push(option.into());
        self
    }

    /// All arguments, for code of this kind: "compute" or "sm".
    pub(crate) fn arguments(&self, kind: &str) -> Vec<OsString> {
        let arch = self
            .arch
            .map(|(major, minor)| format!("--gpu-architecture={kind}_{major}{minor}").into());
        arch.into_iter()
            .chain(self.arguments.iter().cloned())
            .collect()
    }
}
