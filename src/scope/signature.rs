//! Signatures of typed kernels: tuples of parameters.

use std::ffi::c_void;
use std::ptr;

use super::parameter::{Lengths, MAX, Parameter, Pass, sealed};
use super::uses::Used;
use crate::error::Result;

/// The parameters of a [typed kernel](crate::Module::kernel): a tuple of up to 16 [`Parameter`]s.
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, Module, Result};
/// use cuguard::scope::{Kernel, Len, Signature};
///
/// fn name<'m, S: Signature>(kernel: &Kernel<'m, S>) -> &'m str {
///     kernel.function().name()
/// }
/// # let context = Context::new(0)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/saxpy.ptx"))?;
/// # // SAFETY: saxpy(a, x, y, count) reads `count` values of x and writes as many of y.
/// # let saxpy = unsafe { module.kernel::<(f32, &[f32], &mut [f32], Len<u64>)>("saxpy")? };
/// # assert_eq!(name(&saxpy), "saxpy");
/// # Ok::<(), cuguard::Error>(())
/// ```
pub trait Signature: sealed::Sealed {
    /// The sizes of the parameters.
    #[doc(hidden)]
    const SIZES: &'static [usize];

    /// Fails to compile for a length of what is not a slice.
    #[doc(hidden)]
    const CHECK: ();

    /// The types of the parameters.
    #[doc(hidden)]
    fn describe() -> Vec<String>;
}

/// A [`Signature`] with the arguments of a launch: bindings of the scope `'scope`, borrowed for `'a`.
///
/// [`Kernel::launch`](super::Kernel::launch) requires it; every signature has it.
pub trait SignatureArguments<'a, 'scope>: Signature {
    /// A tuple with the argument of each parameter that has one; see [`Parameter`].
    type Arguments;

