//! The registers of stopped threads.

use crate::convert::low_u32;
use crate::debugger::target::{F0, FCSR, FFLAGS, FRM, PC, REGISTERS, length};
use crate::kernel::Kernel;
use crate::kernel::task::Registers;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;

/// Bits of `fcsr` ("Zicsr" and "F": `fflags`, then `frm`).
const FLAGS: u32 = 0x1f;
const MODE_SHIFT: u32 = 5;
const MODE: u32 = 7;

/// The bytes of a register; `None` if there is none with this number.
pub(super) fn get(registers: &Registers, number: usize) -> Option<Vec<u8>> {
    let wide = |value: u64| value.to_le_bytes().to_vec();
    let narrow = |value: u32| value.to_le_bytes().to_vec();
    Some(match number {
        0..PC => wide(registers.x[number]),
        PC => wide(registers.pc),
        F0..FFLAGS => wide(registers.f[number - F0]),
        FFLAGS => narrow(registers.fcsr & FLAGS),
        FRM => narrow(registers.fcsr >> MODE_SHIFT & MODE),
        FCSR => narrow(registers.fcsr),
        _ => return None,
    })
}

/// Sets a register from its bytes.
pub(super) fn set(registers: &mut Registers, number: usize, bytes: &[u8]) -> Option<()> {
    if number >= REGISTERS || bytes.len() != length(number) {
        return None;
    }
    let mut value = [0; 8];
    value[..bytes.len()].copy_from_slice(bytes);
    let value = u64::from_le_bytes(value);
    let fcsr = registers.fcsr;
    match number {
        0 => {}
        1..PC => registers.x[number] = value,
        PC => registers.pc = value & !1,
        F0..FFLAGS => registers.f[number - F0] = value,
        FFLAGS => registers.fcsr = fcsr & !FLAGS | low_u32(value) & FLAGS,
        FRM => registers.fcsr = fcsr & FLAGS | (low_u32(value) & MODE) << MODE_SHIFT,
        _ => registers.fcsr = low_u32(value) & (FLAGS | MODE << MODE_SHIFT),
    }
    Some(())
}

impl Kernel {
    /// Whether a vCPU has the registers of a task in its hart: this one, which executes no task now.
    fn is_in_hart(&self, tid: u32) -> bool {
        !self.is_idle() && self.task().tid == tid
    }

    /// The registers of a thread that stands still.
    pub(crate) fn stopped_registers(&self, tid: u32) -> Option<Registers> {
        match self.is_in_hart(tid) {
            true => Some(Registers::save(self.hart())),
            false => self.program_task(tid)?.registers.clone(),
        }
    }

    /// Changes the registers of a thread that stands still. With another program counter, the thread
    /// no longer waits in its system call.
    ///
    /// # Errors
    /// `ESRCH`. `EPERM`: it cannot continue, because not all of its registers are known.
    pub(crate) fn set_stopped_registers(
        &mut self,
        tid: u32,
        registers: Registers,
    ) -> Result<(), Errno> {
        let old = self.stopped_registers(tid).ok_or(Errno::ESRCH)?;
        if self
            .program_task(tid)
            .is_some_and(|task| task.crash.is_some())
        {
            return Err(Errno::EPERM);
        }
        if old.pc != registers.pc {
            self.leave_call(tid);
        }
        match self.is_in_hart(tid) {
            true => registers.restore(self.hart()),
            false => {
                let task = self.tasks.get_mut(tid).ok_or(Errno::ESRCH)?;
                task.registers = Some(registers);
            }
        }
        Ok(())
    }

    /// Makes a task forget the system call in which it waits.
    fn leave_call(&mut self, tid: u32) {
        self.wake(tid);
        if let Some(task) = self.tasks.get_mut(tid) {
            let waited = task.retry.take().is_some();
            task.awaits_page = false;
            task.debug.moved |= waited;
            task.debug.call = super::Call::Outside;
        }
        self.forget_disks(tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_read_as_they_were_set() {
        let mut registers = Registers {
            x: [0; 32],
            f: [0; 32],
            pc: 0,
            fcsr: 0,
        };
        for number in 0..REGISTERS {
            let mut bytes = alloc::vec![0; length(number)];
            bytes[0] = 2;
            set(&mut registers, number, &bytes).unwrap();
            match number {
                0 => assert_eq!(get(&registers, 0), Some([0; 8].to_vec())),
                number => assert_eq!(get(&registers, number), Some(bytes), "{number}"),
            }
        }
        assert_eq!(get(&registers, REGISTERS), None);
        assert_eq!(set(&mut registers, REGISTERS, &[0; 8]), None);
        assert_eq!(set(&mut registers, 1, &[0; 4]), None);
    }
}
