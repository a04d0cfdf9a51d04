//! Shared libraries that may be a driver: where to search, how to open, what they export.

use std::error::Error;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use cuguard_sys::CUresult;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::choice::explicit;
use crate::error::{Attempt, LoadError, NOT_A_DRIVER};
use crate::kind::DriverKind;

/// The name that the driver is installed under. The dynamic linker searches for it in
/// `LD_LIBRARY_PATH`, in its cache and in its default folders.
const SONAME: &str = "libcuda.so.1";

/// Where drivers are installed that the dynamic linker does not find. The toolkit's `stubs` folder is
/// not among them: its library is for linkers and only returns `CUDA_ERROR_STUB_LIBRARY`.
const PLACES: &[&str] = &[
    // Windows Subsystem for Linux.
    "/usr/lib/wsl/lib/libcuda.so.1",
    // Containers that mount the driver: some cluster services; predecessors of the container toolkit.
    "/usr/local/nvidia/lib64/libcuda.so.1",
    // NixOS.
    "/run/opengl-driver/lib/libcuda.so.1",
    // The usual folders of Debian and Fedora, for a program whose dynamic linker has other defaults.
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
];

/// A library that simulates a driver exports a symbol of this name.
const SIMULATION_MARK: &str = "cuguard_simulated_gpu";

/// A library that defines a function `cuInit`.
pub(crate) struct DriverLibrary {
    /// Never closed: the table points into it, and a driver has threads of its own.
    handle: Handle,
    /// The file, as the dynamic linker found it.
    pub(crate) path: Option<PathBuf>,
    pub(crate) kind: DriverKind,
}

impl DriverLibrary {
    /// Opens the installed driver: the first library that opens and is one.
    pub(crate) fn installed(chosen_by_program: bool) -> Result<Self, LoadError> {
        let mut tried = Vec::new();
        let by_name = std::iter::once(&SONAME);
        for library in by_name.chain(PLACES).map(Path::new) {
            let (opened, exists) = if library.is_absolute() {
                (Self::at(library), library.exists())
            } else {
                (Self::open(library, library.as_os_str()), false)
            };
            let (reason, present) = match opened {
                Ok(opened) => return Ok(opened),
                Err(LoadError::CannotOpen { reason, .. }) => (reason, exists),
                Err(_) => (NOT_A_DRIVER.to_owned(), true),
            };
            tried.push(Attempt {
                library: library.to_path_buf(),
                reason,
                present,
            });
        }
        Err(LoadError::NoDriver {
            tried,
            chosen_by_program,
        })
    }

    /// Opens the driver in the file `path`.
    pub(crate) fn at(path: &Path) -> Result<Self, LoadError> {
        if path.as_os_str().is_empty() {
            return Err(cannot_open(path, "the path is empty"));
        }
        // With a slash in it, `dlopen` takes it as a path and searches nowhere else.
        let file = explicit(path);
        // Checked here because `dlopen` has worse messages, and blocks on a pipe until there is a writer.
        let refusal = match file.metadata() {
            Err(error) => without_number(&error.to_string()).to_owned(),
            Ok(metadata) if metadata.is_dir() => "Is a directory".to_owned(),
            Ok(metadata) if !metadata.is_file() => "is not a regular file".to_owned(),
            Ok(_) => return Self::open(path, file.as_os_str()),
        };
        Err(cannot_open(path, refusal))
    }

    /// Opens `file`; errors name `path`.
    fn open(path: &Path, file: &OsStr) -> Result<Self, LoadError> {
        // SAFETY: this runs the library's initializers. A library that is installed under the driver's
        // name, or selected as the driver, is meant to run.
        let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| cannot_open(path, message(&error, file)))?;
        let not_a_driver = || LoadError::NotADriver {
            path: path.to_path_buf(),
        };
        let handle = Handle(Library::into_raw(library));
        match Self::examine(handle) {
            Some(found) => Ok(found),
            None => {
                // SAFETY: this is where the handle came from, and it is used nowhere else: closes the library.
                drop(unsafe { Library::from_raw(handle.0) });
                Err(not_a_driver())
            }
        }
    }

    /// The driver behind a handle, if it is one.
    fn examine(handle: Handle) -> Option<Self> {
        let init = handle.find("cuInit")?;
        let (file, defined_in) = locate(init).unwrap_or_default();
        let link_map = link_map(handle.0);
        // In a library that is linked against a driver, the driver's `cuInit` is found.
        if link_map.is_some() && defined_in.is_some() && link_map != defined_in {
            return None;
        }
        Some(Self {
            path: file,
            kind: match handle.find(SIMULATION_MARK) {
                Some(_) => DriverKind::Simulated,
                None => DriverKind::Real,
            },
            handle,
        })
    }

    pub(crate) fn symbol(&self, name: &str) -> Option<*const c_void> {
        self.handle.find(name)
    }

    /// Whether the driver starts and has a device; if not, why.
    pub(crate) fn has_device(&self) -> Result<(), String> {
        type Init = unsafe extern "C" fn(u32) -> CUresult;
        type Count = unsafe extern "C" fn(*mut c_int) -> CUresult;
        let function = |name| self.symbol(name).ok_or_else(|| format!("it lacks {name}"));
        let failed = |name| move |code| format!("{name} returned {code}");

        // SAFETY: a driver's function of this name has this signature.
        let init = unsafe { transmute::<*const c_void, Init>(function("cuInit")?) };
        // SAFETY: as above.
        let count = unsafe { transmute::<*const c_void, Count>(function("cuDeviceGetCount")?) };
        // SAFETY: legal at any time, and more than once.
        unsafe { init(0) }.ok().map_err(failed("cuInit"))?;
        let mut devices = 0;
        // SAFETY: the driver is initialized, and the number can be written to.
        let code = unsafe { count(&mut devices) };
        code.ok().map_err(failed("cuDeviceGetCount"))?;
        match devices {
            ..=0 => Err("it has no device".to_owned()),
            _ => Ok(()),
        }
    }
}

