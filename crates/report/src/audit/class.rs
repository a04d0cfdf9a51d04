//! Classifies frames: the program's, a library's that allocates for it, the runtime's, the driver's.
//!
//! A report of a program without guards is about the frame that called a CUDA library or an allocator, not about what
//! happened inside of those. So they are recognized: by the file name of the module, by the folder of a Python package, and
//! by namespaces and prefixes where a library is linked statically.

use super::libraries;
use super::names::{FrameNames, bare};
use crate::foreign::is_foreign;
use crate::frames::{Source, source_of_names};
use crate::symbols::Frame;

/// The class of a frame, by its names.
///
/// ```
/// use cuguard_report::{FrameClass, FrameNames};
///
/// let malloc = FrameNames { function: Some("cudaMalloc"), ..FrameNames::default() };
/// assert_eq!(FrameClass::of(&malloc), FrameClass::Driver);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    /// The program's, or of a library that is not a CUDA library.
    User,
    /// Of the driver or the CUDA runtime, through which every allocation goes.
    Driver,
    /// Of another CUDA library, or an allocator or framework on top.
    Library,
    /// Of a language's runtime or the C library.
    Runtime,
    /// Of these crates.
    Own,
}

impl FrameClass {
    /// The class with this name in JSON.
    ///
    /// ```
    /// use cuguard_report::FrameClass;
    ///
    /// assert_eq!(FrameClass::from_name("library"), Some(FrameClass::Library));
    /// assert_eq!(FrameClass::from_name("drivers"), None);
    /// ```
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::User,
            Self::Driver,
            Self::Library,
            Self::Runtime,
            Self::Own,
        ];
        all.into_iter().find(|class| class.name() == name)
    }

    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Driver => "driver",
            Self::Library => "library",
            Self::Runtime => "runtime",
            Self::Own => "own",
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn of(frame: &FrameNames<'_>) -> Self {
        class_of(frame)
    }

    /// The index of the frame that a call site is named after, of frames from the innermost on with their functions: the
    /// first of the program. Where there is none, as on a thread that a library started, the step of PyTorch's backward pass, or
    /// the first of a library that does more than pass a request for memory on.
    ///
    /// ```
    /// use cuguard_report::FrameClass::{self, Driver, Library};
    ///
    /// let frames = [(Driver, "cudaMalloc"), (Library, "c10::cuda::allocate(unsigned long)"), (Library, "at::_ops::mm::call()")];
    /// let frames = frames.map(|(class, function)| (class, Some(function)));
    /// assert_eq!(FrameClass::origin(&frames), Some(2));
    /// ```
    #[must_use]
    pub fn origin(frames: &[(Self, Option<&str>)]) -> Option<usize> {
        let position = |wanted: &dyn Fn(&Self, Option<&str>) -> bool| {
            let mut frames = frames.iter();
            frames.position(|(class, function)| wanted(class, *function))
        };
        let asks = |name: &str| !PASS_ON.iter().any(|prefix| bare(name).starts_with(prefix));
        let is_step = |name: &str| {
            let name = bare(name);
            let end = name.find('(').unwrap_or(name.len());
            name[..end].ends_with("::apply") && name[..end].contains("Backward")
        };
        position(&|class, _| *class == Self::User)
            .or_else(|| {
                position(&|class, name| *class == Self::Library && name.is_some_and(is_step))
            })
            .or_else(|| position(&|class, name| *class == Self::Library && name.is_some_and(asks)))
            .or_else(|| position(&|class, _| *class == Self::Library))
    }
}

/// Functions of libraries that only pass a request for memory on.
const PASS_ON: [&str; 8] = [
    "c10::",
    "at::detail::",
    "at::(anonymous namespace)::",
    "at::meta::",
    "at::TensorIterator",
    "at::empty",
    "at::native::empty",
    "rmm::",
];

const DRIVER_MODULES: [&str; 3] = ["libcuda.so", "libcudart", "libnvidia-"];

const RUNTIME_MODULES: [&str; 9] = [
    "libc.so",
    "libc-",
    "ld-",
    "libpthread",
    "libstdc++",
    "libgcc_s",
    "libffi",
    "_ctypes",
    "libpython",
];

/// Functions of C++'s and C's runtime outside of any namespace.
const RUNTIME_NAMES: [&str; 2] = ["operator new", "ffi_call"];

pub(super) use FrameClass as Class;

fn names(frame: &Frame) -> FrameNames<'_> {
    FrameNames {
        function: frame.symbol.function.as_deref(),
        file: frame.symbol.file.as_deref(),
        module: frame.module.as_ref().map_or("", |module| &*module.path),
        is_foreign: is_foreign(frame.address),
    }
}

pub(super) fn class(frame: &Frame) -> Class {
    Class::of(&names(frame))
}

