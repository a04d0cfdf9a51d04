//! Page-locked host memory of one context in copies, scopes and graphs of another, with either context closed before,
//! during and after: memory stays valid until the work that uses it is done, or the operation fails. So does other memory
//! that a scope binds as that of a peer.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cuguard::context::ContextBuilder;
use cuguard::driver::sys::{CUresult, CUstream};
use cuguard::memory::{PitchedBuffer, WriteCombinedBuffer};
use cuguard::scope::Bindable;
use cuguard::sim::{self, Fault};
use cuguard::{
    Context, DeviceBuffer, Error, Event, ManagedBuffer, PinnedBuffer, Pool, RegisteredVec, Result,
    Stream, TrackingLevel,
};

use super::{machine, quiet};
use crate::support::gate::Gate;
use crate::support::*;

const LEN: usize = 1 << 16;

/// Whose memory is used: another `Context` of the same primary context, or a context of its own.
#[derive(Clone, Copy, Debug)]
enum Other {
    SamePrimary,
    Dedicated,
}

const OTHERS: [Other; 2] = [Other::SamePrimary, Other::Dedicated];

impl Other {
    /// The context of the work, and that of the memory.
    fn contexts(self) -> Result<(Context, Context)> {
        let other = match self {
            Self::SamePrimary => quiet(),
            Self::Dedicated => quiet().dedicated(),
        };
        Ok((quiet().build()?, other.build()?))
    }
}

/// The two kinds of memory that the host accesses without its context.
enum HostMemory {
    Pinned(PinnedBuffer<u32>),
    Registered(RegisteredVec<u32>),
}

impl HostMemory {
    fn all(context: &Context, value: u32) -> Result<[Self; 2]> {
        let values = vec![value; LEN];
        Ok([
            Self::Pinned(PinnedBuffer::from_slice(context, &values)?),
            Self::Registered(RegisteredVec::new(context, values)?),
        ])
    }

