//! The VM in which the probe runs.

use super::ProbeError;
use super::code::{self, offset};
use super::feature::{Feature, Registers};
use crate::layout::{PageTables, Permission};
use crate::platform::{Access, Exit, Kvm, Mapping, UserEntry, Vcpu, Vm, VmFailure, memory_file};
use crate::supervisor;
use hartline_abi::hart::{ExceptionFrame, Hart};
use hartline_abi::layout::{
    HUGE_PAGE_SIZE, PAGE_SIZE, PHYSMAP_BASE, RAM_GPA, RUNTIME_BASE, SUPERVISOR_BASE, SUPERVISOR_GPA,
};
use hartline_abi::port;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// RAM: page tables and the CPL 0 stack, then scratch area, then code.
const RAM: u64 = 3 * HUGE_PAGE_SIZE;
const CPL0_STACK: u64 = HUGE_PAGE_SIZE - PAGE_SIZE;
const SCRATCH: u64 = HUGE_PAGE_SIZE;
const CODE: u64 = 2 * HUGE_PAGE_SIZE;

/// Vector of #UD.
pub(super) const INVALID_OPCODE: u64 = 6;

/// The outcome of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Works,
    /// The exception vector.
    Exception(u64),
    WrongResult,
    NotKept,
    /// The VM cannot continue.
    Failed(VmFailure),
}

/// A VM with one vCPU and the tests in its memory.
pub(super) struct Guest {
    vcpu: Vcpu,
    ram: Arc<Mapping>,
    /// Keeps the memory slots mapped.
    _vm: Vm,
}

impl Guest {
    pub fn new(kvm: &Kvm) -> Result<Self, ProbeError> {
        let mut vm = kvm.create_vm()?;
        let ram = Arc::new(Mapping::anonymous("probe", RAM)?);
        vm.add_slot(RAM_GPA, Arc::clone(&ram), Access::ReadWrite)?;
        let slot = memory_file(c"hartline-probe", &supervisor::slot())
            .map_err(|source| ProbeError::File { source })?;
        let slot = Mapping::file("supervisor slot", &slot, supervisor::SLOT_LENGTH)?;
        vm.add_slot(SUPERVISOR_GPA, Arc::new(slot), Access::ReadOnly)?;
        let mut tables = PageTables::new(&ram, CPL0_STACK);
        let supervisor_length = supervisor::SLOT_LENGTH;
        let (read_write, execute) = (Permission::ReadWrite, Permission::ReadExecute);
        tables.map(
            SUPERVISOR_BASE,
            SUPERVISOR_GPA,
            supervisor_length,
            Permission::Supervisor,
        )?;
        tables.map(
            supervisor::STACK_PAGE,
            RAM_GPA + CPL0_STACK,
            PAGE_SIZE,
            read_write,
        )?;
        tables.map_huge(PHYSMAP_BASE, RAM_GPA + SCRATCH, HUGE_PAGE_SIZE, read_write)?;
        tables.map_huge(RUNTIME_BASE, RAM_GPA + CODE, HUGE_PAGE_SIZE, execute)?;
        ram.write(CODE, code::bytes())?;
        let hart = SCRATCH + offset::HART;
        for (field, value) in [
            (
                offset_of!(Hart, exception_entry),
                RUNTIME_BASE + code::trap(),
            ),
            (
                offset_of!(Hart, exception_stack),
                PHYSMAP_BASE + offset::EXCEPTION_STACK,
            ),
        ] {
            ram.write(hart + field as u64, &value.to_le_bytes())?;
        }
        let vcpu = Vcpu::new(kvm, &vm, 0)?;
        Ok(Self { vcpu, ram, _vm: vm })
    }

    /// Checks that the probe detects an invalid instruction and a wrong result.
    pub fn check(&mut self) -> Result<(), ProbeError> {
        let invalid = self.run(code::INVALID)?;
        let wrong = self.run(code::MISTAKEN)?;
        match (invalid, wrong) {
            (Outcome::Exception(INVALID_OPCODE), Outcome::WrongResult) => Ok(()),
            _ => Err(ProbeError::Confused),
        }
    }

    /// Runs the test of one feature's instructions.
    pub fn try_feature(&mut self, feature: Feature) -> Result<Outcome, ProbeError> {
        self.run(code::FEATURES + feature as usize)
    }

    /// Fills the registers with random bytes, forces exits while the host uses its own registers,
    /// and compares.
    pub fn try_registers(&mut self, registers: Registers) -> Result<Outcome, ProbeError> {
        let (test, count, width, masks) = match registers {
            Registers::Xmm => (0, 16, 16, false),
            Registers::Ymm => (1, 16, 32, false),
            Registers::Zmm => (2, 32, 64, true),
        };
        let mut loaded = [0; offset::CONTENTS];
        fill_random(&mut loaded);
        self.ram.write(SCRATCH + offset::LOADED, &loaded)?;
        self.ram
            .write(SCRATCH + offset::STORED, &[0; offset::CONTENTS])?;
        let outcome = self.run(code::REGISTERS + test)?;
        let mut stored = [0; offset::CONTENTS];
        self.ram.read(SCRATCH + offset::STORED, &mut stored)?;
        let rows = loaded.chunks(64).zip(stored.chunks(64)).take(count);
        let mut kept = rows.map(|(a, b)| a[..width] == b[..width]);
        // AVX-512 without BW has 16 bits of each mask register.
        let mask = |bytes: &[u8; offset::CONTENTS], n: usize| {
            [bytes[2048 + 8 * n], bytes[2048 + 8 * n + 1]]
        };
        let masks_kept = !masks || (0..8).all(|n| mask(&loaded, n) == mask(&stored, n));
        Ok(match outcome {
            Outcome::Works if !(kept.all(|same| same) && masks_kept) => Outcome::NotKept,
            outcome => outcome,
        })
    }

