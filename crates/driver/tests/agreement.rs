//! The table and the typed declarations agree with `cust_raw`, whose calls come through them: the
//! same names, parameters of the same widths, structures of the same layout.

use std::any::type_name;
use std::collections::BTreeSet;

use cuguard_driver::{api, sys};

use crate::support::cust_raw_names::with_cust_raw_names;

#[test]
fn the_table_has_the_names_that_cust_raw_declares() {
    // Compiling this proves most of it: each name exists in `cust_raw`.
    macro_rules! addresses {
        ($($name:ident)*) => { [$((stringify!($name), cust_raw::$name as *const ())),*] };
    }
    let addresses = with_cust_raw_names!(addresses);
    assert_eq!(addresses.len(), 353);

    let names: BTreeSet<_> = addresses.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), 353, "a name is listed twice");
    assert!(names.iter().all(|name| sys::NAMES.contains(name)));
    // Each name has a trampoline of its own, and `cust_raw`'s declaration means that one.
    let trampolines: BTreeSet<_> = addresses.iter().map(|(_, address)| *address).collect();
    assert_eq!(trampolines.len(), 353);
}

#[test]
fn both_declarations_of_a_function_mean_the_same_symbol() {
    macro_rules! pairs {
        ($($name:ident)*) => {
            [$((stringify!($name), api::$name as *const (), cust_raw::$name as *const ())),*]
        };
    }
    for (name, ours, theirs) in with_cust_raw_names!(pairs) {
        assert_eq!(ours, theirs, "{name}");
    }
}

/// What matters about a parameter to the calling convention.
#[derive(Debug, PartialEq, Eq)]
struct Passed {
    size: usize,
    align: usize,
    /// Floating-point numbers are passed in registers of their own.
    float: bool,
}

impl Passed {
    fn of<T>() -> Self {
        Self {
            size: size_of::<T>(),
            align: align_of::<T>(),
            float: matches!(type_name::<T>(), "f32" | "f64"),
        }
    }
}

/// The types of parameters and, last, of the result.
trait Signature {
    fn signature(&self) -> Vec<Passed>;
}

macro_rules! signatures {
    ($($($parameter:ident)*;)*) => {$(
        impl<R, $($parameter),*> Signature for unsafe extern "C" fn($($parameter),*) -> R {
            fn signature(&self) -> Vec<Passed> {
                vec![$(Passed::of::<$parameter>(),)* Passed::of::<R>()]
            }
        }
    )*};
}
signatures! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
}

