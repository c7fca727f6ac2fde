//! Restart policies: what happens when the program of a machine has ended.
//!
//! A machine that is to run again is `Restarting` for a while, then queued like any other. It keeps
//! its published ports. The wait doubles from restart to restart, and begins anew once the program
//! has run for some time.

use super::{MachineError, Machines, Task};
use crate::metrics::End;
use crate::ports;
use crate::scheduler::Refused;
use crate::store::{Machine, MachineState, Restart, now_ms};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The wait before the first restart.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest wait before a restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A program that ran as long as this did not end at once.
const LONG_RUN_MS: i64 = 10_000;

/// The state that a machine keeps from one start to the next, as long as it is active.
#[derive(Debug)]
pub(super) struct Kept {
    /// Published ports.
    pub ports: Option<ports::Claim>,
    /// The wait before the next restart.
    pause: Duration,
}

impl Kept {
    /// The state of a machine that is started.
    pub fn new(ports: ports::Claim) -> Self {
        Self {
            ports: Some(ports),
            pause: FIRST_PAUSE,
        }
    }
}

impl Default for Kept {
    /// The state of a machine that is not started.
    fn default() -> Self {
        Self {
            ports: None,
            pause: FIRST_PAUSE,
        }
    }
}

/// Whether the policy of a machine restarts it after its end in a state. A machine that was never
/// started, or that a client has stopped, is not restarted.
fn is_restarted(machine: &Machine, end: MachineState) -> bool {
    let was_started = machine.state.has_started() || machine.restarts > 0;
    let code = machine.result.as_ref().map(|result| result.code);
    let has_failed = end == MachineState::Failed || code != Some(0);
    let is_wanted = match machine.spec.restart {
        Restart::No => false,
        Restart::Always => true,
        Restart::OnFailure(most) => has_failed && most.is_none_or(|most| machine.restarts < most),
    };
    is_wanted && was_started && !machine.stopped && !machine.killed
}

impl Machines {
    /// Notes the end of a machine in a state, or that it is to be restarted. A suspended machine that could
    /// not be started stays suspended.
    pub(super) fn conclude(
        &self,
        mut machine: Machine,
        end: MachineState,
        kept: &mut Kept,
    ) -> Result<(), MachineError> {
        if end == MachineState::Failed
            && machine.suspended.is_some()
            && !machine.state.has_started()
        {
            // It could not be started.
            let message = std::mem::take(&mut machine.message);
            return self.stay_suspended(machine, message, kept);
        }
        let ended = now_ms();
        self.metrics.count_end(End {
            tenant: &machine.tenant,
            kind: machine.kind,
            killed: machine.killed,
            result: machine
                .result
                .as_ref()
                .filter(|_| end == MachineState::Exited),
        });
        machine.state = match is_restarted(&machine, end) {
            true => MachineState::Restarting,
            false => end,
        };
        let ran = machine.started_ms.map_or(0, |started| ended - started);
        if ran >= LONG_RUN_MS {
            kept.pause = FIRST_PAUSE;
        }
        machine.ended_ms = Some(ended);
        if machine.state == MachineState::Restarting {
            machine.process = None;
            if let Some(ports) = &mut kept.ports {
                ports.pause();
            }
            match (self.forget_suspension(&machine)).and_then(|()| self.change(&machine)) {
                // The end is noted on a full disk too.
                Err(MachineError::Store(error)) if error.is_full() => {
                    tracing::warn!(machine = %machine.id, "it is not restarted: {error}");
                    machine.state = end;
                }
                noted => return noted,
            }
        }
        // Clients that see the end may start another machine with the ports.
        kept.ports = None;
        drop(self.asleep.wake(&machine.id));
        self.end_task(&machine)?;
        self.discard_suspension(&machine);
        Ok(())
    }

    /// Notes the end of a machine, whose task is over. Clients that see the end may start the machine
    /// again, which makes another task.
    pub(super) fn end_task(&self, machine: &Machine) -> Result<(), MachineError> {
        let mut tasks = self.lock();
        self.change(machine)?;
        tasks.remove(&machine.id);
        Ok(())
    }

    /// Restarts a machine later if it is `Restarting`.
    pub(super) fn settle(self: &Arc<Self>, id: &str, kept: Kept) {
        match self.store.machine(id) {
            Ok(Some(machine)) if machine.state == MachineState::Restarting => {
                self.restart_later(machine, kept);
            }
            Ok(Some(machine)) if machine.state == MachineState::Suspended => {
                self.await_clients(id, !machine.message.is_empty());
            }
            // Its end was noted.
            Ok(Some(machine)) if machine.spec.auto_remove && machine.state.has_ended() => {
                self.remove_later(machine);
            }
            Ok(Some(_)) => {}
            Ok(None) => drop(self.lock().remove(id)),
            Err(error) => {
                self.lock().remove(id);
                tracing::error!(machine = %id, "{error}");
            }
        }
    }

