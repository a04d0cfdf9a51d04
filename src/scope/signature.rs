//! Signatures of typed kernels: tuples of parameters.

use std::ffi::c_void;
use std::ptr;

use super::parameter::{Lengths, Parameter, Pass, sealed};
use crate::error::Result;

/// The most parameters of a typed kernel.
pub(super) const MAX: usize = 16;

/// The parameters of a [typed kernel](crate::Module::kernel): a tuple of up to 16 [`Parameter`]s.
///
/// ```
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

    /// Fails to compile for a length of what is no slice.
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

    /// Calls `launch` with pointers to the arguments.
    #[doc(hidden)]
    fn pass<R>(
        operation: &'static str,
        arguments: Self::Arguments,
        launch: impl FnOnce(&[*mut c_void]) -> Result<R>,
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
                launch: impl FnOnce(&[*mut c_void]) -> Result<R>,
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
                    let mut pointers = [ptr::null_mut(); MAX];
                    (index, _) = (0, ());
                    let rest = &list;
                    $(
                        let rest = $all::point(rest, index, &lengths, &mut pointers[index]);
                        index += 1;
                    )*
                    launch(&pointers[..index])
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
                "LenOf names a parameter that is no slice"
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
