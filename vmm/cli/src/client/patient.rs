//! A stream whose reader may still have something to read when the other end takes no more.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that discards what it cannot send because the other end has closed it. The daemon may
/// refuse a request before its end: its answer is read, and says why.
#[derive(Debug)]
pub(super) struct Patient<S> {
    stream: S,
    is_closed: bool,
}

impl<S> Patient<S> {
    pub fn new(stream: S) -> Self {
        let is_closed = false;
        Self { stream, is_closed }
    }

    /// The result of an operation that sends, or `otherwise` if the other end has closed the stream.
    fn sent<T>(&mut self, done: Poll<io::Result<T>>, otherwise: T) -> Poll<io::Result<T>> {
        match done {
            Poll::Ready(Err(error))
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                self.is_closed = true;
                Poll::Ready(Ok(otherwise))
            }
            done => done,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_closed {
            return Poll::Ready(Ok(bytes.len()));
        }
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.sent(done, bytes.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.sent(done, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.sent(done, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    /// The answer is there, and the other end has closed the stream with the request unread.
    #[tokio::test]
    async fn an_answer_is_read_after_the_end_of_writing() {
        let (own, mut other) = UnixStream::pair().unwrap();
        let mut own = Patient::new(own);
        own.write_all(b"request").await.unwrap();
        other.write_all(b"refused").await.unwrap();
        drop(other);
        for _ in 0..3 {
            own.write_all(b"more").await.unwrap();
            own.flush().await.unwrap();
        }
        let mut answer = [0; 7];
        own.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"refused");
    }
}
