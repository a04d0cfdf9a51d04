//! Compiles a source.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use crate::error::Error;
use crate::library::{Functions, Program, functions, supported_archs};
use crate::options::Options;

/// PTX that was compiled; see [`compile`].
///
/// ```
/// use cuguard_nvrtc::{Options, compile};
///
/// let source = "template <class T> __global__ void scale(T *x) { *x *= 2; }";
/// if let Ok(ptx) = compile(source, &Options::new().name_expression("scale<float>")) {
///     let symbol = ptx.lowered_name("scale<float>").expect("it was requested");
///     assert!(ptx.as_str().contains(symbol));
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptx {
    text: String,
    info: Info,
}

/// Code for one architecture, as an ELF image; see [`compile_to_cubin`].
///
/// ```
/// use cuguard_nvrtc::{Options, compile_to_cubin};
///
/// let source = "extern \"C\" __global__ void nothing() {}";
/// if let Ok(cubin) = compile_to_cubin(source, &Options::new().arch(9, 0)) {
///     assert!(cubin.as_bytes().starts_with(b"\x7fELF"));
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    bytes: Vec<u8>,
    info: Info,
}

/// What the compiler reports beside the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Info {
    log: String,
    /// Expression and symbol name.
    names: Vec<(String, String)>,
}

impl Info {
    fn lowered_name(&self, expression: &str) -> Option<&str> {
        let mut names = self.names.iter();
        let (_, symbol) = names.find(|(name, _)| name == expression)?;
        Some(symbol)
    }
}

impl Ptx {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text, as a `String`.
    #[must_use]
    pub fn into_string(self) -> String {
        self.text
    }

    /// The compiler's warnings. Empty if there are none.
    #[must_use]
    pub fn log(&self) -> &str {
        &self.info.log
    }

    /// The symbol name of an expression that was [requested](Options::name_expression).
    #[must_use]
    pub fn lowered_name(&self, expression: &str) -> Option<&str> {
        self.info.lowered_name(expression)
    }
}

impl AsRef<str> for Ptx {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Ptx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Cubin {
    /// The image.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The compiler's warnings. Empty if there are none.
    #[must_use]
    pub fn log(&self) -> &str {
        &self.info.log
    }

    /// The symbol name of an expression that was [requested](Options::name_expression).
    #[must_use]
    pub fn lowered_name(&self, expression: &str) -> Option<&str> {
        self.info.lowered_name(expression)
    }
}

/// Compiles CUDA C++ to PTX.
///
/// Kernels have mangled names unless they are declared `extern "C"`.
///
/// ```
/// use cuguard_nvrtc::{Options, compile};
///
/// match compile("extern \"C\" __global__ void nothing() {}", &Options::new()) {
///     Ok(ptx) => println!("{ptx}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
///
/// # Errors
///
/// [`Error::LibraryMissing`], [`Error::Compile`] with the log, [`Error::InteriorNul`], [`Error::CallFailed`].
pub fn compile(source: &str, options: &Options) -> Result<Ptx, Error> {
    let (bytes, info) = run(source, options, Kind::Ptx)?;
    // NVRTC counts the NUL at its end.
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text).into_owned();
    Ok(Ptx { text, info })
}

/// Compiles CUDA C++ to code for one architecture, [`Options::arch`]: a driver loads it without compiling, and only devices
/// of that major version, with that minor version or a higher one, run it.
///
/// # Errors
///
/// As [`compile`]. Without an architecture there is no code, and NVRTC fails.
pub fn compile_to_cubin(source: &str, options: &Options) -> Result<Cubin, Error> {
    let (bytes, info) = run(source, options, Kind::Cubin)?;
    Ok(Cubin { bytes, info })
}

/// Code that a driver can load; see [`compile_for_device`].
///
/// ```
/// use cuguard_nvrtc::{Code, Options, compile_for_device};
///
/// match compile_for_device("__global__ void nothing() {}", &Options::new(), (9, 0)) {
///     Ok(Code::Cubin(cubin)) => println!("{} bytes", cubin.as_bytes().len()),
///     Ok(Code::Ptx(ptx)) => println!("{ptx}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// For one architecture.
    Cubin(Cubin),
    /// For the driver to compile.
    Ptx(Ptx),
}

/// Compiles CUDA C++ for a device of this compute capability, or for [`Options::arch`] if it is set: to a cubin; where
/// NVRTC does not support the device, to PTX of the newest architecture before it, which the driver compiles.
///
/// # Errors
///
/// [`Error::OtherDevice`] if a cubin for [`Options::arch`] does not run on the device, [`Error::UnsupportedArch`] if NVRTC
/// does not compile for it; [`Error::DeviceTooOld`] if the device is older than all that NVRTC compiles for; else as
/// [`compile`].
pub fn compile_for_device(
    source: &str,
    options: &Options,
    device: (u32, u32),
) -> Result<Code, Error> {
    if let Some(arch) = options.target()
        && !runs_on(arch, device)
    {
        return Err(Error::OtherDevice { arch, device });
    }
    let supported = supported_archs()?;
    let (major, minor) = options.target().unwrap_or(device);
    if supported.contains(&(major, minor)) {
        let options = options.clone().arch(major, minor);
        return compile_to_cubin(source, &options).map(Code::Cubin);
    }
    // An NVRTC that does not list what it supports decides by itself.
    if supported.is_empty() {
        return compile(source, options).map(Code::Ptx);
    }
    if options.target().is_some() {
        return Err(Error::UnsupportedArch {
            major,
            minor,
            supported,
        });
    }
    let Some((major, minor)) = supported.iter().copied().rfind(|one| *one < device) else {
        return Err(Error::DeviceTooOld { device, supported });
    };
    compile(source, &options.clone().arch(major, minor)).map(Code::Ptx)
}

