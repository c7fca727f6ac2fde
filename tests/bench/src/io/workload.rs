//! Workloads: the clients and their measurements.

use super::server::Programs;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest wait for a server to listen.
const PATIENCE: Duration = Duration::from_secs(30);
/// Ports of netserver, memcached and nginx (`tests/bench/workloads/nginx.conf`).
const NETPERF_PORT: u16 = 12_865;
const MEMCACHED_PORT: u16 = 11_211;
const HTTP_PORT: u16 = 8080;
/// Bytes of one send of TCP_STREAM, which counts as one operation.
const SEND: u64 = 16_384;
/// Keys of 64 bytes, values of 1 KiB, 90 % get and 10 % set.
const MEMCACHED_MIX: &str = "key\n64 64 1\nvalue\n1024 1024 1\ncmd\n0 0.1\n1 0.9\n";
/// The same keys and values, set only.
const MEMCACHED_FILL: &str = "key\n64 64 1\nvalue\n1024 1024 1\ncmd\n0 1.0\n";
/// The number of sets that fill memcached: more than its memory, by default 64 MiB, has room for.
const MEMCACHED_FILLS: u32 = 100_000;
/// Objects that each connection asks for, in thousands: a quarter of memcached's memory in all.
const MEMCACHED_WINDOW: &str = "1k";

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Bytes in one direction.
    TcpStream,
    /// One byte in each direction over TCP.
    TcpRequests,
    /// One byte in each direction over UDP.
    UdpRequests,
    /// memcached with 16 connections.
    Memcached,
    /// nginx with 16 connections, each of which asks for a page of 4 KiB again and again.
    Http,
}

/// The results of a client.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Throughput in the workload's unit.
    pub throughput: f64,
    /// The number of operations.
    pub operations: f64,
    /// Latency percentiles 50 and 99, µs.
    pub latency: Option<[f64; 2]>,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 5] = [
        Self::TcpStream,
        Self::TcpRequests,
        Self::UdpRequests,
        Self::Memcached,
        Self::Http,
    ];

    /// Returns the name in the results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpStream => "tcp_stream",
            Self::TcpRequests => "tcp_rr",
            Self::UdpRequests => "udp_rr",
            Self::Memcached => "memcached",
            Self::Http => "http",
        }
    }

    /// Returns the unit of the throughput.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::TcpStream => "Mbit/s",
            _ => "1/s",
        }
    }

    /// Returns the name of the server program.
    pub const fn server(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Http => "nginx",
            _ => "netserver",
        }
    }

    /// Returns the server's arguments; `files` is the directory with the server's own files.
    pub fn server_arguments(self, files: &Path) -> Vec<OsString> {
        let words: &[&str] = match self {
            Self::Memcached => &[
                "-u", "root", "-p", "11211", "-U", "0", "-t", "1", "-m", "64",
            ],
            Self::Http => &["-e", "stderr", "-c", "nginx.conf", "-p"],
            _ => &["-4", "-D", "-p", "12865"],
        };
        let place = (self == Self::Http).then(|| files.as_os_str().to_owned());
        words.iter().map(OsString::from).chain(place).collect()
    }

    /// Waits until the server listens.
    ///
    /// # Errors
    /// The server does not listen in time.
    pub fn await_server(self, address: Ipv4Addr) -> anyhow::Result<()> {
        let port = match self {
            Self::Memcached => MEMCACHED_PORT,
            Self::Http => HTTP_PORT,
            _ => NETPERF_PORT,
        };
        let to = SocketAddr::new(address.into(), port);
        let start = Instant::now();
        while TcpStream::connect_timeout(&to, Duration::from_secs(1)).is_err() {
            if start.elapsed() > PATIENCE {
                bail!("{} does not listen", self.server());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Has the server do its one-time work: translations and first touches of memory. A full
    /// memcached reuses the memory of old values for new ones.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn warm_up(self, programs: &Programs, address: Ipv4Addr) -> anyhow::Result<()> {
        if self == Self::Memcached {
            let fills = MEMCACHED_FILLS.to_string();
            memcaslap(programs, address, MEMCACHED_FILL, ["-x", &fills])?;
        }
        self.run(programs, address, Duration::from_secs(1))?;
        Ok(())
    }

    /// Runs the client for `time`.
    ///
    /// # Errors
    /// The client fails, or its output cannot be parsed.
    pub fn run(
        self,
        programs: &Programs,
        address: Ipv4Addr,
        time: Duration,
    ) -> anyhow::Result<Measured> {
        match self {
            Self::TcpStream => netperf(programs, "TCP_STREAM", address, time),
            Self::TcpRequests => netperf(programs, "TCP_RR", address, time),
            Self::UdpRequests => netperf(programs, "UDP_RR", address, time),
            Self::Memcached => {
                let time = format!("{}s", time.as_secs());
                memcaslap(programs, address, MEMCACHED_MIX, ["-t", &time])
            }
            Self::Http => http(programs, address, time),
        }
    }
}

/// Runs a client and returns its standard output.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{:?}: {}", command.get_program(), error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn netperf(
    programs: &Programs,
    test: &str,
    address: Ipv4Addr,
    time: Duration,
) -> anyhow::Result<Measured> {
    let mut command = programs.client("netperf");
    command.args(["-H", &address.to_string(), "-p", &NETPERF_PORT.to_string()]);
    command.args([
        "-t",
        test,
        "-l",
        &time.as_secs().to_string(),
        "-P",
        "0",
        "-j",
    ]);
    command.args(["--", "-o", "THROUGHPUT,P50_LATENCY,P99_LATENCY"]);
    parse_netperf(&output(&mut command)?, test == "TCP_STREAM", time)
}

