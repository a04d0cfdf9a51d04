//! Which public types are `Send` and `Sync`, as a table that the compiler checks.
//!
//! A type with elements has the bounds that the owner or the borrow it stands for would have: an
//! owner those of `Vec<T>`, a shared binding those of `&[T]`, an exclusive one those of `&mut [T]`.
//! Each row states both what a type is and what it is not.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::MutexGuard;

use cuguard::chunked::*;
use cuguard::code::*;
use cuguard::context::*;
use cuguard::device::*;
use cuguard::driver::{self, sys};
use cuguard::graph::*;
use cuguard::memory::*;
use cuguard::oom::*;
use cuguard::report::*;
use cuguard::scope::*;
use cuguard::snapshot::*;
use cuguard::stream::*;
use cuguard::*;

/// Elements of the four sorts. Plain data, as everything in device memory.
macro_rules! elements {
    ($($name:ident($marker:ty))*) => {$(
        #[derive(Clone, Copy)]
        struct $name {
            _marker: PhantomData<$marker>,
        }
        // SAFETY: has no content.
        unsafe impl cust::memory::DeviceCopy for $name {}
    )*};
}

elements! {
    Both(u8)
    OnlySend(Cell<u8>)
    OnlySync(MutexGuard<'static, u8>)
    Neither(*mut u8)
}

struct Of<T: ?Sized>(PhantomData<T>);

/// Where the bound holds, the constant of the type itself comes before that of the trait.
#[allow(dead_code, reason = "one of the two is used for each type")]
trait Not {
    const SEND: bool = false;
    const SYNC: bool = false;
}
impl<T: ?Sized> Not for Of<T> {}
#[allow(dead_code, reason = "as above")]
impl<T: ?Sized + Send> Of<T> {
    const SEND: bool = true;
}
#[allow(dead_code, reason = "as above")]
impl<T: ?Sized + Sync> Of<T> {
    const SYNC: bool = true;
}

macro_rules! is {
    ($name:expr, $of:ty, both) => {
        is!($name, $of, true, true)
    };
    ($name:expr, $of:ty, send) => {
        is!($name, $of, true, false)
    };
    ($name:expr, $of:ty, sync) => {
        is!($name, $of, false, true)
    };
    ($name:expr, $of:ty, none) => {
        is!($name, $of, false, false)
    };
    ($name:expr, $of:ty, $send:literal, $sync:literal) => {
        assert!(
            <Of<$of>>::SEND == $send,
            concat!($name, " must be Send: ", $send)
        );
        assert!(
            <Of<$of>>::SYNC == $sync,
            concat!($name, " must be Sync: ", $sync)
        );
    };
}

/// A row: a type with elements `T`, and what it is for each sort of them.
macro_rules! generic {
    ($($of:ty: $both:ident, $send:ident, $sync:ident, $neither:ident;)*) => {$(
        const _: () = {
            type Generic<T> = $of;
            is!(concat!(stringify!($of), " for T: Send + Sync"), Generic<Both>, $both);
            is!(concat!(stringify!($of), " for T: Send + !Sync"), Generic<OnlySend>, $send);
            is!(concat!(stringify!($of), " for T: !Send + Sync"), Generic<OnlySync>, $sync);
            is!(concat!(stringify!($of), " for T: !Send + !Sync"), Generic<Neither>, $neither);
        };
    )*};
}

/// Types without elements that are all of one sort.
macro_rules! plain {
    ($answer:ident: $($of:ty)*) => {
        const _: () = {
            $(is!(stringify!($of), $of, $answer);)*
        };
    };
}

generic! {
    // T is:                           Send + Sync, Send, Sync, neither
    T:                                 both, send, sync, none;

    // Owners, as `Vec<T>`.
    Vec<T>:                            both, send, sync, none;
    DeviceBuffer<T>:                   both, send, sync, none;
    DeviceBox<T>:                      both, send, sync, none;
    ManagedBuffer<T>:                  both, send, sync, none;
    PinnedBuffer<T>:                   both, send, sync, none;
    WriteCombinedBuffer<T>:            both, send, sync, none;
    PitchedBuffer<T>:                  both, send, sync, none;
    RegisteredVec<T>:                     both, send, sync, none;

    // Shared bindings, as `&[T]`.
    &'static [T]:                      both, none, both, none;
    DeviceView<'static, T>:            both, none, both, none;
    DeviceRef<'static, T>:             both, none, both, none;
    PeerRef<'static, T>:               both, none, both, none;
    HostRef<'static, T>:               both, none, both, none;

    // Exclusive bindings, as `&mut [T]`.
    &'static mut [T]:                  both, send, sync, none;
    DeviceViewMut<'static, T>:         both, send, sync, none;
    DeviceMut<'static, T>:             both, send, sync, none;
    PeerMut<'static, T>:               both, send, sync, none;
    HostMut<'static, T>:               both, send, sync, none;
    Piece<'static, 'static, T, Both>:  both, send, sync, none;
    Piece<'static, 'static, Both, T>:  both, send, sync, none;

    // A shared borrow through which one may also write: both ways need both.
    Global<'static, T>:                both, none, none, none;

    // An address alone.
    DevicePointer<T>:                  none, none, none, none;

    // Names of memory: elements that are not both cannot be exported.
    GraphMemory<T>:                    both, both, both, both;
    GraphMemoryMut<T>:                 both, both, both, both;

    // A closure and a borrow of a context.
    Chunked<'static, T>:               both, send, sync, none;
}

// Guards, and what borrows them.
plain!(both:
    Context ContextBuilder Stream StreamBuilder<'static> Event Module Function<'static> DriverPool DriverPoolStream<'static> Pool PoolBuilder PoolStream<'static> PeerAccess Profiler<'static>
    ModuleBuilder<'static> Linker<'static>
    DeviceHeap<'static> ReleaseCallback Scope<'static, 'static> Graph<'static> GraphExec<'static>
    BoundGraph<'static>
);

// A signature is never a value: kernels are of one sort whatever is in it.
plain!(both:
    Kernel<'static, (&'static [Neither], Len<u32>)> UncheckedKernel<'static, (Value<Neither>, LenOf<0, u32>)>
    Len<u32> LenOf<0, u32> Value<Neither>
);

