//! Scratch memory of scopes: it belongs to the scope and is freed in stream order, however the scope ends.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBuffer, Error, PinnedBuffer, ResourceKind, Result, Stream};

const LEN: usize = 10_000;

#[test]
fn scratch_is_live_in_the_scope_and_freed_with_it() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let stream = Stream::new(&context)?;
    let mut seen = PinnedBuffer::<u32>::from_slice(&context, &[7; LEN])?;
    stream.scope(|s| {
        let scratch = s.zeroed::<u32>(LEN)?;
        assert_eq!(scratch.len(), LEN);
        let (bytes, kind) = (4 * LEN as u64, ResourceKind::StreamOrdered);
        assert_eq!(context.totals(kind).bytes, bytes);
        let snapshot = context.snapshot();
        let group = snapshot.live.iter().find(|group| group.kind == kind);
        let site = group
            .and_then(|group| group.origin.site.as_ref())
            .expect("a site");
        assert!(site.file.ends_with("scratch.rs"), "{site}");
        s.download(&mut s.bind_host_mut(&mut seen), &scratch)?;
        // Any number, also of no size.
        for len in [0, 1, LEN] {
            let mut more = s.zeroed::<u32>(len)?;
            s.fill(&mut more, 3)?;
        }
        let units = s.zeroed::<()>(5)?;
        assert_eq!((units.len(), context.totals(kind).count), (5, 3));
        Ok(())
    })?;
    assert_eq!(*seen, [0; LEN]);
    assert_eq!(context.totals(ResourceKind::StreamOrdered).count, 0);
    drop((seen, stream));
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// It is freed on the stream after the work, which is in flight when the closure returns.
#[test]
fn scratch_is_freed_after_the_work_that_uses_it() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut seen = PinnedBuffer::<u8>::zeroed(&context, LEN)?;
    for ending in ["returns", "fails", "panics"] {
        let before = in_hand(&context)?;
        seen.fill(0);
        let gate = Gate::on(&context, &stream);
        let mut opener = None;
        let result = catch_unwind(AssertUnwindSafe(|| {
            stream.scope(|s| {
                let mut scratch = s.zeroed::<u8>(LEN)?;
                s.fill(&mut scratch, 9)?;
                s.download(&mut s.bind_host_mut(&mut seen), &scratch)?;
                opener = Some(gate.open_later());
                match ending {
                    "fails" => Err(Error::ContextClosed {
                        operation: "on purpose",
                    }),
                    "panics" => resume_unwind(Box::new("on purpose")),
                    _ => Ok(()),
                }
            })
        }));
        assert!(gate.is_open());
        assert_eq!(*seen, [9; LEN], "{ending}");
        assert_eq!(result.is_err(), ending == "panics");
        assert_eq!(
            result.is_ok_and(|result| result.is_ok()),
            ending == "returns"
        );
        assert_eq!(
            context.totals(ResourceKind::StreamOrdered).count,
            0,
            "{ending}"
        );
        opener
            .expect("the gate was opened")
            .join()
            .expect("no panic");
        drop(gate);
        before.all_freed();
    }
    drop((seen, stream));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn uninitialized_scratch_is_allocated_alike() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let input: Vec<u32> = (0..LEN as u32).collect();
    let mut output = vec![0; LEN];
    stream.scope(|s| {
        // SAFETY: the upload initializes it.
        let mut scratch = unsafe { s.uninitialized::<u32>(LEN)? };
        s.upload(&mut scratch, &s.bind_host(&input))?;
        s.download(&mut s.bind_host_mut(&mut output), &scratch)
    })?;
    assert_eq!(output, input);
    drop(stream);
    assert_eq!(context.live_count(), 0);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn scratch_that_does_not_fit_is_an_error_with_a_diagnosis() -> Result<()> {
    let turn = turn();
    let context = Context::builder().memory_limit(1 << 20).build()?;
    let stream = Stream::new(&context)?;
    let result = stream.scope(|s| s.zeroed::<u8>(2 << 20).map(drop));
    let Err(Error::OutOfMemory(why)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(why.request.operation, "Scope::zeroed");
    let result = stream.scope(|s| s.zeroed::<u64>(usize::MAX).map(drop));
    assert!(
        matches!(result, Err(Error::SizeOverflow { .. })),
        "{result:?}"
    );
    // The budget counts scratch while it lives, and no longer.
    for _ in 0..3 {
        stream.scope(|s| s.zeroed::<u8>(1 << 20).map(drop))?;
    }
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// Teardown frees it; the scope's end does not free it again.
#[test]
fn a_context_closed_in_the_scope_frees_scratch() -> Result<()> {
    let turn = turn();
    let context = Context::builder().dedicated().build()?;
    let stream = Stream::new(&context)?;
    let mut context = Some(context);
    let result = stream.scope(|s| {
        let mut scratch = s.zeroed::<u8>(LEN)?;
        s.fill(&mut scratch, 1)?;
        context.take().map_or(Ok(()), Context::close)?;
        s.fill(&mut scratch, 2)
    });
    assert!(
        matches!(result, Err(Error::ContextClosed { .. })),
        "{result:?}"
    );
    let result = stream.scope(|s| s.zeroed::<u8>(LEN).map(drop));
    assert!(
        matches!(result, Err(Error::ContextClosed { .. })),
        "{result:?}"
    );
    drop(stream);
    turn.all_came_back();
    Ok(())
}

#[test]
fn each_refused_call_leaves_no_scratch() -> Result<()> {
    let turn = turn();
    if !simulated("each_refused_call_leaves_no_scratch") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let before = in_hand(&context)?;
    for function in ["cuMemAllocAsync", "cuMemsetD8Async", "cuStreamSynchronize"] {
        sim::inject(Fault::nth_call_of(function, 1)).expect("there is such a function");
        let result = stream.scope(|s| s.zeroed::<u8>(LEN).map(drop));
        sim::clear_faults();
        let error = result.unwrap_err();
        assert!(error.to_string().contains(function), "{error}");
        assert_eq!(
            context.totals(ResourceKind::StreamOrdered).count,
            0,
            "{function}"
        );
        stream.synchronize()?;
        before.all_freed();
    }
    // A refused free is recorded, and returned by the close of the context.
    sim::inject(Fault::nth_call_of("cuMemFreeAsync", 1)).expect("there is such a function");
    stream.scope(|s| s.zeroed::<u8>(LEN).map(drop))?;
    sim::clear_faults();
    let failed = context.snapshot().failed_frees;
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].code, CUresult::UNKNOWN.0);
    drop(stream);
    let _ = context.close();
    drop(turn);
    Ok(())
}

