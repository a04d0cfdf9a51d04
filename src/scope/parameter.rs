//! Parameters of typed kernels: slices, references, lengths, plain values.
//!
//! A launch passes the arguments as a linked list of pairs, `(first, (second, ()))`, whose type the parameters build:
//! each adds its argument in front of the rest, and a length adds nothing. So a signature may have lengths anywhere, and
//! the program does not pass them.

use std::any::type_name;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use cust_core::DeviceCopy;

use super::bound::{DeviceMut, DeviceRef};
use super::uses::Used;
use crate::error::{Error, Result};

/// A parameter of a [typed kernel](crate::Module::kernel).
///
/// | parameter | argument | passed to the kernel |
/// |---|---|---|
/// | `&[T]` | `&DeviceRef<T>` | the address of the first element |
/// | `&mut [T]` | `&mut DeviceMut<T>` | the address of the first element |
/// | `&T` | `&DeviceRef<T>` of one element | its address |
/// | `&mut T` | `&mut DeviceMut<T>` of one element | its address |
/// | [`Len<I>`](Len) | none | the length of the slices, as an integer `I` |
/// | [`LenOf<N, I>`](LenOf) | none | the length of the slice that is parameter number `N`, counted from 0 |
/// | an integer, `f32`, `f64` or `bool` | the same | the value |
/// | [`Value<T>`](Value) | `T` | the value |
///
/// A [`DeviceMut`] may also be passed for `&[T]`, by `&`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kernel parameter",
    note = "parameters are `&[T]`, `&mut [T]`, `&T`, `&mut T`, numbers, `Len<I>`, `LenOf<N, I>`, and `Value<T>` for other types that can be copied to the device"
)]
pub trait Parameter: sealed::Sealed {
    /// The size of the kernel's parameter in bytes.
    #[doc(hidden)]
    const SIZE: usize;

    /// Whether all slices of the signature must have the same length.
    #[doc(hidden)]
    const NEEDS_EQUAL_LENGTHS: bool = false;

    /// Whether it is a slice, which has a length.
    #[doc(hidden)]
    const IS_SLICE: bool = false;

    /// The number of the slice whose length it is.
    #[doc(hidden)]
    const LENGTH_OF: Option<usize> = None;

    /// The type, for messages.
    #[doc(hidden)]
    fn describe() -> String;

    /// Writes the value of a length, once the lengths of all slices are known.
    #[doc(hidden)]
    fn resolve(_index: usize, _lengths: &mut Lengths) -> Result<()> {
        Ok(())
    }
}

/// How a parameter is passed in a launch.
#[doc(hidden)]
pub trait Pass<'a, 'scope, Rest>: Parameter {
    /// The arguments of this parameter and those after it.
    type List;

    /// Notes the length of a slice, and returns the arguments of the parameters after it.
    fn measure<'x>(list: &'x Self::List, index: usize, lengths: &mut Lengths) -> Result<&'x Rest>;

    /// Adds how the kernel uses the argument, if that is memory, and returns the arguments of the parameters after it.
    fn used<'x>(list: &'x Self::List, uses: &mut Vec<Used<'x>>) -> &'x Rest;

    /// Writes a pointer to the argument. It is valid as long as the list and the lengths.
    fn point<'x>(
        list: &'x Self::List,
        index: usize,
        lengths: &Lengths,
        pointer: &mut *mut c_void,
    ) -> &'x Rest;
}

pub(super) mod sealed {
    /// Only this crate implements [`Parameter`](super::Parameter) and [`Signature`](super::super::Signature).
    pub trait Sealed {}
}

/// The most parameters of a typed kernel.
pub(super) const MAX: usize = 16;

/// The names of parameters in messages.
const NAMES: [&str; MAX] = [
    "parameter 0",
    "parameter 1",
    "parameter 2",
    "parameter 3",
    "parameter 4",
    "parameter 5",
    "parameter 6",
    "parameter 7",
    "parameter 8",
    "parameter 9",
    "parameter 10",
    "parameter 11",
    "parameter 12",
    "parameter 13",
    "parameter 14",
    "parameter 15",
];

/// The lengths of the slices of a launch.
#[doc(hidden)]
#[derive(Debug)]
pub struct Lengths {
    pub(super) operation: &'static str,
    /// Of the parameters that are slices.
    slices: [Option<usize>; MAX],
    /// What is passed for the parameters that are lengths. The kernel reads as many bytes as its parameter has, of a
    /// little-endian number: no other target compiles.
    values: [u64; MAX],
}

impl Lengths {
    pub(super) fn new(operation: &'static str) -> Self {
        Self {
            operation,
            slices: [None; MAX],
            values: [0; MAX],
        }
    }

