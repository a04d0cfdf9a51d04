//! Shared libraries that may be a driver: where to look, how to open, what is in them.

use std::error::Error;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit, transmute};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use cuguard_sys::CUresult;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::choice::explicit;
use crate::driver::DriverKind;
use crate::error::{Attempt, LoadError};

/// The name that the driver is installed under. The system's loader looks for it in
/// `LD_LIBRARY_PATH`, in its cache and in its default folders.
const SONAME: &str = "libcuda.so.1";

/// Where drivers are found that the system's loader does not find. The toolkit's `stubs` folder is
/// not among them: what lies there is for linkers and can only answer that it is a stub.
const PLACES: &[&str] = &[
    // Windows Subsystem for Linux.
    "/usr/lib/wsl/lib/libcuda.so.1",
    // Containers that get the driver mounted in: some cluster services; the container toolkit's
    // older relatives.
    "/usr/local/nvidia/lib64/libcuda.so.1",
    // NixOS.
    "/run/opengl-driver/lib/libcuda.so.1",
    // The usual folders of Debian and Fedora, for a program whose loader has other defaults.
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
];

/// Why something that is neither a file nor a folder is not opened: to open a pipe takes until
/// somebody writes to it.
const NOT_REGULAR: &str = "is not a regular file";

/// A library that calls itself a simulation exports a symbol of this name.
const SIMULATION_MARK: &str = "cuguard_simulated_gpu";

/// A library that defines a function `cuInit`.
pub(crate) struct DriverLibrary {
    /// Never closed: the slots point into it, and a driver has threads of its own.
    library: ManuallyDrop<Library>,
    path: Option<PathBuf>,
    kind: DriverKind,
}

/// Why a library is not taken.
enum Refusal {
    Cannot(String),
    NotADriver,
}

impl DriverLibrary {
    /// The installed driver: the first library that opens and is one.
    pub(crate) fn installed() -> Result<Self, LoadError> {
        let mut tried = Vec::new();
        let by_name = std::iter::once(Path::new(SONAME));
        for library in by_name.chain(PLACES.iter().map(Path::new)) {
            let present = library.is_absolute() && library.exists();
            if library.is_absolute() && !library.is_file() {
                let reason = if present { NOT_REGULAR } else { "no such file" };
                tried.push(Attempt::new(library, reason, present));
                continue;
            }
            match Self::open(library.as_os_str()) {
                Ok(opened) => return Ok(opened),
                Err(Refusal::Cannot(reason)) => {
                    tried.push(Attempt::new(library, reason, present));
                }
                Err(Refusal::NotADriver) => {
                    let reason = "is not a CUDA driver: it has no function cuInit";
                    tried.push(Attempt::new(library, reason, true));
                }
            }
        }
        Err(LoadError::NoDriver {
            tried,
            chosen_by_program: false,
        })
    }

    /// The driver in the file `path`.
    pub(crate) fn at(path: &Path) -> Result<Self, LoadError> {
        let cannot = |reason: String| LoadError::CannotOpen {
            path: path.to_path_buf(),
            reason,
        };
        if path.as_os_str().is_empty() {
            return Err(cannot("the path is empty".to_owned()));
        }
        // With a slash in it, the system's loader takes it as a path and searches nowhere else.
        let file = explicit(path);
        // Said here because the loader says it in a roundabout way, and waits for a pipe's writer.
        match file.metadata() {
            Err(error) => return Err(cannot(without_number(&error.to_string()))),
            Ok(metadata) if metadata.is_dir() => return Err(cannot("Is a directory".to_owned())),
            Ok(metadata) if !metadata.is_file() => return Err(cannot(NOT_REGULAR.to_owned())),
            Ok(_) => {}
        }
        Self::open(file.as_os_str()).map_err(|refusal| match refusal {
            Refusal::Cannot(reason) => cannot(reason),
            Refusal::NotADriver => LoadError::NotADriver {
                path: path.to_path_buf(),
            },
        })
    }

    fn open(file: &OsStr) -> Result<Self, Refusal> {
        // SAFETY: this runs the library's initialisers. Whoever installed a library under the
        // driver's name, or named it as the driver, asked for that.
        let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| Refusal::Cannot(words(&error, file)))?;
        let Some(init) = find(&library, "cuInit") else {
            return Err(Refusal::NotADriver);
        };
        let library = Library::into_raw(library);
        // A library that is linked against a driver gives the driver's `cuInit`.
        let defined_there = defines(library, init);
        // SAFETY: this is where the handle came from, and it is used nowhere else.
        let library = unsafe { Library::from_raw(library) };
        if !defined_there {
            return Err(Refusal::NotADriver);
        }
        Ok(Self {
            path: file_of(init),
            kind: match find(&library, SIMULATION_MARK) {
                Some(_) => DriverKind::Simulated,
                None => DriverKind::Real,
            },
            library: ManuallyDrop::new(library),
        })
    }

    pub(crate) fn kind(&self) -> DriverKind {
        self.kind
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn symbol(&self, name: &str) -> Option<*const c_void> {
        find(&self.library, name)
    }

    /// Whether the driver starts and has a device; if not, what it answered.
    pub(crate) fn has_device(&self) -> Result<(), String> {
        type Init = unsafe extern "C" fn(u32) -> CUresult;
        type Count = unsafe extern "C" fn(*mut c_int) -> CUresult;
        let function = |name| self.symbol(name).ok_or_else(|| format!("it lacks {name}"));

        // SAFETY: a driver's function of this name has this signature.
        let init = unsafe { transmute::<*const c_void, Init>(function("cuInit")?) };
        // SAFETY: as above.
        let count = unsafe { transmute::<*const c_void, Count>(function("cuDeviceGetCount")?) };
        // SAFETY: legal at any time, and more than once.
        match unsafe { init(0) } {
            CUresult::SUCCESS => {}
            code => return Err(format!("cuInit answered {code}")),
        }
        let mut devices = 0;
        // SAFETY: the driver is initialised, and the number can be written to.
        match unsafe { count(&mut devices) } {
            CUresult::SUCCESS if devices > 0 => Ok(()),
            CUresult::SUCCESS => Err("it has no device".to_owned()),
            code => Err(format!("cuDeviceGetCount answered {code}")),
        }
    }
}

