//! The functions of CPython that are used, found in the process. All of them are of its public C API, from 3.9 on, but for
//! `_Py_IsFinalizing` and `_PyThreadState_UncheckedGet`, whose public names are newer, `_Py_DumpTraceback`
//! and `_PyRuntime`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use std::{ptr, slice};

use crate::heap::lock::{futex_wait, futex_wake};
use crate::heap::objects;
use crate::real::{Module, find_module, keep_soon};

/// `PyObject *`.
pub(super) type Object = *mut c_void;

/// `PyFrameObject *`.
pub(super) type Frame = *mut c_void;

type Flag = unsafe extern "C" fn() -> c_int;

/// The functions.
pub(super) struct Api {
    is_initialized: Flag,
    is_finalizing: Option<Flag>,
    has_lock: Flag,
    /// The thread state of the calling thread, and the one that has the lock.
    this_thread: unsafe extern "C" fn() -> *mut c_void,
    current_thread: Option<unsafe extern "C" fn() -> *mut c_void>,
    get_frame: unsafe extern "C" fn() -> Frame,
    frame_back: unsafe extern "C" fn(Frame) -> Frame,
    frame_code: unsafe extern "C" fn(Frame) -> Object,
    frame_line: unsafe extern "C" fn(Frame) -> c_int,
    get_attribute: unsafe extern "C" fn(Object, *const c_char) -> Object,
    as_utf8: unsafe extern "C" fn(Object, *mut isize) -> *const c_char,
    increase: unsafe extern "C" fn(Object),
    decrease: unsafe extern "C" fn(Object),
    fetch_error: unsafe extern "C" fn(*mut Object, *mut Object, *mut Object),
    restore_error: unsafe extern "C" fn(Object, Object, Object),
    clear_error: unsafe extern "C" fn(),
    /// From 3.10 on. Before, nothing here allocates an object that the collector tracks.
    disable_collector: Option<Flag>,
    enable_collector: Option<Flag>,
    /// Writes the frames of a thread, without the lock.
    pub(super) dump: Option<unsafe extern "C" fn(c_int, *mut c_void)>,
    /// Has a function called by the main thread with the lock. May be called without it.
    pub(super) add_pending: unsafe extern "C" fn(Pending, *mut c_void) -> c_int,
    import: unsafe extern "C" fn(*const c_char) -> Object,
    new_function: unsafe extern "C" fn(*const Method, Object, Object) -> Object,
    /// Calls an object with the objects that follow, up to a null.
    call: unsafe extern "C" fn(Object, ...) -> Object,
    /// An address in the interpreter.
    pub(super) code: usize,
    /// `PyCode_Addr2Line`, which reads the code object and nothing else.
    pub(super) line_of: Option<unsafe extern "C" fn(Object, c_int) -> c_int>,
    version: unsafe extern "C" fn() -> *const c_char,
    /// The addresses of `_PyRuntime`, of the types of code objects and strings, and of `None`.
    pub(super) runtime: Option<usize>,
    pub(super) code_type: Option<usize>,
    pub(super) string_type: Option<usize>,
    none: Option<usize>,
}

pub(super) type Pending = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `PyMethodDef`.
#[repr(C)]
pub(super) struct Method {
    pub(super) name: *const c_char,
    pub(super) function: unsafe extern "C" fn(Object, Object) -> Object,
    pub(super) flags: c_int,
    pub(super) documentation: *const c_char,
}

// SAFETY: it is not changed, and its texts are constants.
unsafe impl Sync for Method {}

static API: AtomicPtr<Api> = AtomicPtr::new(ptr::null_mut());

/// The state of the list of libraries that was searched for an interpreter.
static SEARCHED: AtomicU64 = AtomicU64::new(u64::MAX);

/// The interpreter's library, or the program.
struct Interpreter(Module);

impl Interpreter {
    /// The first that is loaded. Its path is copied while it cannot be unloaded.
    fn find(path: &mut CString) -> Option<Self> {
        let module = find_module(|module| {
            let is_interpreter = module.function(b"Py_IsInitialized").is_some();
            if is_interpreter {
                *path = module.path().to_owned();
            }
            is_interpreter
        });
        module.map(Self)
    }