    fn restart_later(self: &Arc<Self>, machine: Machine, mut kept: Kept) {
        let (cancel, cancelled) = oneshot::channel();
        let task = Task {
            cancel: Some(cancel),
            ..Task::default()
        };
        self.lock().insert(machine.id.clone(), task);
        let pause = kept.pause;
        kept.pause = (pause * 2).min(LONGEST_PAUSE);
        let machines = Arc::clone(self);
        tokio::spawn(async move {
            // A client may have stopped the machine before there was a task.
            let is_due = !machine.stopped
                && tokio::select! {
                    () = tokio::time::sleep(pause) => true,
                    _ = cancelled => false,
                };
            tokio::task::block_in_place(|| match is_due {
                true => machines.restart(machine, kept),
                false => machines.give_up_restart(machine, kept),
            });
        });
    }

    /// Queues a machine whose time for a restart has come.
    fn restart(self: &Arc<Self>, machine: Machine, kept: Kept) {
        match self.store.requeue_machine(&machine.id) {
            Ok(Some(queued)) => {
                self.metrics.count_restart();
                self.events.publish(&queued);
                self.queue_again(queued, kept);
            }
            Ok(None) => self.give_up_restart(machine, kept),
            Err(error) => self.give_up(&machine.id, &error.into(), kept),
        }
    }

    /// Queues a machine that was queued before. A failure is noted as if its program had ended.
    pub(super) fn queue_again(self: &Arc<Self>, machine: Machine, mut kept: Kept) {
        match self.queue(machine.clone(), &mut kept) {
            Ok(()) => {}
            // The next daemon finds it queued.
            Err(MachineError::Refused(Refused::Draining)) => {
                self.lock().remove(&machine.id);
            }
            Err(error) => self.give_up(&machine.id, &error, kept),
        }
    }

    /// Ends a machine that waits for its restart. It has ended when its program did.
    fn give_up_restart(&self, mut machine: Machine, kept: Kept) {
        drop(kept);
        machine.state = match machine.result {
            Some(_) => MachineState::Exited,
            None => MachineState::Failed,
        };
        if let Err(error) = self.end_task(&machine) {
            tracing::error!(machine = %machine.id, "{error}");
            self.lock().remove(&machine.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jailed::protocol::RunResult;
    use crate::store::testing;

    /// A machine with a policy, whose program ended with an exit code.
    fn machine(policy: &str, code: u8) -> Machine {
        let spec = serde_json::json!({ "program": "a", "restart": policy });
        Machine {
            result: Some(RunResult::not_run(code, "")),
            started_ms: Some(0),
            ..testing::machine("1", "a", spec)
        }
    }

    #[test]
    fn policies_say_what_is_restarted() {
        use MachineState::{Exited, Failed};
        for (policy, code, end, expected) in [
            ("no", 1, Exited, false),
            ("no", 0, Failed, false),
            ("always", 0, Exited, true),
            ("always", 1, Failed, true),
            ("on-failure", 0, Exited, false),
            ("on-failure", 1, Exited, true),
            ("on-failure", 0, Failed, true),
            ("on-failure:2", 1, Exited, true),
        ] {
            let machine = machine(policy, code);
            assert_eq!(is_restarted(&machine, end), expected, "{policy} {code}");
        }
        let counted = |restarts| Machine {
            restarts,
            ..machine("on-failure:2", 1)
        };
        assert!(is_restarted(&counted(1), Exited) && !is_restarted(&counted(2), Exited));
    }

    #[test]
    fn clients_and_starts_that_fail_end_it() {
        let always = || machine("always", 1);
        let stopped = Machine {
            stopped: true,
            ..always()
        };
        assert!(!is_restarted(&stopped, MachineState::Exited));
        let killed = Machine {
            killed: true,
            ..always()
        };
        assert!(!is_restarted(&killed, MachineState::Exited));
        let first = Machine {
            state: MachineState::Queued,
            ..always()
        };
        assert!(!is_restarted(&first, MachineState::Failed));
        let later = Machine {
            restarts: 1,
            ..first
        };
        assert!(is_restarted(&later, MachineState::Failed));
    }
}
