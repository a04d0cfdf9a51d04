//! A stack trace as it is shown: without frames of these crates and of runtimes, by the rules of leak reports.

use cuguard_recording::{Frame as RecordedFrame, Site, Stack};
use cuguard_report::{FrameClass, FrameNames};

use crate::resolver::Resolver;
use crate::run::{CallSite, Frame};

/// How many frames count as the program's where no frame does.
const FALLBACK: usize = 8;

/// The function through which the runtime of Rust calls the program.
const START: &str = "__rust_begin_short_backtrace";

/// The call site of a recorded stack trace, as it is shown.
///
/// Frames of cuguard, of language runtimes and of an interpreter are left out, and those inside of CUDA libraries that have
/// no name. Without any frame of the program, those from the library on that asked for the memory count as its own.
///
/// ```
/// use cuguard_recording::{Site, Stack};
/// use cuguard_view::{Symbols, call_site};
///
/// // Recorded at the level `sites`.
/// let site = Site { file: "src/main.rs".to_owned(), line: 7, column: 1 };
/// let stack = Stack { site: Some(site), ..Stack::default() };
/// let frames = call_site(&stack, &mut Symbols::default()).frames;
/// assert_eq!((&*frames[0].file, frames[0].line), ("src/main.rs", 7));
/// ```
#[must_use]
pub fn call_site(stack: &Stack, resolver: &mut dyn Resolver) -> CallSite {
    let frames = stack.frames.iter().flat_map(|frame| match frame {
        RecordedFrame::Native(address) => resolver.frames_in(stack, *address),
        RecordedFrame::Foreign {
            function,
            file,
            line,
        } => vec![foreign_frame(function, file, *line)],
    });
    shown(frames.collect(), stack.site.as_ref(), &stack.type_name)
}

/// The same for frames that are resolved. `site` is the line of a guard.
pub(crate) fn shown(mut frames: Vec<Frame>, site: Option<&Site>, type_name: &str) -> CallSite {
    cut(&mut frames);
    if let Some(site) = site {
        if frames.is_empty() {
            frames.push(Frame {
                function: format!("{}:{}", site.file, site.line),
                in_app: true,
                ..Frame::default()
            });
        }
        let mut own = frames.iter_mut().filter(|frame| frame.in_app);
        // The compiler knows the line also where there is no debug information.
        if let Some(innermost) = own.next()
            && innermost.file.is_empty()
            && own.all(|frame| frame.file.is_empty())
        {
            (innermost.file, innermost.line) = (site.file.clone(), site.line);
        }
    }
    CallSite {
        type_name: type_name.to_owned(),
        frames,
    }
}

/// A frame of an interpreter.
///
/// ```
/// let frame = cuguard_view::foreign_frame("train", "/home/me/train.py", 12);
/// assert!(frame.in_app);
/// ```
#[must_use]
pub fn foreign_frame(function: &str, file: &str, line: u32) -> Frame {
    let class = FrameClass::of(&FrameNames {
        function: Some(function),
        file: Some(file),
        module: "",
        is_foreign: true,
    });
    Frame {
        function: function.to_owned(),
        file: file.to_owned(),
        line,
        library: String::new(),
        in_app: class == FrameClass::User,
    }
}

/// Leaves out what is not shown.
fn cut(frames: &mut Vec<Frame>) {
    let start = frames.iter().position(|one| one.function.contains(START));
    frames.truncate(start.unwrap_or(frames.len()));
    let has_user = frames.iter().any(|frame| frame.in_app);
    let is_library =
        |frame: &Frame| matches!(class(frame), FrameClass::Driver | FrameClass::Library);
    if has_user || frames.iter().any(is_library) {
        frames.retain(|frame| match class(frame) {
            FrameClass::User => true,
            FrameClass::Driver | FrameClass::Library => !has_user || has_name(frame),
            FrameClass::Runtime | FrameClass::Own => false,
        });
    }
    if !has_user {
        let frames_of = frames.iter();
        let named = frames_of.map(|frame| {
            let name = Some(&*frame.function).filter(|_| has_name(frame));
            (class(frame), name)
        });
        let origin = FrameClass::origin(&named.collect::<Vec<_>>()).unwrap_or(0);
        let shown = frames.iter_mut().skip(origin).take(FALLBACK);
        shown.for_each(|frame| frame.in_app = true);
    }
}

/// The class of a resolved frame, whose module is a name without the folder.
fn class(frame: &Frame) -> FrameClass {
    if frame.in_app {
        return FrameClass::User;
    }
    let class = FrameClass::of(&FrameNames {
        function: Some(&*frame.function).filter(|_| has_name(frame)),
        file: Some(&*frame.file).filter(|file| !file.is_empty()),
        module: &frame.library,
        // A file of an interpreter may be no file: `<frozen importlib._bootstrap>`.
        is_foreign: frame.library.is_empty() && frame.file.starts_with('<'),
    });
    match class {
        // In a package, which its folder showed.
        FrameClass::User => FrameClass::Library,
        class => class,
    }
}

/// Whether the function is not an offset.
fn has_name(frame: &Frame) -> bool {
    let rest = frame.function.strip_prefix(&*frame.library);
    !rest.is_some_and(|rest| rest.starts_with("+0x") || rest.starts_with("0x"))
}

