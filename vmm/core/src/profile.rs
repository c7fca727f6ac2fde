//! Profiling of a program by samples ([`hartline_abi::profile`]): a thread requests samples, which
//! the runtime takes at safepoints, and passes them on with their weight in processor time.

use crate::kick;
use crate::platform::{self, Mapping};
use hartline_abi::boot::Shared;
use hartline_abi::hart::Pending;
use hartline_abi::profile::{Location, STACK_WORDS, Sample};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

const SAMPLE: u64 = offset_of!(Shared, sample) as u64;

/// The recorder of samples, and their period.
#[derive(Clone, Copy)]
pub struct Profile<'a> {
    /// Processor time of the vCPU between samples.
    pub period: Duration,
    /// Called with each sample, on the sampling thread.
    pub recorder: &'a (dyn Fn(&Taken) + Sync),
}

impl std::fmt::Debug for Profile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("period", &self.period)
            .finish_non_exhaustive()
    }
}

/// A sample. The guest wrote it: no field can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Weight of the sample: processor time of the vCPU since the last sample.
    pub time: Duration,
    /// The code in which it was taken.
    pub location: Location,
    /// Guest pc.
    pub pc: u64,
    /// Inode in the root file system tree of the file that is mapped at `pc`, and the offset of
    /// `pc` in the file.
    pub file: Option<(u32, u64)>,
    /// Host stack from the safepoint on; starts with a return address.
    pub stack: Vec<u64>,
    /// Whether the stack was longer.
    pub cut: bool,
}

/// The processor time clock of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// The clock of the calling thread.
    ///
    /// # Errors
    /// If there is none.
    pub fn of_this_thread() -> Result<Self, platform::Error> {
        let mut clock = 0;
        // SAFETY: the handle belongs to the calling thread, which lives. The call writes the local
        // variable.
        let error = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        match error {
            0 => Ok(Self(clock)),
            error => Err(platform::Error::Request {
                request: "processor time clock",
                source: io::Error::from_raw_os_error(error),
            }),
        }
    }

    /// The processor time; `None` if the thread has ended.
    fn now(self) -> Option<Duration> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the call writes the local structure. If the thread of the clock has ended, the call
        // fails and writes nothing.
        let result = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        let seconds = u64::try_from(time.tv_sec).ok()?;
        let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
        (result == 0).then(|| Duration::new(seconds, nanoseconds))
    }
}

/// The thread that takes samples.
pub(crate) struct Sampler<'scope> {
    thread: thread::ScopedJoinHandle<'scope, Result<(), platform::Error>>,
    done: Arc<AtomicBool>,
}

impl Sampler<'_> {
    /// Ends the thread and returns its error.
    ///
    /// # Errors
    /// If the mailbox is not in the shared pages: a bug of the VMM.
    pub fn stop(self) -> Result<(), platform::Error> {
        self.done.store(true, Ordering::Release);
        self.thread.thread().unpark();
        match self.thread.join() {
            Ok(sampled) => sampled,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Takes samples while the vCPUs run, with the call stack of each if `finds_stacks`. Their threads set these clocks when they start.
///
/// # Errors
/// The sampling thread cannot be started.
pub(crate) fn start<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    profile: Profile<'scope>,
    finds_stacks: bool,
    (ram, shared): (&'scope Mapping, &'scope Mapping),
    clocks: &'scope [OnceLock<ThreadClock>],
) -> Result<Sampler<'scope>, platform::Error> {
    let finds = shared.atomic_u64(SAMPLE + offset_of!(Sample, finds_stack) as u64)?;
    finds.store(finds_stacks.into(), Ordering::Relaxed);
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let thread = thread::Builder::new()
        .name("profile".into())
        .spawn_scoped(scope, move || {
            let sampled = clocks.iter().map(|clock| Sampled {
                clock,
                time: Duration::ZERO,
            });
            sample(profile, ram, shared, sampled.collect(), &stop)
        })
        .map_err(|source| platform::Error::Request {
            request: "sampling thread",
            source,
        })?;
    Ok(Sampler { thread, done })
}

