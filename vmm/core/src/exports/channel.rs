//! The host's side of the channel of calls ([`hartline_abi::exports::Channel`]). The guest can write
//! anything there at any time.

use super::Pages;
use crate::platform;
use hartline_abi::boot;
use hartline_abi::exports::{self, MAX_DATA, state};
use hartline_abi::report::ExitReport;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

const CHANNEL: u64 = offset_of!(boot::Shared, exports) as u64;
const STATE: u64 = CHANNEL + offset_of!(exports::Channel, state) as u64;
const HOST_WAITS: u64 = CHANNEL + offset_of!(exports::Channel, host_waits) as u64;
const GENERATION: u64 = CHANNEL + offset_of!(exports::Channel, generation) as u64;
const NAME_LENGTH: u64 = CHANNEL + offset_of!(exports::Channel, name_length) as u64;
const LENGTH: u64 = CHANNEL + offset_of!(exports::Channel, length) as u64;
const STATUS: u64 = CHANNEL + offset_of!(exports::Channel, status) as u64;
const REPORT_KIND: u64 = (offset_of!(boot::Shared, report) + offset_of!(ExitReport, kind)) as u64;
const DATA: u64 = CHANNEL + offset_of!(exports::Channel, data) as u64;

/// The host's side.
#[derive(Debug, Clone)]
pub(crate) struct Channel(Pages);

impl Channel {
    /// The channel in the shared pages.
    ///
    /// # Errors
    /// It is not there: a bug of the VMM.
    pub fn new(shared: Pages) -> Result<Self, platform::Error> {
        shared.atomic_u32(STATE)?;
        shared.read(DATA, &mut [0; MAX_DATA])?;
        Ok(Self(shared))
    }

    fn set_state(&self, value: u32) {
        // The word is there: `new` has looked.
        if let Ok(word) = self.0.atomic_u32(STATE) {
            word.store(value, Ordering::SeqCst);
        }
    }

    /// Writes a call. Name and input are not longer than the guest expects.
    ///
    /// # Errors
    /// They do not fit: a bug of the VMM.
    pub fn write(&self, name: &[u8], input: &[u8]) -> Result<(), platform::Error> {
        self.0.write(DATA, name)?;
        self.0.write(DATA + name.len() as u64, input)?;
        for (at, length) in [(NAME_LENGTH, name.len()), (LENGTH, input.len())] {
            self.0
                .write_value(at, u32::try_from(length).unwrap_or(u32::MAX))?;
        }
        // A note of an earlier caller that slept would cost the guest an exit.
        self.0.atomic_u32(HOST_WAITS)?.store(0, Ordering::SeqCst);
        self.set_state(state::CALLED);
        Ok(())
    }

    /// Whether there is a reply.
    pub fn is_replied(&self) -> bool {
        let word = self.0.atomic_u32(STATE);
        word.is_ok_and(|word| word.load(Ordering::SeqCst) == state::REPLIED)
    }

    /// Makes the guest tell when it has replied.
    pub fn begin_sleep(&self) {
        if let Ok(word) = self.0.atomic_u32(HOST_WAITS) {
            word.store(1, Ordering::SeqCst);
        }
    }

    /// The reply: the function's result, and its output.
    ///
    /// # Errors
    /// It is not in the shared pages: a bug of the VMM.
    pub fn read(&self) -> Result<(i64, Vec<u8>), platform::Error> {
        let status = self.0.read_value::<u64>(STATUS)?.cast_signed();
        let length = self.0.read_value::<u32>(LENGTH)?;
        let length = usize::try_from(length).map_or(MAX_DATA, |length| length.min(MAX_DATA));
        let mut output = vec![0; length];
        self.0.read(DATA, &mut output)?;
        Ok((status, output))
    }

    /// Whether the guest has written its last report.
    pub fn has_report(&self) -> bool {
        let kind = self.0.read_value::<u32>(REPORT_KIND);
        kind.is_ok_and(|kind| kind != 0)
    }

    /// Sets the number of the VM's state.
    pub fn set_generation(&self, generation: u64) {
        if let Ok(word) = self.0.atomic_u64(GENERATION) {
            word.store(generation, Ordering::SeqCst);
        }
    }
}
