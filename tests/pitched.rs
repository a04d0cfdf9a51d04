//! Matrices with aligned rows: shapes, copies, rows, scopes, limits.

use crate::support::*;
use cuguard::memory::PitchedBuffer;
use cuguard::{Context, DeviceBuffer, Error, Result, Stream, assert_no_leaks};

fn numbers(count: usize) -> Vec<u32> {
    (1..=count as u32).collect()
}

#[test]
fn matrices_of_many_shapes_go_up_and_down() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    for (rows, columns) in [
        (1, 1),
        (1, 200),
        (200, 1),
        (3, 127),
        (3, 128),
        (3, 129),
        (50, 1000),
    ] {
        let values = numbers(rows * columns);
        let mut matrix = PitchedBuffer::from_slice(&context, rows, columns, &values)?;
        assert_eq!((matrix.rows(), matrix.columns()), (rows, columns));
        assert!(matrix.pitch() >= 4 * columns);
        assert_eq!(context.live_bytes(), (rows * matrix.pitch()) as u64);
        assert_eq!(matrix.to_vec()?, values);

        let reversed: Vec<u32> = values.iter().rev().copied().collect();
        matrix.copy_from_slice(&reversed)?;
        let mut seen = vec![0; rows * columns];
        matrix.copy_to_slice(&mut seen)?;
        assert_eq!(seen, reversed);
        let clone = matrix.try_clone()?;
        matrix.zero()?;
        assert_eq!(matrix.to_vec()?, vec![0; rows * columns]);
        assert_eq!(clone.to_vec()?, reversed);
    }
    assert_no_leaks!(context);
    Ok(())
}

/// Elements of sizes that `cuMemAllocPitch` does not know.
#[test]
fn matrices_of_many_types() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let bytes = PitchedBuffer::from_slice(&context, 3, 5, &[9_u8; 15])?;
    assert_eq!(bytes.to_vec()?, [9; 15]);
    let triples = PitchedBuffer::from_slice(&context, 3, 5, &[[1_u8, 2, 3]; 15])?;
    assert_eq!(triples.to_vec()?, [[1, 2, 3]; 15]);
    let error = triples.as_padded_view().map(drop);
    if triples.pitch().is_multiple_of(3) {
        error?;
    } else {
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Cast { size: 3, .. }), "{error}");
    }
    let wide = PitchedBuffer::from_slice(&context, 3, 5, &[[1_u64, 2, 3, 4]; 15])?;
    assert_eq!(wide.to_vec()?, [[1, 2, 3, 4]; 15]);
    let truths = PitchedBuffer::from_slice(&context, 2, 2, &[true, false, false, true])?;
    assert_eq!(truths.row(1)?.to_vec()?, [false, true]);
    Ok(())
}

#[test]
fn empty_matrices_have_no_memory() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    for (rows, columns) in [(0, 0), (0, 5), (5, 0), (0, usize::MAX), (usize::MAX, 0)] {
        let mut matrix = PitchedBuffer::<u32>::zeroed(&context, rows, columns)?;
        assert_eq!((matrix.size_in_bytes(), matrix.to_vec()?), (0, vec![]));
        matrix.copy_from_slice(&[])?;
        matrix.zero()?;
        assert_eq!(matrix.try_clone()?.rows(), rows);
        assert!(matrix.as_padded_view()?.is_empty());
        assert_eq!(matrix.row(0).is_ok(), rows > 0);
    }
    let mut sizeless = PitchedBuffer::<[u8; 0]>::zeroed(&context, 3, 4)?;
    sizeless.copy_from_slice(&[[]; 12])?;
    assert_eq!((sizeless.to_vec()?.len(), sizeless.row(2)?.len()), (12, 4));
    assert_eq!(sizeless.as_padded_view()?.len(), 12);
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn rows_are_views() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut matrix = PitchedBuffer::from_slice(&context, 3, 4, &numbers(12))?;
    assert_eq!(matrix.row(2)?.slice(1..3)?.to_vec()?, [10, 11]);
    let line = DeviceBuffer::from_slice(&stream, &[7_u32; 4])?;
    matrix.row_mut(1)?.copy_from(&line)?;
    matrix.row_mut(0)?.slice_mut(3..)?.fill(0)?;
    assert_eq!(matrix.to_vec()?, [1, 2, 3, 0, 7, 7, 7, 7, 9, 10, 11, 12]);
    stream.scope(|s| s.zero(&mut s.bind_mut(matrix.row_mut(2)?)?))?;
    assert_eq!(matrix.row(2)?.to_vec()?, [0; 4]);
    let error = matrix.row_mut(3).map(drop).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NoSuchRow {
                row: 3,
                rows: 3,
                ..
            }
        ),
        "{error}"
    );
    Ok(())
}