fn cannot_open(path: &Path, reason: impl Into<String>) -> LoadError {
    LoadError::CannotOpen {
        path: path.to_path_buf(),
        reason: reason.into(),
    }
}

/// The handle of an open library.
#[derive(Clone, Copy)]
struct Handle(*mut c_void);

// SAFETY: the dynamic linker accepts the handle on every thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// `dlsym`.
type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The function that looks symbols up. The library that `cuguard run` preloads returns wrappers from `dlsym`, and has a function
/// which returns the driver's own; [`audit`](crate::audit) says which of them are called.
fn lookup() -> Lookup {
    static LOOKUP: OnceLock<Lookup> = OnceLock::new();
    *LOOKUP.get_or_init(|| {
        let name = c"cuguard_audit_real";
        // SAFETY: a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        match address.is_null() {
            true => libc::dlsym,
            // SAFETY: the function of this name has this signature.
            false => unsafe { transmute::<*mut c_void, Lookup>(address) },
        }
    })
}

impl Handle {
    /// The address of a symbol, in the library or, as `dlsym` searches, in one that it is linked against.
    fn find(self, name: &str) -> Option<*const c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: the library is open, and the name is a C string.
        let address = unsafe { lookup()(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address.cast_const())
    }
}

/// The address of the dynamic linker's `link_map` of a library. Each loaded library has one.
type LinkMap = ptr::NonNull<c_void>;

/// The link map of the library behind `handle`.
fn link_map(handle: *mut c_void) -> Option<LinkMap> {
    let mut map = ptr::null_mut::<c_void>();
    let out = (&raw mut map).cast::<c_void>();
    // SAFETY: the handle is that of an open library; this request writes one pointer.
    let code = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, out) };
    LinkMap::new(map).filter(|_| code == 0)
}

/// The file and the link map of the library that contains `address`.
fn locate(address: *const c_void) -> Option<(Option<PathBuf>, Option<LinkMap>)> {
    /// Requests the link map (glibc's `dlfcn.h`).
    const RTLD_DL_LINKMAP: c_int = 2;
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let mut map = ptr::null_mut::<c_void>();
    let out = &raw mut map;
    // SAFETY: any address may be passed; `info` can be written to, and this request writes one pointer.
    let found = unsafe { libc::dladdr1(address, info.as_mut_ptr(), out, RTLD_DL_LINKMAP) };
    if found == 0 {
        return None;
    }
    // SAFETY: all zeroes is a valid value, and the call has overwritten it.
    let name = unsafe { info.assume_init() }.dli_fname;
    let file = (!name.is_null()).then(|| {
        // SAFETY: a C string that lives as long as the library is open: copied at once.
        let name = unsafe { CStr::from_ptr(name) };
        let file = Path::new(OsStr::from_bytes(name.to_bytes()));
        // A relative path would mean another file after the program changes its directory.
        std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf())
    });
    Some((file, LinkMap::new(map)))
}

/// The dynamic linker's message without the file's name, which it puts first.
fn message(error: &libloading::Error, file: &OsStr) -> String {
    let text = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    let prefix = format!("{}: ", file.to_string_lossy());
    text.strip_prefix(&prefix).unwrap_or(&text).to_owned()
}

/// The message of an operating system error without Rust's " (os error 2)" at its end.
fn without_number(text: &str) -> &str {
    text.rfind(" (os error").map_or(text, |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_file_name_is_a_file_here_and_not_a_library_to_search_for() {
        // `libc.so.6` is found by every search, and is not a file in the folder that tests run in.
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
                // The dynamic linker's messages for a file that it could read.
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
    fn the_file_of_an_address_is_found() {
        let own = locate(locate as *const c_void).and_then(|(path, _)| path);
        let own = own.and_then(|path| path.canonicalize().ok());
        assert_eq!(own, std::env::current_exe().unwrap().canonicalize().ok());
    }
}
