//! A vCPU that starts at CPL 3 in 64-bit mode, and its exits.

use super::cpuid::{self, XCR0_WANTED};
use super::interrupts::APIC_BASE_X2APIC;
use super::{Error, Kicker, Kvm, Vm};
use crate::supervisor;
use hartline_abi::layout::{KERNEL_CS, KERNEL_SS, USER_CS, USER_SS};
use hartline_abi::port;
use kvm_bindings::{
    CpuId, KVM_CAP_ENFORCE_PV_FEATURE_CPUID, KVM_CAP_SYNC_REGS, KVM_SYNC_X86_EVENTS,
    KVM_SYNC_X86_REGS, KVM_SYNC_X86_SREGS, Msrs, kvm_enable_cap, kvm_msr_entry, kvm_regs,
    kvm_segment, kvm_sregs, kvm_xcr, kvm_xcrs,
};
use kvm_ioctls::{VcpuExit, VcpuFd};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// CR0: PE, MP, ET, NE, WP, AM, PG.
const CR0: u64 = 1 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 16 | 1 << 18 | 1 << 31;
/// CR4: PAE, OSFXSR, OSXMMEXCPT, FSGSBASE.
const CR4: u64 = 1 << 5 | 1 << 9 | 1 << 10 | 1 << 16;
/// CR4.OSXSAVE.
const CR4_OSXSAVE: u64 = 1 << 18;
/// EFER: SCE, LME, LMA, NXE.
const EFER: u64 = 1 | 1 << 8 | 1 << 10 | 1 << 11;
/// The time-stamp counter.
const MSR_IA32_TSC: u32 = 0x10;
/// RFLAGS: the bit that is always set, and IF, which CPL 3 cannot set later.
const RFLAGS: u64 = 2 | 1 << 9;
/// Segment type of an available 64-bit TSS.
const TSS_AVAILABLE: u8 = 9;
/// Segment type of a busy 64-bit TSS.
const TSS_BUSY: u8 = 11;
/// CPUID vendors whose processors have SVM, as leaf 0 spells them in EBX, EDX, ECX.
const SVM_VENDORS: [&[u8; 12]; 2] = [b"AuthenticAMD", b"HygonGenuine"];

/// The start state of a vCPU, and the tables it uses.
#[derive(Debug, Clone, Copy)]
pub struct UserEntry {
    /// First instruction, at CPL 3.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// First argument.
    pub rdi: u64,
    /// Guest-physical address of the top-level page table.
    pub page_table: u64,
    /// GDT: address and limit.
    pub gdt: (u64, u16),
    /// IDT: address and limit.
    pub idt: (u64, u16),
    /// TSS: selector, address and limit.
    pub tss: (u16, u64, u32),
}

/// Registers in physical memory.
pub trait Mmio {
    /// Serves a read at a guest-physical address. Result: whether a device is there.
    fn read(&self, gpa: u64, data: &mut [u8]) -> bool;

    /// Serves a write at a guest-physical address. Result: whether a device is there.
    fn write(&self, gpa: u64, data: &[u8]) -> bool;
}

/// No devices.
impl Mmio for () {
    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn write(&self, _: u64, _: &[u8]) -> bool {
        false
    }
}

/// The reason for an exit of a guest that can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// `out` to a port.
    PortWrite(u16),
    /// An access to registers of devices, which was served.
    DeviceAccess,
    /// The vCPU was kicked.
    Interrupted,
}

/// The reason why the guest cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmFailure {
    /// An exception that the guest's tables cannot deliver.
    TripleFault,
    /// A read of unmapped physical memory.
    WildRead(u64),
    /// A write to physical memory that is unmapped or read-only.
    WildWrite(u64),
    /// Write to a part of the pages that belong to the VMM.
    ProtectedWrite(&'static str),
    /// An interrupt or exception with this unassigned vector.
    Nobody(u8),
    /// `out` to a port without a meaning.
    PortWrite(u16),
    /// `in` from a port.
    PortRead(u16),
    /// `rdmsr` of an MSR that the guest does not need.
    MsrRead(u32),
    /// `wrmsr` to an MSR that the guest does not need.
    MsrWrite(u32),
    /// `hlt` at CPL 0 without a wake-up source.
    Halted,
    /// The processor refused the vCPU state (reason of the hardware).
    Entry(u64),
    /// KVM gave up, usually because it cannot emulate an instruction.
    Internal(u32),
    /// An exit reason of KVM that this VM cannot cause.
    Unexpected(u32),
}

