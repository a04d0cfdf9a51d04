//! What a registry keeps of records under keys [by address](crate::Key::by_address) alone.

use crate::by_device::ByDevice;
use crate::history::Sites;
use crate::presence::Presence;

/// What is kept of records under keys by address alone.
#[derive(Default)]
pub(crate) struct Addressed {
    /// Live bytes by call site, of the records in the table.
    pub(crate) sites: Sites,
    /// Which addresses are in the table.
    pub(crate) in_table: Presence,
    /// What is alive by device.
    pub(crate) devices: ByDevice,
}
