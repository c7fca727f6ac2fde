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

/// What holds of all lists of buffers. Kani proves it for up to three of them, of any lengths;
/// tests try all short ones.
#[cfg(any(test, kani))]
pub(crate) mod properties {
    use super::*;

    /// Asserts that `pieces` are the bytes of `buffers` in their order, however they are cut, and
    /// that none of them is empty.
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

    /// Both parts together are all bytes, and the first one has as many as it was asked for; it
    /// has that whenever there are so many.
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
        // As long as descriptors: their sum is a number.
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
                // The digits of the number are the lengths. Each begins where the one before ends,
                // or elsewhere.
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
