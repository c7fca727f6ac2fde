//! Message queues (`msgsnd(2)`, `msgrcv(2)`).

use super::ids::{Ids, Object, Permission};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::msg::{MSGMNB, MSGMNI, Msqid64Ds};

/// What a message takes beside its text, bytes.
const OVERHEAD: u64 = 48;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Type, above 0.
    pub kind: i64,
    /// Contents.
    pub text: Vec<u8>,
}

/// The message that `msgrcv` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The first one.
    Any,
    /// The first one of this type.
    Kind(i64),
    /// The first one of another type (`MSG_EXCEPT`).
    Except(i64),
    /// The first one of the lowest type, which is at most this one.
    UpTo(i64),
    /// The one at this index (`MSG_COPY`).
    Index(usize),
}

impl Selection {
    /// The selection by the arguments of `msgrcv`.
    #[must_use]
    pub fn new(kind: i64, except: bool) -> Selection {
        match kind {
            0 => Selection::Any,
            1.. if except => Selection::Except(kind),
            1.. => Selection::Kind(kind),
            // As on Linux, the lowest number stands for the highest type.
            i64::MIN => Selection::UpTo(i64::MAX),
            _ => Selection::UpTo(-kind),
        }
    }
}

/// A message queue.
#[derive(Debug)]
pub struct Queue {
    permission: Permission,
    messages: VecDeque<Message>,
    bytes: u64,
    /// Most bytes of all messages, and most messages.
    pub most: u64,
    /// Times of the last `msgsnd`, `msgrcv` and change, s.
    pub times: [i64; 3],
    /// The processes of the last `msgsnd` and `msgrcv`.
    pub last: [u32; 2],
    /// Tasks that wait for a message or for room.
    waiting: Vec<u32>,
}

impl Object for Queue {
    fn permission(&self) -> &Permission {
        &self.permission
    }
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(permission: Permission, now: i64) -> Queue {
        Queue {
            permission,
            messages: VecDeque::new(),
            bytes: 0,
            most: MSGMNB,
            times: [0, 0, now],
            last: [0; 2],
            waiting: Vec::new(),
        }
    }

    /// The permission, to change it.
    pub fn permission_mut(&mut self) -> &mut Permission {
        &mut self.permission
    }

    /// Number of messages and of their bytes.
    #[must_use]
    pub fn length(&self) -> (u64, u64) {
        (self.messages.len() as u64, self.bytes)
    }

    /// Memory of all messages, bytes.
    fn cost(&self) -> u64 {
        self.bytes + OVERHEAD * self.messages.len() as u64
    }

    /// Checks that the queue has room for a message.
    fn check_room(&self, message: &Message) -> Result<(), Errno> {
        let bytes = self.bytes + message.text.len() as u64;
        match bytes > self.most || self.messages.len() as u64 >= self.most {
            true => Err(Errno::EAGAIN),
            false => Ok(()),
        }
    }

    /// Adds a message.
    fn send(&mut self, message: Message, (pid, now): (u32, i64)) -> Result<(), Errno> {
        self.check_room(&message)?;
        self.messages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.bytes += message.text.len() as u64;
        self.messages.push_back(message);
        self.times[0] = now;
        self.last[0] = pid;
        Ok(())
    }

    fn position(&self, which: Selection) -> Option<usize> {
        let first = |fits: &dyn Fn(i64) -> bool| {
            (self.messages.iter()).position(|message| fits(message.kind))
        };
        match which {
            Selection::Any => first(&|_| true),
            Selection::Kind(kind) => first(&|of| of == kind),
            Selection::Except(kind) => first(&|of| of != kind),
            Selection::UpTo(most) => {
                let kinds = self.messages.iter().map(|message| message.kind);
                let lowest = kinds.filter(|&of| of <= most).min()?;
                first(&|of| of == lowest)
            }
            Selection::Index(index) => (index < self.messages.len()).then_some(index),
        }
    }

