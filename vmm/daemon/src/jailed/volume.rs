//! Measuring and emptying a volume, whose files a guest has made.

use super::JailedError;
use super::protocol::{FromVolumeWorker, VolumeTask};
use hartline_devices::volume::tree;
use hartline_jail::Channel;
use std::os::fd::{AsFd, OwnedFd};

/// Does one task with the volume.
///
/// # Errors
/// [`JailedError`]. An error of the host is an answer.
pub fn work(channel: &Channel, volumes: &[OwnedFd]) -> Result<(), JailedError> {
    let (message, _) = channel.receive()?;
    if message.is_empty() {
        return Ok(());
    }
    let [volume] = volumes else {
        return Err(JailedError::Descriptor);
    };
    let volume = volume.as_fd();
    let done = match serde_json::from_slice(&message)? {
        VolumeTask::Measure => {
            let measured = tree::measure(volume);
            measured.map(|used| FromVolumeWorker::Measured { used: used.into() })
        }
        VolumeTask::Empty => tree::empty(volume).map(|()| FromVolumeWorker::Emptied),
    };
    let answer = done.unwrap_or_else(|error| FromVolumeWorker::Failed {
        message: error.to_string(),
    });
    channel.send(&serde_json::to_vec(&answer)?, &[])?;
    Ok(())
}
