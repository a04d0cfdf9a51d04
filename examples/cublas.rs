//! cuBLAS on buffers and a stream of cuguard: a matrix product, checked on the host. Needs a real GPU and libcublas, which
//! is loaded at run time.
//!
//!     cargo run --example cublas
//!     cargo run --example cublas -- /path/to/libcublas.so.12
//!
//! What to see: a library that knows nothing of this crate enqueues work on the stream of a scope, with the addresses of
//! what the scope has bound. The buffers are borrowed until the stream has finished that work.

use std::error::Error;
use std::ffi::{c_int, c_void};

use cuguard::driver::sys::{CUdeviceptr, CUstream};
use cuguard::driver::{DriverKind, load};
use cuguard::prelude::*;
use libloading::Library;

/// Names under which distributions and wheels have the library.
const NAMES: [&str; 4] = [
    "libcublas.so",
    "libcublas.so.13",
    "libcublas.so.12",
    "libcublas.so.11",
];

const NO_TRANSPOSE: c_int = 0;

type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
type SetStream = unsafe extern "C" fn(*mut c_void, CUstream) -> c_int;
type Sgemm = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    CUdeviceptr,
    c_int,
    CUdeviceptr,
    c_int,
    *const f32,
    CUdeviceptr,
    c_int,
) -> c_int;

/// The functions of the library that this example calls, and its handle.
struct Blas<'context> {
    library: Library,
    handle: *mut c_void,
    context: &'context Context,
}

fn check(function: &str, status: c_int) -> Result<(), Box<dyn Error>> {
    match status {
        0 => Ok(()),
        status => Err(format!("{function} returned status {status}").into()),
    }
}

impl<'context> Blas<'context> {
    /// Creates a handle in the context, which is the device's primary context, as the library expects.
    fn new(library: Library, context: &'context Context) -> Result<Self, Box<dyn Error>> {
        let _current = context.make_current()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the signature is that of cublas_v2.h, and `handle` is valid for writes.
        let status = unsafe { library.get::<Create>("cublasCreate_v2")?(&mut handle) };
        check("cublasCreate", status)?;
        Ok(Self {
            library,
            handle,
            context,
        })
    }

    /// C = A B for square matrices of `n` rows, row by row.
    fn multiply(
        &self,
        stream: &Stream,
        n: usize,
        (a, b): (&DeviceBuffer<f32>, &DeviceBuffer<f32>),
        c: &mut DeviceBuffer<f32>,
    ) -> Result<(), Box<dyn Error>> {
        assert!(
            [a.len(), b.len(), c.len()] == [n * n; 3],
            "n rows of n values"
        );
        let size = c_int::try_from(n)?;
        // SAFETY: the signatures are those of cublas_v2.h.
        let (set_stream, sgemm) = unsafe {
            (
                self.library.get::<SetStream>("cublasSetStream_v2")?,
                self.library.get::<Sgemm>("cublasSgemm_v2")?,
            )
        };
        let (handle, one, zero) = (self.handle, 1.0, 0.0);
        let status = stream.scope(|s| {
            let (a, b, c) = (s.bind(a)?, s.bind(b)?, s.bind_mut(c)?);
            let [a, b, c] = [&a, &b, &*c].map(|matrix| matrix.as_device_ptr().as_raw());
            let none = NO_TRANSPOSE;
            // The library's matrices are column by column: C^T = B^T A^T.
            // SAFETY: the handle is alive; each matrix has n * n values, and only the last one is written.
            unsafe {
                s.call_library(|stream| match set_stream(handle, stream) {
                    0 => sgemm(
                        handle, none, none, size, size, size, &one, b, size, a, size, &zero, c,
                        size,
                    ),
                    status => status,
                })
            }
        })?;
        check("cublasSgemm", status)
    }
}

impl Drop for Blas<'_> {
    fn drop(&mut self) {
        let _current = self.context.make_current();
        // SAFETY: created by `new`, and used by nothing any more.
        if let Ok(destroy) = unsafe { self.library.get::<Destroy>("cublasDestroy_v2") } {
            // SAFETY: as above.
            unsafe { destroy(self.handle) };
        }
    }
}

fn open() -> Result<Library, String> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let names = match &named[..] {
        [] => NAMES.map(String::from).to_vec(),
        named => named.to_vec(),
    };
    let mut errors = Vec::new();
    for name in names {
        // SAFETY: cuBLAS has no other initializers than those of a C++ library.
        match unsafe { Library::new(&name) } {
            Ok(library) => return Ok(library),
            Err(error) => errors.push(error.to_string()),
        }
    }
    Err(errors.join("; "))
}

fn main() -> Result<(), Box<dyn Error>> {
    const N: usize = 256;
    if load()?.kind() == DriverKind::Simulated {
        println!("not run: cuBLAS needs a real GPU");
        return Ok(());
    }
    let library = match open() {
        Ok(library) => library,
        Err(why) => {
            println!("not run: there is no cuBLAS ({why})");
            return Ok(());
        }
    };
    let context = Context::new(0)?;
    let stream = Stream::new(&context)?;
    // Small integers: every sum is exact, in whatever order it is computed.
    let a: Vec<f32> = (0..N * N).map(|i| (i % 7) as f32 - 3.0).collect();
    let b: Vec<f32> = (0..N * N).map(|i| (i % 5) as f32 - 2.0).collect();
    let device_a = DeviceBuffer::from_slice(&context, &a)?;
    let device_b = DeviceBuffer::from_slice(&context, &b)?;
    let mut device_c = DeviceBuffer::zeroed(&context, N * N)?;
    let blas = Blas::new(library, &context)?;
    blas.multiply(&stream, N, (&device_a, &device_b), &mut device_c)?;
    drop(blas);

    let c = device_c.to_vec()?;
    let cell = |row: usize, column: usize| -> f32 {
        (0..N).map(|k| a[row * N + k] * b[k * N + column]).sum()
    };
    let wrong = (0..N * N).filter(|i| c[*i] != cell(i / N, i % N)).count();
    println!(
        "on {}: {N} x {N} matrices by cuBLAS, {wrong} of {} values differ from the host's",
        context.device_name(),
        N * N
    );
    assert_eq!(wrong, 0);
    drop((device_a, device_b, device_c, stream));
    context.close()?;
    Ok(())
}