    /// Fails unless all slices have the same length.
    pub(super) fn check_equal(&self) -> Result<()> {
        let slices = self.slices.iter().zip(NAMES);
        let mut slices = slices.filter_map(|(length, name)| Some(((*length)?, name)));
        let Some((expected, resource)) = slices.next() else {
            return Ok(());
        };
        match slices.find(|(length, _)| *length != expected) {
            Some((actual, argument)) => Err(Error::LengthMismatch {
                operation: self.operation,
                unit: "element",
                argument,
                actual,
                resource,
                expected,
            }),
            None => Ok(()),
        }
    }

    /// Keeps the length of a slice; that of a reference must be 1.
    fn note(&mut self, index: usize, length: usize, is_slice: bool) -> Result<()> {
        if is_slice {
            self.slices[index] = Some(length);
        } else if length != 1 {
            return Err(Error::LengthMismatch {
                operation: self.operation,
                unit: "element",
                argument: NAMES[index],
                actual: length,
                resource: "a reference",
                expected: 1,
            });
        }
        Ok(())
    }

    fn set<I: Index>(&mut self, index: usize, length: usize) -> Result<()> {
        if length as u64 > I::MOST {
            return Err(Error::OutsideLimits {
                operation: self.operation,
                subject: String::new(),
                what: "the length of the slices",
                value: length as u64,
                least: 0,
                most: I::MOST,
            });
        }
        self.values[index] = length as u64;
        Ok(())
    }
}

/// The length of the slices of a [typed kernel](crate::Module::kernel), as an integer `I`: `u32`, `i32`, `u64`, `i64`, `usize` or
/// `isize`. The launch passes it; all slices must have the same length.
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, Module};
/// use cuguard::scope::{Kernel, Len};
///
/// # let context = Context::new(0)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/saxpy.ptx"))?;
/// // SAFETY: saxpy(a, x, y, count) reads `count` values of x and writes as many of y.
/// let saxpy: Kernel<'_, (f32, &[f32], &mut [f32], Len<u64>)> = unsafe { module.kernel("saxpy")? };
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
pub struct Len<I>(PhantomData<fn(I)>);

/// The length of the slice that is parameter number `N` of a [typed kernel](crate::Module::kernel), counted from 0, as an
/// integer `I`. For kernels whose slices have different lengths.
///
/// ```no_run
/// use cuguard::scope::{Kernel, LenOf};
///
/// // histogram(values, count, bins, bin_count)
/// type Histogram<'a> = (&'a [f32], LenOf<0, u32>, &'a mut [u32], LenOf<2, u32>);
/// # let context = cuguard::Context::new(0)?;
/// # let module = cuguard::Module::from_ptx(&context, "")?;
/// // SAFETY: it checks each index against the two lengths.
/// let histogram: Kernel<'_, Histogram<'_>> = unsafe { module.kernel("histogram")? };
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
pub struct LenOf<const N: usize, I>(PhantomData<fn(I)>);

/// A parameter of a [typed kernel](crate::Module::kernel) that is passed by value: a struct or an array, with the layout that
/// the kernel expects (`#[repr(C)]`).
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, Module, Stream};
/// use cuguard::scope::{Kernel, Value};
///
/// # let context = Context::new(0)?;
/// # let text = ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry place(.param .align 4 .b8 at[12]) { ret; }";
/// # let module = Module::from_ptx(&context, text)?;
/// // SAFETY: place(struct { float x, y, z; }) accesses no memory.
/// let place: Kernel<'_, (Value<[f32; 3]>,)> = unsafe { module.kernel("place")? };
/// # let stream = Stream::new(&context)?;
/// # let _ = stream.scope(|s| place.launch(s, (1, 1), ([1.0, 2.0, 3.0],)));
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
pub struct Value<T>(PhantomData<fn(T)>);

/// An integer that a length can be passed as.
#[doc(hidden)]
pub trait Index: sealed::Sealed {
    const MOST: u64;
}

/// The items of [`Pass`] for a value that is copied to the kernel, and has no length.
macro_rules! by_value {
    ($value:ty) => {
        type List = ($value, Rest);

        fn measure<'x>(
            list: &'x Self::List,
            _index: usize,
            _lengths: &mut Lengths,
        ) -> Result<&'x Rest> {
            Ok(&list.1)
        }

        fn used<'x>(list: &'x Self::List, _uses: &mut Vec<Used<'x>>) -> &'x Rest {
            &list.1
        }

        fn point<'x>(
            list: &'x Self::List,
            _index: usize,
            _lengths: &Lengths,
            pointer: &mut *mut c_void,
        ) -> &'x Rest {
            *pointer = ptr::from_ref(&list.0).cast_mut().cast();
            &list.1
        }
    };
}

macro_rules! plain {
    ($($type:ty)*) => {$(
        impl sealed::Sealed for $type {}

        impl Parameter for $type {
            const SIZE: usize = size_of::<$type>();

            fn describe() -> String {
                stringify!($type).to_owned()
            }
        }

        impl<'a, 'scope, Rest> Pass<'a, 'scope, Rest> for $type {
            by_value!($type);
        }
    )*};
}

