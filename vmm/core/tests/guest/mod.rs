//! Guests written in assembly, packed as the ELF file of a runtime.

/// Defines `entry` and `machine_code` for the code between two labels of assembly.
macro_rules! blob {
    ($start:ident, $end:ident, $($name:literal => $symbol:ident),+ $(,)?) => {
        unsafe extern "C" {
            static $start: u8;
            static $end: u8;
            $(static $symbol: u8;)+
        }

        /// Offset of a guest's first instruction.
        pub fn entry(name: &str) -> u64 {
            let address = match name {
                $($name => &raw const $symbol,)+
                other => panic!("no guest {other}"),
            };
            (address as usize - (&raw const $start) as usize) as u64
        }

        /// All of the code.
        pub fn machine_code() -> Vec<u8> {
            let (start, end) = (&raw const $start, &raw const $end);
            // SAFETY: the bytes between the two labels are read-only data of this program.
            unsafe { std::slice::from_raw_parts(start, end as usize - start as usize) }.to_vec()
        }
    };
}
pub(crate) use blob;

/// Assembly that guests share. `common_finish` ends with the code in esi. `common_open` makes the
/// page at r8 writable for CPL 3 and returns the address of its entry in r11; `common_flush`, its
/// end, loads the page table. `common_spin` never ends.
macro_rules! common {
    () => {
        concat!(
            ".globl common_spin\n",
            "common_finish:\n",
            "mov rdi, {shared}\n",
            "mov dword ptr [rdi + {report_code}], esi\n",
            "mov dword ptr [rdi + {report_kind}], {exited}\n",
            "mov dx, {exit}\n",
            "out dx, eax\n",
            "common_spin: jmp common_spin\n",
            // Walks the page tables through the physmap: the top, then three levels.
            "common_open:\n",
            "mov r9, {physmap}\n",
            "mov rdi, {shared}\n",
            "mov rax, [rdi + {page_table}]\n",
            "mov ecx, 39\n",
            "2: mov r10, r8\n",
            "shr r10, cl\n",
            "and r10d, 511\n",
            "lea r11, [rax + r9]\n",
            "lea r11, [r11 + r10 * 8]\n",
            "or qword ptr [r11], 6\n",
            "mov rax, [r11]\n",
            "mov r10, 0x000ffffffffff000\n",
            "and rax, r10\n",
            "sub ecx, 9\n",
            "cmp ecx, 12\n",
            "jge 2b\n",
            "common_flush:\n",
            "mov rdi, {shared}\n",
            "mov rax, [rdi + {page_table}]\n",
            "int3\n",
            "ret",
        )
    };
}
pub(crate) use common;

use hartline_abi::layout::RUNTIME_BASE;
use hartline_devices::limiter::OwnLimits;
use hartline_devices::net::Tap;
use hartline_vmm::boot::Arguments;
use hartline_vmm::devices::{Attached, Network};
use hartline_vmm::exports::Exports;
use hartline_vmm::interrupts::Mode;
use hartline_vmm::machine::{Blank, Outcome, Settings};
use hartline_vmm::snapshot::{Request, Requests, Snapshot};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Whether there is KVM; if not, the test is reported as skipped, or fails where KVM
/// is required.
pub fn kvm_available(test: &str) -> bool {
    if Path::new("/dev/kvm").exists() {
        return true;
    }
    assert!(
        std::env::var_os("HARTLINE_REQUIRE_KVM").is_none(),
        "{test}: /dev/kvm is missing but HARTLINE_REQUIRE_KVM is set"
    );
    eprintln!("skipped: {test}: no /dev/kvm");
    false
}

