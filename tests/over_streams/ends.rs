//! The end of the scope: nothing that a stream may still use is freed or returned.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{LEN, World};
use crate::support::gate::Gate;
use crate::support::*;
use cuguard::{Context, DeviceBuffer, Error, Result, Stream};

/// It is freed on the stream that it was allocated on, while the other one may use it.
#[test]
fn scratch_memory_is_there_until_all_streams_are_done() -> Result<()> {
    let turn = turn();
    let mut world = World::new()?;
    let before = in_hand(&world.context)?;
    let gate = Gate::on(&world.context, &world.second);
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let mut scratch = first.zeroed(LEN)?;
        first.fill(&mut scratch, 4)?;
        second.download(&mut second.bind_host_mut(&mut world.seen), &scratch)?;
        gate.open_later();
        Ok(())
    })?;
    assert_eq!(*world.seen, [4; LEN]);
    world.first.synchronize()?;
    before.all_freed();
    drop(world);
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_panic_and_an_error_wait_for_all_streams() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    for panics in [true, false] {
        world.seen.fill(0);
        let gate = Gate::on(&world.context, &world.second);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            Stream::scope_over([&world.first, &world.second], |[first, second]| {
                let data = first.bind(&world.data)?;
                second.download(&mut second.bind_host_mut(&mut world.seen), &data)?;
                gate.open_later();
                match panics {
                    true => resume_unwind(Box::new("on purpose")),
                    false => first.upload(&mut first.zeroed::<u32>(1)?, &first.bind_host(&[])),
                }
            })
        }));
        match ended {
            Err(_) => assert!(panics),
            Ok(result) => assert!(
                !panics && matches!(result, Err(Error::LengthMismatch { .. })),
                "{result:?}"
            ),
        }
        assert!(gate.is_open());
        assert_eq!(*world.seen, [7; LEN]);
    }
    Ok(())
}

#[test]
fn the_panic_of_a_host_function_continues_when_all_streams_are_done() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let gate = Gate::on(&world.context, &world.first);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        Stream::scope_over([&world.first, &world.second], |[first, second]| {
            second.call(|| resume_unwind(Box::new("in a host function")))?;
            let data = first.bind(&world.data)?;
            first.download(&mut first.bind_host_mut(&mut world.seen), &data)?;
            gate.open_later();
            Ok(())
        })
    }));
    let panic = unwound.unwrap_err();
    assert_eq!(
        panic.downcast_ref::<&str>().copied(),
        Some("in a host function")
    );
    assert_eq!(*world.seen, [7; LEN]);
    Ok(())
}

#[test]
fn the_context_may_be_closed_within() -> Result<()> {
    let turn = turn();
    let World {
        context,
        first,
        second,
        mut data,
        mut seen,
    } = World::new()?;
    let gate = Gate::on(&context, &second);
    Stream::scope_over([&first, &second], |[first, second]| {
        let mut data = first.bind_mut(&mut data)?;
        let mut seen = first.bind_host_mut(&mut seen);
        second.download(&mut seen, &data)?;
        gate.open_later();
        context.close()?;
        assert!(gate.is_open());
        for result in [
            first.download(&mut seen, &data),
            second.upload(&mut data, &seen),
            first.fill(&mut data, 1),
        ] {
            assert!(matches!(result, Err(Error::ContextClosed { .. })));
        }
        Ok(())
    })?;
    assert_eq!(*seen, [7; LEN]);
    drop((first, second, data, seen));
    turn.all_came_back();
    Ok(())
}

/// Closing a context waits for the work of every stream of the scope that uses its memory.
#[test]
fn closing_another_context_waits_for_all_streams() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let peer = Context::builder().dedicated().build()?;
    let from = DeviceBuffer::from_slice(&peer, &[5_u32; LEN])?;
    let gate = Gate::on(&world.context, &world.second);
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let from = first.bind_peer(&from)?;
        let mut data = first.bind_mut(&mut world.data)?;
        second.copy_from_peer(&mut data, &from)?;
        gate.open_later();
        peer.close()?;
        assert!(gate.is_open());
        Ok(())
    })?;
    assert_eq!(world.data.to_vec()?, [5; LEN]);
    Ok(())
}
