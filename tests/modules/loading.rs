//! PTX, images, files and CUDA C++: what is loaded, what is refused, and what is unloaded.

use cuguard::code::Linker;
use cuguard::driver::sys::CUresult;
use cuguard::nvrtc::{self, Options};
use cuguard::{Context, DeviceBuffer, Error, Module, ResourceKind, Result, Stream};
use cuguard_testing::{Requirement, not_run};

use super::{SAXPY, TABLE};
use crate::support::*;

#[test]
fn text_with_a_nul_is_refused_with_the_line_it_is_in() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let error = Module::from_ptx(&context, "first\nse\0cond\nthird").unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Module::from_ptx: "se\0cond" has a NUL character in it, at byte 8 of the text"#
    );
    Ok(())
}

/// As compilers and C code leave it there.
#[test]
fn one_nul_at_the_end_of_ptx_is_accepted() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let module = Module::from_ptx(&context, &format!("{TABLE}\0"))?;
    assert!(module.function("nothing").is_ok());
    let two = Module::from_ptx(&context, &format!("{TABLE}\0\0")).unwrap_err();
    let at = TABLE.len();
    assert!(
        matches!(two, Error::InteriorNul { position, .. } if position == at),
        "{two}"
    );
    Ok(())
}

#[test]
fn a_closed_context_loads_nothing() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, TABLE)?;
    let (function, table) = (module.function("nothing")?, module.global::<u32>("table")?);
    let closed = |result: Result<()>| matches!(result, Err(Error::ContextClosed { .. }));
    context.close()?;
    assert!(closed(module.function("nothing").map(drop)));
    assert!(closed(table.to_vec().map(drop)));
    let launched = stream.scope(|s| {
        // SAFETY: the kernel takes nothing.
        unsafe { s.launch(&function, (1, 1), &[]) }
    });
    assert!(closed(launched));
    assert!(closed(module.close()));
    Ok(())
}

#[test]
fn what_is_no_ptx_is_refused_with_the_compilers_words() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let broken = TABLE.replace("ret;", "rat;");
    let error = Module::from_ptx(&context, &broken).unwrap_err();
    eprintln!("{error}");
    let Error::Compile { log, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(log.contains("line 6") && log.contains("rat"), "{log}");
    assert_eq!(error.code(), Some(CUresult::INVALID_PTX));
    // What looks like a binary is text all the same.
    for text in ["", "hello", "\x7fELF\x02\x01\x01\u{1}"] {
        let error = Module::from_ptx(&context, text).unwrap_err();
        eprintln!("{text:?}: {error}");
        assert!(error.code().is_some(), "{error:?}");
    }
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn a_module_goes_with_its_guard_wherever_that_is_dropped() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let other = Context::builder().dedicated().build()?;
    std::thread::scope(|scope| {
        let load = || Module::from_ptx(&context, TABLE).unwrap();
        let (first, second) = (load(), load());
        scope.spawn(move || drop(first));
        let other = &other;
        scope.spawn(move || {
            let _bound = other.make_current().unwrap();
            drop(second);
        });
    });
    Module::from_ptx(&context, TABLE)?.close()?;
    assert_eq!(context.totals(ResourceKind::Module).count, 0);
    std::mem::forget(Module::from_ptx(&context, TABLE)?.with_label("lost"));
    let leak = &context.snapshot().live[0];
    assert_eq!(
        (leak.kind, leak.label.as_deref()),
        (ResourceKind::Module, Some("lost"))
    );
    context.close()
}