/// A guest to run.
pub struct Guest {
    /// Its code.
    pub code: Vec<u8>,
    /// Offset of its first instruction.
    pub entry: u64,
    /// As `Settings::timeout`.
    pub timeout: Option<Duration>,
    /// The interrupt mode of devices.
    pub mode: Mode,
    /// Whether the guest has a network device.
    pub has_network: bool,
    /// Calls and resets.
    pub exports: Option<Exports>,
    /// A snapshot to write.
    pub snapshot: Option<Request>,
    /// Requests for snapshots.
    pub snapshots: Option<Arc<dyn Requests>>,
    /// The snapshot that the guest continues.
    pub from: Option<Snapshot>,
}

impl Guest {
    /// A guest that ends by itself. A broken one is ended after 100 s.
    pub fn new(code: Vec<u8>, entry: u64) -> Self {
        Self {
            code,
            entry,
            timeout: Some(Duration::from_secs(100)),
            mode: Mode::Safepoint,
            has_network: false,
            exports: None,
            snapshot: None,
            snapshots: None,
            from: None,
        }
    }
}

/// Runs a guest to its end.
pub fn run_guest(guest: &Guest) -> Outcome {
    let arguments = Arguments {
        path: b"/guest".to_vec(),
        ..Default::default()
    };
    let interface = guest.has_network.then(Interface::new);
    let settings = Settings {
        ram: 64 << 20,
        cpus: 1,
        runtime: &elf(&guest.code, guest.entry),
        devices: Attached {
            network: interface.as_ref().map(Interface::network),
            ..Attached::default()
        },
        interpret_only: true,
        timeout: guest.timeout,
        count: true,
        exports: guest.exports.clone(),
        snapshot: guest.snapshot.clone(),
        snapshots: guest.snapshots.clone(),
        from: guest.from.as_ref(),
        ..Settings::new(&arguments)
    };
    let machine = Blank::begin(settings.cpus, guest.mode).expect("a thread");
    let machine = machine.join().expect("no panic").expect("a VM");
    machine.run(settings).expect("the VM starts")
}

/// A TAP interface, deleted when dropped.
struct Interface(String);

impl Interface {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let interface = Self(format!("ht{}x{number}", std::process::id()));
        interface.set_persistent(true).expect("a TAP interface");
        interface
    }

    /// Sets whether the interface stays when no program has it open.
    fn set_persistent(&self, stays: bool) -> io::Result<()> {
        /// `TUNSETIFF` and `TUNSETPERSIST` of `<linux/if_tun.h>`.
        const SET_INTERFACE: libc::c_ulong = 0x4004_54ca;
        const SET_PERSISTENT: libc::c_ulong = 0x4004_54cb;
        let mut options = OpenOptions::new();
        let device = options.read(true).write(true).open("/dev/net/tun")?;
        // SAFETY: the structure has integers and pointers, of which zeros are valid values.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.0.bytes()) {
            *to = from as libc::c_char;
        }
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = flags as i16;
        let stays = libc::c_ulong::from(stays);
        // SAFETY: the first request reads and writes this structure, which outlives it; the argument
        // of the second is a number.
        let results = unsafe {
            [
                libc::ioctl(device.as_raw_fd(), SET_INTERFACE, &raw mut request),
                libc::ioctl(device.as_raw_fd(), SET_PERSISTENT, stays),
            ]
        };
        match results {
            [0, 0] => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn network(&self) -> Network {
        let mut tap = Tap::open(&self.0, 1).expect("the interface");
        Network {
            backends: vec![Box::new(tap.remove(0))],
            mac: [2, 0, 0, 0, 0, 1],
            polling: Duration::ZERO,
            limits: Arc::<OwnLimits>::default(),
        }
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        // The interface may be gone already.
        let _ = self.set_persistent(false);
    }
}

/// An ELF file with one executable segment.
fn elf(code: &[u8], entry: u64) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    file.extend_from_slice(&(RUNTIME_BASE + 4096 + entry).to_le_bytes());
    for word in [64u64, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&[0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    file.extend_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
    let length = code.len() as u64;
    let address = RUNTIME_BASE + 4096;
    for word in [4096, address, address, length, length, 4096] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.resize(4096, 0);
    file.extend_from_slice(code);
    file
}
