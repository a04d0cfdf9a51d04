//! What the children do. Each function prints what its test looks for.

use std::error::Error;
use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::process::Termination;
use std::ptr::{self, null_mut};
use std::sync::Barrier;
use std::thread;

use cuguard_driver::result::{self, function, module};
use cuguard_driver::sys::{
    CUcontext, CUdeviceptr, CUfunction, CUresult, CUstream, NAMES, jit_option,
};
use cuguard_driver::{
    Choice, DriverKind, LoadError, SelectError, api, load, loaded, select, select_library,
};
use cust::memory::{CopyDestination, DeviceBuffer};

use crate::support::{ARGUMENT, ROLE};

type Outcome = Result<(), Box<dyn Error>>;

/// The entry point of a child. To the test harness this is a test; without a role it does nothing.
#[test]
#[ignore = "a child process that the other tests start: cargo test -p cuguard-driver runs it through them"]
fn run() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let outcome = match role.as_str() {
        "load" => load_once(),
        "before_init" => before_init(),
        "select_wins" => select_wins(),
        "select_again" => select_again(),
        "select_late" => select_late(),
        "select_same" => select_same(),
        "select_as_environment" => select_as_environment(),
        "select_real" => select_real(),
        "select_sim" => select_sim(),
        "only_init" => only_init(),
        "missing" => missing(),
        "arguments" => arguments(),
        "modules" => modules(),
        "race" => race(),
        "version" => version(),
        "proc_address" => proc_address(),
        "driver_version" => driver_version(),
        "stub" => stub(),
        "cust" => cust_program(),
        "cust_main" => cust_main(),
        "reasons" => reasons(),
        other => panic!("there is no role {other}"),
    };
    let code = match outcome {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: {error}");
            1
        }
    };
    // Not through the test harness, which has exit codes of its own.
    std::process::exit(code);
}

/// Prints that nothing failed: a child that ends early without output must not pass.
fn done() -> Outcome {
    println!("all as it should be");
    Ok(())
}

fn load_once() -> Outcome {
    println!("loaded: {}", load()?);
    // A second call returns the same one and prints nothing more.
    assert!(ptr::eq(load()?, loaded().expect("it was loaded")));
    Ok(())
}

fn before_init() -> Outcome {
    // SAFETY: no driver is loaded, so nothing reads or writes through these arguments.
    let codes = unsafe {
        [
            api::cuDeviceGetCount(null_mut()),
            api::cuMemAlloc_v2(null_mut(), 4),
            api::cuCtxSynchronize(),
            api::cuStreamQuery(CUstream::NULL),
        ]
    };
    assert_eq!(codes, [CUresult::NOT_INITIALIZED; 4]);
    assert!(loaded().is_none(), "these functions load no driver");

    let mut text = ptr::null();
    // SAFETY: `text` can be written to.
    let code = unsafe { api::cuGetErrorName(CUresult::NO_DEVICE, &mut text) };
    assert_eq!(code, CUresult::SUCCESS);
    // SAFETY: a name is a C string that lives as long as the process.
    let name = unsafe { std::ffi::CStr::from_ptr(text) };
    assert_eq!(name, c"CUDA_ERROR_NO_DEVICE");

    // With a driver that cannot be loaded, the functions that load one fail in the same way, and
    // the others return what they did.
    let mut number = 0;
    let mut address = null_mut();
    // SAFETY: the arguments can be written to, the name is a C string.
    let codes = unsafe {
        [
            api::cuInit(0),
            api::cuDriverGetVersion(&mut number),
            api::cuGetProcAddress(c"cuInit".as_ptr(), &mut address, 11000, 0),
        ]
    };
    assert_eq!(codes, [CUresult::NO_DEVICE; 3]);
    // SAFETY: as at the beginning.
    let code = unsafe { api::cuMemAlloc_v2(null_mut(), 4) };
    assert_eq!(code, CUresult::NOT_INITIALIZED);
    done()
}

fn select_wins() -> Outcome {
    // SAFETY: there is no such library.
    unsafe { select_library("/nonexistent/chosen.so")? };
    match load() {
        Err(error @ LoadError::CannotOpen { .. }) => println!("{error}"),
        other => panic!("{other:?}"),
    }
    Ok(())
}

fn select_again() -> Outcome {
    println!("{}", load().expect_err("the first choice does not exist"));
    let second = std::env::var_os(ARGUMENT).map(PathBuf::from);
    // SAFETY: the test made the library; it has one function, of the driver's type.
    unsafe { select_library(second.expect("a second library is given"))? };
    println!("loaded: {}", load()?);
    // SAFETY: no conditions.
    unsafe { api::cuInit(0) }.ok()?;
    Ok(())
}

