//! epoll: `epoll_create1`, `epoll_ctl`, `epoll_pwait`, `epoll_pwait2`.

use super::Entry;
use super::files_fd::open_anonymous;
use super::poll::{Watch, read_timeout, watch_now, with_mask};
use crate::arch::clock;
use crate::file::epoll::{ALWAYS, MAX_NESTING};
use crate::fs::Vfs;
use crate::fs::epoll::{Epoll, Interest};
use crate::fs::operations::{Mode, WRITABLE};
use crate::fs::process::FileId;
use crate::kernel::Kernel;
use crate::mm::user;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::eventpoll::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT,
    EPOLLWAKEUP, EpollEvent,
};
use hartline_linux::fcntl::O_CLOEXEC;
use hartline_linux::poll::{POLLIN, POLLNVAL, POLLOUT};
use hartline_linux::syscall::nr;
use zerocopy::IntoBytes;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::epoll_create1, epoll_create1),
    (nr::epoll_ctl, epoll_ctl),
    (nr::epoll_pwait, epoll_pwait),
    (nr::epoll_pwait2, epoll_pwait2),
];

fn epoll_create1(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = a[0] as u32;
    if flags & !O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    open_anonymous(kernel, Rc::new(Epoll::default()), flags)
}

/// The description behind a descriptor of an interest list.
fn list_id(kernel: &Kernel, fd: u64) -> Result<FileId, Errno> {
    let id = kernel.file_id(fd)?;
    kernel.vfs.epoll(id)?;
    Ok(id)
}

fn epoll_ctl(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let event: EpollEvent = match a[1] {
        EPOLL_CTL_ADD | EPOLL_CTL_MOD => user::read(kernel.memory_mut(), a[3])?,
        EPOLL_CTL_DEL => EpollEvent::default(),
        _ => return Err(Errno::EINVAL),
    };
    kernel.file_id(a[0])?;
    let target = kernel.file_id(a[2])?;
    let own = kernel.file_id(a[0])?;
    match kernel.file(a[2])?.mode {
        mode if mode.has(Mode::NO_POLL) => return Err(Errno::EPERM),
        _ if target == own => return Err(Errno::EINVAL),
        _ => {}
    }
    if a[1] == EPOLL_CTL_ADD && leads_to(&kernel.vfs, target, own, MAX_NESTING) {
        return Err(Errno::ELOOP);
    }
    check_exclusive(kernel, a[1], target, event.events)?;
    let file = kernel.vfs.files.get(target)?;
    let announcement = file.object.announcement(&kernel.vfs);
    let events = event.events | ALWAYS & !POLLNVAL;
    let interest = Interest::new(file.ino, announcement, events, event.data);
    let key = (a[2] as u32, target);
    let vfs = &mut kernel.vfs;
    match a[1] {
        EPOLL_CTL_ADD => vfs.add_interest(own, key, interest)?,
        EPOLL_CTL_MOD => vfs.modify_interest(own, key, interest)?,
        _ => vfs.remove_interest(own, key)?,
    }
    Ok(0)
}

/// Whether one instance watches another, directly or through others; also true if the nesting
/// exceeds `depth`.
fn leads_to(vfs: &Vfs, from: FileId, to: FileId, depth: u32) -> bool {
    let Ok(epoll) = vfs.epoll(from) else {
        return false;
    };
    let interests = epoll.interests();
    let mut targets = interests.keys().map(|&(_, file)| file);
    from == to || depth == 0 || targets.any(|next| leads_to(vfs, next, to, depth - 1))
}

/// Checks that `EPOLLEXCLUSIVE` comes only with the events it allows, and not with nesting. The
/// flag changes nothing else: each woken task checks again for ready events.
fn check_exclusive(kernel: &Kernel, action: u64, target: FileId, events: u32) -> Result<(), Errno> {
    const ALLOWED: u32 = POLLIN | POLLOUT | ALWAYS | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
    if events & EPOLLEXCLUSIVE == 0 {
        return Ok(());
    }
    let is_nested = kernel.vfs.files.get(target)?.object.is::<Epoll>();
    match action != EPOLL_CTL_ADD || is_nested || events & !ALLOWED != 0 {
        true => Err(Errno::EINVAL),
        false => Ok(()),
    }
}