/// Whether a cubin runs on a device: it is for one major version, and for its minor version and later ones.
fn runs_on(arch: (u32, u32), device: (u32, u32)) -> bool {
    arch.0 == device.0 && arch.1 <= device.1
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ptx,
    Cubin,
}

/// Destroys its program on drop.
struct Guard<'a> {
    functions: &'a Functions,
    program: Program,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: created by NVRTC and not destroyed yet. A failure leaves nothing to do.
        let _ = unsafe { (self.functions.nvrtcDestroyProgram)(&mut self.program) };
    }
}

fn to_c(what: &'static str, text: impl AsRef<OsStr>) -> Result<CString, Error> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| Error::InteriorNul { what })
}

fn all_to_c<'a, T: AsRef<OsStr> + 'a>(
    what: &'static str,
    texts: impl IntoIterator<Item = &'a T>,
) -> Result<Vec<CString>, Error> {
    texts.into_iter().map(|text| to_c(what, text)).collect()
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

fn run(source: &str, options: &Options, kind: Kind) -> Result<(Vec<u8>, Info), Error> {
    let source = to_c("the source", source)?;
    let name = options.name.as_deref().unwrap_or("default_program");
    let c_name = to_c("the name of the source", name)?;
    let headers = all_to_c("a header", options.headers.iter().map(|(_, text)| text))?;
    let header_names = all_to_c(
        "the name of a header",
        options.headers.iter().map(|(name, _)| name),
    )?;
    let arguments = options.arguments(match kind {
        Kind::Ptx => "compute",
        Kind::Cubin => "sm",
    });
    let arguments = all_to_c("an option", &arguments)?;
    let expressions = all_to_c("a name expression", &options.expressions)?;

    let functions = functions()?;
    let mut program = ptr::null_mut();
    let (header_at, header_name_at) = (pointers(&headers), pointers(&header_names));
    // SAFETY: C strings, as many headers as names, which NVRTC copies; the variable can be written to.
    let code = unsafe {
        (functions.nvrtcCreateProgram)(
            &mut program,
            source.as_ptr(),
            c_name.as_ptr(),
            headers.len() as c_int,
            header_at.as_ptr(),
            header_name_at.as_ptr(),
        )
    };
    functions.check("nvrtcCreateProgram", code)?;
    let guard = Guard { functions, program };
    for expression in &expressions {
        // SAFETY: the program is alive; a C string.
        let code = unsafe { (functions.nvrtcAddNameExpression)(program, expression.as_ptr()) };
        functions.check("nvrtcAddNameExpression", code)?;
    }
    let argument_at = pointers(&arguments);
    // SAFETY: the program is alive; as many C strings as stated.
    let compiled = unsafe {
        (functions.nvrtcCompileProgram)(program, arguments.len() as c_int, argument_at.as_ptr())
    };
    let log = text(
        functions,
        program,
        functions.nvrtcGetProgramLogSize,
        functions.nvrtcGetProgramLog,
        ["nvrtcGetProgramLogSize", "nvrtcGetProgramLog"],
    );
    let log = log.unwrap_or_default();
    let log = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let log = String::from_utf8_lossy(log).trim().to_owned();
    if compiled != 0 {
        return Err(Error::Compile {
            name: name.to_owned(),
            reason: functions.message(compiled),
            log,
        });
    }
    let code = match kind {
        Kind::Ptx => text(
            functions,
            program,
            functions.nvrtcGetPTXSize,
            functions.nvrtcGetPTX,
            ["nvrtcGetPTXSize", "nvrtcGetPTX"],
        )?,
        Kind::Cubin => text(
            functions,
            program,
            functions.nvrtcGetCUBINSize,
            functions.nvrtcGetCUBIN,
            ["nvrtcGetCUBINSize", "nvrtcGetCUBIN"],
        )?,
    };
    if code.is_empty() {
        return Err(Error::CallFailed {
            function: "nvrtcGetCUBINSize",
            reason: "there is no code; set an architecture (Options::arch)".to_owned(),
        });
    }
    let mut names = Vec::new();
    for (expression, c_expression) in options.expressions.iter().zip(&expressions) {
        let mut symbol = ptr::null();
        // SAFETY: the program is alive; a C string; the variable can be written to.
        let code =
            unsafe { (functions.nvrtcGetLoweredName)(program, c_expression.as_ptr(), &mut symbol) };
        functions.check("nvrtcGetLoweredName", code)?;
        // SAFETY: a C string of the program, which is alive.
        let symbol = unsafe { CStr::from_ptr(symbol) };
        names.push((expression.clone(), symbol.to_string_lossy().into_owned()));
    }
    drop(guard);
    Ok((code, Info { log, names }))
}

type GetSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// What NVRTC writes to a buffer of the size that it states.
fn text(
    functions: &Functions,
    program: Program,
    get_size: GetSize,
    get: Get,
    names: [&'static str; 2],
) -> Result<Vec<u8>, Error> {
    let mut size = 0;
    // SAFETY: the program is alive; the variable can be written to.
    functions.check(names[0], unsafe { get_size(program, &mut size) })?;
    let mut bytes = vec![0_u8; size];
    if size > 0 {
        // SAFETY: the program is alive; the buffer has as many bytes as NVRTC stated.
        functions.check(names[1], unsafe { get(program, bytes.as_mut_ptr().cast()) })?;
    }
    Ok(bytes)
}