// What undoes on drop something that was done to the calling thread.
plain!(none: ContextGuard<'static> LabelScope);

// Plain data: settings, reports, errors.
plain!(both:
    ContextInfo Amount FailedRequest RecoveryResult ByteSize Cause Change Checkpoint ChunkedSummary Colour Diff DriverError
    ComputeCapability ContextLimit Schedule Device DeviceAttribute DeviceUuid ParseDeviceError ParseDeviceAttributeError
    DumpSignal Error FailOn FailedFreeGroup Fate GraphMemoryUse Group KindUsage SiteUsage Growth Rise ResourceKind TrackingLevel Limit MemoryInfo SnapshotReason Origin
    OtherContext OutOfMemory PageUse ParsePatternError PoolStats PoolUsage PoolUse Problem ProcessUse Processes FailedCall
    Compaction ManagedAdvice MemoryLocation RecordPolicy ReportSettings RecoveryStep Settings OomPolicy Site Snapshot Totals Trend ParseFailOnError ParseDumpSignalError ParseTrackingLevelError
    Dim3 FunctionAttributes LaunchConfig LinkedImage SuggestedBlock
);

// The driver loader.
plain!(both:
    driver::Attempt driver::Choice driver::Driver driver::DriverKind driver::LoadError
    driver::SelectError driver::ParseChoiceError sys::CUresult
);

/// Every type that the crate exports stands in the table.
#[test]
fn the_table_is_complete() {
    /// Exported, and no types: traits, an alias.
    const NO_TYPES: [&str; 9] = [
        "Bindable",
        "BindableMut",
        "KernelArgument",
        "Source",
        "Parameter",
        "Report",
        "Result",
        "Signature",
        "SignatureArguments",
    ];
    let root = concat!(
        include_str!("../src/lib.rs"),
        include_str!("../src/chunked/mod.rs"),
        include_str!("../src/scope/mod.rs")
    );
    let table = include_str!("send_sync.rs");
    // Without documentation, in which types stand too.
    let code: Vec<_> = root
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let exports = code.split("pub use ").skip(1);
    let exports = exports.filter_map(|rest| Some(rest.split_once(';')?.0));
    let names: Vec<_> = exports
        .flat_map(|export| export.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|name| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase))
        .filter(|name| !NO_TYPES.contains(name))
        .collect();
    assert!(names.len() > 60, "{names:?}");
    let rows: Vec<_> = table
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    for name in names {
        assert!(rows.contains(&name), "{name} does not stand in the table");
    }
}
