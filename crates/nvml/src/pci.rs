//! PCI bus ids. CUDA writes `0000:01:00.0`, NVML `00000000:01:00.0`.

/// Converts a PCI bus id to the form that CUDA writes, in lower case, so that two can be compared. Also
/// takes NVML's form, and one without a domain. `None` for a text that is no such id.
///
/// ```
/// use cuguard_nvml::normalize_pci_bus_id;
///
/// assert_eq!(normalize_pci_bus_id("00000000:3B:00.0").as_deref(), Some("0000:3b:00.0"));
/// assert_eq!(normalize_pci_bus_id("0000:3b:00.0").as_deref(), Some("0000:3b:00.0"));
/// assert_eq!(normalize_pci_bus_id("the first one"), None);
/// ```
#[must_use]
pub fn normalize_pci_bus_id(id: &str) -> Option<String> {
    let mut parts = id.trim().rsplitn(3, ':');
    let (device, function) = parts.next()?.split_once('.')?;
    let (device, function) = (hexadecimal(device, 2)?, hexadecimal(function, 1)?);
    let bus = hexadecimal(parts.next()?, 2)?;
    let domain = hexadecimal(parts.next().unwrap_or("0"), 8)?;
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
}

/// Parses at most `most` digits, and digits alone: the standard library would also take a sign.
fn hexadecimal(text: &str, most: usize) -> Option<u32> {
    let plain = text.len() <= most && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_the_same_gpu() {
        for text in [
            "0000:01:00.0",
            "00000000:01:00.0",
            "01:00.0",
            " 0:1:0.0 ",
            "0000:01:00.0\n",
        ] {
            let id = normalize_pci_bus_id(text).unwrap();
            assert_eq!(id, "0000:01:00.0");
        }
    }

    #[test]
    fn large_domains_and_letters_are_kept() {
        let id = normalize_pci_bus_id("0001abcd:C1:1F.7").unwrap();
        assert_eq!(id, "1abcd:c1:1f.7");
        assert_eq!(normalize_pci_bus_id(&id), Some(id));
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
            assert_eq!(normalize_pci_bus_id(text), None, "{text:?}");
        }
    }
}
