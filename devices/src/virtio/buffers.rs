//! Buffers of the guest, which it cut as it liked.

/// Length of all of them, bytes.
pub(crate) fn length(buffers: &[libc::iovec]) -> usize {
    buffers.iter().map(|buffer| buffer.iov_len).sum()
}

/// The first `at` bytes of buffers, and the rest; none if there are fewer.
pub(crate) fn split(
    buffers: &[libc::iovec],
    mut at: usize,
) -> Option<(Vec<libc::iovec>, Vec<libc::iovec>)> {
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for buffer in buffers {
        let here = buffer.iov_len.min(at);
        at -= here;
        let part = |from: usize, length| libc::iovec {
            iov_base: buffer.iov_base.wrapping_byte_add(from),
            iov_len: length,
        };
        if here > 0 {
            first.push(part(0, here));
        }
        if here < buffer.iov_len {
            rest.push(part(here, buffer.iov_len - here));
        }
    }
    (at == 0).then_some((first, rest))
}

/// Copies from buffers, as much as they and `to` have.
///
/// # Safety
/// The buffers may be read.
pub(crate) unsafe fn copy_from(buffers: &[libc::iovec], mut to: &mut [u8]) {
    for buffer in buffers {
        let (now, later) = to.split_at_mut(to.len().min(buffer.iov_len));
        // SAFETY: the caller's contract; no more than the buffer has.
        unsafe {
            std::ptr::copy_nonoverlapping(buffer.iov_base.cast(), now.as_mut_ptr(), now.len());
        }
        to = later;
    }
}

/// Copies into buffers, as much as they have room for.
///
/// # Safety
/// The buffers may be written.
pub(crate) unsafe fn copy_to(buffers: &[libc::iovec], mut from: &[u8]) {
    for buffer in buffers {
        let (now, later) = from.split_at(from.len().min(buffer.iov_len));
        // SAFETY: the caller's contract; no more than the buffer has room for.
        unsafe {
            std::ptr::copy_nonoverlapping(now.as_ptr(), buffer.iov_base.cast(), now.len());
        }
        from = later;
    }
}
