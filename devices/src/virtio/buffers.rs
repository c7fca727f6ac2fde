//! Lists of the guest's buffers. The driver chooses where a message is cut into buffers.

/// Total length of buffers, bytes.
pub(crate) fn length(buffers: &[libc::iovec]) -> usize {
    buffers.iter().map(|buffer| buffer.iov_len).sum()
}

/// Splits buffers after their first `at` bytes. `None` if they are shorter.
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

/// The buffers without their first `by` bytes.
pub(crate) fn advance(buffers: &mut [libc::iovec], mut by: usize) -> &mut [libc::iovec] {
    let mut whole = 0;
    for buffer in &*buffers {
        if by < buffer.iov_len {
            break;
        }
        by -= buffer.iov_len;
        whole += 1;
    }
    let rest = &mut buffers[whole..];
    if let Some(first) = rest.first_mut() {
        first.iov_base = first.iov_base.wrapping_byte_add(by);
        first.iov_len -= by;
    }
    rest
}

/// Copies from buffers until `to` is full or the buffers end.
///
/// # Safety
/// The buffers are mapped for reading.
pub(crate) unsafe fn copy_from(buffers: &[libc::iovec], mut to: &mut [u8]) {
    for buffer in buffers {
        let (now, later) = to.split_at_mut(to.len().min(buffer.iov_len));
        // SAFETY: the caller promises that the buffer is readable, and `now` is not longer than
        // the buffer. `now` is memory of this process, so the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(buffer.iov_base.cast(), now.as_mut_ptr(), now.len());
        }
        to = later;
    }
}

/// Copies into buffers until `from` or the buffers end.
///
/// # Safety
/// The buffers are mapped for writing.
pub(crate) unsafe fn copy_to(buffers: &[libc::iovec], mut from: &[u8]) {
    for buffer in buffers {
        let (now, later) = from.split_at(from.len().min(buffer.iov_len));
        // SAFETY: the caller promises that the buffer is writable, and `now` is not longer than
        // the buffer. `now` is memory of this process, so the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(now.as_ptr(), buffer.iov_base.cast(), now.len());
        }
        from = later;
    }
}

/// Properties of all lists of buffers. Kani proves them for up to three buffers of any length;
/// tests try all short lists.
#[cfg(any(test, kani))]
pub(crate) mod properties {
    use super::*;

    /// Asserts that `pieces` are the bytes of `buffers` in the same order, wherever they are cut,
    /// and that no piece is empty.
    pub fn assert_same(buffers: &[libc::iovec], pieces: &[libc::iovec]) {
        let mut pieces = pieces.iter().copied();
        let mut piece: Option<libc::iovec> = None;
        for buffer in buffers {
            let (mut at, mut left) = (buffer.iov_base, buffer.iov_len);
            while left > 0 {
                let mut now = piece.take().or_else(|| pieces.next()).expect("a piece");
                assert!(now.iov_len > 0 && now.iov_base == at);
                let here = now.iov_len.min(left);
                (at, left) = (at.wrapping_byte_add(here), left - here);
                now.iov_base = now.iov_base.wrapping_byte_add(here);
                now.iov_len -= here;
                piece = Some(now).filter(|rest| rest.iov_len > 0);
            }
        }
        assert!(piece.is_none() && pieces.next().is_none());
    }

    /// Both parts together are all bytes, and the first part has the wanted length. The split
    /// fails only if the buffers are shorter.
    fn splits(buffers: &[libc::iovec], at: usize) {
        match split(buffers, at) {
            Some((first, rest)) => {
                assert_eq!(length(&first), at);
                assert_same(buffers, &[first, rest].concat());
            }
            None => assert!(at > length(buffers)),
        }
    }

    /// A buffer that is never read.
    fn buffer(at: usize, length: usize) -> libc::iovec {
        libc::iovec {
            iov_base: std::ptr::without_provenance_mut(at),
            iov_len: length,
        }
    }

    #[cfg(kani)]
    #[kani::proof]
    #[kani::unwind(8)]
    fn buffers_split() {
        // A descriptor's length has 32 bits, so the sum does not overflow.
        let buffers: [_; 3] =
            std::array::from_fn(|_| buffer(kani::any(), kani::any::<u32>() as usize));
        let count: usize = kani::any();
        kani::assume(count <= buffers.len());
        splits(&buffers[..count], kani::any());
    }

    #[test]
    fn all_short_lists_split() {
        const LONGEST: usize = 4;
        for count in 0..4 {
            for number in 0..LONGEST.pow(count) {
                // The digits of the number are the lengths. With a distance of LONGEST, buffers may
                // be adjacent.
                let digit = |n| number / LONGEST.pow(n) % LONGEST;
                for distance in [LONGEST, 100] {
                    let at = |n: u32| 1000 + distance * n as usize;
                    let buffers: Vec<_> = (0..count).map(|n| buffer(at(n), digit(n))).collect();
                    for at in 0..=LONGEST * 4 {
                        splits(&buffers, at);
                    }
                }
            }
        }
    }

    #[test]
    fn lists_of_long_buffers_split() {
        let longest = u32::MAX as usize;
        let buffers = [buffer(usize::MAX - 1, longest), buffer(0, longest)];
        for at in [
            0,
            1,
            longest - 1,
            longest,
            longest + 1,
            2 * longest,
            2 * longest + 1,
        ] {
            splits(&buffers, at);
        }
    }
}
