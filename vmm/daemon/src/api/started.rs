//! Runs from the start of their VMM to its end, which the answer to a request waits for: the database does not have
//! them.

use super::extract::Caller;
use super::outputs::SHORT;
use super::runs::DEFAULT_TIMEOUT_MS;
use crate::Daemon;
use crate::execute::{Order, Outputs, VMM_PATIENCE, why_it_died};
use crate::jailed::protocol::RunResult;
use crate::metrics::End;
use crate::ports;
use crate::problem::Problem;
use crate::process::Jailed;
use crate::processors::Claim;
use crate::scheduler::{Permit, need};
use crate::snapshots::Opened;
use crate::store::{CpuClass, Kind, NetworkKind, Spec};
use crate::violations::{reported_by, reported_in};
use crate::warm::{Soon, Warm, WarmVmms};
use hartline_vmm::platform::memory_file;
use hartline_vmm::report::FAILURE;
use std::fs::File;
use std::io::{self, Seek};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The longest time that a VM takes to be in the state of its snapshot again.
const RESET: Duration = Duration::from_secs(5);

/// A run whose VMM has its order. Dropping this ends the program.
pub(super) struct Started {
    tenant: String,
    /// The snapshot from which the VMM may make another run.
    snapshot: Option<String>,
    /// Whether the VMM has taken its job; `None`: it has not answered yet.
    taken: Option<io::Result<()>>,
    order: Order,
    vmm: Jailed,
    held: (Permit, Claim, ports::Claim),
    /// The files of standard output and standard error, and of the result.
    pub(super) outputs: Outputs,
    /// Longest time to the end.
    patience: Duration,
    queued: Duration,
}

/// Starts a run with these descriptors when its turn has come.
///
/// # Errors
/// The problem to answer with.
pub(super) async fn start(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    spec: &Spec,
    (mut order, mut outputs): (Order, Outputs),
) -> Result<Started, Problem> {
    if let Some(snapshot) = &spec.snapshot {
        let mut files = daemon.snapshots.files(snapshot, order.files())?;
        let may_repeat = may_repeat(daemon, spec);
        if may_repeat {
            let run = (order.streams(), files, outputs);
            (files, outputs) = match go_on(daemon, caller, spec, run).await? {
                Ok(started) => return Ok(started),
                Err(unused) => unused,
            };
        }
        order.continue_from(files);
        if may_repeat {
            order.repeat();
        }
    }
    order.give(
        &daemon
            .secrets
            .of(&daemon.store, &caller.tenant, &spec.secrets)?,
    )?;
    let quota = daemon.store.tenant(&caller.tenant)?;
    let quota = quota.map(|tenant| tenant.quota).unwrap_or_default();
    let mounts = &spec.volumes;
    let volumes = match mounts.is_empty() {
        true => None,
        false => Some(Arc::new(daemon.volumes.claim(&caller.tenant, mounts)?)),
    };
    let mut ports = daemon.machines.ports().claim(&caller.tenant, spec)?;
    let claim = daemon.processors.claim_for(spec)?;
    order.pin(&claim);
    let asked = Instant::now();
    let turn = daemon.scheduler.queue(&caller.tenant, quota, need(spec))?;
    let permit = turn.await.map_err(Problem::internal)?;
    let queued = asked.elapsed();

    let mut lease = None;
    if spec.network == NetworkKind::Tenant {
        let attach = || daemon.networks.attach(&caller.tenant, None);
        let interface = tokio::task::block_in_place(attach)?;
        lease = Some(order.connect(interface, &mut outputs));
    }
    let sources = (&*daemon.pool, &daemon.launcher, &*daemon.volumes);
    let supply = order.supply(&caller.tenant, mounts, sources).await?;
    let prepare = |vmm: &mut Jailed| {
        if let Some(volumes) = &volumes {
            vmm.keep_volumes(Arc::clone(volumes));
        }
        if let Some(lease) = &lease {
            vmm.keep(Arc::clone(lease));
        }
        tokio::task::block_in_place(|| vmm.limit(&caller.tenant, quota.weight, spec.memory))
    };
    let (vmm, taken) = order.begin_in_any(&supply, &outputs, prepare).await?;
    if let Some(lease) = &lease {
        ports.serve(lease.address());
    }
    let patience =
        Duration::from_millis(spec.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)) + VMM_PATIENCE;
    Ok(Started {
        tenant: caller.tenant.clone(),
        snapshot: spec.snapshot.clone().filter(|_| order.repeats()),
        taken,
        order,
        vmm,
        held: (permit, claim, ports),
        outputs,
        patience,
        queued,
    })
}

