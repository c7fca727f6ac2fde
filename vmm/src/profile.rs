//! Sampling where a program spends its time ([`hartline_abi::profile`]): a thread
//! asks the runtime for samples at safepoints and hands them on with the processor
//! time that they stand for.

use crate::attention;
use crate::platform::{self, Mapping};
use hartline_abi::boot::Shared;
use hartline_abi::hart::Pending;
use hartline_abi::profile::{Place, STACK_WORDS, Sample};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const SAMPLE: u64 = offset_of!(Shared, sample) as u64;

/// What to do with samples, and how often to take them.
#[derive(Clone, Copy)]
pub struct Profile<'a> {
    /// Processor time of the vCPU between samples.
    pub period: Duration,
    /// Gets each sample, on the sampling thread.
    pub recorder: &'a (dyn Fn(&Taken) + Sync),
}

impl std::fmt::Debug for Profile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("period", &self.period)
            .finish_non_exhaustive()
    }
}

/// A sample. The guest wrote it: none of it is to be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Processor time of the vCPU that the sample stands for: since the one before.
    pub time: Duration,
    /// Where it was taken.
    pub place: Place,
    /// Guest pc.
    pub pc: u64,
    /// Inode in the root file system tree of the file that is mapped there, and the
    /// offset of what is at `pc` in it.
    pub file: Option<(u32, u64)>,
    /// Host stack from the safepoint on; starts with a return address.
    pub stack: Vec<u64>,
    /// Whether there was more of it.
    pub cut: bool,
}

/// The processor time clock of a thread.
#[derive(Debug, Clone, Copy)]
struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// The clock of the calling thread.
    fn of_this_thread() -> io::Result<Self> {
        let mut clock = 0;
        // SAFETY: a valid thread handle and place for the result.
        let error = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        match error {
            0 => Ok(Self(clock)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// `None` if the thread has ended.
    fn now(self) -> Option<Duration> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: a valid structure; a clock that is gone is an error.
        let result = unsafe { libc::clock_gettime(self.0, &mut time) };
        let seconds = u64::try_from(time.tv_sec).ok()?;
        let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
        (result == 0).then(|| Duration::new(seconds, nanoseconds))
    }
}

/// Runs the vCPU by `run` on this thread, and takes samples meanwhile.
///
/// # Errors
/// If there can be no sampling thread.
pub(crate) fn during<R>(
    profile: Profile<'_>,
    ram: &Mapping,
    shared: &Mapping,
    run: impl FnOnce() -> R,
) -> Result<R, platform::Error> {
    let failed = |request| move |source| platform::Error::Request { request, source };
    let clock = ThreadClock::of_this_thread().map_err(failed("processor time clock"))?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = thread::Builder::new()
            .name("profile".into())
            .spawn_scoped(scope, || sample(profile, ram, shared, clock, &done))
            .map_err(failed("sampling thread"))?;
        let result = run();
        done.store(true, Ordering::Release);
        sampler.thread().unpark();
        match sampler.join() {
            Ok(sampled) => sampled.map(|()| result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Takes samples until `done`; whoever sets it unparks this thread.
fn sample(
    profile: Profile<'_>,
    ram: &Mapping,
    shared: &Mapping,
    clock: ThreadClock,
    done: &AtomicBool,
) -> Result<(), platform::Error> {
    let request = shared.atomic_u64(SAMPLE + offset_of!(Sample, request) as u64)?;
    let answer = shared.atomic_u64(SAMPLE + offset_of!(Sample, answer) as u64)?;
    let mut wanted = 0;
    // Processor time at the last request, and from the one before to it.
    let (mut last, mut weight) = (Duration::ZERO, None);
    while !done.load(Ordering::Acquire) {
        thread::park_timeout(profile.period);
        if let Some(time) = weight {
            if answer.load(Ordering::Acquire) != wanted {
                // Somebody else may have taken the attention for it.
                attention::raise(shared, ram, Pending::Sample);
                continue;
            }
            (profile.recorder)(&take(shared, time)?);
            weight = None;
        }
        let Some(now) = clock.now() else { break };
        // A vCPU that sleeps gets no sample.
        if now.saturating_sub(last) >= profile.period / 2 {
            weight = Some(now.saturating_sub(last));
            last = now;
            wanted += 1;
            request.store(wanted, Ordering::Release);
            attention::raise(shared, ram, Pending::Sample);
        }
    }
    Ok(())
}

fn take(shared: &Mapping, time: Duration) -> Result<Taken, platform::Error> {
    // SAFETY: integers, here and below.
    let word = |field: usize| unsafe { shared.read_value::<u64>(SAMPLE + field as u64) };
    let length = word(offset_of!(Sample, length))?.min(STACK_WORDS as u64);
    let mut bytes = vec![0; length as usize * 8];
    shared.read(SAMPLE + offset_of!(Sample, stack) as u64, &mut bytes)?;
    let (words, _) = bytes.as_chunks::<8>();
    let inode = u32::try_from(word(offset_of!(Sample, inode))?).unwrap_or(0);
    let file_offset = word(offset_of!(Sample, file_offset))?;
    let file = (inode != 0).then_some((inode, file_offset));
    const INSIDE: u64 = Place::Inside as u64;
    const ENTRY: u64 = Place::Entry as u64;
    Ok(Taken {
        time,
        place: match word(offset_of!(Sample, place))? {
            INSIDE => Place::Inside,
            ENTRY => Place::Entry,
            _ => Place::Interpreter,
        },
        pc: word(offset_of!(Sample, pc))?,
        file,
        stack: words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
        cut: word(offset_of!(Sample, available))? > length,
    })
}