/// What the library of a frame is called, if it is the driver's, the CUDA runtime's or of [`Class::Library`].
pub(super) fn library(frame: &Frame) -> Option<&'static str> {
    match class(frame) {
        Class::Driver => Some("CUDA"),
        Class::Library => libraries::library_of(&names(frame)),
        _ => None,
    }
}

/// The frame that a call site is named after.
pub(super) fn origin(frames: &[Frame]) -> Option<usize> {
    let frames = frames.iter();
    let named = frames.map(|frame| (class(frame), frame.symbol.function.as_deref()));
    Class::origin(&named.collect::<Vec<_>>())
}

fn class_of(frame: &FrameNames<'_>) -> Class {
    let module = frame.module.rsplit('/').next().unwrap_or_default();
    if frame.is_foreign {
        let file = frame.file.unwrap_or_default();
        return match file {
            _ if libraries::package(file).is_some() => Class::Library,
            // Modules that are part of the interpreter.
            _ if file.starts_with("<frozen ") => Class::Runtime,
            _ => Class::User,
        };
    }
    let starts = |names: &[&str]| names.iter().any(|name| module.starts_with(name));
    match () {
        () if starts(&["libcuguard_audit"]) => return Class::Own,
        () if starts(&DRIVER_MODULES) => return Class::Driver,
        () if libraries::is_module(module) => return Class::Library,
        () if libraries::package(frame.module).is_some() => return Class::Library,
        () if starts(&RUNTIME_MODULES) || is_python(module) => return Class::Runtime,
        () => {}
    }
    let name = frame.function.unwrap_or_default();
    let bare = bare(name);
    let starts = |names: &[&str]| names.iter().any(|prefix| bare.starts_with(prefix));
    if is_cuda_function(bare) {
        Class::Driver
    } else if libraries::is_function(bare) {
        Class::Library
    } else if starts(&RUNTIME_NAMES) {
        Class::Runtime
    } else if name == "main" {
        // Without debug information too: the function that a Rust compiler generates is never resolved.
        Class::User
    } else {
        match source_of_names(frame.function, frame.file, module) {
            Source::App => Class::User,
            Source::Own => Class::Own,
            Source::Runtime => Class::Runtime,
        }
    }
}

/// Whether this is the program of a Python interpreter: `python`, `python3`, `python3.12`.
fn is_python(module: &str) -> bool {
    let version = module.strip_prefix("python");
    version.is_some_and(|version| {
        version
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b't')
    })
}

