//! Copies from and to the volumes of machines that do not run. A VM with the machine's root file system
//! and volumes, and without a program, makes the copy; the volumes are in use meanwhile.

use super::extract::Target;
use super::started::{Started, make_outputs, start};
use crate::execute::Order;
use crate::problem::Problem;
use crate::store::{CpuClass, Machine, Mount, NetworkKind, Restart, Spec};
use hartline_jail::Channel;
use hartline_vmm::layout::MIN_RAM;
use std::os::fd::AsFd;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A VM that makes a copy. Dropping this ends it.
pub(super) struct Holder {
    /// The channel for requests.
    pub requests: Channel,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Holder {
    /// Starts a VM for a copy from or to a path in a machine that is not active.
    ///
    /// # Errors
    /// The path is not in a volume of the machine, or the VM cannot be started.
    pub async fn start(
        target: &Target,
        machine: &Machine,
        (path, is_read): (&str, bool),
    ) -> Result<Self, Problem> {
        let state = machine.state.name();
        if !is_in_volume(&machine.spec.volumes, path) {
            let detail = format!(
                "the machine is {state}: only files in its volumes can be copied, by paths without \
                 .. in them"
            );
            return Err(Problem::conflict("wrong-state", detail));
        }
        let daemon = &target.daemon;
        let program = daemon
            .store
            .program(&machine.tenant, &machine.spec.program)?;
        let program = program.ok_or_else(|| Problem::not_found("program"))?;
        let spec = spec_of(machine, is_read, daemon.config().copy_timeout_s);
        let mut order = Order::new(&spec, &program, &daemon.library, false).await?;
        order.hold();
        let (own, other) = Channel::pair()?;
        own.set_nonblocking()?;
        other.set_nonblocking()?;
        let requests = Channel::from(other.as_fd().try_clone_to_owned()?);
        let mut outputs = make_outputs(b"")?;
        outputs.requests = Some([own, other]);
        let started = start(daemon, &target.caller, &spec, (order, outputs)).await?;
        let (stop, stopped) = oneshot::channel();
        Ok(Self {
            requests,
            stop,
            task: tokio::spawn(Started::hold(started, stopped)),
        })
    }

    /// Ends the VM. The volumes are free when this returns.
    pub async fn end(self) {
        drop(self.stop);
        // The task does not panic.
        let _ = self.task.await;
    }
}

/// Whether a path leads into a volume by its names.
fn is_in_volume(volumes: &[Mount], path: &str) -> bool {
    let is_below = |mount: &Mount| {
        let rest = path.strip_prefix(mount.path.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    !path.split('/').any(|part| part == "..") && volumes.iter().any(is_below)
}

/// The specification of the VM. Its root cannot be changed: what a link in a volume leads to there
/// would be lost.
fn spec_of(machine: &Machine, is_read: bool, seconds: u64) -> Spec {
    let mut spec = Spec {
        args: Vec::new(),
        env: Default::default(),
        cpus: 1,
        memory: MIN_RAM,
        timeout_ms: Some(seconds.saturating_mul(1000)),
        interactive: false,
        cpu_class: CpuClass::Shared,
        network: NetworkKind::None,
        user: None,
        workdir: None,
        read_only: true,
        ports: Vec::new(),
        snapshot: None,
        restart: Restart::No,
        terminal: None,
        secrets: Vec::new(),
        auto_remove: false,
        idle_timeout_s: None,
        webhook: None,
        core_limit: None,
        ..machine.spec.clone()
    };
    // Others may write to a volume that is only read.
    for mount in &mut spec.volumes {
        mount.read_only |= is_read;
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_into_volumes() {
        let mount = |path: &str| Mount {
            volume: "a".to_owned(),
            path: path.to_owned(),
            read_only: false,
        };
        let volumes = [mount("/data"), mount("/srv/x")];
        for path in ["/data", "/data/", "/data/a b", "/srv/x/.."] {
            let is_plain = !path.contains("..");
            assert_eq!(is_in_volume(&volumes, path), is_plain, "{path}");
        }
        for path in ["/", "/dat", "/data2", "/srv", "/srv/../data", "data"] {
            assert!(!is_in_volume(&volumes, path), "{path}");
        }
    }
}
