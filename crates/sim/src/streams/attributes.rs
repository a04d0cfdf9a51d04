//! The attributes of a stream: hints for kernels, and how host threads wait.

use cuguard_sys::{
    CUaccessPolicyWindow, CUlaunchMemSyncDomainMap, CUstreamAttrValue, access_property,
    launch_attribute_id as id,
};

/// How many domains of memory synchronization there are.
const DOMAINS: u8 = 4;
/// What a driver reports for a synchronization policy that was not set.
const NOT_SET: u32 = u32::MAX;
/// The largest window of an access policy.
const MAX_WINDOW: usize = 128 << 20;

/// What `cuStreamSetAttribute` sets, except the priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamAttributes {
    window: CUaccessPolicyWindow,
    synchronization: u32,
    domains: CUlaunchMemSyncDomainMap,
    domain: u32,
}

// SAFETY: the address of the window is a number here: nothing is accessed through it.
unsafe impl Send for StreamAttributes {}

impl Default for StreamAttributes {
    fn default() -> Self {
        Self {
            window: CUaccessPolicyWindow::default(),
            synchronization: NOT_SET,
            domains: CUlaunchMemSyncDomainMap {
                default_: 0,
                remote: 1,
            },
            domain: 0,
        }
    }
}

impl StreamAttributes {
    /// The value of an attribute; `None` if there is none with this number.
    pub(crate) fn get(&self, which: u32) -> Option<CUstreamAttrValue> {
        // The rest of a union is zero.
        let mut value = CUstreamAttrValue { pad: [0; 64] };
        match which {
            id::ACCESS_POLICY_WINDOW => value.accessPolicyWindow = self.window,
            id::SYNCHRONIZATION_POLICY => value.syncPolicy = self.synchronization,
            id::MEM_SYNC_DOMAIN_MAP => value.memSyncDomainMap = self.domains,
            id::MEM_SYNC_DOMAIN => value.memSyncDomain = self.domain,
            _ => return None,
        }
        Some(value)
    }

    /// Sets an attribute; `false` if there is none with this number, or the value is not valid.
    ///
    /// # Safety
    ///
    /// The value is initialized for this attribute.
    pub(crate) unsafe fn set(&mut self, which: u32, value: &CUstreamAttrValue) -> bool {
        let mut new = *self;
        let valid = match which {
            id::ACCESS_POLICY_WINDOW => {
                // SAFETY: as the caller guarantees.
                new.window = unsafe { value.accessPolicyWindow };
                new.window.num_bytes <= MAX_WINDOW
                    && (0.0..=1.0).contains(&new.window.hitRatio)
                    // Measured: other numbers that are no property are accepted.
                    && new.window.missProp != access_property::PERSISTING
            }
            id::SYNCHRONIZATION_POLICY => {
                // SAFETY: as the caller guarantees.
                new.synchronization = unsafe { value.syncPolicy };
                (1..=4).contains(&new.synchronization)
            }
            id::MEM_SYNC_DOMAIN_MAP => {
                // SAFETY: as the caller guarantees.
                new.domains = unsafe { value.memSyncDomainMap };
                new.domains.default_ < DOMAINS && new.domains.remote < DOMAINS
            }
            id::MEM_SYNC_DOMAIN => {
                // SAFETY: as the caller guarantees.
                new.domain = unsafe { value.memSyncDomain };
                new.domain <= 1
            }
            _ => false,
        };
        if valid {
            *self = new;
        }
        valid
    }
}