/// The padding is initialized, and writes to rows leave it alone.
#[test]
fn the_padding_can_be_read_and_stays() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let mut matrix = PitchedBuffer::from_slice(&context, 3, 5, &numbers(15))?;
    let stride = matrix.pitch() / 4;
    let check = |matrix: &PitchedBuffer<u32>, rows: &[u32], padding: u32| {
        let values = matrix.as_padded_view()?.to_vec()?;
        for (row, values) in values.chunks(stride).enumerate() {
            assert_eq!(values[..5], rows[5 * row..][..5]);
            assert!(values[5..].iter().all(|value| *value == padding));
        }
        Ok::<(), Error>(())
    };
    check(&matrix, &numbers(15), 0)?;
    matrix.as_padded_view_mut()?.fill(9)?;
    check(&matrix, &[9; 15], 9)?;
    matrix.copy_from_slice(&numbers(15))?;
    check(&matrix, &numbers(15), 9)?;
    matrix.zero()?;
    check(&matrix, &[0; 15], 9)?;
    matrix.copy_from(&PitchedBuffer::from_slice(&context, 3, 5, &numbers(15))?)?;
    check(&matrix, &numbers(15), 9)?;
    Ok(())
}

#[test]
fn copies_between_contexts_and_of_other_shapes() -> Result<()> {
    let _turn = turn();
    let (context, other) = (context()?, Context::builder().dedicated().build()?);
    let from = PitchedBuffer::from_slice(&context, 3, 5, &numbers(15))?;
    let mut to = PitchedBuffer::<u32>::zeroed(&other, 3, 5)?;
    to.copy_from(&from)?;
    assert_eq!(to.to_vec()?, numbers(15));
    let error = PitchedBuffer::<u32>::zeroed(&other, 5, 3)?
        .copy_from(&from)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "PitchedBuffer::copy_from: the source has 3 rows, the matrix 5"
    );
    let error = PitchedBuffer::<u32>::zeroed(&other, 3, 1)?
        .copy_from(&from)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "PitchedBuffer::copy_from: the source has 5 columns, the matrix 1"
    );
    context.close()?;
    assert!(matches!(
        to.copy_from(&from),
        Err(Error::ContextClosed { .. })
    ));
    assert!(matches!(from.to_vec(), Err(Error::ContextClosed { .. })));
    assert!(matches!(from.try_clone(), Err(Error::ContextClosed { .. })));
    Ok(())
}

/// A copy does not visit the rows of a matrix without columns, of which there may be any number.
#[test]
fn empty_matrices_are_copied_between_contexts() -> Result<()> {
    let _turn = turn();
    let (context, other) = (context()?, Context::builder().dedicated().build()?);
    for (rows, columns) in [(0, 0), (0, usize::MAX), (usize::MAX, 0)] {
        let from = PitchedBuffer::<u64>::zeroed(&context, rows, columns)?;
        let mut to = PitchedBuffer::<u64>::zeroed(&other, rows, columns)?;
        to.copy_from(&from)?;
        assert_eq!((to.rows(), to.columns()), (rows, columns));
    }
    let from = PitchedBuffer::<[u8; 0]>::zeroed(&context, usize::MAX, 1)?;
    let mut to = PitchedBuffer::<[u8; 0]>::zeroed(&other, usize::MAX, 1)?;
    to.copy_from(&from)?;
    context.close()?;
    let error = to.copy_from(&from).unwrap_err();
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    Ok(())
}

#[test]
fn too_large_matrices_are_errors() -> Result<()> {
    let turn = turn();
    let context = Context::builder().memory_limit(1 << 20).build()?;
    for (rows, columns) in [
        (usize::MAX, 2),
        (usize::MAX, 1),
        (1, usize::MAX),
        (1 << 62, 1),
    ] {
        let error = PitchedBuffer::<u32>::zeroed(&context, rows, columns).unwrap_err();
        assert!(matches!(error, Error::MatrixOverflow { .. }), "{error}");
        let words = format!("{rows} row");
        assert!(error.to_string().contains(&words), "{error}");
        let words = format!(" of {columns} column");
        assert!(error.to_string().contains(&words), "{error}");
        let error = PitchedBuffer::<u32>::from_slice(&context, rows, columns, &[]).unwrap_err();
        assert!(matches!(error, Error::LengthMismatch { .. }), "{error}");
    }
    // Within the limit without the padding, beyond it with the padding.
    let error = PitchedBuffer::<u8>::zeroed(&context, 4096, 1).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    // The limit counts what the driver allocated, and all of it is released.
    for _ in 0..3 {
        let matrix = PitchedBuffer::<u8>::zeroed(&context, 1024, 513)?;
        assert!(DeviceBuffer::<u8>::zeroed(&context, (1 << 20) - 1024 * 513).is_err());
        drop(matrix);
        drop(DeviceBuffer::<u8>::zeroed(&context, 1 << 20)?);
    }
    assert_no_leaks!(context);
    context.close()?;
    turn.all_came_back();
    Ok(())
}
