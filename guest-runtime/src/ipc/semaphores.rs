//! Semaphore sets (`semop(2)`).

use super::ids::{Ids, Object, Permission};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::ipc::IPC_NOWAIT;
use hartline_linux::sem::{SEM_UNDO, SEMAEM, SEMMNI, SEMVMX, Sembuf};

/// A semaphore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Semaphore {
    /// 0 to `SEMVMX`.
    value: i32,
    /// The process that changed it last.
    pid: u32,
}

/// An operation that waits.
#[derive(Debug)]
struct Pending {
    tid: u32,
    pid: u32,
    operations: Vec<Sembuf>,
    /// The operation that cannot be done yet.
    blocking: Sembuf,
}

/// A set of semaphores.
#[derive(Debug)]
pub struct SemaphoreSet {
    permission: Permission,
    semaphores: Vec<Semaphore>,
    pending: VecDeque<Pending>,
    /// Time of the last `semop`, s.
    pub otime: i64,
    /// Time of the last change by `semctl`, s.
    pub ctime: i64,
}

impl Object for SemaphoreSet {
    fn permission(&self) -> &Permission {
        &self.permission
    }
}

impl SemaphoreSet {
    /// A set of `count` semaphores with the value 0.
    #[must_use]
    pub fn new(permission: Permission, count: usize, now: i64) -> SemaphoreSet {
        SemaphoreSet {
            permission,
            semaphores: alloc::vec![Semaphore::default(); count],
            pending: VecDeque::new(),
            otime: 0,
            ctime: now,
        }
    }

    /// The permission, to change it.
    pub fn permission_mut(&mut self) -> &mut Permission {
        &mut self.permission
    }

    /// Number of semaphores.
    #[must_use]
    pub fn count(&self) -> usize {
        self.semaphores.len()
    }

    /// Value of a semaphore, and the process that changed it last.
    ///
    /// # Errors
    /// `EINVAL` if there is no semaphore of this number.
    pub fn value(&self, number: usize) -> Result<(i32, u32), Errno> {
        let semaphore = self.semaphores.get(number).ok_or(Errno::EINVAL)?;
        Ok((semaphore.value, semaphore.pid))
    }

    /// Number of tasks that wait for a semaphore to become 0 (`for_zero`) or larger.
    #[must_use]
    pub fn waiting(&self, number: usize, for_zero: bool) -> usize {
        let waits = |pending: &&Pending| {
            usize::from(pending.blocking.sem_num) == number
                && (pending.blocking.sem_op == 0) == for_zero
        };
        self.pending.iter().filter(waits).count()
    }

    /// Does all operations or none. Returns the operation that has to wait, if one has.
    fn attempt(
        &mut self,
        operations: &[Sembuf],
        pid: u32,
        adjustments: &mut Vec<i32>,
    ) -> Result<Option<Sembuf>, Errno> {
        let mut values: Vec<i32> = self.semaphores.iter().map(|one| one.value).collect();
        let mut adjusted = adjustments.clone();
        adjusted.resize(values.len(), 0);
        for &operation in operations {
            let Sembuf {
                sem_num,
                sem_op,
                sem_flg,
            } = operation;
            let number = usize::from(sem_num);
            let change = i32::from(sem_op);
            let value = values.get_mut(number).ok_or(Errno::EFBIG)?;
            if change == 0 && *value != 0 || *value + change < 0 {
                return match u64::from(sem_flg.cast_unsigned()) & IPC_NOWAIT {
                    0 => Ok(Some(operation)),
                    _ => Err(Errno::EAGAIN),
                };
            }
            if *value + change > SEMVMX {
                return Err(Errno::ERANGE);
            }
            *value += change;
            if sem_flg & SEM_UNDO != 0 {
                let undo = adjusted[number] - change;
                if !(-SEMAEM - 1..=SEMAEM).contains(&undo) {
                    return Err(Errno::ERANGE);
                }
                adjusted[number] = undo;
            }
        }
        for (semaphore, value) in self.semaphores.iter_mut().zip(values) {
            semaphore.value = value;
        }
        for operation in operations {
            self.semaphores[usize::from(operation.sem_num)].pid = pid;
        }
        *adjustments = adjusted;
        Ok(None)
    }
}