fn select_late() -> Outcome {
    // SAFETY: no conditions.
    unsafe { api::cuInit(0) }.ok()?;
    match select(Choice::Real) {
        Err(error @ SelectError::AlreadyLoaded { driver, .. }) => {
            assert!(ptr::eq(driver, loaded().expect("cuInit has loaded it")));
            assert_eq!(format!("{error:?}"), error.to_string());
            println!("{error}");
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

/// Selects the driver that is loaded already, as each test of a program may.
fn select_same() -> Outcome {
    let again = || match std::env::var_os(ARGUMENT).map(PathBuf::from) {
        // SAFETY: the test made the library; it has one function, of the driver's type.
        Some(library) => unsafe { select_library(library) },
        None => select(Choice::Sim),
    };
    again()?;
    let driver = load()?;
    again()?;
    assert!(ptr::eq(driver, load()?));
    match select(Choice::Real) {
        Err(SelectError::AlreadyLoaded { .. }) => done(),
        other => panic!("{other:?}"),
    }
}

/// The environment named the driver that the program then selects.
fn select_as_environment() -> Outcome {
    load()?;
    select(Choice::Sim)?;
    done()
}

fn select_real() -> Outcome {
    select(Choice::Real)?;
    println!("{}", load().expect_err("there is no driver"));
    Ok(())
}

fn select_sim() -> Outcome {
    match select(Choice::Sim) {
        Ok(()) => {}
        Err(error @ SelectError::NoSimulation) => return Err(format!("not chosen: {error}").into()),
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(load()?.kind(), DriverKind::Simulated);
    Ok(())
}

fn only_init() -> Outcome {
    // SAFETY: no conditions; the driver of this test lacks all other functions.
    let codes = unsafe { [api::cuInit(0), api::cuInit(1)] };
    assert_eq!(codes, [CUresult::SUCCESS, CUresult::INVALID_VALUE]);
    // SAFETY: as above.
    let codes = unsafe {
        [
            api::cuCtxSynchronize(),
            api::cuMemAlloc_v2(null_mut(), 4),
            api::cuDriverGetVersion(null_mut()),
            api::cuGetProcAddress(ptr::null(), null_mut(), 0, 0),
        ]
    };
    assert_eq!(codes, [CUresult::NOT_FOUND; 4]);

    let driver = loaded().expect("cuInit has loaded it");
    assert_eq!(driver.missing().len(), NAMES.len() - 1);
    assert!(!driver.missing().contains(&"cuInit"));
    assert_eq!(driver.kind(), DriverKind::Real);
    assert_eq!(driver.version(), None);
    done()
}

/// Calls functions that the driver of this test lacks, with a logger that prints to stdout.
fn missing() -> Outcome {
    struct Printer;
    impl log::Log for Printer {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            println!("\n{}: {}", record.level(), record.args());
        }
        fn flush(&self) {}
    }
    log::set_logger(&Printer).expect("there is no other logger");
    log::set_max_level(log::LevelFilter::Trace);

    load()?;
    let create = || {
        let mut context = CUcontext(7);
        // SAFETY: the driver of this test lacks the function, so nothing is read or written.
        let code = unsafe { api::cuCtxCreate_v4(&mut context, null_mut(), 0, 0) };
        assert_eq!(context, CUcontext(7), "nothing is written");
        code
    };
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(create)).collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), CUresult::NOT_FOUND);
    }
    // SAFETY: as above.
    let code = unsafe { api::cuCtxSynchronize() };
    assert_eq!(code, CUresult::NOT_FOUND);
    done()
}

fn arguments() -> Outcome {
    // SAFETY: the driver of this test compares these arguments and uses none of them.
    let code = unsafe {
        api::cuInit(0).ok()?;
        let (parameters, extra) = (
            ptr::without_provenance_mut::<*mut c_void>(10),
            ptr::without_provenance_mut::<*mut c_void>(11),
        );
        let (function, stream) = (CUfunction(1), CUstream(9));
        api::cuLaunchKernel(function, 2, 3, 4, 5, 6, 7, 8, stream, parameters, extra)
    };
    assert_eq!(code, CUresult::LAUNCH_FAILED);
    assert_eq!(cust::memory::mem_get_info()?, (5, 7));
    done()
}

