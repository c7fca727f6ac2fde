//! Runs from the start of their VMM to its end, which the answer to a request waits for: the database does not have
//! them.

use super::extract::Caller;
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
use crate::store::{Kind, NetworkKind, Spec};
use crate::violations::{reported_by, reported_in};
use hartline_vmm::platform::memory_file;
use hartline_vmm::report::FAILURE;
use std::fs::File;
use std::io::{self, Seek};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A run whose VMM has its order. Dropping this ends the program.
pub(super) struct Started {
    tenant: String,
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
        let files = daemon.snapshots.files(snapshot, order.files())?;
        order.continue_from(files);
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
    let vmm = order.send_to_any(&supply, &outputs, prepare).await?;
    if let Some(lease) = &lease {
        ports.serve(lease.address());
    }
    let patience =
        Duration::from_millis(spec.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)) + VMM_PATIENCE;
    Ok(Started {
        tenant: caller.tenant.clone(),
        order,
        vmm,
        held: (permit, claim, ports),
        outputs,
        patience,
        queued,
    })
}

impl Started {
    /// Serves a VM without a program until `stop` is closed. Then the VM is ended, and its volumes are
    /// free.
    pub(super) async fn hold(self, stop: oneshot::Receiver<()>) {
        let serve = async {
            self.order.taken(self.vmm.line()).await?;
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
    /// Its memory, which its outputs take until they are dropped.
    pub(super) permit: Permit,
}

impl Started {
    /// Waits for the end of the run.
    pub(super) async fn end(self, daemon: &Daemon) -> io::Result<Ended> {
        let Self {
            tenant,
            order,
            vmm,
            held: (permit, claim, ports),
            outputs,
            patience,
            queued,
        } = self;
        let result = async {
            order.taken(vmm.line()).await?;
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
        // The process ends by itself; if it does not, this ends it. Clients that see the end of the run
        // may use its volumes and ports.
        vmm.end().await;
        drop((claim, ports));
        let result = match result {
            Ok(Ok(result)) => {
                order.note(&result);
                result
            }
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