#[test]
fn scopes_on_many_threads_share_no_scratch() -> Result<()> {
    let turn = turn();
    let context = context()?;
    std::thread::scope(|threads| {
        for thread in 0..4_u8 {
            let context = &context;
            threads.spawn(move || -> Result<()> {
                let stream = Stream::new(context)?;
                let mut target = DeviceBuffer::<u8>::zeroed(context, LEN)?;
                for round in 0..20_u8 {
                    let value = 10 * round + thread;
                    stream.scope(|s| {
                        let mut scratch = s.zeroed(LEN)?;
                        s.fill(&mut scratch, value)?;
                        s.copy(&mut s.bind_mut(&mut target)?, &scratch)
                    })?;
                    assert!(target.to_vec()?.iter().all(|seen| *seen == value));
                }
                Ok(())
            });
        }
    });
    assert_eq!(context.live_count(), 0);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// Inside a host function, where the driver permits no call: the allocation fails, and its scope has nothing to wait for.
#[test]
fn scratch_in_a_host_function_is_an_error() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut codes = Vec::new();
    stream.scope(|s| {
        s.call(|| {
            let scratch = other.scope(|t| t.zeroed::<u8>(8).map(drop));
            codes.push(scratch.unwrap_err().code());
            // SAFETY: nothing reads it.
            let scratch = other.scope(|t| unsafe { t.uninitialized::<u8>(8) }.map(drop));
            codes.push(scratch.unwrap_err().code());
        })
    })?;
    assert_eq!(codes, [Some(CUresult::NOT_PERMITTED); 2]);
    Ok(())
}

/// A scope inside a library's call ends while another thread closes the context, which waits for the call.
#[test]
fn a_scope_in_a_library_call_ends_while_the_context_is_closed() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
    std::thread::scope(|threads| {
        let closed = stream.scope(|s| {
            // SAFETY: the scope waits for the work on the other stream.
            unsafe {
                s.call_library(|_| {
                    other.scope(|t| {
                        t.fill(&mut t.bind_mut(&mut buffer)?, 1)?;
                        let closing = threads.spawn(|| context.close());
                        // It waits for the call by now.
                        std::thread::sleep(std::time::Duration::from_millis(50));
                        Ok(closing)
                    })
                })
            }?
        })?;
        closed.join().unwrap()
    })?;
    drop(buffer);
    Ok(())
}
