//! Devices: enumeration and queries. They need no context.

use std::ffi::CString;
use std::fmt;

use cuguard_driver::result::{self, CallError, device, peer};
use cuguard_driver::sys::{CUdevice, CUresult};

use crate::core::open_contexts;
use crate::error::{DriverError, Error, Result};
use crate::guards::{ComputeCapability, DeviceAttribute, DeviceUuid};

/// A device of this process, numbered from 0 as in `CUDA_VISIBLE_DEVICES`.
///
/// A plain number that was checked: queries need no context, and nothing is freed.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::device::DeviceAttribute;
/// use cuguard::{Context, Device};
///
/// for device in Device::all()? {
///     println!(
///         "{device}: {}, compute capability {}, {} GiB, {} multiprocessors",
///         device.name()?,
///         device.compute_capability()?,
///         device.total_memory()? >> 30,
///         device.attribute(DeviceAttribute::MultiprocessorCount)?,
///     );
/// }
/// let context = Context::new(Device::new(0)?.ordinal())?;
/// assert_eq!(context.device(), Device::new(0)?);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias("CUdevice", "cuDeviceGet"))]
pub struct Device {
    ordinal: u32,
}

/// The error of a driver call outside of a context, about a device if one is known.
pub(super) fn failed(
    operation: &'static str,
    device: Option<u32>,
) -> impl FnOnce(CallError) -> Error {
    move |CallError { function, code }| {
        Error::Driver(DriverError {
            operation,
            function,
            code,
            bytes: None,
            device,
        })
    }
}

/// Loads and initializes the driver and returns how many devices there are. The caller is inside the process gate.
fn initialized(operation: &'static str) -> Result<u32> {
    cuguard_driver::load()?;
    result::init().map_err(failed(operation, None))?;
    device::count().map_err(failed(operation, None))
}

impl Device {
    /// How many devices there are.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// assert_eq!(cuguard::Device::count()?, 1);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if there is no driver, [`Error::ProcessEnding`], or any other driver error;
    /// `CUDA_ERROR_NO_DEVICE` if there is a driver and no device.
    #[doc(alias("num_devices", "cuDeviceGetCount"))]
    pub fn count() -> Result<u32> {
        const OPERATION: &str = "Device::count";
        let _inside = open_contexts::enter_process(OPERATION)?;
        initialized(OPERATION)
    }

    /// All devices, in order.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::device::DeviceAttribute;
    /// use cuguard::Device;
    ///
    /// // The device with the most multiprocessors.
    /// let devices = Device::all()?;
    /// let count = |device: &Device| device.attribute(DeviceAttribute::MultiprocessorCount).unwrap_or(0);
    /// let largest = devices.into_iter().max_by_key(count);
    /// assert_eq!(largest, Some(Device::new(0)?));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`count`](Self::count).
    pub fn all() -> Result<Vec<Self>> {
        const OPERATION: &str = "Device::all";
        let _inside = open_contexts::enter_process(OPERATION)?;
        let count = initialized(OPERATION)?;
        Ok((0..count).map(|ordinal| Self { ordinal }).collect())
    }

    /// The device of a number.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::Device;
    ///
    /// assert_eq!(Device::new(0)?.ordinal(), 0);
    /// let error = Device::new(1).unwrap_err();
    /// assert_eq!(error.to_string(), "Device::new: there is no device 1; there is 1 device");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchDevice`], with the number of devices; else as [`count`](Self::count).
    pub fn new(ordinal: u32) -> Result<Self> {
        const OPERATION: &str = "Device::new";
        let _inside = open_contexts::enter_process(OPERATION)?;
        let count = initialized(OPERATION)?;
        if ordinal >= count {
            return Err(Error::NoSuchDevice {
                operation: OPERATION,
                ordinal,
                count,
            });
        }
        Ok(Self { ordinal })
    }