    /// Takes a message of at most `room` bytes, of which `truncates` cuts the rest off.
    fn receive(
        &mut self,
        which: Selection,
        (room, truncates): (usize, bool),
        (pid, now): (u32, i64),
    ) -> Result<Message, Errno> {
        let at = self.position(which).ok_or(Errno::ENOMSG)?;
        if self.messages[at].text.len() > room && !truncates {
            return Err(Errno::E2BIG);
        }
        let mut message = match which {
            Selection::Index(_) => self.messages[at].clone(),
            _ => {
                self.times[1] = now;
                self.last[1] = pid;
                let message = self.messages.remove(at).ok_or(Errno::ENOMSG)?;
                self.bytes -= message.text.len() as u64;
                message
            }
        };
        message.text.truncate(room);
        Ok(message)
    }

    /// Has a task wait for a change.
    pub fn wait(&mut self, tid: u32) {
        if !self.waiting.contains(&tid) {
            self.waiting.push(tid);
        }
    }

    /// Takes the tasks that wait for a change, in the order of their arrival.
    pub fn take_waiting(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.waiting)
    }

    /// The structure that `IPC_STAT` returns.
    #[must_use]
    pub fn to_uapi(&self, id: i32) -> Msqid64Ds {
        let [msg_stime, msg_rtime, msg_ctime] = self.times;
        let [msg_lspid, msg_lrpid] = self.last;
        Msqid64Ds {
            msg_perm: self.permission.to_uapi(id),
            msg_stime,
            msg_rtime,
            msg_ctime,
            msg_cbytes: self.bytes,
            msg_qnum: self.messages.len() as u64,
            msg_qbytes: self.most,
            msg_lspid,
            msg_lrpid,
            ..Msqid64Ds::default()
        }
    }
}

/// All message queues.
#[derive(Debug)]
pub struct Queues {
    /// The queues.
    pub ids: Ids<Queue>,
    /// Memory of all messages, bytes.
    used: u64,
    /// The limit of `used`: many queues could use up the runtime's heap.
    most: u64,
}