/// Whether the VMM of a run can make others after it.
fn may_repeat(daemon: &Daemon, spec: &Spec) -> bool {
    daemon.warm.is_on()
        && spec.network == NetworkKind::None
        && spec.cpu_class == CpuClass::Shared
        && spec.volumes.is_empty()
        && spec.ports.is_empty()
        && spec.secrets.is_empty()
        && spec.core_limit.is_none()
        && spec.terminal.is_none()
        && !spec.interactive
}

/// Gives a run to a VMM that waits for one, and whose VM shows these files of the snapshot. Result: files and outputs
/// again if there is none.
async fn go_on(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    spec: &Spec,
    (streams, files, outputs): (bool, Opened, Outputs),
) -> Result<Result<Started, (Opened, Outputs)>, Problem> {
    let snapshot = spec.snapshot.as_deref().unwrap_or_default();
    let timeout_ms = spec.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
    while let Some(mut warm) = daemon.warm.take_soon(&caller.tenant, snapshot).await {
        if !files.check.is_same(&warm.check) {
            continue;
        }
        let again = (timeout_ms, streams);
        let sent = warm.order.send_again(warm.vmm.line(), &outputs, again);
        if sent.await.is_err() {
            // It has ended meanwhile.
            continue;
        }
        warm.order.continue_from(files);
        let (permit, claim) = warm.held;
        let ports = daemon.machines.ports().claim(&caller.tenant, spec)?;
        return Ok(Ok(Started {
            tenant: warm.tenant,
            snapshot: Some(warm.snapshot),
            taken: Some(Ok(())),
            order: warm.order,
            vmm: warm.vmm,
            held: (permit, claim, ports),
            outputs,
            patience: Duration::from_millis(timeout_ms) + VMM_PATIENCE,
            queued: Duration::ZERO,
        }));
    }
    Ok(Err((files, outputs)))
}

impl Started {
    /// Serves a VM without a program until `stop` is closed. Then the VM is ended, and its volumes are
    /// free.
    pub(super) async fn hold(self, stop: oneshot::Receiver<()>) {
        let serve = async {
            match self.taken {
                Some(taken) => taken?,
                None => self.order.taken(self.vmm.line()).await?,
            }
            self.order.result(self.vmm.line()).await
        };
        tokio::select! {
            _ = serve => {}
            _ = stop => {}
        }
        self.vmm.end().await;
    }
}

/// A run that has ended.
pub(super) struct Ended {
    pub(super) result: RunResult,
    /// The files of standard output and standard error.
    pub(super) outputs: [File; 2],
    /// Milliseconds that it waited for its turn.
    pub(super) queued_ms: f64,
    /// Its memory, which its outputs take until they are dropped; `None`: its VMM waits for another run.
    pub(super) permit: Option<Permit>,
}

