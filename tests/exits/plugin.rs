//! A library with guards in it (examples/plugin) that is loaded and unloaded while the program
//! runs.

use std::ffi::{CStr, CString, c_void};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// The example, as cargo (or the bundle) puts it beside the tests.
fn library() -> CString {
    let program = std::env::current_exe().expect("this program has a file");
    let folder = program.ancestors().nth(2).expect("two folders deep");
    let file = folder.join("examples/libplugin.so");
    assert!(
        file.is_file(),
        "{} is not there: `cargo test` builds it, or `cargo build --examples`",
        file.display()
    );
    CString::new(file.into_os_string().into_encoded_bytes()).expect("no NUL in it")
}

/// The library, while it is loaded.
struct Plugin(*mut c_void);

impl Plugin {
    fn load() -> Self {
        // SAFETY: a library of ours, which does nothing when it is loaded.
        let handle = unsafe { libc::dlopen(library().as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "the plug-in can be loaded");
        Self(handle)
    }

    fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the library is loaded.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found
    }

    /// Has it allocate, and answers how many bytes it has.
    fn keep(&self, bytes: usize) -> u64 {
        // SAFETY: the type of `plugin_keep`.
        let keep: extern "C" fn(usize) -> u64 =
            unsafe { std::mem::transmute(self.find(c"plugin_keep")) };
        keep(bytes)
    }

    fn end(&self) {
        // SAFETY: the type of `plugin_end`.
        let end: extern "C" fn() = unsafe { std::mem::transmute(self.find(c"plugin_end")) };
        end();
    }

    fn unload(self) {
        // SAFETY: nothing of it is used any more.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// It still has buffers when it is unloaded.
pub fn unloaded() -> ExitCode {
    let plugin = Plugin::load();
    assert_eq!(plugin.keep(1000), 1000);
    plugin.unload();
    ExitCode::SUCCESS
}

/// The thread that it worked on has ended, and with it the last that kept its code in memory. The
/// simulated GPU in it still has threads, and the program goes on.
pub fn unloaded_after_its_thread() -> ExitCode {
    let worker = thread::spawn(|| {
        let plugin = Plugin::load();
        assert_eq!(plugin.keep(1000), 1000);
        plugin.0.expose_provenance()
    });
    let handle = worker.join().unwrap();
    Plugin(std::ptr::with_exposed_provenance_mut(handle)).unload();
    // Not ended by the unloading, whatever exit code is asked for.
    eprintln!("the program goes on");
    thread::sleep(Duration::from_millis(300));
    ExitCode::SUCCESS
}

/// It was given the time to clean up.
pub fn ended() -> ExitCode {
    let plugin = Plugin::load();
    assert_eq!((plugin.keep(1000), plugin.keep(500)), (1000, 1500));
    plugin.end();
    plugin.unload();
    ExitCode::SUCCESS
}