    /// Calls `launch` with pointers to the arguments, and with how the kernel uses them where that is asked for.
    #[doc(hidden)]
    fn pass<R>(
        operation: &'static str,
        arguments: Self::Arguments,
        asks_for_uses: bool,
        launch: impl FnOnce(&[*mut c_void], &[Used<'_>]) -> Result<R>,
    ) -> Result<R>;
}

/// A linked list of pairs, `(first, (second, ()))`, and the tuple with the same elements.
#[doc(hidden)]
pub trait List {
    type Tuple;

    fn from_tuple(tuple: Self::Tuple) -> Self;
}

macro_rules! nested_type {
    () => { () };
    ($first:ident $($rest:ident)*) => { ($first, nested_type!($($rest)*)) };
}

macro_rules! nested {
    () => { () };
    ($first:ident $($rest:ident)*) => { ($first, nested!($($rest)*)) };
}

/// The list of the arguments of some parameters.
macro_rules! list_of {
    ($a:lifetime $scope:lifetime) => { () };
    ($a:lifetime $scope:lifetime $first:ident $($rest:ident)*) => {
        <$first as Pass<$a, $scope, list_of!($a $scope $($rest)*)>>::List
    };
}

/// `impl SignatureArguments`, with one bound for each parameter: the first is the list without the bounds that are done.
macro_rules! arguments {
    ([$($all:ident)*] [$($bounds:tt)*] [$first:ident $($rest:ident)*]) => {
        arguments!(
            [$($all)*]
            [$($bounds)* $first: Pass<'a, 'scope, list_of!('a 'scope $($rest)*)>,]
            [$($rest)*]
        );
    };
    ([$($all:ident)*] [$($bounds:tt)*] []) => {
        impl<'a, 'scope, $($all: Parameter),*> SignatureArguments<'a, 'scope> for ($($all,)*)
        where
            $($bounds)*
            list_of!('a 'scope $($all)*): List,
        {
            type Arguments = <list_of!('a 'scope $($all)*) as List>::Tuple;

            #[inline]
            fn pass<R>(
                operation: &'static str,
                arguments: Self::Arguments,
                asks_for_uses: bool,
                launch: impl FnOnce(&[*mut c_void], &[Used<'_>]) -> Result<R>,
            ) -> Result<R> {
                #[allow(unused_mut, unused_variables, unused_assignments, reason = "a kernel without parameters")]
                {
                    let list = <list_of!('a 'scope $($all)*) as List>::from_tuple(arguments);
                    let mut lengths = Lengths::new(operation);
                    let (mut index, rest) = (0, &list);
                    $(
                        let rest = $all::measure(rest, index, &mut lengths)?;
                        index += 1;
                    )*
                    if false $(|| $all::NEEDS_EQUAL_LENGTHS)* {
                        lengths.check_equal()?;
                    }
                    index = 0;
                    $(
                        $all::resolve(index, &mut lengths)?;
                        index += 1;
                    )*
                    let mut uses = Vec::new();
                    if asks_for_uses {
                        let rest = &list;
                        $(let rest = $all::used(rest, &mut uses);)*
                    }
                    let mut pointers = [ptr::null_mut(); MAX];
                    (index, _) = (0, ());
                    let rest = &list;
                    $(
                        let rest = $all::point(rest, index, &lengths, &mut pointers[index]);
                        index += 1;
                    )*
                    launch(&pointers[..index], &uses)
                }
            }
        }
    };
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<$($name),*> List for nested_type!($($name)*) {
            type Tuple = ($($name,)*);

            #[inline]
            #[allow(non_snake_case, reason = "the names of the types")]
            fn from_tuple(($($name,)*): Self::Tuple) -> Self {
                nested!($($name)*)
            }
        }

        impl<$($name: Parameter),*> sealed::Sealed for ($($name,)*) {}

        impl<$($name: Parameter),*> Signature for ($($name,)*) {
            const SIZES: &'static [usize] = &[$($name::SIZE),*];
            const CHECK: () = check(&[$($name::IS_SLICE),*], &[$($name::LENGTH_OF),*], &[$($name::NEEDS_EQUAL_LENGTHS),*]);

            fn describe() -> Vec<String> {
                vec![$($name::describe()),*]
            }
        }

        arguments!([$($name)*] [] [$($name)*]);
    };
}

/// Fails unless each length is that of a slice.
const fn check(is_slice: &[bool], length_of: &[Option<usize>], common: &[bool]) {
    let (mut at, mut any_slice, mut any_length) = (0, false, false);
    while at < is_slice.len() {
        any_slice |= is_slice[at];
        any_length |= common[at];
        if let Some(index) = length_of[at] {
            assert!(
                index < is_slice.len() && is_slice[index],
                "LenOf names a parameter that is not a slice"
            );
        }
        at += 1;
    }
    assert!(
        any_slice || !any_length,
        "Len in a signature without a slice"
    );
}

tuples!();
tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
tuples!(A B C D E F G H I J K L M);
tuples!(A B C D E F G H I J K L M N);
tuples!(A B C D E F G H I J K L M N O);
tuples!(A B C D E F G H I J K L M N O P);

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::super::bound::{DeviceMut, DeviceRef};
    use super::super::parameter::{Len, LenOf, Value};
    use super::{Signature, SignatureArguments};
    use crate::error::Error;

    /// What the kernel reads as a parameter of type `T`.
    fn read<T: Copy>(pointer: *mut c_void) -> T {
        // SAFETY: a parameter of this type, by the signature.
        unsafe { pointer.cast::<T>().read_unaligned() }
    }

    type Mixed<'a> = (
        Len<u32>,
        &'a [u16],
        u8,
        &'a mut [f32],
        LenOf<3, i64>,
        Value<[u16; 3]>,
        &'a mut u64,
        Len<usize>,
    );

    #[test]
    fn each_pointer_points_to_its_argument() {
        let (x, mut y, mut z) = (
            DeviceRef::new(0x1000, 5),
            DeviceMut::new(0x2000, 5),
            DeviceMut::new(0x3000, 1),
        );
        let arguments = (&x, 7, &mut y, [1, 2, 3], &mut z);
        let read = Mixed::pass("test", arguments, false, |at, _| {
            assert_eq!(at.len(), 8);
            assert_eq!((read::<u32>(at[0]), read::<u64>(at[1])), (5, 0x1000));
            assert_eq!((read::<u8>(at[2]), read::<u64>(at[3])), (7, 0x2000));
            assert_eq!(
                (read::<i64>(at[4]), read::<[u16; 3]>(at[5])),
                (5, [1, 2, 3])
            );
            assert_eq!((read::<u64>(at[6]), read::<usize>(at[7])), (0x3000, 5));
            Ok(true)
        });
        assert_eq!(read, Ok(true));
        assert_eq!(Mixed::SIZES, [4, 8, 1, 8, 8, 6, 8, 8]);
    }

    #[test]
    fn a_length_that_its_integer_cannot_hold_is_refused() {
        let most = i32::MAX as usize;
        for (length, fits) in [(0, true), (most, true), (most + 1, false)] {
            let slice = DeviceRef::<u8>::new(0x1000, length);
            let passed = <(&[u8], Len<i32>)>::pass("test", (&slice,), false, |at, _| {
                assert_eq!(read::<i32>(at[1]) as usize, length);
                Ok(())
            });
            let refused = matches!(
                passed,
                Err(Error::OutsideLimits {
                    most: 0x7fff_ffff,
                    ..
                })
            );
            assert_eq!((passed.is_ok(), refused), (fits, !fits), "{length}");
        }
    }

    #[test]
    fn slices_without_a_common_length_may_differ() {
        let (x, y) = (DeviceRef::<u8>::new(16, 3), DeviceRef::<u8>::new(32, 4));
        let passed = <(&[u8], &[u8])>::pass("test", (&x, &y), false, |at, _| Ok(at.len()));
        assert_eq!(passed, Ok(2));
        let passed = <(&[u8], &[u8], Len<u32>)>::pass("test", (&x, &y), false, |_, _| Ok(()));
        assert!(matches!(passed, Err(Error::LengthMismatch { .. })));
    }
}