/// The result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The task has to wait; [`Semaphores::take_result`] has the result when it is woken.
    Waits,
}

/// All semaphore sets.
#[derive(Debug)]
pub struct Semaphores {
    /// The sets.
    pub ids: Ids<SemaphoreSet>,
    /// The numbers to add to the values of a set when a process ends (`SEM_UNDO`), by process and
    /// set.
    adjustments: BTreeMap<(u32, i32), Vec<i32>>,
    /// Results of operations that have waited, by task.
    results: BTreeMap<u32, Result<(), Errno>>,
}

impl Default for Semaphores {
    fn default() -> Self {
        Semaphores {
            ids: Ids::new(SEMMNI),
            adjustments: BTreeMap::new(),
            results: BTreeMap::new(),
        }
    }
}

impl Semaphores {
    /// Does the operations on a set for a task, or has the task wait. Adds the tasks whose wait
    /// ends to `woken`.
    ///
    /// # Errors
    /// `EINVAL`, `EIDRM`, `EFBIG`, `EAGAIN`, `ERANGE` as in semop(2).
    pub fn operate(
        &mut self,
        id: i32,
        operations: Vec<Sembuf>,
        (pid, tid): (u32, u32),
        now: i64,
        woken: &mut Vec<u32>,
    ) -> Result<Outcome, Errno> {
        let set = self.ids.find_mut(id)?;
        let count = set.count();
        if (operations.iter()).any(|operation| usize::from(operation.sem_num) >= count) {
            return Err(Errno::EFBIG);
        }
        let mut adjustments = self
            .adjustments
            .get(&(pid, id))
            .cloned()
            .unwrap_or_default();
        if let Some(blocking) = set.attempt(&operations, pid, &mut adjustments)? {
            set.pending.push_back(Pending {
                tid,
                pid,
                operations,
                blocking,
            });
            return Ok(Outcome::Waits);
        }
        set.otime = now;
        self.keep_adjustments(pid, id, adjustments);
        self.serve_pending(id, now, woken);
        Ok(Outcome::Done)
    }

    fn keep_adjustments(&mut self, pid: u32, id: i32, adjustments: Vec<i32>) {
        match adjustments.iter().all(|&adjustment| adjustment == 0) {
            true => self.adjustments.remove(&(pid, id)),
            false => self.adjustments.insert((pid, id), adjustments),
        };
    }

