//! Kernels and variables of a module, by name.

use cuguard::{DeviceBuffer, DriverPool, Error, Event, Module, Result, Stream};

use super::TABLE;
use crate::support::*;

#[test]
fn a_variable_is_read_and_written() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let module = Module::from_ptx(&context, TABLE)?;
    let table = module.global::<u32>("table")?;
    assert_eq!((table.len(), table.to_vec()?), (4, vec![1, 2, 3, 4]));
    table.copy_from_slice(&[5, 6, 7, 8])?;
    assert_eq!(
        module.global::<[u32; 2]>("table")?.to_vec()?,
        [[5, 6], [7, 8]]
    );
    let wrong = |result: Result<()>| matches!(result, Err(Error::LengthMismatch { .. }));
    assert!(wrong(table.copy_from_slice(&[1])));
    assert!(wrong(table.copy_to_slice(&mut [0; 5])));
    assert!(wrong(module.global::<[u32; 3]>("table").map(drop)));

    // Parts, and copies on the device.
    table.slice(1..3)?.copy_from_slice(&[60, 70])?;
    assert_eq!(table.to_vec()?, [5, 60, 70, 8]);
    let error = table.slice(3..5).map(drop).unwrap_err();
    assert!(matches!(error, Error::RangeOutOfBounds { .. }), "{error}");
    let stream = Stream::new(&context)?;
    let mut buffers = [
        DeviceBuffer::from_slice(&context, &[1_u32, 2, 3])?,
        DeviceBuffer::from_slice(&stream, &[1_u32, 2, 3])?,
    ];
    for buffer in &mut buffers {
        table.slice(..2)?.copy_from(buffer.slice(1..)?)?;
        assert_eq!(table.to_vec()?, [2, 3, 70, 8]);
        table.slice(2..)?.copy_to(buffer.slice_mut(..2)?)?;
        assert_eq!(buffer.to_vec()?, [70, 8, 3]);
        assert!(wrong(table.copy_from(&*buffer)));
        assert!(wrong(table.copy_to(buffer.as_view_mut())));
    }
    Ok(())
}

#[test]
fn names_that_a_module_does_not_have_are_told() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let module = Module::from_ptx(&context, TABLE)?;
    let error = module.function("saxpi").unwrap_err();
    assert!(matches!(error, Error::NoSuchSymbol { .. }), "{error:?}");
    assert!(error.to_string().contains("\"saxpi\""), "{error}");
    assert!(matches!(
        module.global::<u32>("tabel"),
        Err(Error::NoSuchSymbol { .. })
    ));
    assert!(matches!(
        module.function("a\0b"),
        Err(Error::InteriorNul { .. })
    ));
    Ok(())
}

#[test]
fn a_symbol_of_the_other_kind_is_named() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let module = Module::from_ptx(&context, TABLE)?;
    assert_eq!(
        module.function("table").unwrap_err().to_string(),
        "Module::function: \"table\" is a variable, not a kernel"
    );
    assert_eq!(
        module.global::<u32>("nothing").unwrap_err().to_string(),
        "Module::global: \"nothing\" is a kernel, not a variable"
    );
    for error in [
        module.function("").unwrap_err(),
        module.global::<u32>("").unwrap_err(),
    ] {
        assert!(matches!(error, Error::NoSuchSymbol { .. }), "{error:?}");
    }
    let nothing = module.function("nothing")?;
    assert_eq!(nothing.name(), "nothing");
    assert_eq!(nothing.module().as_raw(), module.as_raw());
    Ok(())
}

/// One short line: the handle, and the context as reports number it.
#[test]
fn guards_are_printed_with_handle_and_context() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (stream, event) = (Stream::new(&context)?, Event::new(&context)?);
    let (module, pool) = (
        Module::from_ptx(&context, TABLE)?,
        DriverPool::new(&context)?,
    );
    // What must not show: lists and tables that are filled by use.
    event.record(&stream)?;
    let function = module.function("nothing")?;
    let of = format!("of context {} on device 0", context.snapshot().info.context);
    let raw = module.as_raw().0;
    let (graph, ()) = stream.capture(|c| c.call_each(|| ()))?;
    for (text, expected) in [
        (
            format!("{stream:?}"),
            format!("Stream({:#x} {of})", stream.as_raw().0),
        ),
        (
            format!("{event:?}"),
            format!("Event({:#x} {of})", event.as_raw().0),
        ),
        (
            format!("{pool:?}"),
            format!("DriverPool({:#x} {of})", pool.as_raw().0),
        ),
        (format!("{module:?}"), format!("Module({raw:#x} {of})")),
        (
            format!("{function:?}"),
            format!("Function(nothing of Module({raw:#x} {of}))"),
        ),
        (
            format!("{graph:?}"),
            format!("Graph({:#x} {of})", graph.as_raw().0),
        ),
    ] {
        assert_eq!(text, expected);
    }
    let exec = graph.instantiate()?;
    let expected = format!("GraphExec({:#x} {of})", exec.as_raw().0);
    assert_eq!(format!("{exec:?}"), expected);
    Ok(())
}