    /// A function, whatever its signature.
    ///
    /// # Safety
    ///
    /// `F` is a function pointer, and the function with this name has its signature.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
        let address = self.0.function(name.to_bytes())?;
        // SAFETY: as the caller guarantees.
        Some(unsafe { transmute_copy(&address) })
    }
}

/// The address of a variable: the program's, where it has a copy.
fn variable(name: &CStr) -> Option<usize> {
    objects::symbol(name.to_bytes())
}

impl Api {
    fn load(interpreter: &Interpreter) -> Option<Self> {
        // SAFETY: the signatures are those of CPython's headers.
        unsafe {
            let from = interpreter;
            let is_initialized: Flag = from.function(c"Py_IsInitialized")?;
            Some(Self {
                is_initialized,
                is_finalizing: from
                    .function(c"Py_IsFinalizing")
                    .or_else(|| from.function(c"_Py_IsFinalizing")),
                has_lock: from.function(c"PyGILState_Check")?,
                this_thread: from.function(c"PyGILState_GetThisThreadState")?,
                current_thread: from
                    .function(c"PyThreadState_GetUnchecked")
                    .or_else(|| from.function(c"_PyThreadState_UncheckedGet")),
                get_frame: from.function(c"PyEval_GetFrame")?,
                frame_back: from.function(c"PyFrame_GetBack")?,
                frame_code: from.function(c"PyFrame_GetCode")?,
                frame_line: from.function(c"PyFrame_GetLineNumber")?,
                get_attribute: from.function(c"PyObject_GetAttrString")?,
                as_utf8: from.function(c"PyUnicode_AsUTF8AndSize")?,
                increase: from.function(c"Py_IncRef")?,
                decrease: from.function(c"Py_DecRef")?,
                fetch_error: from.function(c"PyErr_Fetch")?,
                restore_error: from.function(c"PyErr_Restore")?,
                clear_error: from.function(c"PyErr_Clear")?,
                disable_collector: from.function(c"PyGC_Disable"),
                enable_collector: from.function(c"PyGC_Enable"),
                dump: from.function(c"_Py_DumpTraceback"),
                add_pending: from.function(c"Py_AddPendingCall")?,
                import: from.function(c"PyImport_ImportModule")?,
                new_function: from.function(c"PyCFunction_NewEx")?,
                call: from.function(c"PyObject_CallFunctionObjArgs")?,
                code: is_initialized as *const () as usize,
                line_of: from.function(c"PyCode_Addr2Line"),
                version: from.function(c"Py_GetVersion")?,
                runtime: variable(c"_PyRuntime"),
                code_type: variable(c"PyCode_Type"),
                string_type: variable(c"PyUnicode_Type"),
                none: variable(c"_Py_NoneStruct"),
            })
        }
    }

