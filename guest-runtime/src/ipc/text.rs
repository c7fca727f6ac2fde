//! The tables of `/proc/sysvipc`, in the formats of Linux.

use super::{Ipc, Object};
use alloc::string::String;
use core::fmt::Write;
use hartline_abi::layout::PAGE_SIZE;

/// A kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// `/proc/sysvipc/shm`.
    Segments,
    /// `/proc/sysvipc/sem`.
    Semaphores,
    /// `/proc/sysvipc/msg`.
    Queues,
}

impl Ipc {
    /// Writes the table of one kind of objects.
    pub fn write_table(&self, out: &mut String, table: Table) {
        match table {
            Table::Segments => self.write_segments(out),
            Table::Semaphores => self.write_semaphores(out),
            Table::Queues => self.write_queues(out),
        }
    }

    fn write_segments(&self, out: &mut String) {
        out.push_str(
            "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  \
             cuid  cgid      atime      dtime      ctime                   rss                  \
             swap\n",
        );
        for (id, segment) in self.segments.iter() {
            let status = segment.to_uapi(id);
            let perm = status.shm_perm;
            let resident = segment.memory().map_or(0, |memory| memory.count()) * PAGE_SIZE;
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "{:10} {id:10}  {:4o} {:21} {:5} {:5}  {:5} {:5} {:5} {:5} {:5} {:10} {:10} {:10} \
                 {resident:21} {:21}",
                perm.key,
                perm.mode,
                status.shm_segsz,
                status.shm_cpid,
                status.shm_lpid,
                status.shm_nattch,
                perm.uid,
                perm.gid,
                perm.cuid,
                perm.cgid,
                status.shm_atime,
                status.shm_dtime,
                status.shm_ctime,
                0,
            );
        }
    }

    fn write_semaphores(&self, out: &mut String) {
        out.push_str(
            "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      \
             ctime\n",
        );
        for (id, set) in self.semaphores.ids.iter() {
            let perm = set.permission().to_uapi(id);
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "{:10} {id:10}  {:4o} {:10} {:5} {:5} {:5} {:5} {:10} {:10}",
                perm.key,
                perm.mode,
                set.count(),
                perm.uid,
                perm.gid,
                perm.cuid,
                perm.cgid,
                set.otime,
                set.ctime,
            );
        }
    }

    fn write_queues(&self, out: &mut String) {
        out.push_str(
            "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  \
             cgid      stime      rtime      ctime\n",
        );
        for (id, queue) in self.queues.ids.iter() {
            let status = queue.to_uapi(id);
            let perm = status.msg_perm;
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "{:10} {id:10}  {:4o}  {:10} {:10} {:5} {:5} {:5} {:5} {:5} {:5} {:10} {:10} {:10}",
                perm.key,
                perm.mode,
                status.msg_cbytes,
                status.msg_qnum,
                status.msg_lspid,
                status.msg_lrpid,
                perm.uid,
                perm.gid,
                perm.cuid,
                perm.cgid,
                status.msg_stime,
                status.msg_rtime,
                status.msg_ctime,
            );
        }
    }
}
