//! Core scheduling: threads of different tenants never run on two hardware threads of one core at
//! the same time (the kernel's Documentation/admin-guide/hw-vuln/core-scheduling.rst).
//!
//! Tasks with the same cookie may share a core. The first process of a tenant gets a new cookie
//! (`PR_SCHED_CORE_CREATE`). For each further process, a temporary thread takes the cookie from a
//! process of the tenant (`PR_SCHED_CORE_SHARE_FROM`) and passes it on (`PR_SCHED_CORE_SHARE_TO`),
//! so no permanent thread of this process keeps a cookie. Processes and threads that are started
//! later inherit the cookie.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{
    CoreSchedulingScope, core_scheduling_cookie, create_core_scheduling_cookie, gettid,
    pull_core_scheduling_cookie, push_core_scheduling_cookie,
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Whether processes of different tenants are kept off the same core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CoreSchedulingMode {
    /// If the kernel supports it.
    Auto,
    /// Always: without kernel support the daemon does not start.
    Require,
    /// Never.
    Off,
}

/// The reason why there is no core scheduling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NoCoreScheduling {
    /// The configuration disables it.
    #[error("core_scheduling is \"off\"")]
    Off,
    /// The kernel was built without support.
    #[error("the kernel has no core scheduling (CONFIG_SCHED_CORE, from Linux 5.14 on)")]
    Kernel,
    /// Each core has one hardware thread.
    #[error("no core of this host has several hardware threads")]
    NoThreads,
    /// The kernel refuses.
    #[error("PR_SCHED_CORE: {0}")]
    Refused(String),
}

/// Gives the processes of each tenant the tenant's cookie. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct CoreScheduling(Arc<Mutex<HashMap<String, Tenant>>>);

/// A tenant that has processes.
#[derive(Debug, Default)]
struct Tenant {
    cookie: u64,
    /// Its processes that have the cookie.
    members: Vec<i32>,
}

/// A process with its tenant's cookie. This must be dropped when the process has ended.
#[derive(Debug)]
pub struct Member {
    cores: CoreScheduling,
    tenant: String,
    pid: i32,
}

impl CoreScheduling {
    /// Detects core scheduling of this host.
    ///
    /// # Errors
    /// [`NoCoreScheduling`].
    pub fn detect() -> Result<Self, NoCoreScheduling> {
        match cookie_of_this_thread() {
            Ok(_) => Ok(Self::default()),
            Err(error) => Err(match error.raw_os_error() {
                Some(libc::EINVAL) => NoCoreScheduling::Kernel,
                Some(libc::ENODEV) => NoCoreScheduling::NoThreads,
                _ => NoCoreScheduling::Refused(error.to_string()),
            }),
        }
    }

    /// Core scheduling of this host, if the configuration requests it.
    ///
    /// # Errors
    /// [`NoCoreScheduling`].
    pub fn wanted(mode: CoreSchedulingMode) -> Result<Self, NoCoreScheduling> {
        match mode {
            CoreSchedulingMode::Off => Err(NoCoreScheduling::Off),
            CoreSchedulingMode::Auto | CoreSchedulingMode::Require => Self::detect(),
        }
    }

