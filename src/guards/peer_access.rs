//! Access of one device to the memory of another.

use std::sync::Arc;

use cuguard_driver::result::peer;
use cuguard_driver::sys::CUresult;

use crate::core::{self, Failed, OpenContext, OwnedResource, Request, peer_table};
use crate::error::{Error, Result};
use crate::guards::{Context, Device};
use crate::recovery;
use cuguard_registry::ResourceKind;

/// Lets kernels of one context access the memory of another, on another device (`cuCtxEnablePeerAccess`); ends on drop.
///
/// Access is in one direction. Copies between devices do not need it, and are faster with it: without it the driver
/// may copy through host memory. See [`Scope::bind_peer`](crate::Scope::bind_peer).
///
/// Several guards of the same two contexts share the access, which ends with the last of them. Access that other code
/// enabled before is shared too, and stays enabled.
///
/// The guard keeps both contexts open. If the context with the access is [closed](Context::close), a guard that is still
/// alive is reported as leaked; if the other one is closed, the access ends and the guard turns inert.
///
/// ```
/// # cuguard::sim::configure(cuguard::sim::Config::new().devices(2)).unwrap();
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::device::PeerAccess;
/// use cuguard::Context;
///
/// let (first, second) = (Context::new(0)?, Context::new(1)?);
/// if first.device().can_access_peer(second.device())? {
///     let access = PeerAccess::new(&first, &second)?;
///     // ... kernels on device 0 that read memory of device 1 ...
///     access.close()?;
/// }
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the access ends when this is dropped"]
#[doc(alias("cuCtxEnablePeerAccess", "cudaDeviceEnablePeerAccess"))]
pub struct PeerAccess {
    owned: OwnedResource,
    /// Keeps the other context open. Dropped after the access.
    peer: Arc<OpenContext>,
}

impl PeerAccess {
    /// Lets kernels of `context` access the memory of `peer`.
    ///
    /// ```
    /// # cuguard::sim::configure(cuguard::sim::Config::new().devices(2)).unwrap();
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::device::PeerAccess;
    /// use cuguard::{Context, Error};
    ///
    /// let (first, second) = (Context::new(0)?, Context::new(1)?);
    /// // For both directions, one of each.
    /// let access = (PeerAccess::new(&first, &second)?, PeerAccess::new(&second, &first)?);
    /// let same = PeerAccess::new(&first, &first);
    /// assert!(matches!(same, Err(Error::SameDevice { device: 0, .. })));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::SameDevice`] if both are on one device, [`Error::NoPeerAccess`] if its hardware or driver has no such
    /// access; [`Error::ContextClosed`], or any other driver error.
    #[track_caller]
    pub fn new(context: &Context, peer: &Context) -> Result<Self> {
        const OPERATION: &str = "PeerAccess::new";
        let (state, peer_state) = (context.state(), peer.state());
        let (device, other) = (state.device, peer_state.device);
        if device == other {
            return Err(Error::SameDevice {
                operation: OPERATION,
                device,
            });
        }
        let unreachable = || Error::NoPeerAccess {
            operation: OPERATION,
            device,
            peer: other,
        };
        let request = Request::of_unknown_size(OPERATION, Some(ResourceKind::PeerAccess));
        let owned = recovery::with_recovery(state, &request, || {
            // Its teardown waits for this, so it is alive.
            let _inside = peer_state.enter(OPERATION)?;
            let entered = state.enter(OPERATION)?;
            let can = peer::can_access(device as i32, other as i32);
            if !entered.check(can)? {
                return Err(unreachable().into());
            }
            let owned = core::allocate(
                state,
                &request,
                ResourceKind::PeerAccess,
                "",
                || context.open().into(),
                || peer_table::enable(state, peer_state),
            );
            owned.map_err(|failed| match failed {
                Failed::Other(error) if error.code() == Some(CUresult::PEER_ACCESS_UNSUPPORTED) => {
                    unreachable().into()
                }
                failed => failed,
            })
        })?;
        Ok(Self {
            owned,
            peer: peer.open().clone(),
        })
    }

    /// The device whose kernels have the access.
    ///
    /// ```
    /// # cuguard::sim::configure(cuguard::sim::Config::new().devices(2)).unwrap();
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let (first, second) = (cuguard::Context::new(0)?, cuguard::Context::new(1)?);
    /// let access = cuguard::device::PeerAccess::new(&first, &second)?;
    /// assert_eq!((access.device(), access.peer()), (first.device(), second.device()));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn device(&self) -> Device {
        Device::existing(self.owned.state().device)
    }

    /// The device whose memory they access.
    ///
    /// ```
    /// # cuguard::sim::configure(cuguard::sim::Config::new().devices(2)).unwrap();
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let (first, second) = (cuguard::Context::new(0)?, cuguard::Context::new(1)?);
    /// let access = cuguard::device::PeerAccess::new(&first, &second)?;
    /// assert_eq!(access.peer().ordinal(), 1);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn peer(&self) -> Device {
        Device::existing(self.peer.device)
    }

    /// Names the access in reports.
    ///
    /// ```
    /// # cuguard::sim::configure(cuguard::sim::Config::new().devices(2)).unwrap();
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let (first, second) = (cuguard::Context::new(0)?, cuguard::Context::new(1)?);
    /// let access = cuguard::device::PeerAccess::new(&first, &second)?.with_label("halo exchange");
    /// assert_eq!(first.snapshot().live[0].label.as_deref(), Some("halo exchange"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }

    /// Ends the access and returns the driver's error, if any. A failed call is in the report, by `close` or by drop.
    ///
    /// ```
    /// # cuguard::sim::configure(cuguard::sim::Config::new().devices(2)).unwrap();
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let (first, second) = (cuguard::Context::new(0)?, cuguard::Context::new(1)?);
    /// cuguard::device::PeerAccess::new(&first, &second)?.close()?;
    /// assert_eq!(first.live_count(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] if the context with the access was closed first, or any other driver error.
    pub fn close(self) -> Result<()> {
        self.owned.close("PeerAccess::close")
    }
}
