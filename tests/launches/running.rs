//! Kernels that run: shared memory, cooperative launches, several threads.

use cuguard::scope::KernelArgument;
use cuguard::{DeviceBox, DeviceBuffer, LaunchConfig, Result, Stream};

use super::{Setup, observed_turn};

#[test]
fn tiles_are_reversed_in_large_shared_memory() -> Result<()> {
    const TILE: usize = 16_384;
    const TILES: usize = 33;
    let _turn = observed_turn();
    let at = Setup::new()?;
    let reverse = at.module.function("reverse_tiles")?;
    let words: Vec<u32> = (0..(TILE * TILES) as u32).collect();
    let mut buffer = DeviceBuffer::from_slice(&at.context, &words)?;
    let config = LaunchConfig::new(16, 1024).shared_bytes(64 << 10);
    at.stream.scope(|s| {
        let words = s.bind_mut(&mut buffer)?;
        // SAFETY: reverse_tiles(words, tiles) accesses `tiles` tiles of 16384 words, and has shared memory for one.
        unsafe { s.launch(&reverse, config, &[&words, &(TILES as u32)]) }
    })?;
    let mut words = words;
    words.chunks_mut(TILE).for_each(<[u32]>::reverse);
    assert!(buffer.to_vec()? == words);
    Ok(())
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() -> Result<()> {
    const COUNT: usize = 1_000_000;
    let _turn = observed_turn();
    let at = Setup::new()?;
    let sum = at.module.function("sum_everywhere")?;
    let blocks = sum.max_cooperative_blocks(256, 0)?;
    let words: Vec<u32> = (0..COUNT as u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect();
    let buffer = DeviceBuffer::from_slice(&at.context, &words)?;
    let mut partial = DeviceBuffer::<u32>::zeroed(&at.context, blocks as usize)?;
    let mut arrived = DeviceBox::new(&at.context, &0_u32)?;
    let mut sums = DeviceBuffer::<u32>::zeroed(&at.context, blocks as usize)?;
    let config = LaunchConfig::new(blocks, 256).cooperative();
    at.stream.scope(|s| {
        let (words, partial) = (s.bind(&buffer)?, s.bind_mut(&mut partial)?);
        let (arrived, sums) = (s.bind_mut(&mut arrived)?, s.bind_mut(&mut sums)?);
        let arguments: [&dyn KernelArgument<'_>; 5] =
            [&words, &(COUNT as u32), &partial, &arrived, &sums];
        // SAFETY: sum_everywhere(words, count, partial, arrived, sums) reads `count` words and accesses an element of the
        // others for each block.
        unsafe { s.launch(&sum, config, &arguments) }
    })?;
    let expected = words
        .iter()
        .fold(0_u32, |sum, word| sum.wrapping_add(*word));
    assert_eq!(sums.to_vec()?, vec![expected; blocks as usize]);
    assert_eq!(arrived.get()?, blocks);
    Ok(())
}

/// Launches of one kernel on several threads, which need different amounts of shared memory.
#[test]
fn threads_share_the_allowance_of_a_kernel() -> Result<()> {
    let _turn = observed_turn();
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (context, nothing) = (&at.context, &nothing);
            scope.spawn(move || {
                let stream = Stream::new(context).unwrap();
                for round in 0..50 {
                    let bytes = (48 << 10) + (round * 4 + thread) * 16;
                    let config = LaunchConfig::new(1, 32).shared_bytes(bytes);
                    // SAFETY: the kernel has no parameters and accesses nothing.
                    let launched = stream.scope(|s| unsafe { s.launch(nothing, config, &[]) });
                    launched.unwrap();
                }
            });
        }
    });
    let most = (48 << 10) + (49 * 4 + 3) * 16;
    assert_eq!(nothing.attributes()?.max_dynamic_shared_bytes, most);
    Ok(())
}