    /// The device of a UUID; `None` if no device of this process has it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::device::DeviceUuid;
    /// use cuguard::Device;
    ///
    /// let device = Device::new(0)?;
    /// assert_eq!(Device::with_uuid(device.uuid()?)?, Some(device));
    /// assert_eq!(Device::with_uuid(DeviceUuid::from_bytes([0; 16]))?, None);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`count`](Self::count).
    pub fn with_uuid(uuid: DeviceUuid) -> Result<Option<Self>> {
        for device in Self::all()? {
            if device.uuid()? == uuid {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    /// The device at a PCI address, such as `0000:65:00.0`; `None` if there is none, or if the text is not an address.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::Device;
    ///
    /// let device = Device::new(0)?;
    /// assert_eq!(Device::with_pci_bus_id(&device.pci_bus_id()?)?, Some(device));
    /// assert_eq!(Device::with_pci_bus_id("elsewhere")?, None);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`count`](Self::count).
    pub fn with_pci_bus_id(address: &str) -> Result<Option<Self>> {
        const OPERATION: &str = "Device::with_pci_bus_id";
        let _inside = open_contexts::enter_process(OPERATION)?;
        initialized(OPERATION)?;
        let Ok(address) = CString::new(address) else {
            return Ok(None);
        };
        match device::by_pci_bus_id(&address) {
            Ok(found) => Ok(u32::try_from(found).ok().map(|ordinal| Self { ordinal })),
            // No address, and an address without a device.
            Err(CallError {
                code: CUresult::INVALID_VALUE | CUresult::INVALID_DEVICE,
                ..
            }) => Ok(None),
            Err(error) => Err(failed(OPERATION, None)(error)),
        }
    }

    /// A device that is known to exist.
    pub(crate) const fn existing(ordinal: u32) -> Self {
        Self { ordinal }
    }

    /// Makes a driver call about this device. A device exists only where the driver is initialized.
    fn query<T>(
        self,
        operation: &'static str,
        call: impl FnOnce(CUdevice) -> result::Result<T>,
    ) -> Result<T> {
        let _inside = open_contexts::enter_process(operation)?;
        call(self.as_raw()).map_err(failed(operation, Some(self.ordinal)))
    }

    /// Its number.
    #[must_use]
    pub const fn ordinal(self) -> u32 {
        self.ordinal
    }

    /// The driver's handle, for code that calls the driver directly.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::driver::api;
    ///
    /// let device = cuguard::Device::new(0)?;
    /// let mut support = 0;
    /// // SAFETY: `support` is valid for writes.
    /// let code = unsafe { api::cuDeviceGetExecAffinitySupport(&mut support, 0, device.as_raw()) };
    /// assert!(code.is_success());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub const fn as_raw(self) -> CUdevice {
        self.ordinal as CUdevice
    }

    /// Its name, such as `NVIDIA H200`.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// assert!(cuguard::Device::new(0)?.name()?.contains("imulated"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ProcessEnding`], or any other driver error.
    pub fn name(self) -> Result<String> {
        let mut buffer = [0; 256];
        self.query("Device::name", |device| {
            let name = device::name(device, &mut buffer)?;
            Ok(name.to_string_lossy().into_owned())
        })
    }

    /// Its UUID.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let uuid = cuguard::Device::new(0)?.uuid()?;
    /// assert!(uuid.to_string().starts_with("GPU-"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`name`](Self::name).
    pub fn uuid(self) -> Result<DeviceUuid> {
        self.query("Device::uuid", device::uuid)
            .map(DeviceUuid::from_bytes)
    }

    /// Its PCI address, such as `0000:65:00.0`.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// assert!(cuguard::Device::new(0)?.pci_bus_id()?.ends_with(":00.0"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`name`](Self::name).
    pub fn pci_bus_id(self) -> Result<String> {
        let mut buffer = [0; 32];
        self.query("Device::pci_bus_id", |device| {
            let address = device::pci_bus_id(device, &mut buffer)?;
            Ok(address.to_string_lossy().into_owned())
        })
    }

    /// Its compute capability.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::device::ComputeCapability;
    /// use cuguard::Device;
    ///
    /// assert!(Device::new(0)?.compute_capability()? >= ComputeCapability::new(5, 2));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`name`](Self::name).
    pub fn compute_capability(self) -> Result<ComputeCapability> {
        self.query("Device::compute_capability", |device| {
            let number = |which| {
                let number = device::attribute(which, device)?;
                Ok(u32::try_from(number).unwrap_or(0))
            };
            Ok(ComputeCapability::new(
                number(DeviceAttribute::ComputeCapabilityMajor as u32)?,
                number(DeviceAttribute::ComputeCapabilityMinor as u32)?,
            ))
        })
    }

    /// Its memory in bytes. [`Context::memory`](crate::Context::memory) returns what is free, too.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, Device};
    /// assert_eq!(Device::new(0)?.total_memory()?, Context::new(0)?.memory()?.total);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`name`](Self::name).
    pub fn total_memory(self) -> Result<u64> {
        let bytes = self.query("Device::total_memory", device::total_mem)?;
        Ok(bytes as u64)
    }

    /// One of its attributes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::device::DeviceAttribute;
    /// use cuguard::Device;
    ///
    /// assert_eq!(Device::new(0)?.attribute(DeviceAttribute::WarpSize)?, 32);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedAttribute`] if the driver is older than the attribute; else as [`name`](Self::name).
    #[doc(alias("get_attribute", "cuDeviceGetAttribute"))]
    pub fn attribute(self, attribute: DeviceAttribute) -> Result<i32> {
        const OPERATION: &str = "Device::attribute";
        let _inside = open_contexts::enter_process(OPERATION)?;
        match device::attribute(attribute as u32, self.as_raw()) {
            Err(error) if error.code == CUresult::INVALID_VALUE => {
                Err(Error::UnsupportedAttribute {
                    operation: OPERATION,
                    attribute: attribute.name(),
                })
            }
            value => value.map_err(failed(OPERATION, Some(self.ordinal))),
        }
    }

    /// Whether kernels on this device can access the memory of `peer`; see [`PeerAccess`](crate::device::PeerAccess). `false` for a
    /// device and itself. Copies between devices are possible in any case.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let device = cuguard::Device::new(0)?;
    /// assert!(!device.can_access_peer(device)?);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`name`](Self::name).
    #[doc(alias = "cuDeviceCanAccessPeer")]
    pub fn can_access_peer(self, peer: Device) -> Result<bool> {
        self.query("Device::can_access_peer", |device| {
            // A driver may fail for a device and itself.
            Ok(self != peer && peer::can_access(device, peer.as_raw())?)
        })
    }
}

/// `device 0`
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.ordinal)
    }
}
