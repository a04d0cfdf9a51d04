//! Occupancy, and configurations that follow from it.

use cuguard::{Error, LaunchConfig, Module, Result};

use super::{LAUNCHES, Setup, observed_turn};

#[test]
fn elements_are_covered_by_whole_blocks() -> Result<()> {
    let _turn = observed_turn();
    let at = Setup::new()?;
    let scale = at.module.function("scale")?;
    let suggested = scale.suggested_block_size(0)?;
    assert!(suggested.threads > 0 && suggested.min_grid > 0);
    let threads = suggested.threads as usize;
    for (count, blocks) in [
        (0, 1),
        (1, 1),
        (threads, 1),
        (threads + 1, 2),
        (1 << 30, (1_usize << 30).div_ceil(threads)),
        ((1 << 31) + 1, ((1_usize << 31) + 1).div_ceil(threads)),
        ((1 << 32) + 1, ((1_usize << 32) + 1).div_ceil(threads)),
    ] {
        let config = LaunchConfig::for_elements(&scale, count)?;
        assert_eq!(config.grid(), [blocks as u32, 1, 1], "{count} elements");
        assert_eq!(config.block(), [suggested.threads, 1, 1]);
    }
    let most = (1 << 31) - 1;
    let largest = LaunchConfig::for_elements(&scale, threads * most)?;
    assert_eq!(largest.grid(), [most as u32, 1, 1]);
    for count in [threads * most + 1, threads << 31, threads << 32, usize::MAX] {
        let error = LaunchConfig::for_elements(&scale, count).unwrap_err();
        let largest = threads * most;
        assert_eq!(
            error.to_string(),
            format!(
                "LaunchConfig::for_elements of scale: the number of elements is {count}, which is not within 0 to {largest}"
            )
        );
    }
    Ok(())
}

/// Errors name the function that the program called, not one that it calls in turn.
#[test]
fn errors_name_the_function_that_was_called() -> Result<()> {
    let _turn = observed_turn();
    let at = Setup::new()?;
    let scale = at.module.function("scale")?;
    let error = |result: Result<u32>| result.unwrap_err().to_string();
    assert_eq!(
        error(scale.max_cooperative_blocks(0, 0)),
        "Function::max_cooperative_blocks of scale: block.x is 0, which is not within 1 to 1024"
    );
    assert_eq!(
        error(scale.available_shared_bytes(0, 0)),
        "Function::available_shared_bytes of scale: block.x is 0, which is not within 1 to 1024"
    );
    let Setup { context, .. } = at;
    context.close()?;
    let closed = |result: Result<()>, name: &str| match result {
        Err(Error::ContextClosed { operation }) => assert_eq!(operation, name),
        other => panic!("{other:?}"),
    };
    closed(
        scale.max_cooperative_blocks(32, 0).map(drop),
        "Function::max_cooperative_blocks",
    );
    closed(
        LaunchConfig::for_elements(&scale, 1).map(drop),
        "LaunchConfig::for_elements",
    );
    Ok(())
}

#[test]
fn occupancy_falls_with_threads_and_shared_memory() -> Result<()> {
    let _turn = observed_turn();
    let at = Setup::new()?;
    let tiles = at.module.function("reverse_tiles")?;
    let attributes = tiles.attributes()?;
    assert_eq!(attributes.max_threads_per_block, 1024);
    assert_eq!((attributes.shared_bytes, attributes.local_bytes), (0, 0));
    assert_eq!(attributes.ptx_version, (5, 2));
    let blocks = |threads, shared| tiles.max_active_blocks(threads, shared);
    assert!(blocks(128, 0)? > blocks(1024, 0)?);
    assert!(blocks(128, 0)? > blocks(128, 64 << 10)? && blocks(128, 64 << 10)? > 0);
    // As much as is available, fits; and it is available without a launch that allowed it.
    let fresh = Module::from_ptx(&at.context, LAUNCHES)?;
    let tiles = fresh.function("reverse_tiles")?;
    let bytes = tiles.available_shared_bytes(2, 256)?;
    assert!(bytes > 48 << 10, "{bytes}");
    for blocks in [1, 2, 5, 7, 8] {
        let bytes = tiles.available_shared_bytes(blocks, 256)?;
        assert!(
            tiles.max_active_blocks(256, bytes)? >= blocks,
            "{blocks}: {bytes}"
        );
    }
    let error = tiles.max_active_blocks(0, 0).unwrap_err();
    assert!(matches!(error, Error::OutsideLimits { .. }), "{error}");
    let most = tiles.max_active_blocks(32, 0)?;
    for blocks in [0, most + 1, u32::MAX] {
        let error = tiles.available_shared_bytes(blocks, 32).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "Function::available_shared_bytes of reverse_tiles: the number of blocks per multiprocessor is \
                 {blocks}, which is not within 1 to {most}"
            )
        );
    }
    let Setup { context, .. } = at;
    context.close()?;
    assert!(matches!(
        tiles.attributes().unwrap_err(),
        Error::ContextClosed { .. }
    ));
    assert!(matches!(
        tiles.available_shared_bytes(1, 32).unwrap_err(),
        Error::ContextClosed { .. }
    ));
    Ok(())
}
