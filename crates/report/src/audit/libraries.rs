//! Libraries that allocate for the program, by their files, packages and namespaces, and what they are called.

use super::names::{FrameNames, bare};

/// Libraries by the beginning of their file name, and what they are called.
const LIBRARY_MODULES: [(&str, &str); 24] = [
    // CUDA libraries.
    ("libcublas", "cuBLAS"),
    ("libcudnn", "cuDNN"),
    ("libcufft", "cuFFT"),
    ("libcufile", "cuFile"),
    ("libcupti", "CUPTI"),
    ("libcurand", "cuRAND"),
    ("libcusolver", "cuSOLVER"),
    ("libcusparse", "cuSPARSE"),
    ("libcutensor", "cuTENSOR"),
    ("libnccl", "NCCL"),
    ("libnpp", "NPP"),
    ("libnvJitLink", "nvJitLink"),
    ("libnvToolsExt", "NVTX"),
    ("libnvinfer", "TensorRT"),
    ("libnvjpeg", "nvJPEG"),
    ("libnvrtc", "NVRTC"),
    ("libnvshmem", "NVSHMEM"),
    // Allocators and frameworks.
    ("libc10", "PyTorch"),
    ("libtorch", "PyTorch"),
    ("librmm", "RMM"),
    ("libcudf", "cuDF"),
    ("libtensorflow", "TensorFlow"),
    ("libonnxruntime", "ONNX Runtime"),
    ("xla_", "XLA"),
];

/// Packages of Python, as folders of `site-packages`, and what they are called.
const PACKAGES: [(&str, &str); 12] = [
    ("torch", "PyTorch"),
    ("cupy", "CuPy"),
    ("cupyx", "CuPy"),
    ("cupy_backends", "CuPy"),
    ("numba", "Numba"),
    ("numba_cuda", "Numba"),
    ("rmm", "RMM"),
    ("pycuda", "PyCUDA"),
    ("cuda", "CUDA Python"),
    ("nvidia", "CUDA"),
    ("jax", "JAX"),
    ("tensorflow", "TensorFlow"),
];

/// Namespaces and crates, and what they are called.
const LIBRARY_NAMES: [(&str, &str); 9] = [
    ("c10::", "PyTorch"),
    ("at::", "PyTorch"),
    ("torch::", "PyTorch"),
    ("rmm::", "RMM"),
    ("thrust::", "Thrust"),
    ("cub::", "CUB"),
    ("cudarc::", "cudarc"),
    ("cust::", "cust"),
    ("cust_raw::", "cust"),
];

/// What the library of a frame is called, of those that are known.
pub(super) fn library_of(frame: &FrameNames<'_>) -> Option<&'static str> {
    let find = |table: &'static [(&str, &str)], name: &str| {
        let mut table = table.iter();
        table.find_map(|(prefix, library)| name.starts_with(prefix).then_some(*library))
    };
    let module = frame.module.rsplit('/').next().unwrap_or_default();
    let by_module = || find(&LIBRARY_MODULES, module).or_else(|| package(frame.module));
    match frame.is_foreign {
        true => package(frame.file.unwrap_or_default()),
        false => {
            by_module().or_else(|| find(&LIBRARY_NAMES, bare(frame.function.unwrap_or_default())))
        }
    }
}

fn is_listed(table: &[(&str, &str)], name: &str) -> bool {
    table.iter().any(|(prefix, _)| name.starts_with(prefix))
}

/// The package that a file belongs to, as it is called.
pub(super) fn package(file: &str) -> Option<&'static str> {
    let folders = ["/site-packages/", "/dist-packages/"];
    let (_, inside) = folders.iter().find_map(|folder| file.split_once(folder))?;
    let package = inside.split(['/', '.']).next().unwrap_or_default();
    let mut packages = PACKAGES.iter();
    packages.find_map(|(name, called)| (*name == package).then_some(*called))
}

/// Whether the file name of a module is that of a library.
pub(super) fn is_module(name: &str) -> bool {
    is_listed(&LIBRARY_MODULES, name)
}

/// Whether the name of a function, without the type that it returns, is of a library.
pub(super) fn is_function(name: &str) -> bool {
    is_listed(&LIBRARY_NAMES, name)
}