    /// The interpreter of this process, if it is known.
    #[inline]
    pub(super) fn get() -> Option<&'static Self> {
        let known = API.load(Ordering::Acquire);
        // SAFETY: it is never freed.
        (!known.is_null()).then(|| unsafe { &*known })
    }

    /// Looks for the interpreter: at the first call of a thread, and, because a program may load one later, at some of the
    /// following. `calls` is the number of calls of this thread, so that threads do not contend for a counter.
    #[inline]
    pub(super) fn look_for(calls: u32) -> Option<&'static Self> {
        match calls.is_power_of_two() {
            true => Self::find(),
            false => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn find() -> Option<&'static Self> {
        let generation = objects::generation();
        if SEARCHED.load(Ordering::Relaxed) == generation {
            return None;
        }
        let mut path = CString::default();
        match Interpreter::find(&mut path) {
            Some(interpreter) if !interpreter.0.is_first() => Self::keep(path),
            interpreter => Self::store(interpreter, generation),
        }
        Self::get()
    }

    /// Loads the functions of an interpreter that cannot be unloaded.
    fn store(interpreter: Option<Interpreter>, generation: u64) {
        if let Some(api) = interpreter.and_then(|interpreter| Self::load(&interpreter)) {
            API.store(Box::leak(Box::new(api)), Ordering::Release);
        }
        SEARCHED.store(generation, Ordering::Relaxed);
    }

    /// Loads the functions of an interpreter that the program may close, when it cannot be unloaded any more.
    fn keep(path: CString) {
        const IDLE: u32 = 0;
        const BEGUN: u32 = 1;
        /// Takes microseconds, unless the dynamic linker is locked. Then the interpreter is known later.
        const PATIENCE: Duration = Duration::from_millis(100);
        static PHASE: AtomicU32 = AtomicU32::new(IDLE);
        if PHASE.swap(BEGUN, Ordering::Acquire) == BEGUN {
            return;
        }
        let done = |is_kept| {
            if is_kept {
                let generation = objects::generation();
                Self::store(Interpreter::find(&mut CString::default()), generation);
            }
            PHASE.store(IDLE, Ordering::Release);
            futex_wake(&PHASE, i32::MAX);
        };
        match keep_soon(path, done) {
            true => futex_wait(&PHASE, BEGUN, Some(PATIENCE)),
            false => PHASE.store(IDLE, Ordering::Release),
        }
    }

    /// Whether the calling thread has the interpreter's lock, and the interpreter is neither to be initialized nor
    /// finalized.
    pub(super) fn is_locked_here(&self) -> bool {
        // SAFETY: these may be called without the lock, and before the interpreter is initialized.
        unsafe {
            (self.is_initialized)() != 0
                && self.is_finalizing.is_none_or(|finalizing| finalizing() == 0)
                && (self.has_lock)() == 1
                // With several interpreters in the process, the function above always returns 1.
                && self.current_thread.is_some_and(|current| {
                    let current = current();
                    !current.is_null() && current == (self.this_thread)()
                })
        }
    }

    /// The version: 13 for 3.13.
    pub(super) fn minor(&self) -> Option<u32> {
        // SAFETY: may be called without the lock, and returns a C string.
        let version = unsafe { CStr::from_ptr((self.version)()) };
        let version = version.to_str().ok()?.strip_prefix("3.")?;
        version.split('.').next()?.parse().ok()
    }

    /// The state of the calling thread, if it has released the lock.
    pub(super) fn unlocked_thread(&self) -> Option<*mut c_void> {
        // SAFETY: these may be called without the lock.
        unsafe {
            let is_usable = (self.is_initialized)() != 0
                && self
                    .is_finalizing
                    .is_none_or(|finalizing| finalizing() == 0)
                && (self.has_lock)() == 0;
            let thread = is_usable.then(|| (self.this_thread)())?;
            (!thread.is_null()).then_some(thread)
        }
    }

    /// Whether the interpreter is running.
    pub(super) fn is_running(&self) -> bool {
        // SAFETY: these may be called without the lock.
        unsafe {
            (self.is_initialized)() != 0
                && self
                    .is_finalizing
                    .is_none_or(|finalizing| finalizing() == 0)
        }
    }

    /// Registers a function with the module `atexit`.
    ///
    /// # Safety
    ///
    /// The calling thread has the lock.
    pub(super) unsafe fn register_at_exit(&self, method: &'static Method) {
        // SAFETY: as the caller guarantees; each call returns a new reference, or null with an exception, which `aside`
        // clears.
        unsafe {
            self.aside(|| {
                let owned = |object: Object| (!object.is_null()).then_some(Owned(self, object));
                let module = owned((self.import)(c"atexit".as_ptr()))?;
                let register = owned((self.get_attribute)(module.1, c"register".as_ptr()))?;
                let none = ptr::null_mut();
                let function = owned((self.new_function)(method, none, none))?;
                owned((self.call)(
                    register.1,
                    function.1,
                    ptr::null_mut::<c_void>(),
                ))
            });
        }
    }

    /// `None`, with a new reference.
    ///
    /// # Safety
    ///
    /// The calling thread has the lock.
    pub(super) unsafe fn none(&self) -> Object {
        // SAFETY: as the caller guarantees; the variable is an object that is never freed.
        unsafe {
            let none: Object = ptr::with_exposed_provenance_mut(self.none.unwrap_or(0));
            if !none.is_null() {
                (self.increase)(none);
            }
            none
        }
    }

    /// Runs `work`, with the exception that is being raised put aside, and without garbage collection, which may run any
    /// code of the program.
    ///
    /// # Safety
    ///
    /// The calling thread has the lock.
    pub(super) unsafe fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        let [mut kind, mut value, mut trace] = [ptr::null_mut(); 3];
        // SAFETY: as the caller guarantees; the places can be written to, and what was fetched is restored.
        unsafe {
            (self.fetch_error)(&mut kind, &mut value, &mut trace);
            let was_enabled = self.disable_collector.is_some_and(|disable| disable() == 1);
            let result = work();
            (self.clear_error)();
            if let Some(enable) = self.enable_collector.filter(|_| was_enabled) {
                enable();
            }
            (self.restore_error)(kind, value, trace);
            result
        }
    }

    /// The calling thread's innermost frame, with a reference.
    ///
    /// # Safety
    ///
    /// The calling thread has the lock.
    pub(super) unsafe fn innermost(&self) -> Option<Owned<'_>> {
        // SAFETY: as the caller guarantees. The frame is borrowed, so it gets a reference.
        unsafe {
            let frame = (self.get_frame)();
            (!frame.is_null()).then(|| {
                (self.increase)(frame);
                Owned(self, frame)
            })
        }
    }
}