/// A sampled vCPU.
struct Sampled<'a> {
    clock: &'a OnceLock<ThreadClock>,
    /// Processor time that samples account for.
    time: Duration,
}

impl Sampled<'_> {
    /// Processor time that no sample accounts for yet.
    fn owed(&self) -> Duration {
        let now = self.clock.get().and_then(|clock| clock.now());
        now.map_or(Duration::ZERO, |now| now.saturating_sub(self.time))
    }
}

/// A requested sample.
struct Wanted {
    cpu: usize,
    /// Weight of the sample in processor time.
    weight: Duration,
    /// Periods since the request.
    age: u32,
}

/// Takes samples until `done`; the thread that sets it unparks this one. It requests one sample at
/// a time, of the vCPU with most unsampled processor time.
fn sample(
    profile: Profile<'_>,
    ram: &Mapping,
    shared: &Mapping,
    mut sampled: Vec<Sampled<'_>>,
    done: &AtomicBool,
) -> Result<(), platform::Error> {
    /// Periods after which another vCPU is sampled, if there is one: this one sleeps.
    const PATIENCE: u32 = 4;
    let request = shared.atomic_u64(SAMPLE + offset_of!(Sample, request) as u64)?;
    let asked = shared.atomic_u64(SAMPLE + offset_of!(Sample, cpu) as u64)?;
    let answer = shared.atomic_u64(SAMPLE + offset_of!(Sample, answer) as u64)?;
    let mut number = 0;
    let mut wanted: Option<Wanted> = None;
    while !done.load(Ordering::Acquire) {
        thread::park_timeout(profile.period);
        if let Some(Wanted { cpu, weight, age }) = wanted.take() {
            if answer.load(Ordering::Acquire) == number {
                (profile.recorder)(&take(shared, weight)?);
                sampled[cpu].time += weight;
            } else if age < PATIENCE || sampled.len() == 1 {
                // The kick may have been consumed for another request.
                kick::one(shared, ram, cpu, Pending::Sample);
                wanted = Some(Wanted {
                    cpu,
                    weight,
                    age: age + 1,
                });
                continue;
            }
        }
        let owed = sampled.iter().map(Sampled::owed).enumerate();
        // A sleeping vCPU takes no sample.
        if let Some((cpu, weight)) = owed.max_by_key(|&(_, time)| time)
            && weight >= profile.period / 2
        {
            number += 1;
            asked.store(cpu as u64, Ordering::Relaxed);
            request.store(number, Ordering::Release);
            kick::one(shared, ram, cpu, Pending::Sample);
            wanted = Some(Wanted {
                cpu,
                weight,
                age: 0,
            });
        }
    }
    Ok(())
}

fn take(shared: &Mapping, time: Duration) -> Result<Taken, platform::Error> {
    let word = |field: usize| shared.read_value::<u64>(SAMPLE + field as u64);
    let length = usize::try_from(word(offset_of!(Sample, length))?);
    let length = length.map_or(STACK_WORDS, |length| length.min(STACK_WORDS));
    let mut bytes = vec![0; length * 8];
    shared.read(SAMPLE + offset_of!(Sample, stack) as u64, &mut bytes)?;
    let (words, _) = bytes.as_chunks::<8>();
    let inode = u32::try_from(word(offset_of!(Sample, inode))?).unwrap_or(0);
    let file_offset = word(offset_of!(Sample, file_offset))?;
    let file = (inode != 0).then_some((inode, file_offset));
    const INSIDE: u64 = Location::Inside as u64;
    const ENTRY: u64 = Location::Entry as u64;
    Ok(Taken {
        time,
        location: match word(offset_of!(Sample, location))? {
            INSIDE => Location::Inside,
            ENTRY => Location::Entry,
            _ => Location::Interpreter,
        },
        pc: word(offset_of!(Sample, pc))?,
        file,
        stack: words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
        cut: word(offset_of!(Sample, available))? > length as u64,
    })
}