plain!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 bool);

macro_rules! index {
    ($($type:ty)*) => {$(
        impl Index for $type {
            const MOST: u64 = <$type>::MAX as u64;
        }
    )*};
}

index!(u32 u64 usize i32 i64 isize);

impl<T> sealed::Sealed for Value<T> {}

impl<T: DeviceCopy + 'static> Parameter for Value<T> {
    const SIZE: usize = size_of::<T>();

    fn describe() -> String {
        type_name::<T>().to_owned()
    }
}

impl<'a, 'scope, T: DeviceCopy + 'static, Rest> Pass<'a, 'scope, Rest> for Value<T> {
    by_value!(T);
}

/// Slices and references, shared and exclusive.
macro_rules! memory {
    ($type:ty, $argument:ty, $use:ident, $prefix:literal, $suffix:literal, $is_slice:literal) => {
        impl<T> sealed::Sealed for $type {}

        impl<T: DeviceCopy + 'static> Parameter for $type {
            const SIZE: usize = size_of::<u64>();
            const IS_SLICE: bool = $is_slice;

            fn describe() -> String {
                format!(concat!($prefix, "{}", $suffix), type_name::<T>())
            }
        }

        impl<'a, 'scope: 'a, T: DeviceCopy + 'static, Rest> Pass<'a, 'scope, Rest> for $type {
            type List = ($argument, Rest);

            fn measure<'x>(
                list: &'x Self::List,
                index: usize,
                lengths: &mut Lengths,
            ) -> Result<&'x Rest> {
                lengths.note(index, list.0.len(), $is_slice)?;
                Ok(&list.1)
            }

            fn used<'x>(list: &'x Self::List, uses: &mut Vec<Used<'x>>) -> &'x Rest {
                uses.push(Used::$use(list.0.uses()));
                &list.1
            }

            fn point<'x>(
                list: &'x Self::List,
                _index: usize,
                _lengths: &Lengths,
                pointer: &mut *mut c_void,
            ) -> &'x Rest {
                *pointer = ptr::from_ref(list.0.address()).cast_mut().cast();
                &list.1
            }
        }
    };
}

memory!(&[T], &'a DeviceRef<'scope, T>, Read, "&[", "]", true);
memory!(
    &mut [T],
    &'a mut DeviceMut<'scope, T>,
    Written,
    "&mut [",
    "]",
    true
);
memory!(&T, &'a DeviceRef<'scope, T>, Read, "&", "", false);
memory!(
    &mut T,
    &'a mut DeviceMut<'scope, T>,
    Written,
    "&mut ",
    "",
    false
);

/// Lengths: nothing in the list of arguments.
macro_rules! length {
    ([$($generics:tt)*] $type:ty) => {
        impl<'a, 'scope, $($generics)*, Rest> Pass<'a, 'scope, Rest> for $type {
            type List = Rest;

            fn measure<'x>(
                list: &'x Self::List,
                _index: usize,
                _lengths: &mut Lengths,
            ) -> Result<&'x Rest> {
                Ok(list)
            }

            fn used<'x>(list: &'x Self::List, _uses: &mut Vec<Used<'x>>) -> &'x Rest {
                list
            }

            fn point<'x>(
                list: &'x Self::List,
                index: usize,
                lengths: &Lengths,
                pointer: &mut *mut c_void,
            ) -> &'x Rest {
                *pointer = ptr::from_ref(&lengths.values[index]).cast_mut().cast();
                list
            }
        }
    };
}

impl<I> sealed::Sealed for Len<I> {}

impl<I: Index> Parameter for Len<I> {
    const SIZE: usize = size_of::<I>();
    const NEEDS_EQUAL_LENGTHS: bool = true;

    fn describe() -> String {
        format!("Len<{}>", type_name::<I>())
    }

    fn resolve(index: usize, lengths: &mut Lengths) -> Result<()> {
        let length = lengths.slices.iter().find_map(|length| *length);
        lengths.set::<I>(index, length.unwrap_or(0))
    }
}

length!([I: Index] Len<I>);

impl<const N: usize, I> sealed::Sealed for LenOf<N, I> {}

impl<const N: usize, I: Index> Parameter for LenOf<N, I> {
    const SIZE: usize = size_of::<I>();
    const LENGTH_OF: Option<usize> = Some(N);

    fn describe() -> String {
        format!("LenOf<{N}, {}>", type_name::<I>())
    }

    fn resolve(index: usize, lengths: &mut Lengths) -> Result<()> {
        // The declaration does not compile unless that parameter is a slice.
        let length = lengths.slices.get(N).copied().flatten();
        lengths.set::<I>(index, length.unwrap_or(0))
    }
}

length!([const N: usize, I: Index] LenOf<N, I>);