#[allow(clippy::disallowed_methods, reason = "a test calls the free itself")]
fn modules() -> Outcome {
    result::init()?;
    let mut log = [0_u8; 64];
    let (mut ten, mut eleven) = (10, 11);
    let parameters = [(&raw mut ten).cast(), (&raw mut eleven).cast()];
    // SAFETY: the driver of this test reads the texts and the two numbers, writes to the log within its
    // size, and compares the rest.
    unsafe {
        let mut options = [
            jit_option::ERROR_LOG_BUFFER,
            jit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values = [
            log.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(64),
        ];
        let image = c"bad".as_ptr().cast();
        let error = module::load_data_ex(image, &mut options, &mut values).unwrap_err();
        assert_eq!((error.function, error.code.0), ("cuModuleLoadDataEx", 218));
        assert_eq!(CStr::from_bytes_until_nul(&log)?, c"line 1: bad");

        let module = module::load_data_ex(c"good".as_ptr().cast(), &mut options, &mut values)?;
        let error = module::function(module, c"absent").unwrap_err();
        assert_eq!(error.code, CUresult::NOT_FOUND);
        let saxpy = module::function(module, c"saxpy")?;
        let global = module::global(module, c"table")?;
        assert_eq!((global.address, global.bytes), (4096, 12));
        let (grid, block) = ([2, 3, 4], [5, 6, 7]);
        function::launch_kernel(saxpy, grid, block, 9, CUstream(1), &parameters)?;
        module::unload(module)?;
    }
    done()
}

fn race() -> Outcome {
    const THREADS: usize = 16;
    let barrier = Barrier::new(THREADS);
    let outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    if number % 2 == 0 {
                        load().expect("the driver is there");
                    }
                    // SAFETY: no conditions.
                    let init = unsafe { api::cuInit(0) };
                    // The last slot of the table: filled by now, whoever filled it.
                    // SAFETY: no conditions.
                    let last = unsafe { api::cuProfilerStop() };
                    (
                        init,
                        last,
                        ptr::from_ref(loaded().expect("loaded by now")).addr(),
                    )
                })
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect()
    });
    let (_, _, driver) = outcomes[0];
    for outcome in outcomes {
        assert_eq!(outcome, (CUresult::SUCCESS, CUresult::SUCCESS, driver));
    }
    done()
}

fn version() -> Outcome {
    let version = cust::CudaApiVersion::get()?;
    assert_eq!((version.major(), version.minor()), (12, 4));
    assert!(loaded().is_some());
    done()
}

fn proc_address() -> Outcome {
    let mut address = null_mut();
    // SAFETY: the name is a C string, and the address can be written to.
    unsafe { api::cuGetProcAddress(c"cuInit".as_ptr(), &mut address, 11030, 3) }.ok()?;
    let driver = loaded().expect("cuGetProcAddress loads the driver");
    assert_eq!(Some(address.cast_const()), driver.symbol("cuInit"));
    done()
}

fn driver_version() -> Outcome {
    assert_eq!(load()?.version(), Some((12, 4)));
    done()
}

fn stub() -> Outcome {
    // SAFETY: no conditions.
    assert_eq!(unsafe { api::cuInit(0) }, CUresult::STUB_LIBRARY);
    done()
}

/// Ends as a program does whose `main` returns `cust`'s error.
fn cust_main() -> Outcome {
    let end = cust::init(cust::CudaFlags::empty());
    assert!(end.is_err(), "there is no such driver");
    // Prints the error as it does for `main`.
    let _ = end.report();
    std::process::exit(1);
}

/// Makes loads fail for two reasons, with all the functions that load.
fn reasons() -> Outcome {
    let fail = || {
        let (mut number, mut address) = (0, null_mut());
        // SAFETY: the arguments can be written to, the name is a C string.
        let codes = unsafe {
            [
                api::cuInit(0),
                api::cuDriverGetVersion(&mut number),
                api::cuGetProcAddress(c"cuInit".as_ptr(), &mut address, 11000, 0),
                api::cuInit(0),
            ]
        };
        assert_eq!(codes, [CUresult::NO_DEVICE; 4]);
    };
    fail();
    // SAFETY: there is no such library.
    unsafe { select_library("/nonexistent/second.so")? };
    fail();
    // SAFETY: as above.
    unsafe { select_library("/nonexistent/third.so")? };
    assert!(load().is_err(), "and the error is all that it gives");
    done()
}

/// Does not use this crate.
fn cust_program() -> Outcome {
    let _context = cust::quick_init()?;
    let buffer = DeviceBuffer::from_slice(&[1_u32, 2, 3])?;
    let mut back = [0; 3];
    buffer.copy_to(&mut back)?;
    let _address: CUdeviceptr = buffer.as_device_ptr().as_raw();
    println!("copied back: {back:?}");
    Ok(())
}