#[cfg(test)]
mod tests {
    use cuguard_recording::{Frame as RecordedFrame, Site, Stack};

    use super::call_site;
    use crate::resolver::Resolver;
    use crate::run::Frame;
    use crate::symbols::frames;
    use cuguard_recording::Module;
    use cuguard_report::symbol_file::Name;

    /// `libfoo.so!name`, or a name of the program. Addresses are indices.
    struct Known<'a>(&'a [&'a str]);

    impl Resolver for Known<'_> {
        fn frames(&mut self, address: u64) -> Vec<Frame> {
            let text = self.0[address as usize];
            let (path, function) = text.split_once('!').unwrap_or(("/app/a.out", text));
            let module = Module {
                path: path.to_owned(),
                ..Module::default()
            };
            let name = Name {
                function: Some(function.to_owned()).filter(|name| !name.is_empty()),
                ..Name::default()
            };
            frames(vec![name], Some(&module), address)
        }
    }

    fn shown(names: &[&str], site: Option<Site>) -> Vec<Frame> {
        let frames = (0..names.len() as u64).map(RecordedFrame::Native).collect();
        let stack = Stack {
            site,
            frames,
            ..Stack::default()
        };
        call_site(&stack, &mut Known(names)).frames
    }

    fn functions(names: &[&str]) -> Vec<String> {
        let shown = shown(names, None).into_iter();
        shown.map(|frame| frame.function).collect()
    }

    #[test]
    fn frames_of_these_crates_and_of_runtimes_are_left_out() {
        let rust = [
            "cuguard_registry::registry::Registry::insert_at",
            "<cuguard::DeviceBuffer<T>>::zeroed",
            "app::load",
            "core::iter::traits::iterator::Iterator::map",
            "app::main",
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "app::outside",
            "main",
        ];
        assert_eq!(functions(&rust), ["app::load", "app::main"]);
        let cpp = [
            "void std::_Construct<Node>(Node*)",
            "std::vector<int> app::load<int>(std::vector<int> const&)",
        ];
        assert_eq!(functions(&cpp), cpp[1..]);
        let packages = "/env/lib/python3.12/site-packages/torch/lib/libunknown.so";
        let c = [
            "/x/libcuguard_audit.so!hook",
            "/usr/lib/libcudart.so.12!",
            "/usr/lib/libcudart.so.12!cudaMalloc",
            &format!("{packages}!at::empty"),
            &format!("{packages}!"),
            "load",
            "main",
            "/lib/libc.so.6!__libc_start_main",
            "_start",
        ];
        assert_eq!(functions(&c), ["cudaMalloc", "at::empty", "load", "main"]);
        let in_app: Vec<bool> = shown(&c, None).iter().map(|frame| frame.in_app).collect();
        assert_eq!(in_app, [false, false, true, true]);
    }

    #[test]
    fn without_frames_of_the_program_others_are_shown() {
        let library = [
            "/usr/lib/libcublas.so!cublasCreate",
            "/lib/libc.so.6!clone3",
        ];
        let frames = shown(&library, None);
        assert!(frames.len() == 1 && frames[0].in_app);
        let autograd = [
            "/usr/lib/libcudart.so.13!cudaMalloc",
            "/lib/libc10_cuda.so!c10::cuda::allocate(unsigned long)",
            "/lib/libtorch_cpu.so!at::detail::empty_cuda(c10::ArrayRef<long>)",
            "/lib/libtorch_cpu.so!at::_ops::relu::call(at::Tensor)",
            "/lib/libtorch_cpu.so!torch::autograd::Engine::thread_main()",
            "/lib/libc.so.6!clone3",
        ];
        let frames = shown(&autograd, None);
        let in_app: Vec<bool> = frames.iter().map(|frame| frame.in_app).collect();
        assert_eq!(in_app, [false, false, false, true, true]);
        let runtime = ["cuguard::a", "/lib/libc.so.6!clone3"];
        assert_eq!(functions(&runtime), ["cuguard::a", "clone3"]);
        assert!(functions(&[]).is_empty());
    }

    #[test]
    fn a_stripped_program_has_the_line_of_its_guard() {
        let site = Site {
            file: "src/main.rs".to_owned(),
            line: 7,
            column: 5,
        };
        let frames = shown(&["cuguard::a", "", ""], Some(site.clone()));
        let lines: Vec<_> = frames
            .iter()
            .map(|frame| (&*frame.file, frame.line))
            .collect();
        assert_eq!(lines, [("src/main.rs", 7), ("", 0)]);
        let alone = shown(&[], Some(site));
        assert_eq!((&*alone[0].function, alone[0].line), ("src/main.rs:7", 7));
    }

    #[test]
    fn python_frames() {
        let frame = |file: &str| RecordedFrame::Foreign {
            function: "f".into(),
            file: file.into(),
            line: 1,
        };
        let packages = "/env/lib/python3.12/site-packages/torch/nn.py";
        let stack = Stack {
            frames: ["<frozen importlib._bootstrap>", packages, "train.py"]
                .map(frame)
                .into(),
            ..Stack::default()
        };
        let frames = call_site(&stack, &mut Known(&[])).frames;
        let shown: Vec<_> = frames.iter().map(|one| (&*one.file, one.in_app)).collect();
        assert_eq!(shown, [(packages, false), ("train.py", true)]);
    }
}