impl fmt::Display for VmFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TripleFault => f.write_str("triple fault"),
            Self::WildRead(gpa) => write!(f, "read of missing physical memory at {gpa:#x}"),
            Self::WildWrite(gpa) => {
                write!(
                    f,
                    "write to missing or read-only physical memory at {gpa:#x}"
                )
            }
            Self::ProtectedWrite(what) => write!(f, "write to {what}, which is the VMM's"),
            Self::Nobody(vector) => write!(f, "interrupt vector {vector} is unassigned"),
            Self::PortWrite(port) => write!(f, "write to I/O port {port:#x}"),
            Self::PortRead(port) => write!(f, "read of I/O port {port:#x}"),
            Self::MsrRead(msr) => write!(f, "read of MSR {msr:#x}"),
            Self::MsrWrite(msr) => write!(f, "write to MSR {msr:#x}"),
            Self::Halted => f.write_str("processor halted"),
            Self::Entry(reason) => write!(f, "processor refused to enter, reason {reason:#x}"),
            Self::Internal(error) => write!(f, "KVM internal error {error}"),
            Self::Unexpected(reason) => write!(f, "unexpected KVM exit {reason}"),
        }
    }
}

/// A vCPU, owned by the thread that runs it.
#[derive(Debug)]
pub struct Vcpu {
    pub(super) fd: VcpuFd,
    /// Whether the vCPU has a local APIC in the kernel.
    has_apic: bool,
    /// XCR0 of the guest, if its processor has XSAVE.
    xcr0: Option<u64>,
    /// Segment type of the task register.
    tss_type: u8,
    kicker: Option<Arc<Kicker>>,
    /// KVM takes registers from `kvm_run` when the guest is entered (`KVM_CAP_SYNC_REGS`).
    pub(super) takes_registers: bool,
    /// KVM has completed the instruction that caused the last exit, if one did.
    pub(super) is_complete: bool,
}

impl Vcpu {
    /// Creates vCPU `id` with the processor features that KVM supports and guests may have
    /// (`platform/cpuid.rs`).
    ///
    /// # Errors
    /// [`Error::Request`].
    pub fn new(kvm: &Kvm, vm: &Vm, id: u64) -> Result<Self, Error> {
        let fd = vm
            .fd
            .create_vcpu(id)
            .map_err(Error::request("KVM_CREATE_VCPU"))?;
        let cpuid = cpuid::allowed(kvm.supported_cpuid()?, id)?;
        restrict_interfaces(kvm, &fd)?;
        fd.set_cpuid2(&cpuid)
            .map_err(Error::request("KVM_SET_CPUID2"))?;
        Ok(Self {
            fd,
            has_apic: vm.has_apics,
            xcr0: usable_xcr0(&cpuid),
            tss_type: task_register_type(&cpuid),
            kicker: None,
            takes_registers: takes_registers(kvm),
            is_complete: true,
        })
    }

    /// Whether the guest's processor has XSAVE.
    pub(super) fn has_xsave(&self) -> bool {
        self.xcr0.is_some()
    }