impl Queues {
    /// No queues yet; all messages together take at most `most` bytes.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Queues {
            ids: Ids::new(MSGMNI),
            used: 0,
            most,
        }
    }

    /// Adds a message to the queue `id`, for the caller with this number at this time.
    ///
    /// # Errors
    /// `EAGAIN` if the queue has no room, `ENOMEM` if all queues together take too much memory.
    pub fn send(&mut self, id: i32, message: Message, caller: (u32, i64)) -> Result<(), Errno> {
        let queue = self.ids.find_mut(id)?;
        queue.check_room(&message)?;
        let used = self.used + OVERHEAD + message.text.len() as u64;
        if used > self.most {
            return Err(Errno::ENOMEM);
        }
        queue.send(message, caller)?;
        self.used = used;
        Ok(())
    }

    /// Takes a message of at most `room` bytes from the queue `id`; `truncates` cuts the rest off.
    ///
    /// # Errors
    /// `ENOMSG` if there is none, `E2BIG` if it is longer.
    pub fn receive(
        &mut self,
        id: i32,
        which: Selection,
        (room, truncates): (usize, bool),
        caller: (u32, i64),
    ) -> Result<Message, Errno> {
        let queue = self.ids.find_mut(id)?;
        let before = queue.cost();
        let message = queue.receive(which, (room, truncates), caller)?;
        self.used -= before - queue.cost();
        Ok(message)
    }

    /// Removes the queue `id` with its messages.
    ///
    /// # Errors
    /// As [`Ids::find`].
    pub fn remove(&mut self, id: i32) -> Result<Queue, Errno> {
        let queue = self.ids.remove(id)?;
        self.used -= queue.cost();
        Ok(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;
    use hartline_linux::ipc::IPC_PRIVATE;

    fn queue() -> Queue {
        Queue::new(Permission::new(0, 0o600, &Credentials::new(1, 1)), 5)
    }

    fn send(queue: &mut Queue, kind: i64, text: &[u8]) -> Result<(), Errno> {
        let text = text.to_vec();
        queue.send(Message { kind, text }, (1, 2))
    }

    fn receive(queue: &mut Queue, which: Selection) -> Result<(i64, Vec<u8>), Errno> {
        let message = queue.receive(which, (5, false), (3, 4))?;
        Ok((message.kind, message.text))
    }

    #[test]
    fn messages_are_selected_by_type() {
        let mut queue = queue();
        for (kind, text) in [(5, b"a"), (3, b"b"), (4, b"c"), (3, b"d")] {
            send(&mut queue, kind, text).unwrap();
        }
        assert_eq!(
            receive(&mut queue, Selection::Index(1)),
            Ok((3, b"b".to_vec()))
        );
        assert_eq!(queue.length(), (4, 4));
        assert_eq!(
            receive(&mut queue, Selection::new(-4, false)),
            Ok((3, b"b".to_vec()))
        );
        assert_eq!(
            receive(&mut queue, Selection::new(5, true)),
            Ok((4, b"c".to_vec()))
        );
        assert_eq!(
            receive(&mut queue, Selection::new(3, false)),
            Ok((3, b"d".to_vec()))
        );
        assert_eq!(
            receive(&mut queue, Selection::new(3, false)),
            Err(Errno::ENOMSG)
        );
        assert_eq!(
            receive(&mut queue, Selection::new(i64::MIN, false)),
            Ok((5, b"a".to_vec()))
        );
        assert_eq!(receive(&mut queue, Selection::Any), Err(Errno::ENOMSG));
        assert_eq!(queue.length(), (0, 0));
    }

    #[test]
    fn length_is_limited() {
        let mut queue = queue();
        queue.most = 10;
        send(&mut queue, 1, b"0123456").unwrap();
        assert_eq!(send(&mut queue, 1, b"0123"), Err(Errno::EAGAIN));
        assert_eq!(receive(&mut queue, Selection::Any), Err(Errno::E2BIG));
        let cut = queue.receive(Selection::Any, (2, true), (1, 1)).unwrap();
        assert_eq!(cut.text, b"01");
        for _ in 0..10 {
            send(&mut queue, 1, b"").unwrap();
        }
        assert_eq!(send(&mut queue, 1, b""), Err(Errno::EAGAIN));
    }

    #[test]
    fn all_queues_have_one_limit() {
        let mut queues = Queues::new(2 * (OVERHEAD + 5));
        let cred = Credentials::new(1, 1);
        let add = |queues: &mut Queues| {
            let create = |permission| Ok(Queue::new(permission, 5));
            let id = (queues.ids).get(IPC_PRIVATE, 0o600, &cred, |_| Ok(()), create);
            id.unwrap()
        };
        let send = |queues: &mut Queues, id| {
            let text = b"hello".to_vec();
            queues.send(id, Message { kind: 1, text }, (1, 2))
        };
        let (first, second) = (add(&mut queues), add(&mut queues));
        send(&mut queues, first).unwrap();
        send(&mut queues, second).unwrap();
        assert_eq!(send(&mut queues, first), Err(Errno::ENOMEM));
        // A full queue has room again later.
        queues.ids.find_mut(second).unwrap().most = 5;
        assert_eq!(send(&mut queues, second), Err(Errno::EAGAIN));
        // A copy changes nothing, a cut message frees all of its memory.
        let copied = queues.receive(first, Selection::Index(0), (5, false), (1, 2));
        assert_eq!(copied.unwrap().text, b"hello");
        assert_eq!(send(&mut queues, first), Err(Errno::ENOMEM));
        let cut = queues.receive(first, Selection::Any, (2, true), (1, 2));
        assert_eq!(cut.unwrap().text, b"he");
        send(&mut queues, first).unwrap();
        queues.remove(second).unwrap();
        send(&mut queues, first).unwrap();
        queues.remove(first).unwrap();
        assert_eq!(queues.used, 0);
    }

    #[test]
    fn tasks_wait_once() {
        let mut queue = queue();
        queue.wait(4);
        queue.wait(3);
        queue.wait(4);
        assert_eq!(queue.take_waiting(), [4, 3]);
        assert_eq!(queue.take_waiting(), []);
    }
}