    /// Does the pending operations that can be done, in the order of their arrival, until none can.
    fn serve_pending(&mut self, id: i32, now: i64, woken: &mut Vec<u32>) {
        let Ok(set) = self.ids.find_mut(id) else {
            return;
        };
        let mut at = 0;
        while at < set.pending.len() {
            let Some(pending) = set.pending.remove(at) else {
                return;
            };
            let own = (pending.pid, id);
            let mut adjustments = self.adjustments.get(&own).cloned().unwrap_or_default();
            let result = match set.attempt(&pending.operations, pending.pid, &mut adjustments) {
                Ok(Some(blocking)) => {
                    set.pending.insert(
                        at,
                        Pending {
                            blocking,
                            ..pending
                        },
                    );
                    at += 1;
                    continue;
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if result.is_ok() {
                set.otime = now;
                if adjustments.iter().any(|&adjustment| adjustment != 0) {
                    self.adjustments.insert(own, adjustments);
                } else {
                    self.adjustments.remove(&own);
                }
                // Earlier ones may be possible now.
                at = 0;
            }
            self.results.insert(pending.tid, result);
            woken.push(pending.tid);
        }
    }

    /// Takes the result of the operation for which a task has waited, if the wait is over.
    pub fn take_result(&mut self, tid: u32) -> Option<Result<(), Errno>> {
        self.results.remove(&tid)
    }

    /// Ends the wait of a task without a result.
    pub fn cancel(&mut self, id: i32, tid: u32) {
        if let Ok(set) = self.ids.find_mut(id) {
            set.pending.retain(|pending| pending.tid != tid);
        }
    }

    /// Forgets a task that has ended.
    pub fn forget_task(&mut self, tid: u32) {
        self.results.remove(&tid);
        let ids: Vec<i32> = self.ids.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.cancel(id, tid);
        }
    }

    /// Sets values from a number on (`SETVAL`, `SETALL`). Adjustments of these semaphores end.
    ///
    /// # Errors
    /// `EINVAL`, `ERANGE`.
    pub fn set_values(
        &mut self,
        id: i32,
        first: usize,
        values: &[i32],
        (pid, now): (u32, i64),
        woken: &mut Vec<u32>,
    ) -> Result<(), Errno> {
        if !values.iter().all(|value| (0..=SEMVMX).contains(value)) {
            return Err(Errno::ERANGE);
        }
        let set = self.ids.find_mut(id)?;
        let end = first.checked_add(values.len()).ok_or(Errno::EINVAL)?;
        let semaphores = set.semaphores.get_mut(first..end).ok_or(Errno::EINVAL)?;
        for (semaphore, &value) in semaphores.iter_mut().zip(values) {
            *semaphore = Semaphore { value, pid };
        }
        set.ctime = now;
        for (&(_, of), adjustments) in &mut self.adjustments {
            if of == id
                && let Some(part) = adjustments.get_mut(first..end)
            {
                part.fill(0);
            }
        }
        self.serve_pending(id, now, woken);
        Ok(())
    }

    /// Removes a set; waiting tasks get `EIDRM`.
    ///
    /// # Errors
    /// `EINVAL`, `EIDRM`.
    pub fn remove(&mut self, id: i32, woken: &mut Vec<u32>) -> Result<(), Errno> {
        let set = self.ids.remove(id)?;
        for pending in set.pending {
            self.results.insert(pending.tid, Err(Errno::EIDRM));
            woken.push(pending.tid);
        }
        self.adjustments.retain(|&(_, of), _| of != id);
        Ok(())
    }

    /// Whether a process has done operations with `SEM_UNDO`.
    #[must_use]
    pub fn has_undo(&self, pid: u32) -> bool {
        let mut own = self.adjustments.range((pid, i32::MIN)..=(pid, i32::MAX));
        own.next().is_some()
    }

    /// Reverses the operations with `SEM_UNDO` of a process that has ended. As on Linux, values stay
    /// between 0 and `SEMVMX`.
    pub fn undo(&mut self, pid: u32, now: i64, woken: &mut Vec<u32>) {
        let own: Vec<i32> = (self.adjustments.range((pid, i32::MIN)..=(pid, i32::MAX)))
            .map(|(&(_, id), _)| id)
            .collect();
        for id in own {
            let adjustments = self.adjustments.remove(&(pid, id)).unwrap_or_default();
            let Ok(set) = self.ids.find_mut(id) else {
                continue;
            };
            for (semaphore, adjustment) in set.semaphores.iter_mut().zip(adjustments) {
                if adjustment != 0 {
                    semaphore.value = (semaphore.value + adjustment).clamp(0, SEMVMX);
                    semaphore.pid = pid;
                }
            }
            set.otime = now;
            self.serve_pending(id, now, woken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;

    fn sets(count: usize) -> (Semaphores, i32) {
        let mut all = Semaphores::default();
        let cred = Credentials::new(1, 1);
        let create = |permission| Ok(SemaphoreSet::new(permission, count, 0));
        let id = all.ids.get(0, 0o600, &cred, |_| Ok(()), create).unwrap();
        (all, id)
    }

    fn op(sem_num: u16, sem_op: i16, flags: i16) -> Sembuf {
        Sembuf {
            sem_num,
            sem_op,
            sem_flg: flags,
        }
    }

    fn run(
        all: &mut Semaphores,
        id: i32,
        task: u32,
        operations: &[Sembuf],
    ) -> (Result<Outcome, Errno>, Vec<u32>) {
        let mut woken = Vec::new();
        let result = all.operate(id, operations.to_vec(), (task, task), 9, &mut woken);
        (result, woken)
    }

    fn values(all: &Semaphores, id: i32) -> Vec<i32> {
        let set = all.ids.find(id).unwrap();
        (0..set.count()).map(|n| set.value(n).unwrap().0).collect()
    }

    #[test]
    fn all_operations_or_none() {
        let (mut all, id) = sets(2);
        let wait = i16::try_from(IPC_NOWAIT).unwrap();
        let both = [op(0, 3, 0), op(1, -1, wait)];
        assert_eq!(run(&mut all, id, 1, &both).0, Err(Errno::EAGAIN));
        assert_eq!(values(&all, id), [0, 0]);
        assert_eq!(
            run(&mut all, id, 1, &[op(0, 3, 0), op(1, 1, 0)]).0,
            Ok(Outcome::Done)
        );
        assert_eq!(run(&mut all, id, 1, &[op(2, 1, 0)]).0, Err(Errno::EFBIG));
        assert_eq!(
            run(&mut all, id, 1, &[op(0, i16::MAX, 0)]).0,
            Err(Errno::ERANGE)
        );
        assert_eq!(values(&all, id), [3, 1]);
        assert_eq!(all.ids.find(id).unwrap().value(0), Ok((3, 1)));
    }

    #[test]
    fn waiting_operations_are_done_in_order() {
        let (mut all, id) = sets(1);
        for task in 1..=3 {
            assert_eq!(
                run(&mut all, id, task, &[op(0, -2, 0)]).0,
                Ok(Outcome::Waits)
            );
        }
        assert_eq!(all.ids.find(id).unwrap().waiting(0, false), 3);
        assert_eq!(run(&mut all, id, 9, &[op(0, 1, 0)]).1, []);
        assert_eq!(run(&mut all, id, 9, &[op(0, 4, 0)]).1, [1, 2]);
        assert_eq!(all.take_result(1), Some(Ok(())));
        assert_eq!(all.take_result(1), None);
        assert_eq!(values(&all, id), [1]);
        // For zero.
        assert_eq!(run(&mut all, id, 4, &[op(0, 0, 0)]).0, Ok(Outcome::Waits));
        assert_eq!(all.ids.find(id).unwrap().waiting(0, true), 1);
        assert_eq!(run(&mut all, id, 9, &[op(0, 1, 0)]).1, [3, 4]);
        assert_eq!(values(&all, id), [0]);
    }

    #[test]
    fn removal_and_cancellation_end_waits() {
        let (mut all, id) = sets(1);
        for task in 1..=2 {
            let (outcome, _) = run(&mut all, id, task, &[op(0, -1, 0)]);
            assert_eq!(outcome, Ok(Outcome::Waits));
        }
        all.forget_task(1);
        let mut woken = Vec::new();
        all.remove(id, &mut woken).unwrap();
        assert_eq!(woken, [2]);
        assert_eq!(all.take_result(2), Some(Err(Errno::EIDRM)));
    }

    #[test]
    fn a_process_that_ends_undoes_its_operations() {
        let (mut all, id) = sets(2);
        assert_eq!(
            run(&mut all, id, 1, &[op(0, 5, SEM_UNDO), op(1, 2, 0)]).0,
            Ok(Outcome::Done)
        );
        assert_eq!(
            run(&mut all, id, 1, &[op(0, -1, SEM_UNDO)]).0,
            Ok(Outcome::Done)
        );
        assert_eq!(run(&mut all, id, 2, &[op(0, 0, 0)]).0, Ok(Outcome::Waits));
        let mut woken = Vec::new();
        all.undo(1, 3, &mut woken);
        assert_eq!(
            (values(&all, id), woken),
            (alloc::vec![0, 2], alloc::vec![2])
        );
        // `SETVAL` ends adjustments, and values never become negative.
        assert_eq!(
            run(&mut all, id, 1, &[op(0, 5, SEM_UNDO), op(1, 3, SEM_UNDO)]).0,
            Ok(Outcome::Done)
        );
        let mut woken = Vec::new();
        all.set_values(id, 0, &[7], (2, 0), &mut woken).unwrap();
        all.set_values(id, 1, &[1], (2, 0), &mut woken).unwrap();
        all.undo(1, 3, &mut woken);
        assert_eq!(values(&all, id), [7, 1]);
        assert_eq!(
            run(&mut all, id, 1, &[op(0, 5, SEM_UNDO)]).0,
            Ok(Outcome::Done)
        );
        assert_eq!(run(&mut all, id, 2, &[op(0, -12, 0)]).0, Ok(Outcome::Done));
        all.undo(1, 3, &mut woken);
        assert_eq!(values(&all, id), [0, 1]);
    }
}
