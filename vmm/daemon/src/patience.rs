//! Limits of the time that this daemon waits for others.
//!
//! The clock goes on while the host is suspended, or this process is stopped. Then what the daemon
//! waits for could not go on either, or has come and was not seen yet: such a time must not count
//! as silence. So a limit has steps, of which each counts once, however long it took.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;

/// Steps of a limit.
const STEPS: u32 = 30;

/// The limit has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing came in time")]
pub struct Elapsed;

impl From<Elapsed> for std::io::Error {
    fn from(_: Elapsed) -> Self {
        std::io::ErrorKind::TimedOut.into()
    }
}

/// Waits for a future for `limit` at most, not counting times in which this process did not run.
///
/// # Errors
/// The limit has passed.
pub async fn within<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    for _ in 0..STEPS {
        // This looks at the future before it looks at the clock.
        if let Ok(output) = timeout(limit / STEPS, &mut future).await {
            return Ok(output);
        }
    }
    Err(Elapsed)
}

/// Returns after `limit`, not counting times in which this process did not run.
pub async fn pass(limit: Duration) {
    let _elapsed = within(limit, std::future::pending::<()>()).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use tokio::runtime::Builder;
    use tokio::time::sleep;

    const LIMIT: Duration = Duration::from_millis(300);

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(work)
    }

    #[test]
    fn a_limit_passes() {
        let wait = |time| run(async move { within(LIMIT, sleep(time)).await });
        assert_eq!(wait(LIMIT / 2), Ok(()));
        assert_eq!(wait(100 * LIMIT), Err(Elapsed));
    }

    #[test]
    fn a_time_without_this_process_counts_once() {
        let waited = async {
            for _ in 0..3 {
                // As when the process is stopped: nothing runs, and the clock goes on.
                thread::sleep(2 * LIMIT);
                sleep(Duration::from_millis(1)).await;
            }
            sleep(LIMIT / 2).await;
        };
        assert_eq!(run(within(LIMIT, waited)), Ok(()));
    }
}
