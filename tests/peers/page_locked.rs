//! Page-locked host memory of one context in copies, scopes and graphs of another, with either context closed before,
//! during and after: memory stays valid until the work that uses it is done, or the operation fails.

use std::sync::mpsc;
use std::thread;

use cuguard::memory::PitchedBuffer;
use cuguard::{Context, DeviceBuffer, Error, PinnedBuffer, RegisteredVec, Result, Stream};

use crate::gate::Gate;
use crate::support::*;
use crate::{machine, quiet};

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

#[track_caller]
fn is_host_context_closed(result: Result<()>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::HostContextClosed { .. }), "{error}");
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
            is_host_context_closed(late);
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

/// A graph has the mapping of the memory, which ends with the owner: it fails to launch from then on.
#[test]
fn a_graph_is_launched_after_the_owner_was_closed() -> Result<()> {
    for_each(|_, user, owner, memory| {
        let stream = Stream::new(&user)?;
        let (mut device, other) = (DeviceBuffer::<u32>::zeroed(&user, LEN)?, vec![9_u32; LEN]);
        let (graph, token) = stream.capture(|c| {
            let mut device = c.bind_mut(&mut device)?;
            c.upload(&mut device, &c.bind_host(memory.as_slice()))?;
            c.export_mut(&device)
        })?;
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        assert_eq!(exec.view_mut(&token)?.to_vec()?, [7; LEN]);
        let refused = stream.scope(|s| {
            let mut graph = s.bind_graph(&mut exec)?;
            s.launch_graph(&mut graph)?;
            owner.close()?;
            s.launch_graph(&mut graph)
        });
        is_host_context_closed(refused);
        is_host_context_closed(exec.launch(&stream));
        // Other memory makes it launch again.
        exec.recapture(&stream, |c| {
            c.upload(&mut c.reuse_mut(&token)?, &c.bind_host(&other))
        })?;
        exec.launch(&stream)?;
        drop(exec);
        assert_eq!(device.to_vec()?, [9; LEN]);
        drop((memory, device, stream));
        user.close()
    })
}

/// The teardown waits for the launches in flight.
#[test]
fn the_owner_is_closed_while_a_graph_is_in_flight() -> Result<()> {
    for_each(|_, user, owner, mut memory| {
        let stream = Stream::new(&user)?;
        let device = DeviceBuffer::<u32>::from_slice(&user, &[3; LEN])?;
        let (graph, ()) = stream.capture(|c| {
            let mut memory = c.bind_host_mut(memory.as_mut_slice());
            c.download(&mut memory, &c.bind(&device)?)
        })?;
        let mut exec = graph.instantiate()?;
        let gate = Gate::on(&user, &stream);
        stream.scope(|s| {
            s.launch_graph(&mut s.bind_graph(&mut exec)?)?;
            let opener = gate.open_later();
            owner.close()?;
            assert!(gate.is_open());
            opener.join().unwrap();
            Ok(())
        })?;
        drop(exec);
        assert_eq!(memory.as_slice(), [3; LEN]);
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
        let mut ordered = DeviceBuffer::<u32>::zeroed_on(&stream, LEN)?;
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

/// A graph of a closed context, with memory of an open one.
#[test]
fn a_graph_of_a_closed_context() -> Result<()> {
    for_each(|_, user, owner, memory| {
        let stream = Stream::new(&user)?;
        let mut device = DeviceBuffer::<u32>::zeroed(&user, LEN)?;
        let (graph, ()) = stream.capture(|c| {
            let mut device = c.bind_mut(&mut device)?;
            c.upload(&mut device, &c.bind_host(memory.as_slice()))
        })?;
        let mut exec = graph.instantiate()?;
        user.close()?;
        let error = exec.launch(&stream).unwrap_err();
        assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
        drop(exec);
        drop((memory, device, stream));
        owner.close()
    })
}

/// The error names the context as reports do.
#[test]
fn the_error_names_the_context_of_the_memory() -> Result<()> {
    let _turn = machine();
    let (user, owner) = Other::Dedicated.contexts()?;
    let number = owner.snapshot().info.context;
    let memory = PinnedBuffer::<u8>::zeroed(&owner, 100)?;
    let stream = Stream::new(&user)?;
    let mut device = DeviceBuffer::<u8>::zeroed(&user, 100)?;
    let (graph, ()) = stream.capture(|c| {
        let mut device = c.bind_mut(&mut device)?;
        c.upload(&mut device, &c.bind_host(&memory))
    })?;
    let mut exec = graph.instantiate()?;
    owner.close()?;
    assert_eq!(
        exec.launch(&stream).unwrap_err().to_string(),
        format!(
            "Scope::bind_graph: the page-locked host memory belongs to context {number}, which was closed"
        )
    );
    drop(exec);
    drop((memory, device, stream));
    user.close()
}
