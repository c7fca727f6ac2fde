//! Programs on a pseudo-terminal of the test.

use crate::Result;
use crate::process::shell_code;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// The longest wait for one thing, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program on a terminal, which controls the program's session.
pub struct Screen {
    child: Child,
    master: File,
    /// Open, so that the terminal exists after the end of the program.
    slave: File,
    before: Settings,
    seen: Vec<u8>,
}

/// The settings of a terminal that a program may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings([u32; 4], [u8; libc::NCCS]);

impl Settings {
    /// Whether input is passed on key by key, without echo or signals.
    pub fn is_raw(&self) -> bool {
        self.0[3] & (libc::ICANON | libc::ECHO | libc::ISIG) == 0
    }
}

impl Screen {
    /// Starts a program on a new terminal of this size: lines, and characters of a line.
    ///
    /// # Errors
    /// The host has no terminals left, or the program cannot be started.
    pub fn start(command: &mut Command, size: (u16, u16)) -> Result<Self> {
        let (mut master, mut slave) = (-1, -1);
        let (name, settings) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: the pointers to descriptors are valid, and the others may be null.
        let opened = unsafe {
            libc::openpty(
                &raw mut master,
                &raw mut slave,
                name,
                settings,
                &window(size),
            )
        };
        if opened < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the call has returned these descriptors, and nothing else owns them.
        let (master, slave) = unsafe { (File::from_raw_fd(master), File::from_raw_fd(slave)) };
        for end in [&master, &slave] {
            // SAFETY: no memory is involved.
            unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        let control = || {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTSTP] {
                // A test that runs in the background may ignore them.
                // SAFETY: the default action runs no code of this process.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            // SAFETY: no memory is involved.
            match unsafe { libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 } {
                true => Err(io::Error::last_os_error()),
                false => Ok(()),
            }
        };
        // SAFETY: `control` makes system calls only, which may run between fork and exec.
        unsafe { command.pre_exec(control) };
        let before = settings_of(&slave)?;
        let child = command
            .stdin(slave.try_clone()?)
            .stdout(slave.try_clone()?)
            .stderr(slave.try_clone()?)
            .spawn()?;
        Ok(Self {
            child,
            master,
            slave,
            before,
            seen: Vec::new(),
        })
    }

    /// Types `keys`.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.master.write_all(keys.as_bytes())?)
    }

    /// Reads until `wanted` is on the screen, after everything that was waited for before.
    ///
    /// # Errors
    /// It does not appear in time.
    pub fn until(&mut self, wanted: &str) -> Result<()> {
        let start = Instant::now();
        let mut shown = Vec::new();
        while !shown.ends_with(wanted.as_bytes()) {
            let patience = PATIENCE.saturating_sub(start.elapsed());
            match self.read_byte(patience)? {
                Some(byte) => shown.push(byte),
                None => {
                    let shown = String::from_utf8_lossy(&shown);
                    let before = String::from_utf8_lossy(&self.seen);
                    return Err(format!("no {wanted:?} in {shown:?}, after {before:?}").into());
                }
            }
        }
        self.seen.append(&mut shown);
        Ok(())
    }

    /// Types `keys`, and reads until `wanted` is on the screen.
    ///
    /// # Errors
    /// It does not appear in time.
    pub fn press_until(&mut self, keys: &str, wanted: &str) -> Result<()> {
        self.press(keys)?;
        self.until(wanted)
    }

    /// The next byte; `None` if there is none for this long.
    fn read_byte(&mut self, patience: Duration) -> Result<Option<u8>> {
        let mut poll = libc::pollfd {
            fd: self.master.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the pointer is valid for one entry.
        if unsafe { libc::poll(&raw mut poll, 1, patience.as_millis().try_into()?) } <= 0 {
            return Ok(None);
        }
        let mut byte = [0];
        self.master.read_exact(&mut byte)?;
        Ok(Some(byte[0]))
    }

    /// Changes the size of the terminal.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn resize(&self, size: (u16, u16)) -> Result<()> {
        // SAFETY: the pointer is valid for the structure.
        match unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &window(size)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().into()),
        }
    }

    /// The settings of the terminal.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn settings(&self) -> Result<Settings> {
        settings_of(&self.slave)
    }

    /// The settings before the program started.
    pub fn settings_before(&self) -> Settings {
        self.before.clone()
    }

    /// Number of the program's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the program a signal.
    ///
    /// # Errors
    /// Any error of the host.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: no memory is involved.
        match unsafe { libc::kill(self.child.id().try_into()?, signal) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().into()),
        }
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn status(&mut self) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            // The program may have to write more before it ends.
            if let Some(byte) = self.read_byte(Duration::from_millis(20))? {
                self.seen.push(byte);
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("the program does not end: {}", self.text()).into());
            }
        }
    }

    /// Waits for the end of the program. Result: the exit code as a shell shows it, and everything that
    /// was on the screen.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn finish(&mut self) -> Result<(i32, String)> {
        let code = shell_code(self.status()?);
        while let Some(byte) = self.read_byte(Duration::ZERO)? {
            self.seen.push(byte);
        }
        Ok((code, self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn window((rows, columns): (u16, u16)) -> libc::winsize {
    libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Waits until a process is in a state, as `/proc/PID/stat` names it.
///
/// # Errors
/// It does not get there in time.
pub fn await_process_state(pid: u32, wanted: char) -> Result<()> {
    let start = Instant::now();
    loop {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let state = text
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        if state == Some(wanted) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("process {pid} is in state {state:?}, not {wanted:?}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn settings_of(terminal: &File) -> Result<Settings> {
    // SAFETY: all bytes of the structure may be 0.
    let mut found: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the structure.
    if unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut found) } < 0 {
        return Err(io::Error::last_os_error().into());
    }
    let modes = [found.c_iflag, found.c_oflag, found.c_cflag, found.c_lflag];
    Ok(Settings(modes, found.c_cc))
}
