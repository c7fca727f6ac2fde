//! Snapshots with which machines are suspended.
//!
//! The guest does not run between its snapshot and the end of its VMM: the VMM notes in the file for its
//! result that it holds the guest, sends the end of the snapshot, and waits. When the files are on the
//! disk and the database has noted it, the service tells the VMM to end. If the connection breaks
//! before, the VMM takes its note back, and the guest goes on. So a machine whose process is gone is
//! suspended if the note is there and the database has the snapshot, whenever the service was killed.

use super::{SnapshotError, Snapshots, Turn, check, done, kept_spec, most};
use crate::auth::random_hex;
use crate::jailed::protocol::{Request, SuspendJob};
use crate::process::Watched;
use crate::store::{Machine, NewSnapshot};
use hartline_jail::Channel;
use hartline_jail::spawner::protocol::Signal;
use hartline_vmm::snapshot::stream::END;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// How long a VMM may take to end, with the last bytes of its output.
const LAST_OUTPUT: Duration = Duration::from_secs(10);

impl Snapshots {
    /// Makes a snapshot of a running machine, and ends its process. After an error, the machine goes
    /// on. The work is completed, or undone, also if this is cancelled. Must run inside a runtime.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub async fn suspend(
        self: &Arc<Self>,
        machine: &Machine,
        process: &Arc<Watched>,
    ) -> Result<(), SnapshotError> {
        check(&machine.spec)?;
        let turn = Turn::take(self, &machine.id)?;
        let requests = process.process().requests();
        let requests = requests.map_err(|_| SnapshotError::Gone)?;
        let (snapshots, machine) = (Arc::clone(self), machine.clone());
        let process = Arc::clone(process);
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let vmm = snapshots.hold(&machine, &requests)?;
            end(&machine.id, vmm, &process);
            Ok(())
        });
        work.await.map_err(io::Error::other)?
    }

    /// Makes a snapshot that is noted as the one that its machine continues. The VMM holds the guest as
    /// long as the result is open.
    fn hold(&self, machine: &Machine, requests: &Channel) -> Result<UnixStream, SnapshotError> {
        let id = random_hex::<16>()?;
        let spec = &kept_spec(&machine.spec);
        let reserved = self.store.reserve_snapshot(NewSnapshot {
            id: &id,
            tenant: &machine.tenant,
            name: None,
            machine: &machine.id,
            spec,
            most: most(spec.memory),
            suspends: true,
        });
        done(reserved?)?;
        let written = self.write(&id, machine, requests, |tree| {
            Request::Suspend(SuspendJob { suspend_with: tree })
        });
        let held = written.and_then(|(received, vmm)| {
            let noted = self
                .store
                .complete_suspension(&machine.id, &id, received.size)?;
            noted.map(|_| vmm).ok_or(SnapshotError::Gone)
        });
        match &held {
            // Its place is taken.
            Ok(_) => machine
                .suspended
                .iter()
                .for_each(|earlier| self.discard(earlier)),
            Err(_) => {
                if let Err(error) = self.undo(&id) {
                    // The next start deletes it.
                    tracing::error!(machine = %machine.id, "snapshot {id}: not undone: {error}");
                }
            }
        }
        held
    }

    /// Deletes the files of a snapshot that the database has forgotten.
    pub fn discard(&self, id: &str) {
        if let Err(error) = self.remove_files(id) {
            // The next start deletes them.
            tracing::error!("snapshot {id}: not deleted: {error}");
        }
    }
}

/// Ends a VMM that holds its guest. If it does not end by itself, it is killed.
fn end(machine: &str, mut vmm: UnixStream, process: &Watched) {
    let process = process.process();
    // A VMM that has ended does not read this.
    let told = vmm.write_all(&[END]);
    if told.is_ok() && process.wait(LAST_OUTPUT) {
        return;
    }
    tracing::warn!(%machine, "its VMM did not end by itself: its last output may be lost");
    if let Err(error) = process.signal(Signal::Kill) {
        tracing::error!(%machine, "its VMM was not killed: {error}");
    }
    // Until then the guest must not go on.
    let _ = process.wait(LAST_OUTPUT);
}
