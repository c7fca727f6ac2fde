//! Device interrupts by vectors of the CPU, if the VM is configured for them.

use crate::arch::host::Host;
use alloc::boxed::Box;
use hartline_abi::call::Operation;
use hartline_abi::interrupt::Table;
use hartline_abi::layout::{PHYSMAP_BASE, RAM_GPA};
use hartline_linux::errno::Errno;

/// Requests the vectors of all devices that have one. The VMM copies its answer, so the table is
/// not needed afterwards.
///
/// # Errors
/// The error that the VMM returns.
pub fn request(host: Host) -> Result<(), Errno> {
    let devices = host.boot().vectors;
    if devices == 0 {
        return Ok(());
    }
    let table = Box::new(Table::of_devices(devices));
    // The heap is in the linear map.
    let address = RAM_GPA + (core::ptr::from_ref(&*table) as u64 - PHYSMAP_BASE);
    host.call(Operation::Vectors, &mut [address, 0, 0, 0, 0, 0])?;
    Ok(())
}
