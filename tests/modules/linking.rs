//! Device code of several sources, linked.

use cuguard::code::Linker;
use cuguard::driver::sys::CUresult;
use cuguard::{DeviceBox, Error, Module, Result, Stream};

use super::SAXPY;
use crate::support::*;

/// twice(x), and a kernel that calls it.
const TWICE: &str = "
.version 6.4
.target sm_52
.address_size 64
.visible .func (.param .b32 r) twice(.param .b32 x) {
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [x]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret;
}

";
const USES_TWICE: &str = "
.version 6.4
.target sm_52
.address_size 64
.extern .func (.param .b32 r) twice(.param .b32 x);

.visible .entry double_it(.param .u64 p) {
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; ld.global.u32 %r1, [%rd2];
    {
        .param .b32 a; st.param.b32 [a], %r1;
        .param .b32 b; call.uni (b), twice, (a);
        ld.param.b32 %r2, [b];
    }
    st.global.u32 [%rd2], %r2; ret;
}
";

#[test]
fn code_of_two_sources_is_linked() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let linker = Linker::new(&context)
        .keep_info_log()
        .ptx("twice.ptx", TWICE)?
        .ptx("uses_twice.ptx", USES_TWICE)?;
    assert_eq!(format!("{linker:?}"), "[\"twice.ptx\", \"uses_twice.ptx\"]");
    let linked = linker.link()?;
    assert!(linked.info_log().is_some());
    assert!(linked.as_bytes().starts_with(b"\x7fELF"));
    let module = linked.load(&context)?;
    // An image for another architecture is not for this device.
    let foreign = linker.clone().target(5, 2).link()?;
    let error = foreign.load(&context).unwrap_err();
    assert_eq!(error.code(), Some(CUresult::NO_BINARY_FOR_GPU), "{error}");
    // The bytes are an image as any other.
    // SAFETY: complete, as the linker made it.
    let again = unsafe { Module::from_image(&context, linked.as_bytes())? };
    assert!(again.function("double_it").is_ok());
    let double = module.function("double_it")?;
    let stream = Stream::new(&context)?;
    let mut number = DeviceBox::new(&context, &21_u32)?;
    stream.scope(|s| {
        let number = s.bind_mut(&mut number)?;
        // SAFETY: double_it(p) doubles one number.
        unsafe { s.launch(&double, (1, 1), &[&number]) }
    })?;
    assert_eq!(number.get()?, 42);
    drop((module, again, stream, number));
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn what_cannot_be_linked_is_refused_with_the_log() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let error = Linker::new(&context).link().unwrap_err();
    assert_eq!(error.to_string(), "Linker::link: there is no device code");
    let twice = Linker::new(&context)
        .ptx("one.ptx", SAXPY)?
        .ptx("two.ptx", SAXPY)?;
    let error = twice.link().unwrap_err();
    let Error::Compile { error, log } = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.operation, "Linker::link");
    assert_eq!(
        log,
        "error   : Multiple definition of 'saxpy' in 'two.ptx', first defined in 'one.ptx'"
    );
    // On an H200 this link returned CUDA_ERROR_INVALID_SOURCE; others, of other code and with other options, returned
    // CUDA_ERROR_UNKNOWN, which the simulated driver returns for all.
    let want = match real("what_cannot_be_linked_is_refused_with_the_log (the code)") {
        true => CUresult::INVALID_SOURCE,
        false => CUresult::UNKNOWN,
    };
    assert_eq!(error.code, want);
    let broken = Linker::new(&context).ptx("bad.ptx", ".version 6.4\n.tarket sm_52")?;
    let error = broken.link().unwrap_err();
    let Error::Compile { error, log } = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (error.operation, error.code),
        ("Linker::link", CUresult::INVALID_PTX)
    );
    assert!(log.contains("line "), "{log}");
    if real("what_cannot_be_linked_is_refused_with_the_log (missing symbols)") {
        let alone = Linker::new(&context).ptx("uses_twice.ptx", USES_TWICE)?;
        let error = alone.link().unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("twice") && text.contains("uses_twice.ptx"),
            "{text}"
        );
    }
    assert_eq!(context.live_count(), 0);
    context.close()?;
    Ok(())
}

/// Each call of the linker fails in turn: nothing stays alive in the driver.
#[test]
fn a_linker_that_fails_leaves_nothing_behind() -> Result<()> {
    use cuguard::sim::{self, Fault};
    let _turn = turn();
    if !simulated("a_linker_that_fails_leaves_nothing_behind") {
        return Ok(());
    }
    let context = context()?;
    let linker = Linker::new(&context).ptx("saxpy.ptx", SAXPY)?;
    for function in ["cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete"] {
        let calls = || {
            let calls = sim::counters().calls;
            let count = |name: &str| calls.get(name).copied().unwrap_or(0);
            (count("cuLinkCreate_v2"), count("cuLinkDestroy"))
        };
        let (created, destroyed) = calls();
        let fault = Fault::nth_call_of(function, 1).returning(CUresult::UNKNOWN);
        sim::inject(fault).expect("there is such a function");
        assert_eq!(linker.link().unwrap_err().code(), Some(CUresult::UNKNOWN));
        let made = u64::from(function != "cuLinkCreate_v2");
        let (created_now, destroyed_now) = calls();
        assert_eq!(destroyed_now, destroyed + made, "{function}");
        assert_eq!(created_now, created + 1, "{function}");
    }
    linker.link()?.load(&context)?.close()
}
