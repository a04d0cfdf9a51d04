//! All guard types in one enum.

use bytemuck::{Pod, Zeroable};
use cuguard::DeviceCopy;
use cuguard::{
    Context, DeviceBox, DeviceBuffer, DeviceView, DeviceViewMut, DriverPool, Event, ManagedBuffer,
    PinnedBuffer, RegisteredVec, Result, Stream,
};

/// A page: registered memory must not share pages with other allocations.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; 4096]);

// SAFETY: plain bytes without pointers.
unsafe impl DeviceCopy for Page {}

/// A guard of any type.
#[derive(Debug)]
pub enum Guard {
    Bytes(DeviceBuffer<u8>),
    Words(DeviceBuffer<u32>),
    One(DeviceBox<u32>),
    Pinned(PinnedBuffer<u8>),
    Registered(RegisteredVec<Page>),
    Managed(ManagedBuffer<u8>),
    Stream(Stream),
    Event(Event),
    Pool(DriverPool),
}

impl Guard {
    /// Its contents; `None` for handles, and for managed memory without a context.
    pub fn read(&self, context: Option<&Context>) -> Option<Result<Vec<u8>>> {
        Some(match self {
            Self::Bytes(buffer) => buffer.to_vec(),
            Self::Words(buffer) => {
                let mut words = vec![0; buffer.len()];
                buffer
                    .copy_to_slice(&mut words)
                    .map(|()| bytemuck::cast_slice(&words).to_vec())
            }
            Self::One(one) => one.get().map(|word| word.to_ne_bytes().to_vec()),
            Self::Pinned(buffer) => Ok(buffer.to_vec()),
            Self::Registered(pages) => Ok(bytemuck::cast_slice(pages).to_vec()),
            Self::Managed(buffer) => buffer.as_slice(context?).map(<[u8]>::to_vec),
            Self::Stream(_) | Self::Event(_) | Self::Pool(_) => return None,
        })
    }

    /// Writes bytes, of any length; `None` as for [`read`](Self::read).
    pub fn write(&mut self, context: Option<&Context>, bytes: &[u8]) -> Option<Result<()>> {
        Some(match self {
            Self::Bytes(buffer) => buffer.copy_from_slice(bytes),
            Self::Words(buffer) => buffer.copy_from_slice(&words(bytes)),
            Self::One(one) => one.set(&words(bytes).first().copied().unwrap_or(0)),
            Self::Pinned(buffer) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            Self::Registered(pages) => {
                bytemuck::cast_slice_mut(pages).copy_from_slice(bytes);
                Ok(())
            }
            Self::Managed(buffer) => buffer
                .as_mut_slice(context?)
                .map(|slice| slice.copy_from_slice(bytes)),
            Self::Stream(_) | Self::Event(_) | Self::Pool(_) => return None,
        })
    }

    pub fn close(self) -> Result<()> {
        match self {
            Self::Bytes(guard) => guard.close(),
            Self::Words(guard) => guard.close(),
            Self::One(guard) => guard.close(),
            Self::Pinned(guard) => guard.close(),
            Self::Registered(guard) => guard.into_vec().map(drop),
            Self::Managed(guard) => guard.close(),
            Self::Stream(guard) => guard.close(),
            Self::Event(guard) => guard.close(),
            Self::Pool(guard) => guard.close(),
        }
    }

    pub fn with_label(self, label: &str) -> Self {
        match self {
            Self::Bytes(guard) => Self::Bytes(guard.with_label(label)),
            Self::Words(guard) => Self::Words(guard.with_label(label)),
            Self::One(guard) => Self::One(guard.with_label(label)),
            Self::Pinned(guard) => Self::Pinned(guard.with_label(label)),
            Self::Registered(guard) => Self::Registered(guard.with_label(label)),
            Self::Managed(guard) => Self::Managed(guard.with_label(label)),
            Self::Stream(guard) => Self::Stream(guard.with_label(label)),
            Self::Event(guard) => Self::Event(guard.with_label(label)),
            Self::Pool(guard) => Self::Pool(guard.with_label(label)),
        }
    }

