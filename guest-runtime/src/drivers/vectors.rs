//! Interrupts of devices by the processor's vectors, where the VM was made for that.

use crate::host::Host;
use alloc::boxed::Box;
use hartline_abi::call::Operation;
use hartline_abi::interrupt::Table;
use hartline_abi::layout::{PHYSMAP_BASE, RAM_GPA};
use hartline_linux::errno::Errno;

/// Asks for the vectors of all devices that have one. The VMM copies what it gives, so the
/// table is not needed afterwards.
///
/// # Errors
/// What the VMM answers.
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
