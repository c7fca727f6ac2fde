//! The processes of running machines, and what they use.

use super::Machines;
use hartline_abi::layout::PAGE_SIZE;
use hartline_jail::USER_HZ;
use std::fs;

impl Machines {
    /// The machines and asynchronous runs that have a process: their ids and process numbers.
    #[must_use]
    pub fn processes(&self) -> Vec<(String, i32)> {
        let tasks = self.lock();
        let with_process = tasks.iter().filter_map(|(id, task)| {
            let process = task.process.as_ref()?;
            Some((id.clone(), process.process().pid()))
        });
        with_process.collect()
    }
}

/// Processor time in milliseconds and resident memory in bytes of a process (proc(5)).
#[must_use]
pub fn usage(pid: i32) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<u64> = fields
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let time = fields.get(11)? + fields.get(12)?;
    Some((time * 1000 / USER_HZ, fields.get(21)? * PAGE_SIZE))
}