    fn as_slice(&self) -> &[u32] {
        match self {
            Self::Pinned(pinned) => pinned,
            Self::Registered(registered) => registered,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u32] {
        match self {
            Self::Pinned(pinned) => pinned,
            Self::Registered(registered) => registered,
        }
    }
}

/// Runs `test` for each kind of memory, in each kind of other context.
fn for_each(test: impl Fn(Other, Context, Context, HostMemory) -> Result<()>) -> Result<()> {
    let turn = machine();
    for other in OTHERS {
        for kind in 0..2 {
            let (user, owner) = other.contexts()?;
            let memory = HostMemory::all(&owner, 7)?;
            let memory = memory.into_iter().nth(kind).expect("two kinds");
            test(other, user, owner, memory)?;
        }
    }
    turn.all_came_back();
    Ok(())
}

/// The teardown on this thread waits for the copies in flight. Afterwards the memory is pageable.
#[test]
fn the_owner_is_closed_within_the_scope() -> Result<()> {
    for_each(|_, user, owner, mut memory| {
        let stream = Stream::new(&user)?;
        let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        let gate = Gate::on(&user, &stream);
        stream.scope(|s| {
            let mut device = s.bind_mut(&mut device)?;
            let mut memory = s.bind_host_mut(memory.as_mut_slice());
            s.upload(&mut device, &memory)?;
            s.download(&mut memory, &device)?;
            let opener = gate.open_later();
            owner.close()?;
            assert!(gate.is_open());
            opener.join().unwrap();
            s.fill(&mut device, 8)?;
            s.download(&mut memory, &device)
        })?;
        assert_eq!(memory.as_slice(), [8; LEN]);
        assert_eq!(device.to_vec()?, [8; LEN]);
        drop((memory, device, stream));
        user.close()
    })
}

/// The same on another thread.
#[test]
fn the_owner_is_closed_on_another_thread() -> Result<()> {
    for_each(|_, user, owner, memory| {
        let stream = Stream::new(&user)?;
        let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        let gate = Gate::on(&user, &stream);
        let number = owner.snapshot().info.context;
        let (closed, is_closed) = mpsc::channel();
        stream.scope(|s| {
            let mut device = s.bind_mut(&mut device)?;
            let memory = s.bind_host(memory.as_slice());
            s.upload(&mut device, &memory)?;
            let closer = thread::spawn(move || closed.send(owner.close()));
            // While the teardown waits, no more work is enqueued with the memory.
            let mut late = Ok(());
            let refused = soon_mut(|| {
                late = s.upload(&mut device, &memory);
                late.is_err()
            });
            assert!(refused, "the other thread does not close its context");
            assert_eq!(
                late.unwrap_err().to_string(),
                format!(
                    "Scope::upload: the page-locked host memory belongs to context {number}, which was closed"
                )
            );
            assert!(is_closed.try_recv().is_err(), "teardown did not wait");
            gate.open();
            closer.join().unwrap().unwrap();
            is_closed.recv().unwrap()
        })?;
        assert_eq!(device.to_vec()?, [7; LEN]);
        drop((memory, device, stream));
        user.close()
    })
}

fn soon_mut(holds: impl FnMut() -> bool) -> bool {
    let holds = std::cell::RefCell::new(holds);
    soon(|| (holds.borrow_mut())())
}

/// A context that is closed before leaves pageable memory.
#[test]
fn the_owner_was_closed_before() -> Result<()> {
    for_each(|_, user, owner, mut memory| {
        owner.close()?;
        let stream = Stream::new(&user)?;
        let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        stream.scope(|s| {
            let mut device = s.bind_mut(&mut device)?;
            let mut memory = s.bind_host_mut(memory.as_mut_slice());
            s.upload(&mut device, &memory)?;
            s.download(&mut memory, &device)
        })?;
        device.copy_from_slice(memory.as_slice())?;
        let (graph, ()) = stream.capture(|c| {
            let mut device = c.bind_mut(&mut device)?;
            c.upload(&mut device, &c.bind_host(memory.as_slice()))
        })?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(device.to_vec()?, [7; LEN]);
        drop((memory, device, stream));
        user.close()
    })
}

/// A graph has the mapping of the memory. On a real driver, its launch and its drop crash once the other context is
/// destroyed.
#[test]
fn a_graph_cannot_have_the_memory() -> Result<()> {
    for_each(|_, user, owner, mut memory| {
        let stream = Stream::new(&user)?;
        let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        let refused = stream.capture(|c| {
            let mut device = c.bind_mut(&mut device)?;
            c.upload(&mut device, &c.bind_host(memory.as_slice()))
        });
        let text = |operation: &str| {
            format!("{operation}: memory of another context cannot be copied in a capture")
        };
        let error = refused.map(drop).unwrap_err();
        assert_eq!(error.to_string(), text("Scope::upload"));
        let refused = stream.capture(|c| {
            let mut memory = c.bind_host_mut(memory.as_mut_slice());
            c.download(&mut memory, &c.bind(&device)?)
        });
        let error = refused.map(drop).unwrap_err();
        assert_eq!(error.to_string(), text("Scope::download"));
        // Nor may an executable be captured again with it.
        let plain = vec![5_u32; LEN];
        let (graph, token) = stream.capture(|c| {
            let mut device = c.bind_mut(&mut device)?;
            c.upload(&mut device, &c.bind_host(&plain))?;
            c.export_mut(&device)
        })?;
        let mut exec = graph.instantiate()?;
        let refused = exec.recapture(&stream, |c| {
            c.upload(&mut c.reuse_mut(&token)?, &c.bind_host(memory.as_slice()))
        });
        assert_eq!(refused.unwrap_err().to_string(), text("Scope::upload"));
        owner.close()?;
        exec.launch(&stream)?;
        drop(exec);
        assert_eq!(device.to_vec()?, [5; LEN]);
        drop((memory, device, stream));
        user.close()
    })
}

/// A synchronous copy is done, or fails, before the memory is unregistered.
#[test]
fn synchronous_copies_while_the_owner_is_closed() -> Result<()> {
    for_each(|_, user, owner, mut memory| {
        let stream = Stream::new(&user)?;
        let mut plain = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        let mut ordered = DeviceBuffer::<u32>::zeroed(&stream, LEN)?;
        let mut matrix = PitchedBuffer::<u32>::zeroed(&user, 16, LEN / 16)?;
        let (ready, is_ready) = mpsc::channel();
        let closer = thread::spawn(move || {
            is_ready.recv().unwrap();
            owner.close()
        });
        let mut copy_all = || -> Result<()> {
            plain.copy_from_slice(memory.as_slice())?;
            ordered.copy_from_slice(memory.as_slice())?;
            matrix.copy_from_slice(memory.as_slice())?;
            plain.copy_to_slice(memory.as_mut_slice())?;
            ordered.copy_to_slice(memory.as_mut_slice())?;
            matrix.copy_to_slice(memory.as_mut_slice())
        };
        let mut rounds = 0;
        while !closer.is_finished() {
            match copy_all() {
                Err(Error::HostContextClosed { .. }) => {}
                result => result?,
            }
            rounds += 1;
            if rounds == 3 {
                ready.send(()).unwrap();
            }
        }
        closer.join().unwrap()?;
        copy_all()?;
        assert_eq!(memory.as_slice(), [7; LEN]);
        assert_eq!(plain.to_vec()?, [7; LEN]);
        drop((memory, plain, ordered, matrix, stream));
        user.close()
    })
}

/// The context of the work is closed first; then both at the same time, on two threads.
#[test]
fn the_context_of_the_work_is_closed() -> Result<()> {
    for at_once in [false, true] {
        for_each(|_, user, owner, memory| {
            let stream = Stream::new(&user)?;
            let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
            let gate = Gate::on(&user, &stream);
            let result = stream.scope(|s| {
                let mut device = s.bind_mut(&mut device)?;
                let memory = s.bind_host(memory.as_slice());
                s.upload(&mut device, &memory)?;
                let opener = gate.open_later();
                let close_user = thread::spawn(move || user.close());
                if at_once {
                    owner.close()?;
                    close_user.join().unwrap()?;
                } else {
                    close_user.join().unwrap()?;
                    owner.close()?;
                }
                opener.join().unwrap();
                s.upload(&mut device, &memory)
            });
            assert!(
                matches!(result, Err(Error::ContextClosed { .. })),
                "{result:?}"
            );
            Ok(())
        })?;
    }
    Ok(())
}

/// Memory of every kind that a scope can bind as that of another context: its teardown waits for the copy.
#[test]
fn memory_of_a_peer_is_closed_while_a_copy_is_in_flight() -> Result<()> {
    fn check<M>(user: Context, owner: Context, memory: M) -> Result<()>
    where
        for<'a> &'a M: Bindable<Value = u32>,
    {
        let stream = Stream::new(&user)?;
        let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        let gate = Gate::on(&user, &stream);
        stream.scope(|s| {
            let (mut device, memory) = (s.bind_mut(&mut device)?, s.bind_peer(&memory)?);
            s.copy_from_peer(&mut device, &memory)?;
            let opener = gate.open_later();
            owner.close()?;
            assert!(gate.is_open());
            opener.join().unwrap();
            let late = s.copy_from_peer(&mut device, &memory).unwrap_err();
            assert!(matches!(late, Error::ContextClosed { .. }), "{late}");
            Ok(())
        })?;
        assert_eq!(device.to_vec()?, [7; LEN]);
        drop((memory, device, stream));
        user.close()
    }
    let _turn = machine();
    let values = [7_u32; LEN];
    for other in OTHERS {
        let (user, owner) = other.contexts()?;
        let memory = PinnedBuffer::from_slice(&owner, &values)?;
        check(user, owner, memory)?;
        let (user, owner) = other.contexts()?;
        let memory = RegisteredVec::new(&owner, values.to_vec())?;
        check(user, owner, memory)?;
        let (user, owner) = other.contexts()?;
        let memory = ManagedBuffer::from_slice(&owner, &values)?;
        check(user, owner, memory)?;
        let (user, owner) = other.contexts()?;
        let memory = DeviceBuffer::from_slice(&owner, &values)?;
        check(user, owner, memory)?;
        let (user, owner) = other.contexts()?;
        let memory = DeviceBuffer::from_slice(&Pool::new(&owner)?, &values)?;
        check(user, owner, memory)?;
    }
    Ok(())
}

/// So it is with memory that the host accesses through a borrow of its context: the graph may outlive the borrow, where it is
/// forgotten.
#[test]
fn a_graph_cannot_have_memory_that_borrows_its_context() -> Result<()> {
    let _turn = machine();
    let (user, owner) = Other::Dedicated.contexts()?;
    let stream = Stream::new(&user)?;
    let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
    let combined = WriteCombinedBuffer::<u32>::zeroed(&owner, LEN)?;
    let managed = ManagedBuffer::<u32>::zeroed(&owner, LEN)?;
    for host in [combined.as_slice(&owner)?, managed.as_slice(&owner)?] {
        let captured = stream.capture(|c| {
            let mut device = c.bind_mut(&mut device)?;
            c.upload(&mut device, &c.bind_host(host))
        });
        let error = captured.map(drop).unwrap_err();
        assert!(matches!(error, Error::Capture { .. }), "{error}");
        stream.scope(|s| s.upload(&mut s.bind_mut(&mut device)?, &s.bind_host(host)))?;
    }
    // Of its own context it can.
    let own = WriteCombinedBuffer::from_slice(&user, &[3_u32; LEN])?;
    let (graph, ()) = stream.capture(|c| {
        let mut device = c.bind_mut(&mut device)?;
        c.upload(&mut device, &c.bind_host(own.as_slice(&user)?))
    })?;
    graph.instantiate()?.launch(&stream)?;
    assert_eq!(device.to_vec()?, [3; LEN]);
    drop((combined, managed, own, device, stream));
    owner.close()?;
    user.close()
}

/// The teardown waits for the work so far, not for the stream to be idle.
#[test]
fn the_stream_is_given_other_work_without_an_end() -> Result<()> {
    // A teardown that waits for an idle stream never ends.
    const LIMIT: Duration = Duration::from_secs(60);
    for_each(|_, user, owner, memory| {
        let stream = Stream::new(&user)?;
        let done: Vec<Event> = (0..8).map(|_| Event::new(&user)).collect::<Result<_>>()?;
        let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        let mut other = DeviceBuffer::<u32>::zeroed(&user, 1 << 20)?;
        stream.scope(|s| {
            let (mut device, mut other) = (s.bind_mut(&mut device)?, s.bind_mut(&mut other)?);
            s.upload(&mut device, &s.bind_host(memory.as_slice()))?;
            let closer = thread::spawn(move || owner.close());
            let begin = Instant::now();
            // The stream always has work, and no more than this: what the teardown waits for is done after it.
            for round in 0.. {
                s.fill(&mut other, 1)?;
                s.record(&done[round % done.len()])?;
                done[(round + 1) % done.len()].synchronize()?;
                if closer.is_finished() {
                    break;
                }
                assert!(begin.elapsed() < LIMIT, "the context is not closed");
            }
            closer.join().unwrap()
        })?;
        drop((memory, device, other, done, stream));
        user.close()
    })
}

/// A per-thread default stream is another one on the thread that closes.
#[test]
fn a_per_thread_stream_is_waited_for() -> Result<()> {
    for_each(|_, user, owner, memory| {
        // SAFETY: used on this thread only.
        let stream = unsafe { Stream::borrow_raw(&user, CUstream::PER_THREAD)? };
        let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        let gate = Gate::on(&user, &stream);
        stream.scope(|s| {
            let mut device = s.bind_mut(&mut device)?;
            s.upload(&mut device, &s.bind_host(memory.as_slice()))?;
            let closer = thread::spawn(move || owner.close());
            let opener = gate.open_later();
            closer.join().unwrap()?;
            assert!(gate.is_open());
            opener.join().unwrap();
            Ok(())
        })?;
        assert_eq!(device.to_vec()?, [7; LEN]);
        drop((memory, device, stream));
        user.close()
    })
}

/// Where teardown does not unregister the memory, the driver's context does when it ends.
#[test]
fn the_memory_stays_registered() -> Result<()> {
    let _turn = machine();
    let builders: [fn() -> ContextBuilder; 2] = [
        || quiet().level(TrackingLevel::Counts),
        || quiet().free_leaks(false),
    ];
    for builder in builders {
        // The last release of the primary context ends it.
        let owner = builder().build()?;
        let memory = PinnedBuffer::from_slice(&owner, &[7_u32; LEN])?;
        owner.close()?;
        for user in [quiet().build()?, quiet().dedicated().build()?] {
            let device = DeviceBuffer::from_slice(&user, &memory)?;
            assert_eq!(device.to_vec()?, [7; LEN]);
            drop(device);
            user.close()?;
        }
        drop(memory);
        // Another guard keeps it, and can use the memory; a guard of another context cannot, as it would not be waited for.
        let (user, owner) = (quiet().build()?, builder().build()?);
        let other = quiet().dedicated().build()?;
        let memory = PinnedBuffer::from_slice(&owner, &[7_u32; LEN])?;
        owner.close()?;
        drop(DeviceBuffer::from_slice(&user, &memory)?);
        let refused = DeviceBuffer::from_slice(&other, &memory).unwrap_err();
        assert!(
            matches!(refused, Error::HostContextClosed { .. }),
            "{refused}"
        );
        user.close()?;
        drop(DeviceBuffer::from_slice(&other, &memory)?);
        drop(memory);
        other.close()?;
    }
    Ok(())
}

/// Compaction moves no host memory.
#[test]
fn host_memory_does_not_keep_pools_from_compaction() -> Result<()> {
    let _turn = machine();
    let (user, owner) = Other::Dedicated.contexts()?;
    let (pool, stream) = (Pool::new(&owner)?, Stream::new(&user)?);
    let memory = PinnedBuffer::<u32>::zeroed(&owner, LEN)?;
    let there = DeviceBuffer::<u32>::zeroed(&owner, LEN)?;
    let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
    stream.scope(|s| {
        let mut device = s.bind_mut(&mut device)?;
        s.upload(&mut device, &s.bind_host(&memory))?;
        pool.compact()?;
        s.copy_from_peer(&mut device, &s.bind_peer(&there)?)?;
        let refused = pool.compact().map(drop).unwrap_err();
        assert!(matches!(refused, Error::Pool { .. }), "{refused}");
        Ok(())
    })?;
    pool.compact()?;
    drop((pool, stream, memory, there, device));
    owner.close()?;
    user.close()
}

/// Nothing is waited for where nothing could be enqueued.
#[test]
fn a_copy_that_fails_keeps_no_teardown_waiting() -> Result<()> {
    for_each(|_, user, owner, memory| {
        let stream = Stream::new(&user)?;
        let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        stream.scope(|s| {
            let mut device = s.bind_mut(&mut device)?;
            user.close()?;
            let error = s.upload(&mut device, &s.bind_host(memory.as_slice()));
            assert!(
                matches!(error, Err(Error::ContextClosed { .. })),
                "{error:?}"
            );
            owner.close()
        })
    })
}

/// A driver that fails to query the stream, or to wait for the context: events show when the work is done.
#[test]
fn the_owner_is_closed_on_a_driver_that_refuses() -> Result<()> {
    if !simulated("the_owner_is_closed_on_a_driver_that_refuses") {
        return Ok(());
    }
    for_each(|_, user, owner, memory| {
        let stream = Stream::new(&user)?;
        let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        let gate = Gate::on(&user, &stream);
        stream.scope(|s| {
            let mut device = s.bind_mut(&mut device)?;
            s.upload(&mut device, &s.bind_host(memory.as_slice()))?;
            for function in ["cuStreamQuery", "cuCtxSynchronize"] {
                sim::inject(Fault::nth_call_of(function, 1).sticky()).unwrap();
            }
            let opener = gate.open_later();
            let closed = owner.close();
            assert!(gate.is_open());
            sim::clear_faults();
            opener.join().unwrap();
            // The error of the wait is returned, and the context closed all the same.
            assert_eq!(closed.unwrap_err().code(), Some(CUresult::UNKNOWN));
            Ok(())
        })?;
        assert_eq!(device.to_vec()?, [7; LEN]);
        drop((memory, device, stream));
        user.close()
    })
}
