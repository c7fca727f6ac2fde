//! States of machines, also as conditions of SQL.

use serde::{Deserialize, Serialize};

/// The condition that a column has the state of an [active](MachineState::is_active) machine.
macro_rules! is_active {
    ($column:literal) => {
        concat!(
            $column,
            " IN ('queued', 'starting', 'running', 'paused', 'restarting')"
        )
    };
}

/// The condition that a column has the state of a machine that [has
/// ended](MachineState::has_ended).
macro_rules! has_ended {
    ($column:literal) => {
        concat!($column, " IN ('exited', 'failed')")
    };
}

pub(super) use {has_ended, is_active};

/// The state of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MachineState {
    /// Never started.
    Created,
    /// Waits for the scheduler.
    Queued,
    /// Its process receives the program.
    Starting,
    /// Runs.
    Running,
    /// Paused: it gets no CPU time.
    Paused,
    /// Waits for its next start, by its restart policy.
    Restarting,
    /// Its memory is on the disk. It has no process, and goes on where it stopped when it is started.
    Suspended,
    /// Has ended with an exit code.
    Exited,
    /// Could not run to its end; the message has the reason.
    Failed,
}

impl MachineState {
    pub(super) const ALL: [Self; 9] = [
        Self::Created,
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::Paused,
        Self::Restarting,
        Self::Suspended,
        Self::Exited,
        Self::Failed,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Restarting => "restarting",
            Self::Suspended => "suspended",
            Self::Exited => "exited",
            Self::Failed => "failed",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether its program has been started and has not ended.
    #[must_use]
    pub fn has_started(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }

    /// Whether the machine has a process, or will get one.
    #[must_use]
    pub fn is_active(self) -> bool {
        match self {
            Self::Queued | Self::Starting | Self::Running | Self::Paused | Self::Restarting => true,
            Self::Created | Self::Suspended | Self::Exited | Self::Failed => false,
        }
    }

    /// Whether a program that was started has not ended for good: the machine is active or suspended.
    #[must_use]
    pub fn goes_on(self) -> bool {
        self.is_active() || self == Self::Suspended
    }

    /// Whether the machine has run, or could not run, and is neither active nor suspended.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Exited | Self::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn conditions_are_those_of_the_states() {
        let connection = Connection::open_in_memory().unwrap();
        let holds = |condition: &str, state: MachineState| -> bool {
            let query = format!("SELECT {condition} FROM (SELECT ? AS state)");
            connection
                .query_row(&query, [state.name()], |row| row.get(0))
                .unwrap()
        };
        for state in MachineState::ALL {
            assert_eq!(holds(is_active!("state"), state), state.is_active());
            assert_eq!(holds(has_ended!("state"), state), state.has_ended());
            let is_one = [
                state == MachineState::Created,
                state.goes_on(),
                state.has_ended(),
            ];
            assert_eq!(is_one.iter().filter(|is| **is).count(), 1);
        }
    }
}