    /// Sets the vCPU up to start at CPL 3.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub fn start_at(&self, entry: &UserEntry) -> Result<(), Error> {
        let mut sregs = self
            .fd
            .get_sregs()
            .map_err(Error::request("KVM_GET_SREGS"))?;
        set_system_registers(&mut sregs, entry, self.tss_type);
        if self.has_apic {
            sregs.apic_base |= APIC_BASE_X2APIC;
        }
        if let Some(value) = self.xcr0 {
            sregs.cr4 |= CR4_OSXSAVE;
            let mut xcrs = kvm_xcrs {
                nr_xcrs: 1,
                ..Default::default()
            };
            xcrs.xcrs[0] = kvm_xcr {
                xcr: 0,
                reserved: 0,
                value,
            };
            self.fd
                .set_xcrs(&xcrs)
                .map_err(Error::request("KVM_SET_XCRS"))?;
        }
        self.fd
            .set_sregs(&sregs)
            .map_err(Error::request("KVM_SET_SREGS"))?;
        if self.has_apic {
            self.start_apic()?;
        }
        let registers = kvm_regs {
            rip: entry.rip,
            rsp: entry.rsp,
            rdi: entry.rdi,
            rflags: RFLAGS,
            ..Default::default()
        };
        self.fd
            .set_regs(&registers)
            .map_err(Error::request("KVM_SET_REGS"))
    }

    /// Sets the vCPU up to run code at CPL 0, with a page table of the VMM: `rcx`, `rsi` and `rdx` are the
    /// arguments. There is no stack, and interrupts are masked.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub(crate) fn start_at_cpl_0(
        &mut self,
        rip: u64,
        page_table: u64,
        [rcx, rsi, rdx]: [u64; 3],
    ) -> Result<(), Error> {
        self.forget_registers();
        let mut sregs = self
            .fd
            .get_sregs()
            .map_err(Error::request("KVM_GET_SREGS"))?;
        let supervisor = |selector, type_| kvm_segment {
            dpl: 0,
            ..segment(selector, type_)
        };
        sregs.cs = kvm_segment {
            l: 1,
            db: 0,
            ..supervisor(KERNEL_CS, 11)
        };
        sregs.ss = supervisor(KERNEL_SS, 3);
        (sregs.cr0, sregs.efer) = (CR0, EFER);
        sregs.cr3 = page_table;
        self.fd
            .set_sregs(&sregs)
            .map_err(Error::request("KVM_SET_SREGS"))?;
        let registers = kvm_regs {
            rip,
            rcx,
            rsi,
            rdx,
            rflags: 2,
            ..Default::default()
        };
        self.fd
            .set_regs(&registers)
            .map_err(Error::request("KVM_SET_REGS"))
    }

    /// Frequency of the TSC as the guest reads it, Hz.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub fn tsc_hz(&self) -> Result<u64, Error> {
        let khz = self
            .fd
            .get_tsc_khz()
            .map_err(Error::request("KVM_GET_TSC_KHZ"))?;
        Ok(u64::from(khz) * 1000)
    }

    /// The TSC as the guest would read it now.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub fn tsc(&self) -> Result<u64, Error> {
        let entry = kvm_msr_entry {
            index: MSR_IA32_TSC,
            ..Default::default()
        };
        let mut msrs = Msrs::from_entries(&[entry]).map_err(|_| Error::Request {
            request: "KVM_GET_MSRS",
            source: io::Error::from_raw_os_error(libc::ENOMEM),
        })?;
        self.fd
            .get_msrs(&mut msrs)
            .map_err(Error::request("KVM_GET_MSRS"))?;
        Ok(msrs.as_slice().first().map_or(0, |entry| entry.data))
    }

    /// The general registers, for tests and reports.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub fn registers(&self) -> Result<kvm_regs, Error> {
        self.fd.get_regs().map_err(Error::request("KVM_GET_REGS"))
    }

    /// Lets `kicker` interrupt [`Vcpu::run`] on the calling thread from now on.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub fn attach(&mut self, kicker: Arc<Kicker>) -> Result<(), Error> {
        kicker.register(self.immediate_exit())?;
        self.kicker = Some(kicker);
        Ok(())
    }

    pub(super) fn immediate_exit(&mut self) -> NonNull<u8> {
        NonNull::from(&mut self.fd.get_kvm_run().immediate_exit)
    }

    /// Runs the guest until an exit. Accesses to unmapped physical memory go to `devices`. After
    /// [`Exit::Interrupted`] the caller checks for requests.
    ///
    /// # Errors
    /// The reason why the guest cannot continue.
    pub fn run(&mut self, devices: &dyn Mmio) -> Result<Exit, VmFailure> {
        self.is_complete = false;
        match self.fd.run() {
            Ok(VcpuExit::IoOut(port::NOBODY, data)) => Err(VmFailure::Nobody(vector_in(data))),
            Ok(VcpuExit::IoOut(port, _)) => Ok(Exit::PortWrite(port)),
            Ok(VcpuExit::Intr) => Ok(self.interrupted()),
            Ok(VcpuExit::IoIn(port, _)) => Err(VmFailure::PortRead(port)),
            Ok(VcpuExit::MmioRead(gpa, data)) => match devices.read(gpa, data) {
                true => Ok(Exit::DeviceAccess),
                false => Err(VmFailure::WildRead(gpa)),
            },
            Ok(VcpuExit::MmioWrite(gpa, data)) => match devices.write(gpa, data) {
                true => Ok(Exit::DeviceAccess),
                false => Err(supervisor::part_at(gpa)
                    .map_or(VmFailure::WildWrite(gpa), VmFailure::ProtectedWrite)),
            },
            Ok(VcpuExit::X86Rdmsr(msr)) => Err(VmFailure::MsrRead(msr.index)),
            Ok(VcpuExit::X86Wrmsr(msr)) => Err(VmFailure::MsrWrite(msr.index)),
            Ok(VcpuExit::Hlt) => Err(VmFailure::Halted),
            Ok(VcpuExit::Shutdown) => Err(VmFailure::TripleFault),
            Ok(VcpuExit::FailEntry(reason, _)) => Err(VmFailure::Entry(reason)),
            Ok(VcpuExit::InternalError) => Err(VmFailure::Internal(self.suberror())),
            Ok(_) => Err(VmFailure::Unexpected(self.fd.get_kvm_run().exit_reason)),
            Err(e) if matches!(e.errno(), libc::EINTR | libc::EAGAIN) => Ok(self.interrupted()),
            Err(e) => Err(VmFailure::Internal(e.errno().unsigned_abs())),
        }
    }

    fn interrupted(&mut self) -> Exit {
        let byte = self.immediate_exit();
        // SAFETY: the byte is in this vCPU's kvm_run, which is mapped as long as
        // `self.fd`; other threads access it as an atomic too.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }.store(0, Ordering::SeqCst);
        // KVM completes an instruction before it looks for signals.
        self.is_complete = true;
        Exit::Interrupted
    }

    fn suberror(&mut self) -> u32 {
        // SAFETY: the exit reason is KVM_EXIT_INTERNAL_ERROR, whose member this is;
        // any bytes are a valid integer.
        unsafe { self.fd.get_kvm_run().__bindgen_anon_1.internal.suberror }
    }
}

