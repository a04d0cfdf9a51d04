//! NVRTC itself: found, opened, and its functions.

use std::env;
use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::Error;

/// The names of the library, the newest first. Version 11 changed its name twice.
const NAMES: [&str; 6] = [
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so.11.2",
    "libnvrtc.so.11.1",
    "libnvrtc.so.11.0",
    "libnvrtc.so",
];

/// A program of NVRTC, an opaque pointer.
pub(crate) type Program = *mut std::ffi::c_void;

/// NVRTC's result code. 0 is success.
pub(crate) type Code = c_int;

macro_rules! functions {
    ($($(#[$meta:meta])* fn $name:ident($($parameter:ty),*);)*) => {
        /// The functions of NVRTC, which stay loaded until the process ends.
        #[allow(non_snake_case, reason = "NVRTC's own names")]
        pub(crate) struct Functions {
            $($(#[$meta])* pub(crate) $name: unsafe extern "C" fn($($parameter),*) -> Code,)*
            nvrtcGetErrorString: unsafe extern "C" fn(Code) -> *const c_char,
            nvrtcGetNumSupportedArchs: Option<unsafe extern "C" fn(*mut c_int) -> Code>,
            nvrtcGetSupportedArchs: Option<unsafe extern "C" fn(*mut c_int) -> Code>,
            /// Not closed: the pointers above point into it.
            _library: ManuallyDrop<Library>,
        }

        impl Functions {
            fn new(library: Library, path: &str) -> Result<Self, Error> {
                macro_rules! symbol {
                    ($symbol:ident) => {{
                        let name = concat!(stringify!($symbol), "\0");
                        // SAFETY: the types are those of NVIDIA's header nvrtc.h, the same in all versions.
                        unsafe { library.get(name.as_bytes()) }.ok().map(|symbol| *symbol)
                    }};
                }
                let missing = |function| Error::FunctionMissing {
                    library: path.to_owned(),
                    function,
                };
                Ok(Self {
                    $($name: symbol!($name).ok_or_else(|| missing(stringify!($name)))?,)*
                    nvrtcGetErrorString: symbol!(nvrtcGetErrorString)
                        .ok_or_else(|| missing("nvrtcGetErrorString"))?,
                    nvrtcGetNumSupportedArchs: symbol!(nvrtcGetNumSupportedArchs),
                    nvrtcGetSupportedArchs: symbol!(nvrtcGetSupportedArchs),
                    _library: ManuallyDrop::new(library),
                })
            }
        }
    };
}

functions! {
    fn nvrtcVersion(*mut c_int, *mut c_int);
    fn nvrtcCreateProgram(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
    fn nvrtcDestroyProgram(*mut Program);
    fn nvrtcCompileProgram(Program, c_int, *const *const c_char);
    fn nvrtcGetPTXSize(Program, *mut usize);
    fn nvrtcGetPTX(Program, *mut c_char);
    fn nvrtcGetCUBINSize(Program, *mut usize);
    fn nvrtcGetCUBIN(Program, *mut c_char);
    fn nvrtcGetProgramLogSize(Program, *mut usize);
    fn nvrtcGetProgramLog(Program, *mut c_char);
    fn nvrtcAddNameExpression(Program, *const c_char);
    fn nvrtcGetLoweredName(Program, *const c_char, *mut *const c_char);
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Functions")
    }
}

impl Functions {
    /// Turns a code into a result.
    pub(crate) fn check(&self, function: &'static str, code: Code) -> Result<(), Error> {
        match code {
            0 => Ok(()),
            code => Err(Error::CallFailed {
                function,
                reason: self.message(code),
            }),
        }
    }

    /// NVRTC's message for a code.
    pub(crate) fn message(&self, code: Code) -> String {
        // SAFETY: any number is allowed; the text is static.
        let text = unsafe { (self.nvrtcGetErrorString)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: a C string that is valid until the library is unloaded, which it never is.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        format!("{text} ({code})")
    }
}

/// NVRTC, loaded by the first call.
pub(crate) fn functions() -> Result<&'static Functions, Error> {
    static FUNCTIONS: OnceLock<Result<Functions, Error>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// The folders that the environment names, and the usual ones of the toolkit.
fn folders() -> impl Iterator<Item = PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(env::var_os);
    let named = named.filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let usual = ["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from);
    let roots = named.chain(usual);
    roots.flat_map(|root| [root.join("lib64"), root.join("lib")])
}

fn load() -> Result<Functions, Error> {
    let mut tried = Vec::new();
    for name in NAMES {
        match open(Path::new(name)) {
            Ok(library) => return Functions::new(library, name),
            Err(reason) => tried.push(reason),
        }
    }
    for folder in folders() {
        let mut found = false;
        for path in NAMES.map(|name| folder.join(name)) {
            // Opening a pipe would block until there is a writer.
            if !path.is_file() {
                continue;
            }
            found = true;
            match open(&path) {
                Ok(library) => return Functions::new(library, &path.display().to_string()),
                Err(reason) => tried.push(reason),
            }
        }
        if !found {
            tried.push(format!("{}: no libnvrtc.so there", folder.display()));
        }
    }
    Err(Error::LibraryMissing { tried })
}

fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: NVIDIA's library runs no code of its own when it is loaded that has conditions; another library of this name
    // in the folders that the user configured is the user's choice.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    library.map_err(|error| match std::error::Error::source(&error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    })
}

/// The version of NVRTC, as major and minor number: that of the CUDA toolkit.
///
/// ```
/// match cuguard_nvrtc::version() {
///     Ok((major, minor)) => println!("NVRTC {major}.{minor}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
///
/// # Errors
///
/// [`Error::LibraryMissing`], [`Error::FunctionMissing`].
pub fn version() -> Result<(u32, u32), Error> {
    let functions = functions()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both variables can be written to.
    let code = unsafe { (functions.nvrtcVersion)(&mut major, &mut minor) };
    functions.check("nvrtcVersion", code)?;
    Ok((major.max(0) as u32, minor.max(0) as u32))
}

/// The compute capabilities that NVRTC can compile for, in rising order; none where NVRTC is older than 11.2 and does not
/// know.
///
/// ```
/// if let Ok(archs) = cuguard_nvrtc::supported_archs() {
///     println!("{archs:?}");
/// }
/// ```
///
/// # Errors
///
/// [`Error::LibraryMissing`], [`Error::FunctionMissing`], [`Error::CallFailed`].
pub fn supported_archs() -> Result<Vec<(u32, u32)>, Error> {
    let functions = functions()?;
    let (Some(get_count), Some(get)) = (
        functions.nvrtcGetNumSupportedArchs,
        functions.nvrtcGetSupportedArchs,
    ) else {
        return Ok(Vec::new());
    };
    let mut count = 0;
    // SAFETY: the variable can be written to.
    let code = unsafe { get_count(&mut count) };
    functions.check("nvrtcGetNumSupportedArchs", code)?;
    let mut numbers = vec![0; count.max(0) as usize];
    // SAFETY: there is room for as many numbers.
    let code = unsafe { get(numbers.as_mut_ptr()) };
    functions.check("nvrtcGetSupportedArchs", code)?;
    let archs = numbers
        .into_iter()
        .map(|number| (number.max(0) as u32 / 10, number.max(0) as u32 % 10));
    let mut archs: Vec<_> = archs.collect();
    archs.sort_unstable();
    Ok(archs)
}
