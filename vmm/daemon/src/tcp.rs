//! Options of TCP connections with clients.

use rustix::net::sockopt;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// The time without a sign of a client after which the kernel asks whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// The time between two such questions.
const KEEPALIVE_PERIOD: Duration = Duration::from_secs(15);
/// Number of questions without an answer after which the connection is broken.
const KEEPALIVE_COUNT: u32 = 4;

/// Sets up a TCP connection with a client. Small messages are sent at once. The kernel breaks the
/// connection of a client that has vanished; one that only does not read for a long time, such as a
/// terminal whose output is stopped, keeps it.
///
/// # Errors
/// The client has disconnected.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_PERIOD)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn clients_that_vanish_are_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _client = TcpStream::connect(address).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
        prepare(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap() && stream.nodelay().unwrap());
        let periods =
            sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
        let time = sockopt::tcp_keepidle(&stream).unwrap() + periods;
        assert_eq!(time, Duration::from_secs(120));
    }
}