    /// The type name in reports.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Bytes(_) | Self::Pinned(_) | Self::Managed(_) => "u8",
            Self::Words(_) | Self::One(_) => "u32",
            Self::Registered(_) => std::any::type_name::<Page>(),
            Self::Stream(_) | Self::Event(_) | Self::Pool(_) => "",
        }
    }

    /// Whether streams copy to it and fill it.
    pub fn is_on_device(&self) -> bool {
        self.is_words() || matches!(self, Self::Bytes(_) | Self::Managed(_))
    }

    /// The bytes of memory on the device; the guard must be such memory.
    pub fn view(&self) -> Result<DeviceView<'_, u8>> {
        match self {
            Self::Bytes(buffer) => Ok(buffer.as_view()),
            Self::Words(buffer) => buffer.as_view().cast(),
            Self::One(one) => one.as_view().cast(),
            Self::Managed(buffer) => Ok(buffer.as_view()),
            other => unreachable!("picked as memory on the device: {other:?}"),
        }
    }

    /// The same, to be written.
    pub fn view_mut(&mut self) -> Result<DeviceViewMut<'_, u8>> {
        match self {
            Self::Bytes(buffer) => Ok(buffer.as_view_mut()),
            Self::Words(buffer) => buffer.as_view_mut().cast(),
            Self::One(one) => one.as_view_mut().cast(),
            Self::Managed(buffer) => Ok(buffer.as_view_mut()),
            other => unreachable!("picked as memory on the device: {other:?}"),
        }
    }

    /// Host memory for asynchronous copies.
    pub fn host_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Pinned(buffer) => Some(&mut *buffer),
            Self::Registered(pages) => Some(bytemuck::cast_slice_mut(pages)),
            _ => None,
        }
    }

    pub fn is_words(&self) -> bool {
        matches!(self, Self::Words(_) | Self::One(_))
    }

    pub fn is_on_host(&self) -> bool {
        matches!(self, Self::Pinned(_) | Self::Registered(_))
    }

    /// The address or handle by which the registry knows it. Waits for stream-ordered memory.
    pub fn address(&self) -> u64 {
        match self {
            Self::Bytes(buffer) => buffer.as_device_ptr().as_raw(),
            Self::Words(buffer) => buffer.as_device_ptr().as_raw(),
            Self::One(one) => one.as_device_ptr().as_raw(),
            Self::Pinned(buffer) => buffer.as_ptr().addr() as u64,
            Self::Registered(pages) => pages.as_ptr().addr() as u64,
            Self::Managed(buffer) => buffer.as_device_ptr().as_raw(),
            Self::Stream(stream) => stream.as_raw().0 as u64,
            Self::Event(event) => event.as_raw().0 as u64,
            Self::Pool(pool) => pool.as_raw().0 as u64,
        }
    }

    /// The stream; the guard must be one.
    pub fn stream(&self) -> &Stream {
        match self {
            Self::Stream(stream) => stream,
            other => unreachable!("picked as a stream: {other:?}"),
        }
    }

    /// The event; the guard must be one.
    pub fn event(&self) -> &Event {
        match self {
            Self::Event(event) => event,
            other => unreachable!("picked as an event: {other:?}"),
        }
    }
}

/// Bytes as words; they need not be aligned.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// Bytes that depend on their position.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    if seed == 0 {
        return vec![0; len];
    }
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ seed ^ (i >> 8) as u8)
        .collect()
}

/// Words as `kernels/pattern.cu` writes and checks them.
pub fn word_pattern(seed: u32, bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4)
        .flat_map(|i| (i.wrapping_mul(2_654_435_761) ^ seed).to_ne_bytes())
        .collect()
}