impl Started {
    /// Waits for the end of the run.
    pub(super) async fn end(self, daemon: &Daemon) -> io::Result<Ended> {
        let Self {
            tenant,
            snapshot,
            taken,
            mut order,
            vmm,
            held: (permit, claim, ports),
            outputs,
            patience,
            queued,
        } = self;
        let result = async {
            match taken {
                Some(taken) => taken?,
                None => order.taken(vmm.line()).await?,
            }
            order.result(vmm.line()).await
        };
        let result = tokio::time::timeout(patience, result).await;
        let died = match &result {
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let reported = reported_by(error).or_else(|| reported_in(&outputs.result));
                let process_name = format!("the VMM of a run of tenant {tenant}");
                let violation = vmm.violation(&process_name, reported).await;
                why_it_died(vmm.is_out_of_memory(), violation)
            }
            _ => String::new(),
        };
        let mut permit = Some(permit);
        drop(ports);
        let is_ended = matches!(result, Ok(Ok(_)));
        if let Ok(Ok(result)) = &result {
            order.note(result);
        }
        // Long outputs take the memory of the run until its client has read them.
        let goes_on = is_ended && is_short(&outputs.output) && is_short(&outputs.error);
        let check = order.close_snapshot().filter(|_| goes_on);
        match (snapshot.zip(check), permit.take()) {
            (Some((snapshot, check)), Some(held)) => {
                let warm = Warm {
                    tenant: tenant.clone(),
                    snapshot,
                    check,
                    order,
                    vmm,
                    held: (held, claim),
                };
                // Before the client has the answer, which may ask for another run at once.
                let soon = daemon.warm.announce(&warm.tenant, &warm.snapshot);
                tokio::spawn(keep(Arc::clone(&daemon.warm), warm, soon));
            }
            (_, unused) => {
                permit = unused;
                // The process ends by itself; if it does not, this ends it. Clients that see the end of the
                // run may use its volumes.
                vmm.end().await;
                drop(claim);
            }
        }
        let result = match result {
            Ok(Ok(result)) => result,
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                RunResult::not_run(FAILURE, died)
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!("the VMM of a run of tenant {tenant} sent an invalid message");
                RunResult::not_run(FAILURE, "the VMM sent an invalid message and was ended")
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => RunResult::not_run(FAILURE, "the VMM did not answer and was ended"),
        };
        let queued_ms = queued.as_secs_f64() * 1000.0;
        daemon.metrics.note_queued(Kind::Run, queued);
        daemon.metrics.count_end(End {
            tenant: &tenant,
            kind: Kind::Run,
            killed: false,
            result: Some(&result),
        });
        Ok(Ended {
            result,
            outputs: [outputs.output, outputs.error],
            queued_ms,
            permit,
        })
    }
}

/// Whether an output is read into memory at once, or is a socket.
fn is_short(output: &File) -> bool {
    output.metadata().is_ok_and(|found| found.len() <= SHORT)
}

/// Lets a VMM wait for the next run when its VM is in the state of the snapshot again.
async fn keep(all: Arc<WarmVmms>, warm: Warm, soon: Soon) {
    let ready = tokio::time::timeout(RESET, warm.order.ready_again(warm.vmm.line()));
    // Otherwise the VM cannot be reset, or its VMM does not follow the protocol: it ends.
    if let Ok(Ok(())) = ready.await {
        all.keep(warm);
    }
    drop(soon);
}

/// Files in memory for a program's descriptors.
///
/// # Errors
/// Any I/O error of the host.
pub(super) fn make_outputs(input: &[u8]) -> io::Result<Outputs> {
    let mut input = memory_file(c"stdin", input)?;
    input.rewind()?;
    let (output, error) = (memory_file(c"stdout", b"")?, memory_file(c"stderr", b"")?);
    outputs_of([input, output, error])
}

/// A program's descriptors: these standard ones, and a file in memory for the result.
///
/// # Errors
/// Any I/O error of the host.
pub(super) fn outputs_of([input, output, error]: [File; 3]) -> io::Result<Outputs> {
    Ok(Outputs {
        core: None,
        input,
        output,
        error,
        result: memory_file(c"result", b"")?,
        keep_input: None,
        requests: None,
        tap: None,
        log: None,
    })
}