    /// Gives a process of a tenant the tenant's cookie.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn assign(&self, tenant: &str, pid: i32) -> io::Result<Member> {
        let mut tenants = self.lock();
        let of_tenant = tenants.entry(tenant.to_owned()).or_default();
        if !of_tenant.share(pid)? {
            create_core_scheduling_cookie(named(pid)?, CoreSchedulingScope::ThreadGroup)?;
            of_tenant.cookie = on_own_thread(|| take(pid))?;
            of_tenant.members.clear();
        }
        of_tenant.members.push(pid);
        Ok(self.member(tenant, pid))
    }

    /// Adds a process that has a cookie already: an earlier daemon assigned it.
    ///
    /// # Errors
    /// Any I/O error of the host, and if the process has no cookie.
    pub fn adopt(&self, tenant: &str, pid: i32) -> io::Result<Member> {
        let cookie = on_own_thread(|| take(pid))?;
        let mut tenants = self.lock();
        let of_tenant = tenants.entry(tenant.to_owned()).or_default();
        match (cookie, of_tenant.members.is_empty()) {
            (0, _) => {
                drop(tenants);
                return self.assign(tenant, pid);
            }
            (_, true) => of_tenant.cookie = cookie,
            // Some process of the tenant has another cookie: this one gets it too.
            (_, false) if cookie != of_tenant.cookie => {
                drop(tenants);
                return self.assign(tenant, pid);
            }
            (_, false) => {}
        }
        of_tenant.members.push(pid);
        drop(tenants);
        Ok(self.member(tenant, pid))
    }

    fn member(&self, tenant: &str, pid: i32) -> Member {
        Member {
            cores: self.clone(),
            tenant: tenant.to_owned(),
            pid,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Tenant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tenant {
    /// Gives a process the cookie of another member; `false` if no member has it any more.
    fn share(&self, pid: i32) -> io::Result<bool> {
        on_own_thread(|| {
            // The number of an ended process may belong to another process, with another cookie.
            let takes = |&member: &i32| take(member).is_ok_and(|cookie| cookie == self.cookie);
            if !self.members.iter().any(takes) {
                return Ok(false);
            }
            push_core_scheduling_cookie(named(pid)?, CoreSchedulingScope::ThreadGroup)?;
            Ok(true)
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut tenants = self.cores.lock();
        if let Some(tenant) = tenants.get_mut(&self.tenant) {
            tenant.members.retain(|pid| *pid != self.pid);
            if tenant.members.is_empty() {
                tenants.remove(&self.tenant);
            }
        }
    }
}

/// Does `work` on a temporary thread, whose cookie it may change.
fn on_own_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("cookie".into());
        let done = thread.spawn_scoped(scope, work)?.join();
        done.unwrap_or_else(|_| Err(io::Error::other("the thread with the cookie panicked")))
    })
}

/// Gives the calling thread the cookie of a process. Result: the cookie's number; 0: none.
fn take(pid: i32) -> io::Result<u64> {
    pull_core_scheduling_cookie(named(pid)?, CoreSchedulingScope::Thread)?;
    cookie_of_this_thread()
}

/// Number of the calling thread's cookie, for comparison; 0: none.
fn cookie_of_this_thread() -> io::Result<u64> {
    Ok(core_scheduling_cookie(
        gettid(),
        CoreSchedulingScope::Thread,
    )?)
}

/// The process with a number.
fn named(pid: i32) -> io::Result<Pid> {
    Ok(Pid::from_raw(pid.max(0)).ok_or(Errno::INVAL)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn pid(child: &Child) -> i32 {
        child.id().try_into().unwrap()
    }

    /// Works if the kernel has core scheduling; otherwise the reason must be reported.
    #[test]
    fn tenants_have_a_cookie_each() {
        let cores = match CoreScheduling::detect() {
            Ok(cores) => cores,
            Err(unavailable) => {
                assert!(
                    matches!(
                        unavailable,
                        NoCoreScheduling::Kernel | NoCoreScheduling::NoThreads
                    ),
                    "{unavailable}"
                );
                let error = CoreScheduling::default().assign("a", 1).unwrap_err();
                let expected = [libc::EINVAL, libc::ENODEV, libc::EPERM].map(Some);
                assert!(expected.contains(&error.raw_os_error()), "{error}");
                return;
            }
        };
        let mut children = [sleeper(), sleeper(), sleeper()];
        let [a, b, c] = [&children[0], &children[1], &children[2]].map(pid);
        let cookie = |pid| on_own_thread(|| take(pid)).unwrap();
        let first = cores.assign("a", a).unwrap();
        let second = cores.assign("a", b).unwrap();
        let other = cores.assign("b", c).unwrap();
        assert_ne!(cookie(a), 0);
        assert_eq!(cookie(a), cookie(b));
        assert_ne!(cookie(a), cookie(c));
        assert_eq!(cookie_of_this_thread().unwrap(), 0, "no cookie here");
        drop((first, second, other));
        assert!(cores.lock().is_empty());
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
