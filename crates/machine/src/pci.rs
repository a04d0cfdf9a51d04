//! Ids of the PCI bus. CUDA writes `0000:01:00.0`, NVML `00000000:01:00.0`.

/// The place of a GPU on the PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PciId {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciId {
    /// Reads both forms, and the short one without a domain.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().rsplitn(3, ':');
        let (device, function) = parts.next()?.split_once('.')?;
        let bus = parts.next()?;
        let domain = parts.next().unwrap_or("0");
        Some(Self {
            domain: hexadecimal(domain, 8)?,
            bus: hexadecimal(bus, 2)?.try_into().ok()?,
            device: hexadecimal(device, 2)?.try_into().ok()?,
            function: hexadecimal(function, 1)?.try_into().ok()?,
        })
    }

    /// As CUDA writes it, in small letters.
    pub(crate) fn for_cuda(self) -> String {
        let (domain, bus, device, function) = (self.domain, self.bus, self.device, self.function);
        format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }

    /// As NVML writes it.
    pub(crate) fn for_nvml(self) -> String {
        let (domain, bus, device, function) = (self.domain, self.bus, self.device, self.function);
        format!("{domain:08X}:{bus:02X}:{device:02X}.{function:X}")
    }
}

/// Digits alone: the standard library would also take a sign.
fn hexadecimal(text: &str, most: usize) -> Option<u32> {
    let plain = text.len() <= most && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

/// The id of a PCI bus in one form, so that two can be compared: as CUDA writes it, in small
/// letters. `None` for a text that is no such id.
///
/// ```
/// use cuguard_machine::normal_pci_bus_id;
///
/// assert_eq!(normal_pci_bus_id("00000000:3B:00.0").as_deref(), Some("0000:3b:00.0"));
/// assert_eq!(normal_pci_bus_id("0000:3b:00.0").as_deref(), Some("0000:3b:00.0"));
/// assert_eq!(normal_pci_bus_id("the first one"), None);
/// ```
#[must_use]
pub fn normal_pci_bus_id(id: &str) -> Option<String> {
    PciId::parse(id).map(PciId::for_cuda)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_the_same_place() {
        for text in [
            "0000:01:00.0",
            "00000000:01:00.0",
            "01:00.0",
            " 0:1:0.0 ",
            "0000:01:00.0\n",
        ] {
            let id = PciId::parse(text).unwrap();
            assert_eq!(id.for_cuda(), "0000:01:00.0");
            assert_eq!(id.for_nvml(), "00000000:01:00.0");
        }
    }

    #[test]
    fn large_domains_and_letters_are_kept() {
        let id = PciId::parse("0001abcd:C1:1F.7").unwrap();
        assert_eq!(id.for_cuda(), "1abcd:c1:1f.7");
        assert_eq!(id.for_nvml(), "0001ABCD:C1:1F.7");
        assert_eq!(PciId::parse(&id.for_cuda()), Some(id));
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in [
            "",
            ":",
            "01",
            "01:00",
            "0000:01:00",
            "0000:01:00.",
            "0000:01:00.00",
            "0000:+1:00.0",
            "0000:100:00.0",
            "000000000:01:00.0",
            "1:0000:01:00.0",
            "GPU-6f0e",
            "0000:01:00.\u{661}",
        ] {
            assert_eq!(PciId::parse(text), None, "{text:?}");
        }
    }
}