#[test]
fn options_of_the_compiler_are_accepted_or_refused() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let builder = Module::builder(&context)
        .max_registers(32)
        .optimization_level(1)
        .line_info()
        .keep_info_log();
    let module = builder.from_ptx(SAXPY)?;
    assert!(module.function("saxpy").is_ok());
    assert!(module.info_log().is_some());
    let plain = Module::builder(&context).from_ptx(SAXPY)?;
    assert_eq!(plain.info_log(), None);
    let error = builder.optimization_level(9).from_ptx(SAXPY).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ModuleBuilder::from_ptx: the optimization level is 9, which is not within 0 to 4"
    );
    let error = builder
        .from_ptx(&SAXPY.replace(".entry", ".entri"))
        .unwrap_err();
    let Error::Compile { error, log } = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.operation, "ModuleBuilder::from_ptx");
    assert!(log.contains("line "), "{log}");
    // SAFETY: an image without bytes is refused.
    let error = unsafe { Module::from_image(&context, &[]) }.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Module::from_image: there is no device code"
    );
    drop((module, plain));
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn modules_are_loaded_from_files() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let name = format!("cuguard-modules-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("table.ptx");
    std::fs::write(&path, TABLE).unwrap();
    assert!(
        Module::from_ptx_file(&context, &path)?
            .function("nothing")
            .is_ok()
    );
    // SAFETY: the file is complete.
    let module = unsafe { Module::from_image_file(&context, &path)? };
    assert_eq!(module.global::<u32>("table")?.to_vec()?, [1, 2, 3, 4]);
    // SAFETY: there is no such file.
    let missing = unsafe { Module::from_image_file(&context, folder.join("none.cubin")) };
    let no_text = folder.join("image.ptx");
    std::fs::write(&no_text, [0xff; 100]).unwrap();
    for (error, file) in [
        (missing.unwrap_err(), "none.cubin"),
        (
            Module::from_ptx_file(&context, folder.join("none.ptx")).unwrap_err(),
            "none.ptx",
        ),
        (
            Module::from_ptx_file(&context, &no_text).unwrap_err(),
            "image.ptx",
        ),
        (
            Module::builder(&context)
                .from_ptx_file(&folder)
                .unwrap_err(),
            "cuguard-modules-",
        ),
        (
            Linker::new(&context)
                .ptx_file(folder.join("none.ptx"))
                .unwrap_err(),
            "none.ptx",
        ),
    ] {
        assert!(matches!(error, Error::File { .. }), "{error:?}");
        assert!(error.to_string().contains(file), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    Ok(())
}

#[test]
fn cuda_is_compiled_and_loaded() -> Result<()> {
    const SOURCE: &str = "
        #include \"add.h\"
        template <class T> __global__ void twice(T *x) { *x = add(*x, *x); }
        extern \"C\" __global__ void add_all(const float *x, float *y, unsigned n) {
            unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = add(x[i], y[i]) * FACTOR;
        }
    ";
    let _turn = turn();
    let context = context()?;
    let options = Options::new()
        .name("adds.cu")
        .define_value("FACTOR", "2.0f")
        .header(
            "add.h",
            "template <class T> __device__ T add(T a, T b) { return a + b; }",
        );
    let module = match Module::from_cuda_with(&context, SOURCE, &options) {
        Err(Error::Nvrtc(nvrtc::Error::LibraryMissing { .. })) => {
            not_run(Requirement::Nvrtc, "");
            return Ok(());
        }
        module => module?,
    };
    let add_all = module.function("add_all")?;
    let broken = SOURCE.replace("add(x[i]", "subtract(x[i]");
    let error = Module::from_cuda_with(&context, &broken, &options).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("adds.cu") && text.contains("subtract"),
        "{text}"
    );
    // The symbol name of a template.
    let options = options.arch(9, 0).name_expression("twice<int>");
    let ptx = nvrtc::compile(SOURCE, &options)?;
    let symbol = ptx.lowered_name("twice<int>").expect("it was requested");
    assert!(symbol.starts_with("_Z5twice"), "{symbol}");
    let cubin = nvrtc::compile_to_cubin(SOURCE, &options)?;
    assert!(cubin.as_bytes().starts_with(b"\x7fELF"));
    let stream = Stream::new(&context)?;
    let x = DeviceBuffer::from_slice(&context, &[3.0_f32; 1000])?;
    let mut y = DeviceBuffer::from_slice(&context, &[4.0_f32; 1000])?;
    stream.scope(|s| {
        let (x, y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
        // SAFETY: add_all(x, y, n) accesses elements whose index is below `n`.
        unsafe { s.launch(&add_all, (4, 256), &[&x, &y, &1000_u32]) }
    })?;
    assert_eq!(y.to_vec()?, [14.0; 1000]);
    Ok(())
}