#[test]
fn functions_take_what_cust_raw_passes() {
    macro_rules! any {
        ($parameter:ident) => {
            _
        };
    }
    // The cast is to the number of parameters that our declaration has: another number in
    // `cust_raw`'s does not compile.
    macro_rules! signature {
        (fn $name:ident($($parameter:ident: $type:ty),*);) => {(
            stringify!($name),
            (api::$name as unsafe extern "C" fn($(any!($parameter)),*) -> _).signature(),
            (cust_raw::$name as unsafe extern "C" fn($(any!($parameter)),*) -> _).signature(),
        )};
    }
    macro_rules! signatures {
        ($($name:ident)*) => { [$(sys::signature!($name, signature)),*] };
    }
    for (name, ours, theirs) in with_cust_raw_names!(signatures) {
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn the_comparison_of_signatures_sees_a_difference() {
    let signature = |function: &dyn Signature| function.signature();
    unsafe extern "C" fn long(_: u64) -> u32 {
        0
    }
    unsafe extern "C" fn short(_: u32) -> u32 {
        0
    }
    unsafe extern "C" fn float(_: f32) -> u32 {
        0
    }
    let long = signature(&(long as unsafe extern "C" fn(u64) -> u32));
    let short = signature(&(short as unsafe extern "C" fn(u32) -> u32));
    let float = signature(&(float as unsafe extern "C" fn(f32) -> u32));
    assert_ne!(long, short);
    assert_ne!(short, float);
}

/// Compares size, alignment and the offsets of common fields. After the semicolon: bytes that theirs reserves
/// and ours, of a newer header, has fields in.
macro_rules! same_layout {
    ($ours:ident, $theirs:ident { $($field:ident),* $(; $reserved:ident)? }) => {
        assert_eq!(size_of::<sys::$ours>(), size_of::<cust_raw::$theirs>(), stringify!($ours));
        assert_eq!(align_of::<sys::$ours>(), align_of::<cust_raw::$theirs>(), stringify!($ours));
        $(assert_eq!(
            std::mem::offset_of!(sys::$ours, $field),
            std::mem::offset_of!(cust_raw::$theirs, $field),
            concat!(stringify!($ours), ".", stringify!($field))
        );)*
        // Names every field of theirs: a field that the lists lack does not compile.
        let _ = |value: cust_raw::$theirs| {
            let cust_raw::$theirs { $($field: _,)* $($reserved: _)? } = value;
        };
    };
}

#[test]
fn structures_have_the_layout_that_cust_raw_gives_them() {
    same_layout!(CUuuid, CUuuid { bytes });
    same_layout!(CUmemLocation, CUmemLocation { type_, id });
    same_layout!(
        CUmemPoolProps,
        CUmemPoolProps {
            allocType,
            handleTypes,
            location,
            win32SecurityAttributes;
            reserved
        }
    );
    same_layout!(
        CUmemAllocationProp,
        CUmemAllocationProp {
            type_,
            requestedHandleTypes,
            location,
            win32HandleMetaData,
            allocFlags
        }
    );
    same_layout!(
        CUmemAllocationProp_allocFlags,
        CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType,
            gpuDirectRDMACapable,
            usage,
            reserved
        }
    );
    same_layout!(CUmemAccessDesc, CUmemAccessDesc { location, flags });
    same_layout!(
        CUDA_MEMCPY2D,
        CUDA_MEMCPY2D {
            srcXInBytes,
            srcY,
            srcMemoryType,
            srcHost,
            srcDevice,
            srcArray,
            srcPitch,
            dstXInBytes,
            dstY,
            dstMemoryType,
            dstHost,
            dstDevice,
            dstArray,
            dstPitch,
            WidthInBytes,
            Height
        }
    );
    same_layout!(
        CUDA_ARRAY3D_DESCRIPTOR,
        CUDA_ARRAY3D_DESCRIPTOR {
            Width,
            Height,
            Depth,
            Format,
            NumChannels,
            Flags
        }
    );
}

#[test]
fn handles_and_results_have_the_widths_that_cust_raw_gives_them() {
    macro_rules! same_width {
        ($($name:ident)*) => {$(
            assert_eq!(
                Passed::of::<sys::$name>(),
                Passed::of::<cust_raw::$name>(),
                stringify!($name)
            );
        )*};
    }
    same_width!(
        CUresult CUdevice CUdeviceptr CUmemGenericAllocationHandle CUcontext CUstream CUevent
        CUmodule CUfunction CUmemoryPool CUarray
    );
    assert_eq!(
        Passed::of::<Option<sys::CUstreamCallback>>(),
        Passed::of::<cust_raw::CUstreamCallback>()
    );
    assert_eq!(
        Passed::of::<Option<sys::CUhostFn>>(),
        Passed::of::<cust_raw::CUhostFn>()
    );
}

/// The codes that this crate returns itself must be in `cust_raw`'s enumeration.
#[test]
fn the_codes_of_this_crate_are_codes_of_cust_raw() {
    use cust_raw::cudaError_enum as Theirs;
    use sys::CUresult as Ours;
    for (ours, theirs) in [
        (Ours::SUCCESS, Theirs::CUDA_SUCCESS),
        (Ours::INVALID_VALUE, Theirs::CUDA_ERROR_INVALID_VALUE),
        (Ours::NOT_INITIALIZED, Theirs::CUDA_ERROR_NOT_INITIALIZED),
        (Ours::NO_DEVICE, Theirs::CUDA_ERROR_NO_DEVICE),
        (Ours::NOT_FOUND, Theirs::CUDA_ERROR_NOT_FOUND),
    ] {
        assert_eq!(ours.0, theirs as u32);
    }
}