/// The address of a symbol, in the library or, as the system's loader searches, in one that it is
/// linked against.
fn find(library: &Library, name: &str) -> Option<*const c_void> {
    // SAFETY: the symbol is only used as an address here.
    let symbol = unsafe { library.get::<*const c_void>(name) }.ok()?;
    let address = symbol.as_raw_ptr();
    (!address.is_null()).then_some(address.cast_const())
}

/// Whether `address` lies in the library behind `handle` itself, and not in one that it is linked
/// against. True where the loader does not tell.
fn defines(handle: *mut c_void, address: *const c_void) -> bool {
    // The loader's own note about a library: one for each that is loaded.
    let mut of_library = ptr::null_mut::<c_void>();
    // SAFETY: the handle is that of an open library; this request writes one pointer.
    let told = unsafe {
        libc::dlinfo(
            handle,
            libc::RTLD_DI_LINKMAP,
            (&raw mut of_library).cast::<c_void>(),
        )
    };
    let mut of_address = ptr::null_mut::<c_void>();
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; `info` can be written to, and this request writes one
    // pointer.
    let found = unsafe {
        libc::dladdr1(
            address,
            info.as_mut_ptr(),
            &raw mut of_address,
            RTLD_DL_LINKMAP,
        )
    };
    told != 0 || found == 0 || of_library == of_address
}

/// Asks `dladdr1` for the loader's note about a library (glibc's `dlfcn.h`).
const RTLD_DL_LINKMAP: c_int = 2;

/// The file that the loader took `address` from.
fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; `info` can be written to.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: all zeroes is a valid value, and the call has overwritten it or not.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a C string that lives as long as the library is open: copied at once.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    let file = Path::new(OsStr::from_bytes(file.to_bytes()));
    // A relative path would mean another file after the program changes its folder.
    Some(std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf()))
}

/// What the system's loader said, without the file's name, which it puts first.
fn words(error: &libloading::Error, file: &OsStr) -> String {
    let text = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    let prefix = format!("{}: ", file.to_string_lossy());
    text.strip_prefix(&prefix).unwrap_or(&text).to_owned()
}

/// The system's words for an error without Rust's " (os error 2)" behind them.
fn without_number(text: &str) -> String {
    let end = text.rfind(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_file_name_is_a_file_here_and_not_a_library_to_search_for() {
        // `libc.so.6` is found by every search, and is no file in the folder that tests run in.
        let error = DriverLibrary::at(Path::new("libc.so.6")).err();
        let expected = LoadError::CannotOpen {
            path: "libc.so.6".into(),
            reason: "No such file or directory".into(),
        };
        assert_eq!(error, Some(expected));
    }

    #[test]
    fn a_folder_is_no_library() {
        let error = DriverLibrary::at(Path::new("/")).err();
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some("cannot open the driver library /: Is a directory")
        );
    }

    /// A path in the system's folder for such things: this program may run on another machine than
    /// the one that it was built on.
    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("cuguard-driver-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_text_file_is_no_library() {
        let file = scratch("text");
        std::fs::write(&file, "This is not a library.\n").unwrap();
        let error = DriverLibrary::at(&file).err();
        std::fs::remove_file(&file).unwrap();
        match &error {
            Some(LoadError::CannotOpen { path, reason }) => {
                assert_eq!(path, &file);
                // The loader's words for a file that it could read.
                assert!(
                    ["file too short", "invalid ELF header"].contains(&reason.as_str()),
                    "{reason}"
                );
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let pipe = scratch("pipe");
        let name = std::ffi::CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let asked = pipe.clone();
        let (sender, receiver) = std::sync::mpsc::channel();
        // On a thread of its own, so that a wait is a failure and not a test that hangs.
        std::thread::spawn(move || {
            let error = DriverLibrary::at(&asked).err();
            let _ = sender.send(error.map(|error| error.to_string()));
        });
        let error = receiver.recv_timeout(std::time::Duration::from_secs(10));
        if error.is_err() {
            // The loader waits, and lets no other test load anything: let it go on.
            let writer = std::fs::OpenOptions::new().write(true).open(&pipe);
            drop(writer);
        }
        std::fs::remove_file(&pipe).unwrap();
        let expected = format!(
            "cannot open the driver library {}: is not a regular file",
            pipe.display()
        );
        assert_eq!(error, Ok(Some(expected)));
    }

    #[test]
    fn an_empty_path_is_called_empty() {
        let error = DriverLibrary::at(Path::new("")).err();
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some("cannot open the driver library: the path is empty")
        );
    }

    #[test]
    fn a_name_with_a_nul_is_an_error() {
        let error = DriverLibrary::at(Path::new("/lib/a\0b")).err();
        assert!(
            matches!(error, Some(LoadError::CannotOpen { .. })),
            "{error:?}"
        );
    }

    #[test]
    fn the_file_of_an_address_is_told() {
        let own = file_of(file_of as *const c_void).and_then(|path| path.canonicalize().ok());
        assert_eq!(own, std::env::current_exe().unwrap().canonicalize().ok());
    }
}
