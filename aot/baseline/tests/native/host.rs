//! Memory for guest and host code, and runs of both executions of one program.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use hartline_abi::dispatch::{ENTRIES, Entry};
use hartline_abi::hart::{Hart, NO_RESERVATION};
use hartline_baseline::{Features, Region, Translation, translate};
use hartline_guest::exec::interp::{CodeId, Step, fcsr};
use hartline_isa::Trap;

use crate::link::link;
use crate::thunks::{self, INTERPRETER, Reason, TestHart};

/// Length of each area, bytes.
const GUEST: usize = 1 << 16;
const DATA: usize = 1 << 13;
const HOST: usize = 1 << 22;

/// The reason for the end of a run. `Hart.pc` is its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// At an address outside the program.
    Outside,
    /// At `ecall`.
    Ecall,
    /// At another trap.
    Trap,
    /// After too many steps.
    Limit,
}

/// An anonymous mapping.
struct Area {
    start: NonNull<u8>,
    length: usize,
}

impl Area {
    fn new(length: usize, protection: i32, low: bool) -> Self {
        let place = if low { libc::MAP_32BIT } else { 0 };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | place;
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), length, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self {
            start: NonNull::new(start.cast()).expect("not null"),
            length,
        }
    }

    fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.length);
        // SAFETY: the mapping is writable and long enough, and no code runs there now.
        unsafe { core::ptr::copy(bytes.as_ptr(), self.start.as_ptr(), bytes.len()) };
    }

    fn read(&self) -> Vec<u8> {
        // SAFETY: the mapping is readable, and no code runs now.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.length) }.to_vec()
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping is this structure's.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A program, translated, with memory.
pub struct Host {
    guest: Area,
    data: Area,
    host: Area,
    cache: Vec<Entry>,
    length: u64,
    code_offset: usize,
    /// Number of times that translated code was entered.
    pub entered: u64,
    pub translation: Translation,
    /// The extensions that code may use.
    pub features: Features,
    /// Whether the code is translated for another address.
    pub position_independent: bool,
    /// Whether pinned registers are in the hart too.
    pub write_through: bool,
}

impl Host {
    /// Makes memory below 2 GiB, or anywhere.
    pub fn new(low: bool) -> Self {
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        Self {
            guest: Area::new(GUEST, writable, low),
            data: Area::new(DATA, writable, low),
            host: Area::new(HOST, writable | libc::PROT_EXEC, false),
            cache: vec![Entry::EMPTY; ENTRIES as usize],
            length: 0,
            code_offset: 0,
            entered: 0,
            translation: Translation::default(),
            features: Features::host(),
            position_independent: false,
            write_through: false,
        }
    }

    /// Address of the program.
    pub fn start(&self) -> u64 {
        self.guest.address()
    }

    /// Address of the middle of the data.
    pub fn data(&self) -> u64 {
        self.data.address() + DATA as u64 / 2
    }

    /// Writes the program's bytes without translating them.
    pub fn write(&mut self, code: &[u8]) {
        self.guest.write(code);
    }

    /// Translates a program that starts at [`start`](Self::start). Functions and blocks are
    /// offsets.
    pub fn load(&mut self, code: &[u8], functions: &[u64], blocks: &[u64]) {
        self.guest.write(code);
        self.length = code.len() as u64;
        let bias = if self.position_independent {
            0x1234_5678_0000
        } else {
            0
        };
        let start = self.start().wrapping_sub(bias);
        let at = |offsets: &[u64]| -> Vec<u64> { offsets.iter().map(|o| start + o).collect() };
        let (functions, blocks) = (at(functions), at(blocks));
        let region = Region {
            start,
            code,
            functions: &functions,
            blocks: &blocks,
            position_independent: self.position_independent,
            write_through: self.write_through,
            text_length: self.length,
        };
        self.translation = translate(&region, &self.features).expect("a valid region");
        let (bytes, code_offset) = link(&self.translation, bias);
        self.code_offset = code_offset;
        self.host.write(&bytes);
        for entry in &mut self.translation.entries {
            entry.guest = entry.guest.wrapping_add(bias);
        }
        for access in &mut self.translation.accesses {
            access.pc = access.pc.wrapping_add(bias);
        }
        self.cache.fill(Entry::EMPTY);
        INTERPRETER.with_borrow_mut(|interpreter| interpreter.set_code(CodeId::next()));
    }

    /// Address of the host code.
    pub fn code(&self) -> u64 {
        self.host.address() + self.code_offset as u64
    }

    /// Host address of the entry at the guest address `pc`.
    pub fn entry(&self, pc: u64) -> Option<u64> {
        let entries = &self.translation.entries;
        let index = entries
            .binary_search_by_key(&pc, |entry| entry.guest)
            .ok()?;
        Some(self.code() + u64::from(entries[index].host))
    }

    /// Contents of the data.
    pub fn data_bytes(&self) -> Vec<u8> {
        self.data.read()
    }

    /// Sets the contents of the data.
    pub fn set_data(&mut self, bytes: &[u8]) {
        self.data.write(bytes);
    }

    /// Whether `pc` is in the program.
    fn contains(&self, pc: u64) -> bool {
        pc.wrapping_sub(self.start()) < self.length
    }

    /// Returns a hart at the start of the program.
    pub fn hart(&mut self) -> TestHart {
        let hart = TestHart::default();
        hart.reservation.set(NO_RESERVATION);
        hart.pc.set(self.start());
        hart.dispatch_cache.set(self.cache.as_ptr() as u64);
        hart
    }

    /// Runs translated code as the dispatcher does, at most `limit` entries.
    pub fn run(&mut self, hart: &TestHart, limit: u64) -> Stop {
        for _ in 0..limit {
            if !self.contains(hart.pc.get()) {
                return Stop::Outside;
            }
            let Some(host) = self.entry(hart.pc.get()) else {
                match interpret(hart) {
                    Some(stop) => return stop,
                    None => continue,
                }
            };
            self.entered += 1;
            // SAFETY: an entry of the code in place.
            match unsafe { thunks::enter(hart, host) } {
                Reason::Returned => hart.pc.set(hart.x(1) & !1),
                Reason::Ecall => return Stop::Ecall,
                // The instruction may be one that the end of the region cuts off.
                Reason::Trap => {
                    if let Some(stop) = interpret(hart) {
                        return stop;
                    }
                }
                Reason::Dispatch => {}
                Reason::Site => self.remember(hart),
                Reason::PollEntry => hart.kick.poll_limit.store(0, Relaxed),
                Reason::Fault => panic!("fault at {:#x}", hart.pc.get()),
            }
        }
        Stop::Limit
    }

    /// Fills the cache entry of the last indirect jump.
    fn remember(&mut self, hart: &Hart) {
        let pc = hart.pc.get();
        if let Some(host) = self.entry(pc) {
            let entry = Entry { pc, host };
            self.cache[hart.site.get() as usize / size_of::<Entry>()] = entry;
        }
    }

    /// Interprets, at most `limit` instructions.
    pub fn interpret(&mut self, hart: &Hart, limit: u64) -> Stop {
        for _ in 0..limit {
            if !self.contains(hart.pc.get()) {
                return Stop::Outside;
            }
            if let Some(stop) = interpret(hart) {
                return stop;
            }
        }
        Stop::Limit
    }

    /// Runs a program in both ways from the same state, and compares the results.
    pub fn compare(&mut self, prepare: impl Fn(&Hart), data: &[u8], fcsr: u32, what: &str) {
        let mut results = [false, true].map(|translated| {
            self.set_data(data);
            let hart = self.hart();
            prepare(&hart);
            fcsr::fcsr_reset(&hart);
            fcsr::fcsr_write(&hart, fcsr);
            let stop = match translated {
                true => self.run(&hart, 1 << 16),
                false => self.interpret(&hart, 1 << 16),
            };
            let control = fcsr::fcsr_read(&hart);
            fcsr::fcsr_reset(&hart);
            (hart, stop, control, self.data_bytes())
        });
        let (actual, expected) = {
            let [expected, actual] = &mut results;
            (actual, expected)
        };
        let (a, e) = (&actual.0, &expected.0);
        assert_eq!(
            actual.1,
            expected.1,
            "end of {what}, pc {:#x} {:#x}",
            a.pc.get(),
            e.pc.get()
        );
        assert_ne!(actual.1, Stop::Limit, "{what}");
        for number in 0..32 {
            let (a, e) = (a.x(number), e.x(number));
            assert_eq!(a, e, "x{number} is {a:#x} and not {e:#x} after {what}");
        }
        for number in 0..32 {
            let (a, e) = (a.f(number), e.f(number));
            assert_eq!(a, e, "f{number} is {a:#x} and not {e:#x} after {what}");
        }
        assert_eq!(a.pc.get(), e.pc.get(), "pc after {what}");
        assert_eq!(actual.2, expected.2, "fcsr after {what}");
        assert_eq!(
            a.reservation.get(),
            e.reservation.get(),
            "reservation after {what}"
        );
        assert!(actual.3 == expected.3, "memory after {what}");
    }
}

/// Interprets one instruction; returns how the run ends, if it does.
fn interpret(hart: &Hart) -> Option<Stop> {
    // SAFETY: the tests address only their own buffers.
    match unsafe { INTERPRETER.with_borrow_mut(|one| one.step(hart)) } {
        Step::Next | Step::Jump(_) | Step::Fence => None,
        Step::Trap(Trap::EnvironmentCall) => Some(Stop::Ecall),
        Step::Trap(_) => Some(Stop::Trap),
    }
}
