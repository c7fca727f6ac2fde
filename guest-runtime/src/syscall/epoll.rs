//! epoll: `epoll_create1`, `epoll_ctl`, `epoll_pwait`, `epoll_pwait2`.

use super::Entry;
use super::files_fd::open_anonymous;
use super::poll::{ALWAYS, Watch, read_timeout, watch_now, with_mask};
use crate::convert::{low_i32, low_u32};
use crate::file::Vfs;
use crate::file::epoll::{Epoll, Found, MAX_NESTING, Wanted};
use crate::file::operations::Mode;
use crate::fs::process::FileId;
use crate::kernel::Kernel;
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use crate::wait::poll::PollTable;
use crate::wait::{ALL, READABLE, Registration};
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::eventpoll::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, EPOLLWAKEUP, EpollEvent,
};
use hartline_linux::fcntl::O_CLOEXEC;
use hartline_linux::poll::{POLLIN, POLLOUT};
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
    let flags = low_u32(a[0]);
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
    if a[1] == EPOLL_CTL_ADD {
        // The lists that watch this one count too.
        let above = kernel.vfs.epoll(own)?.waiters().depth() - 1;
        if leads_to(&kernel.vfs, target, own, MAX_NESTING.saturating_sub(above)) {
            return Err(Errno::ELOOP);
        }
    }
    check_exclusive(kernel, a[1], target, event.events)?;
    let key = (low_u32(a[2]), target);
    let wanted = Wanted {
        events: event.events,
        data: event.data,
    };
    if a[1] == EPOLL_CTL_DEL {
        kernel.vfs.remove_interest(own, key)?;
        return Ok(0);
    }
    let found = find(kernel, target)?;
    let vfs = &mut kernel.vfs;
    match a[1] {
        EPOLL_CTL_ADD => vfs.add_interest(own, key, wanted, found)?,
        _ => vfs.modify_interest(own, key, wanted, found.ready)?,
    }
    Ok(0)
}

/// Checks a description for which an interest is added or changed.
fn find(kernel: &Kernel, target: FileId) -> Result<Found, Errno> {
    let file = kernel.vfs.files.get(target)?;
    let mut table = PollTable::collecting(ALL, Vec::new());
    let ready = file.object.poll(&kernel.view(), file, &mut table);
    let mut found = Found {
        ready,
        // A list may get standard input later.
        polled: table.input || file.object.is::<Epoll>(),
        registrations: Vec::new(),
    };
    if table.input {
        table.wait(&kernel.streams.input_waiters);
    }
    found.registrations = table.into_registrations();
    Ok(found)
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

/// Checks that `EPOLLEXCLUSIVE` comes only with the events it allows, and not with nesting.
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
    // Held, so that the list is looked up once for all candidates.
    let object = Rc::clone(&kernel.vfs.files.get(epoll)?.object);
    let list: &Epoll = object.downcast().ok_or(Errno::EINVAL)?;
    let last = list.begin_look();
    let (mut events, mut wants_input) = (Vec::new(), false);
    while events.len() < most
        && let Some(interest) = list.next_candidate(last)
    {
        let (_, file) = interest.key();
        let mut watch = [Watch {
            file: Some(file),
            events: interest.events(),
            ready: 0,
        }];
        wants_input |= watch_now(kernel, &mut watch).1;
        let ready = watch[0].ready & interest.events();
        if interest.look(ready) {
            events.push(EpollEvent {
                events: ready,
                pad: 0,
                data: interest.data(),
            });
        }
    }
    list.end_look();
    Ok((events, wants_input))
}

fn wait(kernel: &mut Kernel, a: &[u64; 6], timeout_ns: u64) -> Result<u64, Errno> {
    const MAX_EVENTS: u64 = i32::MAX as u64 / size_of::<EpollEvent>() as u64;
    let most = low_u32(a[2]);
    if most == 0 || u64::from(most) > MAX_EVENTS {
        return Err(Errno::EINVAL);
    }
    let deadline = kernel.deadline(timeout_ns);
    let epoll = list_id(kernel, a[0])?;
    let over = kernel.has_passed(deadline);
    let (events, input) = collect(kernel, epoll, most as usize)?;
    if !events.is_empty() {
        user::write_bytes(kernel.memory_mut(), a[1], events.as_bytes())?;
        return Ok(events.len() as u64);
    }
    if over {
        return Ok(0);
    }
    // One of several tasks is woken, as on Linux.
    let registration = Registration::new(kernel.vfs.epoll(epoll)?.waiters(), READABLE).exclusive();
    let wait = Wait {
        input,
        deadline,
        ..Wait::for_event(Event::File)
    };
    let mut registrations = kernel.take_registrations();
    registrations.push(registration);
    Err(kernel.block_in(registrations, wait, 0))
}

fn epoll_pwait(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let timeout = match u64::try_from(low_i32(a[3])) {
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
