//! Whether a driver is real or simulated.

/// What executes the driver's functions.
///
/// ```
/// use cuguard_driver::DriverKind;
///
/// if let Ok(driver) = cuguard_driver::load() {
///     match driver.kind() {
///         DriverKind::Real => println!("times mean something"),
///         DriverKind::Simulated => println!("results do, times do not"),
///         _ => {}
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverKind {
    /// A driver for real devices: any library that does not declare itself a simulation.
    Real,
    /// The simulated GPU, compiled into the program or loaded as a library.
    Simulated,
}