/// An object with a reference, which is released when this is dropped. The thread has the lock.
pub(super) struct Owned<'a>(&'a Api, Object);

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the reference is this one's, and the thread has the lock.
        unsafe { (self.0.decrease)(self.1) };
    }
}

impl Owned<'_> {
    fn owned(&self, object: Object) -> Option<Owned<'_>> {
        (!object.is_null()).then_some(Owned(self.0, object))
    }

    /// The address of the object.
    pub(super) fn address(&self) -> usize {
        self.1 as usize
    }

    /// Never frees the object.
    pub(super) fn keep(&self) {
        // SAFETY: the object is alive, and the thread has the lock.
        unsafe { (self.0.increase)(self.1) };
    }

    /// The frame that called this frame.
    ///
    /// # Safety
    ///
    /// This is a frame.
    pub(super) unsafe fn back(&self) -> Option<Self> {
        // SAFETY: as the caller guarantees; a new reference is returned.
        let back = unsafe { (self.0.frame_back)(self.1) };
        (!back.is_null()).then_some(Self(self.0, back))
    }

    /// The code of this frame, and the line.
    ///
    /// # Safety
    ///
    /// This is a frame.
    pub(super) unsafe fn code(&self) -> Option<(Owned<'_>, u32)> {
        // SAFETY: as the caller guarantees; a new reference is returned.
        let (code, line) = unsafe { ((self.0.frame_code)(self.1), (self.0.frame_line)(self.1)) };
        Some((self.owned(code)?, u32::try_from(line).unwrap_or(0)))
    }

    /// An attribute as text; `None` if there is none, or it is not a string.
    pub(super) fn text(&self, name: &CStr) -> Option<String> {
        // SAFETY: the object is alive and the thread has the lock; a new reference is returned.
        let value = unsafe { (self.0.get_attribute)(self.1, name.as_ptr()) };
        let Some(value) = self.owned(value) else {
            // SAFETY: the thread has the lock.
            unsafe { (self.0.clear_error)() };
            return None;
        };
        let mut length = 0;
        // SAFETY: as above. Fails for what is not a string.
        let text = unsafe { (self.0.as_utf8)(value.1, &mut length) };
        if text.is_null() {
            // SAFETY: the thread has the lock.
            unsafe { (self.0.clear_error)() };
            return None;
        }
        // SAFETY: the string has so many bytes, and is alive.
        let bytes = unsafe { slice::from_raw_parts(text.cast::<u8>(), length.unsigned_abs()) };
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}