/// A function of the CUDA runtime or of the driver, which may be linked into the program.
fn is_cuda_function(name: &str) -> bool {
    let api = |prefix: &str| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(|character: char| character.is_ascii_uppercase()))
    };
    let of_static_runtime = ["__cuda", "cudart::", "libcudart_static"];
    api("cuda")
        || api("cu")
        || of_static_runtime
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{Class, class, library};
    use crate::foreign::FOREIGN_FRAME;
    use crate::tests_support::frame;

    #[test]
    fn native_frames() {
        use Class::{Driver, Library, Own, Runtime, User};
        let torch = "/env/lib/python3.12/site-packages/torch/lib";
        for (module, function, expected) in [
            ("/usr/lib/libcuda.so.1", "", Driver),
            ("/usr/lib/libcuda.so.580.1", "cuMemAlloc_v2", Driver),
            (
                "/usr/local/cuda/lib64/libcudart.so.12",
                "cudaMalloc",
                Driver,
            ),
            ("/app/a.out", "cudaMalloc", Driver),
            ("/app/a.out", "__cudart812", Driver),
            ("/app/a.out", "libcudart_static", Driver),
            ("/app/a.out", "at::(anonymous namespace)::x(int)", Library),
            ("/app/a.out", "(anonymous namespace)::load(int)", User),
            (
                "/app/a.out",
                "cudaError cudaMalloc<float>(float**, unsigned long)",
                Driver,
            ),
            ("/usr/lib/libcublasLt.so.12", "", Library),
            (&format!("{torch}/libtorch_cuda.so"), "at::x", Library),
            (&format!("{torch}/libunknown.so"), "", Library),
            ("/app/a.out", "c10::cuda::x(int)", Library),
            ("/app/a.out", "void thrust::fill<int*>(int*)", Library),
            (
                "/app/a.out",
                "<cudarc::driver::safe::core::CudaSlice<T>>::new",
                Library,
            ),
            ("/app/a.out", "std::vector<Model>::push_back", Runtime),
            (
                "/app/a.out",
                "void std::_Construct<main()::Node>(main()::Node*)",
                Runtime,
            ),
            // A name that the demangler does not know.
            (
                "/app/a.out",
                "_ZSt11make_sharedI3BufJiEESt10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES4_E4typeEEDpOT0_",
                Runtime,
            ),
            (
                "/app/a.out",
                "std::vector<int> load<std::vector<int> >(std::vector<int> const&)",
                User,
            ),
            ("/app/a.out", "std::string app::name[abi:cxx11]()", User),
            ("/lib/libc.so.6", "__libc_start_call_main", Runtime),
            ("/app/a.out", "_start", Runtime),
            ("/app/a.out", "main", User),
            ("/app/a.out", "", User),
            ("/app/a.out", "Model::load(std::string const&)", User),
            ("/app/a.out", "cudaish", User),
            ("/app/a.out", "customer::load", User),
            ("/app/a.out", "cuddle", User),
            ("/app/a.out", "torchlight::on()", User),
            ("/app/libfoo.so", "foo_open", User),
            ("/usr/bin/python3.12", "_PyEval_EvalFrameDefault", Runtime),
            ("/usr/bin/python3.13t", "", Runtime),
            ("/usr/lib/libpython3.12.so.1.0", "", Runtime),
            ("/app/python_tool", "", User),
            ("/x/libcuguard_audit.so", "", Own),
        ] {
            assert_eq!(
                class(&frame(module, function)),
                expected,
                "{function} {module}"
            );
        }
    }

    #[test]
    fn headers_of_the_standard_library_are_the_runtimes() {
        for (file, expected) in [
            ("/usr/include/c++/12/bits/stl_construct.h", Class::Runtime),
            ("/usr/lib/llvm-19/include/c++/v1/vector", Class::Runtime),
            ("/home/me/include/model.h", Class::User),
            ("/home/me/include/c++/model.h", Class::User),
        ] {
            // As debug information has it, and with a namespace: programs specialize templates of `std`.
            for function in [
                "construct<Node>",
                "std::hash<Node>::operator()(Node const&) const",
            ] {
                let mut frame = frame("/app/a.out", function);
                Rc::make_mut(&mut frame.symbol).file = Some(file.to_owned());
                assert_eq!(class(&frame), expected, "{function} {file}");
            }
        }
    }

    #[test]
    fn libraries_have_names() {
        let torch = "/env/lib/python3.12/site-packages/torch/lib/libshm.so";
        for (module, function, expected) in [
            ("/usr/lib/libcuda.so.1", "", Some("CUDA")),
            ("/app/a.out", "libcudart_static", Some("CUDA")),
            ("/usr/lib/libcublasLt.so.12", "", Some("cuBLAS")),
            (torch, "", Some("PyTorch")),
            (
                "/app/a.out",
                "void thrust::fill<int*>(int*)",
                Some("Thrust"),
            ),
            ("/app/a.out", "main", None),
            ("/lib/libc.so.6", "__libc_start_call_main", None),
        ] {
            let found = library(&frame(module, function));
            assert_eq!(found, expected, "{function} {module}");
        }
    }

    #[test]
    fn a_call_site_is_named_after_the_program_or_who_asked() {
        use Class::{Driver, Library, Runtime, User};
        let at = |frames: &[(Class, Option<&str>)]| Class::origin(frames);
        let autograd = [
            (Driver, Some("cudaMalloc")),
            (Library, None),
            (Library, Some("at::detail::empty_cuda(c10::ArrayRef<long>)")),
            (
                Library,
                Some("at::(anonymous namespace)::create_out(c10::ArrayRef<long>)"),
            ),
            (Library, Some("at::_ops::relu::redispatch(at::Tensor)")),
            (Runtime, Some("clone3")),
        ];
        assert_eq!(at(&autograd), Some(4));
        assert_eq!(at(&autograd[..4]), Some(1));
        assert_eq!(at(&autograd[..1]), None);
        let mut backward = autograd.to_vec();
        let step = "torch::autograd::generated::ReluBackward0::apply(std::vector<at::Tensor>&&)";
        backward.insert(5, (Library, Some(step)));
        assert_eq!(at(&backward), Some(5));
        let mut called = autograd.to_vec();
        called.push((User, None));
        assert_eq!(at(&called), Some(6));
    }

    #[test]
    fn python_frames() {
        let python = |file: &str| {
            let mut frame = frame("", "f");
            frame.address = FOREIGN_FRAME | 1;
            frame.module = None;
            Rc::make_mut(&mut frame.symbol).file = Some(file.to_owned());
            class(&frame)
        };
        let packages = "/env/lib/python3.12/site-packages";
        assert_eq!(python("/home/me/train.py"), Class::User);
        assert_eq!(python("/home/me/torch/train.py"), Class::User);
        assert_eq!(
            python(&format!("{packages}/torch/nn/linear.py")),
            Class::Library
        );
        assert_eq!(python(&format!("{packages}/mine/nn.py")), Class::User);
        assert_eq!(python("<frozen importlib._bootstrap>"), Class::Runtime);
        assert_eq!(python("<string>"), Class::User);
    }
}