/// Parses a line of three numbers.
fn parse_netperf(text: &str, is_stream: bool, time: Duration) -> anyhow::Result<Measured> {
    let line = text.lines().last().unwrap_or_default();
    let numbers: Result<Vec<f64>, _> = line.split(',').map(|n| n.trim().parse()).collect();
    let Ok([throughput, p50, p99]) = numbers.as_deref() else {
        bail!("netperf says {text:?}");
    };
    let operations = match is_stream {
        true => throughput * 1e6 / 8.0 / SEND as f64,
        false => *throughput,
    };
    Ok(Measured {
        throughput: *throughput,
        operations: operations * time.as_secs_f64(),
        latency: (!is_stream).then_some([*p50, *p99]),
    })
}

fn memcaslap(
    programs: &Programs,
    address: Ipv4Addr,
    what: &str,
    length: [&str; 2],
) -> anyhow::Result<Measured> {
    let mix = std::env::temp_dir().join(format!("hartline-bench-{}", std::process::id()));
    std::fs::write(&mix, what).context("the configuration of memcaslap")?;
    let mut command = programs.client("memcaslap");
    command.args(["-s", &format!("{address}:{MEMCACHED_PORT}")]);
    command.args(["-T", "1", "-c", "16", "-w", MEMCACHED_WINDOW]);
    command.args(length);
    command.arg("-F").arg(&mix);
    let result = output(&mut command);
    // A left-over file in the temporary directory is harmless.
    let _ = std::fs::remove_file(&mix);
    parse_memcaslap(&result?)
}

/// Parses `Run time: 5.0s Ops: 812345 TPS: 162469 Net_rate: 158.2M/s`.
fn parse_memcaslap(text: &str) -> anyhow::Result<Measured> {
    let number = |name: &str| {
        let rest = text.rsplit_once(name)?.1;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    match (number("Ops:"), number("TPS:")) {
        (Some(operations), Some(throughput)) => Ok(Measured {
            throughput,
            operations,
            latency: None,
        }),
        _ => bail!("memcaslap says {text:?}"),
    }
}

fn http(programs: &Programs, address: Ipv4Addr, time: Duration) -> anyhow::Result<Measured> {
    let mut command = programs.client("wrk");
    command.args(["-t", "1", "-c", "16", "--latency"]);
    command.args(["-d", &format!("{}s", time.as_secs())]);
    command.arg(format!("http://{address}:{HTTP_PORT}/page"));
    parse_wrk(&output(&mut command)?)
}

/// Parses the output of wrk, of which these lines count: `50%  123.00us`, `99%    1.20ms`, `61720
/// requests in 5.00s, 258.94MB read`, `Requests/sec:  12344.00`.
fn parse_wrk(text: &str) -> anyhow::Result<Measured> {
    let words = |line: &str| -> Vec<String> { line.split_whitespace().map(Into::into).collect() };
    let lines: Vec<Vec<String>> = text.lines().map(words).collect();
    let latency = |part: &str| {
        let line = lines
            .iter()
            .find(|line| line.first().is_some_and(|word| word == part))?;
        microseconds(line.get(1)?)
    };
    let behind = |name: &str| {
        let line = lines
            .iter()
            .find(|line| line.iter().any(|word| word == name))?;
        line.iter().find_map(|word| word.parse::<f64>().ok())
    };
    // wrk counts error responses as requests too.
    let all_good = !text.contains("Non-2xx");
    match (
        behind("requests"),
        behind("Requests/sec:"),
        latency("50%"),
        latency("99%"),
    ) {
        (Some(operations), Some(throughput), Some(p50), Some(p99)) if all_good => Ok(Measured {
            throughput,
            operations,
            latency: Some([p50, p99]),
        }),
        _ => bail!("wrk says {text:?}"),
    }
}

/// Parses a time in wrk's format. Result: µs.
fn microseconds(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 60e6)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_understood() {
        let time = Duration::from_secs(2);
        let requests = parse_netperf("31735.46,14,42\n", false, time).unwrap();
        assert_eq!(requests.latency, Some([14.0, 42.0]));
        assert_eq!(requests.operations, 63_470.92);
        let stream = parse_netperf("131.072,0,0\n", true, time).unwrap();
        assert_eq!((stream.operations, stream.latency), (2000.0, None));
        assert!(parse_netperf("no data", false, time).is_err());
        let text = "cmd_get: 9\nRun time: 2.0s Ops: 1000 TPS: 500 Net_rate: 1.0M/s\n";
        let memcached = parse_memcaslap(text).unwrap();
        assert_eq!(
            (memcached.operations, memcached.throughput),
            (1000.0, 500.0)
        );
        assert!(parse_memcaslap("Ops: many").is_err());
        let text = "  Latency Distribution\n     50%  123.50us\n     99%    1.20ms\n  \
                    61720 requests in 5.00s, 258.94MB read\nRequests/sec:  12344.00\n";
        let http = parse_wrk(text).unwrap();
        assert_eq!((http.operations, http.throughput), (61_720.0, 12_344.0));
        assert_eq!(http.latency, Some([123.5, 1200.0]));
        assert!(parse_wrk(&format!("{text}  Non-2xx or 3xx responses: 9\n")).is_err());
        assert!(parse_wrk("unable to connect").is_err());
    }
}