impl AsRawFd for Vcpu {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Vcpu {
    fn drop(&mut self) {
        if let Some(kicker) = &self.kicker {
            kicker.unregister();
        }
    }
}

/// Whether KVM takes all registers of [`VcpuState`](super::VcpuState) that it can take from `kvm_run`.
fn takes_registers(kvm: &Kvm) -> bool {
    let wanted = KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS | KVM_SYNC_X86_EVENTS;
    let offered = kvm.system.check_extension_raw(KVM_CAP_SYNC_REGS.into());
    offered.cast_unsigned() & wanted == wanted && offered > 0
}

/// Refuses hypercalls and MSRs of KVM's paravirtual interfaces, which the guest's CPUID does not
/// announce, if this KVM can.
fn restrict_interfaces(kvm: &Kvm, fd: &VcpuFd) -> Result<(), Error> {
    let number = KVM_CAP_ENFORCE_PV_FEATURE_CPUID;
    if kvm.system.check_extension_raw(number.into()) <= 0 {
        return Ok(());
    }
    let mut capability = kvm_enable_cap {
        cap: number,
        ..Default::default()
    };
    capability.args[0] = 1;
    fd.enable_cap(&capability)
        .map_err(Error::request("KVM_CAP_ENFORCE_PV_FEATURE_CPUID"))
}

/// The vector in the error code of a #NP that a gate caused (Intel SDM volume 3, 6.13).
fn vector_in(error_code: &[u8]) -> u8 {
    let bytes = error_code.iter().rev();
    let code = bytes.fold(0u32, |code, &byte| code << 8 | u32::from(byte));
    let [vector, ..] = (code >> 3).to_le_bytes();
    vector
}

/// The XCR0 to set, if the processor that KVM offers has XSAVE.
fn usable_xcr0(cpuid: &CpuId) -> Option<u64> {
    let leaf = |function: u32| {
        cpuid
            .as_slice()
            .iter()
            .find(move |e| e.function == function && e.index == 0)
    };
    let has_xsave = leaf(1)?.ecx & (1 << 26) != 0;
    let state = leaf(0xd)?;
    let supported = u64::from(state.eax) | u64::from(state.edx) << 32;
    let usable = supported & XCR0_WANTED;
    // XSAVE without the SSE state does not exist; then XCR0 cannot be set.
    (has_xsave && usable & 0b11 == 0b11).then_some(usable)
}

/// The segment type for the task register. VT-x refuses to enter a guest whose TSS is not busy.
/// Processors with SVM keep an available TSS, and QEMU's SVM grants no port by the I/O bitmap of a
/// busy one: `out` at CPL 3 would be a #GP.
fn task_register_type(cpuid: &CpuId) -> u8 {
    let vendor = cpuid.as_slice().iter().find(|e| e.function == 0);
    let has_svm = vendor.is_some_and(|e| {
        let words = [e.ebx, e.edx, e.ecx].map(u32::to_le_bytes);
        SVM_VENDORS
            .iter()
            .any(|name| **name == *words.as_flattened())
    });
    if has_svm { TSS_AVAILABLE } else { TSS_BUSY }
}

fn set_system_registers(sregs: &mut kvm_sregs, entry: &UserEntry, tss_type: u8) {
    let data = segment(USER_SS, 3);
    sregs.cs = kvm_segment {
        l: 1,
        db: 0,
        ..segment(USER_CS, 11)
    };
    (sregs.ss, sregs.ds, sregs.es, sregs.fs, sregs.gs) = (data, data, data, data, data);
    let (selector, base, limit) = entry.tss;
    sregs.tr = kvm_segment {
        base,
        limit,
        selector,
        type_: tss_type,
        present: 1,
        ..Default::default()
    };
    sregs.ldt = kvm_segment {
        unusable: 1,
        ..Default::default()
    };
    (sregs.gdt.base, sregs.gdt.limit) = entry.gdt;
    (sregs.idt.base, sregs.idt.limit) = entry.idt;
    sregs.cr0 = CR0;
    sregs.cr3 = entry.page_table;
    sregs.cr4 = CR4;
    sregs.efer = EFER;
}

/// A flat segment at CPL 3.
fn segment(selector: u16, type_: u8) -> kvm_segment {
    kvm_segment {
        limit: u32::MAX,
        selector,
        type_,
        present: 1,
        dpl: 3,
        db: 1,
        s: 1,
        g: 1,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm_bindings::kvm_cpuid_entry2;

    #[test]
    fn task_register_follows_the_vendor() {
        let cpuid = |vendor: &[u8; 12]| {
            let word = |at| u32::from_le_bytes(std::array::from_fn(|n| vendor[at + n]));
            let (ebx, edx, ecx) = (word(0), word(4), word(8));
            let entry = kvm_cpuid_entry2 {
                ebx,
                ecx,
                edx,
                ..Default::default()
            };
            CpuId::from_entries(&[entry]).unwrap()
        };
        assert_eq!(task_register_type(&cpuid(b"AuthenticAMD")), TSS_AVAILABLE);
        assert_eq!(task_register_type(&cpuid(b"HygonGenuine")), TSS_AVAILABLE);
        assert_eq!(task_register_type(&cpuid(b"GenuineIntel")), TSS_BUSY);
    }
}