    /// The time from each of many forced exits to the next.
    pub fn time_exits(&mut self) -> Result<Vec<Duration>, ProbeError> {
        self.start(code::REGISTERS)?;
        let mut times = Vec::new();
        for _ in 0..code::STEPS {
            let start = Instant::now();
            match self.vcpu.run(&()) {
                Ok(Exit::PortWrite(port::PROBE)) => times.push(start.elapsed()),
                Ok(Exit::Interrupted) => {}
                _ => return Err(ProbeError::Confused),
            }
        }
        // The first exit includes the first access to the guest's memory.
        times.drain(..times.len().min(1));
        Ok(times)
    }

    fn run(&mut self, test: usize) -> Result<Outcome, ProbeError> {
        self.start(test)?;
        for step in 0.. {
            match self.vcpu.run(&()) {
                Ok(Exit::PortWrite(port::PROBE)) => {}
                Ok(Exit::PortWrite(_) | Exit::DeviceAccess) => return Err(ProbeError::Confused),
                Ok(Exit::Interrupted) => continue,
                Err(failure) => return Ok(Outcome::Failed(failure)),
            }
            match self.vcpu.registers()?.rbx {
                code::STEP if step <= 2 * code::STEPS => disturb(step),
                code::RIGHT => return Ok(Outcome::Works),
                code::WRONG => return Ok(Outcome::WrongResult),
                code::TRAPPED => return self.exception(),
                _ => break,
            }
        }
        Err(ProbeError::Confused)
    }

    /// Sets the vCPU to the start of a test.
    fn start(&mut self, test: usize) -> Result<(), ProbeError> {
        let address = code::test(test).ok_or(ProbeError::Confused)? + RUNTIME_BASE;
        self.ram
            .write(SCRATCH + offset::TEST, &address.to_le_bytes())?;
        self.vcpu.start_at(&UserEntry {
            rip: RUNTIME_BASE,
            rsp: PHYSMAP_BASE + offset::STACK,
            rdi: PHYSMAP_BASE,
            page_table: RAM_GPA + PageTables::ROOT,
            gdt: supervisor::gdt(),
            idt: supervisor::idt(),
            tss: supervisor::tss(0),
        })?;
        Ok(())
    }

    /// The exception whose frame the stub put on the CPL 0 stack.
    fn exception(&self) -> Result<Outcome, ProbeError> {
        let frame = supervisor::EXCEPTION_FRAME - supervisor::STACK_PAGE;
        let vector = frame + offset_of!(ExceptionFrame, vector) as u64;
        let mut bytes = [0; 8];
        self.ram.read(CPL0_STACK + vector, &mut bytes)?;
        Ok(Outcome::Exception(u64::from_le_bytes(bytes)))
    }
}

/// Overwrites every vector register of the host thread, and lets other threads run now and then, so
/// that unsaved contents are lost.
fn disturb(step: u64) {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: this CPU has the instructions, they access no memory, and all registers that they
        // change are declared.
        unsafe {
            std::arch::asm!(
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, \
                 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
                "vpternlogd zmm\\n, zmm\\n, zmm\\n, 255",
                ".endr",
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7",
                "kxnorw k\\n, k\\n, k\\n",
                ".endr",
                "vzeroupper",
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
                out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
                out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
                out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
                out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
                out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
                out("k1") _, out("k2") _, out("k3") _, out("k4") _,
                out("k5") _, out("k6") _, out("k7") _,
            );
        }
    } else if is_x86_feature_detected!("avx") {
        // SAFETY: this CPU has the instructions, they access no memory, and all registers that they
        // change are declared.
        unsafe {
            std::arch::asm!(
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "vcmpps ymm\\n, ymm\\n, ymm\\n, 15",
                ".endr",
                "vzeroupper",
                out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
                out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            );
        }
    } else {
        // SAFETY: every x86-64 CPU has the instruction, it accesses no memory, and all registers that
        // it changes are declared.
        unsafe {
            std::arch::asm!(
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "pcmpeqd xmm\\n, xmm\\n",
                ".endr",
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            );
        }
    }
    if step % 8 == 7 {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Bytes that the host's registers are unlikely to hold by chance.
fn fill_random(bytes: &mut [u8]) {
    let mut state = std::process::id().wrapping_mul(0x9e37_79b9) | 1;
    for byte in bytes {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        [*byte, ..] = state.to_le_bytes();
    }
}