/// Returns the events to report now, and whether standard input would be a new event.
fn collect(
    kernel: &mut Kernel,
    epoll: FileId,
    most: usize,
) -> Result<(Vec<EpollEvent>, bool), Errno> {
    kernel.wake_for_files();
    // Held, so that the list is looked up once for all candidates.
    let object = Rc::clone(&kernel.vfs.files.get(epoll)?.object);
    let list: &Epoll = object.downcast().ok_or(Errno::EINVAL)?;
    let last = list.begin_look();
    let (mut events, mut wants_input) = (Vec::new(), false);
    while events.len() < most
        && let Some((key, interest)) = list.next_candidate(last)
    {
        let mut watch = [Watch {
            file: Some(key.1),
            events: interest.wanted(),
            ready: 0,
        }];
        wants_input |= watch_now(kernel, &mut watch).1;
        let ready = watch[0].ready & interest.wanted();
        let edges = kernel.vfs.edges(key.1);
        let news = match interest.events & EPOLLET {
            0 => ready,
            _ => interest.news(ready, edges),
        };
        if news == 0 {
            list.pass(key, ready);
            continue;
        }
        list.report(key, ready, edges);
        events.push(EpollEvent {
            events: ready,
            pad: 0,
            data: interest.data,
        });
    }
    Ok((events, wants_input))
}

fn wait(kernel: &mut Kernel, a: &[u64; 6], timeout_ns: u64) -> Result<u64, Errno> {
    const MAX_EVENTS: u64 = i32::MAX as u64 / size_of::<EpollEvent>() as u64;
    let most = a[2] as u32;
    if most == 0 || u64::from(most) > MAX_EVENTS {
        return Err(Errno::EINVAL);
    }
    let deadline = kernel.deadline(timeout_ns);
    let epoll = list_id(kernel, a[0])?;
    let (events, input) = collect(kernel, epoll, most as usize)?;
    if !events.is_empty() {
        user::write_bytes(kernel.memory_mut(), a[1], events.as_bytes())?;
        return Ok(events.len() as u64);
    }
    if deadline <= clock::monotonic() {
        return Ok(0);
    }
    let files = match kernel.vfs.epoll(epoll)?.needs_any_change() {
        true => Vec::new(),
        false => Vec::from([kernel.file(a[0])?.ino]),
    };
    Err(kernel.block_for(files, input, deadline))
}

fn epoll_pwait(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let timeout = match u64::try_from(a[3] as i32) {
        Ok(ms) => ms * 1_000_000,
        Err(_) => u64::MAX,
    };
    list_id(kernel, a[0])?;
    with_mask(kernel, a[4], a[5], |kernel| wait(kernel, a, timeout))
}

fn epoll_pwait2(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let timeout = read_timeout(kernel.memory_mut(), a[3])?;
    list_id(kernel, a[0])?;
    with_mask(kernel, a[4], a[5], |kernel| wait(kernel, a, timeout))
}

impl Interest {
    /// The events in `ready` that are new to an edge-triggered interest: they were not ready at the
    /// last check, or the file has changed since.
    fn news(&self, ready: u32, edges: [u32; 2]) -> u32 {
        let mut news = ready & !self.reported;
        if edges[0] != self.seen[0] {
            news |= ready & !WRITABLE;
        }
        if edges[1] != self.seen[1] {
            news |= ready & WRITABLE;
        }
        news
    }

    /// The events this interest waits for; none after a one-shot interest has been reported.
    fn wanted(&self) -> u32 {
        let events = self.events & !(EPOLLONESHOT | EPOLLET);
        match events & !ALWAYS {
            0 if self.events & EPOLLONESHOT != 0 => 0,
            _ => events,
        }
    }
}
