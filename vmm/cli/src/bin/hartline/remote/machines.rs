//! `hartline create`, and the commands that name machines: `start`, `stop`, `kill`, `pause`, `resume`,
//! `suspend`, `wait` and `rm`.

use super::terminal::size_json;
use super::{Remote, done, table, wait};
use crate::place::{Environment, Place, pair};
use anyhow::{Context, bail};
use hartline_cli::client::{self, Connection};
use hyper::Method;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::ExitCode;

/// The longest wait of one request, seconds.
const WAIT: u32 = 300;

/// The program and resources, or the snapshot, for `hartline create` and `hartline submit`.
#[derive(Debug, clap::Args)]
pub(super) struct What {
    /// Path of the program in an uploaded root file system
    #[arg(long)]
    path: Option<String>,

    #[command(flatten)]
    environment: Environment,

    #[command(flatten)]
    place: Place,

    /// Number of vCPUs
    #[arg(long, default_value_t = 1)]
    cpus: u32,

    /// Memory: MiB, or with a suffix of K, M, G or T
    #[arg(
        short = 'm',
        long = "mem",
        visible_alias = "memory",
        value_name = "SIZE",
        default_value = "256M",
        value_parser = size
    )]
    memory: u64,

    /// Use dedicated CPUs: one for each vCPU, and one for the devices
    #[arg(long)]
    dedicated: bool,

    /// Network of the machine: none (the default) or tenant
    #[arg(long, value_name = "NETWORK", value_parser = ["none", "tenant"])]
    network: Option<String>,

    /// Volume, and its absolute path in the machine (repeatable)
    #[arg(short = 'v', long = "volume", value_name = "NAME:PATH[:ro|:rw]", value_parser = mount)]
    volumes: Vec<Value>,

    /// Secret that the program finds in /run/secrets, or in an environment variable (repeatable)
    #[arg(
        long = "secret",
        value_name = "NAME[,type=env][,target=NAME]",
        value_parser = super::secrets::used
    )]
    secrets: Vec<Value>,

    /// Publish a TCP port of the machine on the host (repeatable); the machine is then in the network
    /// of the tenant
    #[arg(short, long = "publish", value_name = "[ADDRESS:]HOST:GUEST", value_parser = port)]
    ports: Vec<Value>,

    /// Continue a snapshot, given by its id, the first digits of it, or its name, instead of starting
    /// a program. The program, its place, its memory and its network are those of the snapshot
    #[arg(
        long,
        value_name = "SNAPSHOT",
        conflicts_with_all = [
            "command", "path", "given", "files", "user", "workdir", "hostname", "read_only", "cpus",
            "memory", "network", "volumes", "secrets",
        ]
    )]
    from: Option<String>,

    /// The program and its arguments. The program is named by its id, as printed by push, the
    /// first digits of it, or its name. Options of hartline come before it
    // One argument, so that everything after the program belongs to it, also what looks like an
    // option of hartline.
    #[arg(
        value_name = "PROGRAM",
        required_unless_present = "from",
        trailing_var_arg = true
    )]
    command: Vec<String>,
}

impl What {
    /// Makes the API's request with these fields.
    ///
    /// # Errors
    /// A file with environment variables cannot be used.
    pub(super) fn request(&self) -> anyhow::Result<Value> {
        let cpu_class = if self.dedicated {
            "dedicated"
        } else {
            "shared"
        };
        if let Some(snapshot) = &self.from {
            let mut request = json!({ "snapshot": snapshot, "cpu_class": cpu_class });
            if !self.ports.is_empty() {
                request["ports"] = self.ports.clone().into();
            }
            return Ok(request);
        }
        let (user, group) = self.place.user;
        let (program, arguments) = self.command.split_first().context("no program")?;
        let network = match (&self.network, self.ports.is_empty()) {
            (Some(network), _) => network,
            (None, true) => "none",
            (None, false) => "tenant",
        };
        let mut request = json!({
            "program": program,
            "path": self.path,
            "args": arguments,
            "env": map(&self.environment.pairs()?),
            "user": format!("{user}:{group}"),
            "workdir": self.place.workdir,
            "hostname": self.place.hostname,
            "read_only": self.place.read_only,
            "cpus": self.cpus,
            "memory": self.memory,
            "network": network,
            "cpu_class": cpu_class,
        });
        for (name, values) in [
            ("volumes", &self.volumes),
            ("secrets", &self.secrets),
            ("ports", &self.ports),
        ] {
            if !values.is_empty() {
                request[name] = values.clone().into();
            }
        }
        Ok(request)
    }
}

/// A size in bytes; MiB without a suffix.
pub(super) fn size(text: &str) -> Result<u64, &'static str> {
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let unit = units
        .iter()
        .find(|(name, _)| text.to_ascii_uppercase().ends_with(*name));
    let (number, shift) = match unit {
        Some((_, shift)) => (&text[..text.len() - 1], *shift),
        None => (text, 20),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "not a number of MiB (suffixes: K, M, G, T)")?;
    number.checked_mul(1 << shift).ok_or("too large")
}

/// A volume of a machine, in the API's form.
fn mount(text: &str) -> Result<Value, &'static str> {
    let form = "needs the form NAME:PATH, NAME:PATH:ro or NAME:PATH:rw";
    let (volume, path) = text.split_once(':').ok_or(form)?;
    let (path, read_only) = match path.rsplit_once(':') {
        Some((path, "ro")) => (path, true),
        Some((path, "rw")) => (path, false),
        Some(_) => return Err(form),
        None => (path, false),
    };
    Ok(json!({ "volume": volume, "path": path, "read_only": read_only }))
}

/// A published port of a machine, in the API's form.
fn port(text: &str) -> Result<Value, &'static str> {
    let form =
        "needs the form HOST:GUEST or ADDRESS:HOST:GUEST, with port numbers ([ADDRESS] for IPv6)";
    let number = |text: &str| text.parse::<u16>().ok().filter(|&port| port != 0);
    let (host, guest) = text.rsplit_once(':').ok_or(form)?;
    let (address, host) = match host.contains(':') {
        false => (None, number(host)),
        true => {
            let host: SocketAddr = host.parse().map_err(|_| form)?;
            (Some(host.ip()), Some(host.port()))
        }
    };
    let (host, guest) = host.zip(number(guest)).ok_or(form)?;
    let mut port = json!({ "host": host, "guest": guest });
    if let Some(address) = address {
        port["address"] = address.to_string().into();
    }
    Ok(port)
}

pub(super) fn map(pairs: &[(String, String)]) -> Value {
    let pairs = pairs.iter().cloned();
    Value::from_iter(pairs.map(|(name, value)| (name, Value::from(value))))
}

/// Arguments of `hartline create`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "hartline create [OPTIONS] PROGRAM [ARGS]...\n       hartline create [OPTIONS] --from SNAPSHOT"
)]
pub struct Create {
    #[command(flatten)]
    remote: Remote,

    #[command(flatten)]
    what: What,

    /// Name of the machine, which may be given instead of its id: letters, digits, _, . and -, and
    /// not only the digits of ids
    #[arg(long)]
    name: Option<String>,

    /// Label of the machine (repeatable)
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,

    /// Restart the program when it has ended: no, on-failure, on-failure:TIMES or always
    #[arg(long, value_name = "POLICY", default_value = "no")]
    restart: String,

    /// Delete the machine ten seconds after its end; until then its exit code and output can be read
    #[arg(long, conflicts_with = "restart")]
    rm: bool,

    /// Suspend the machine when it has been idle for so many seconds; it goes on when it is started, or
    /// gets input, a command or a connection to a published port
    #[arg(long, value_name = "SECONDS")]
    idle_timeout: Option<u64>,

    /// Tell this server when the program has ended, in a message that the secret signs
    #[arg(long, value_name = "URL,secret=NAME", value_parser = super::webhooks::webhook)]
    webhook: Option<Value>,

    /// Keep a core dump of at most SIZE when a signal such as SIGSEGV ends a process (hartline core);
    /// the program runs with exact registers, which makes it slower
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "from")]
    core_limit: Option<u64>,

    /// Start the machine too
    #[arg(long)]
    start: bool,

    /// Keep standard input open, for attach
    #[arg(short, long)]
    interactive: bool,

    /// Run the program on a terminal; with --interactive, the keys of attached clients are its input
    #[arg(conflicts_with = "from", short, long)]
    tty: bool,

    /// Make one machine only, however often the command is repeated with this key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Makes a machine and prints its id.
///
/// # Errors
/// The daemon refuses.
pub fn create(arguments: &Create) -> anyhow::Result<ExitCode> {
    let mut request = arguments.what.request()?;
    if let Some(name) = &arguments.name {
        request["name"] = name.as_str().into();
    }
    request["labels"] = map(&arguments.labels);
    request["restart"] = arguments.restart.as_str().into();
    if arguments.rm {
        request["auto_remove"] = true.into();
    }
    if let Some(seconds) = arguments.idle_timeout {
        request["idle_timeout_s"] = seconds.into();
    }
    if let Some(webhook) = &arguments.webhook {
        request["webhook"] = webhook.clone();
    }
    if let Some(limit) = arguments.core_limit {
        request["core_limit"] = limit.into();
    }
    request["start"] = arguments.start.into();
    request["interactive"] = arguments.interactive.into();
    if arguments.tty {
        request["terminal"] = size_json();
    }
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        daemon.set_idempotency_key(arguments.idempotency_key.clone());
        let machine: Value = daemon
            .json(Method::POST, "/v1/machines", Some(&request))
            .await?;
        if !arguments.remote.print_json(&machine)? {
            println!("{}", table::text(&machine, "id"));
        }
        done()
    })
}

/// Arguments of the commands that name machines.
#[derive(Debug, clap::Args)]
pub struct Named {
    #[command(flatten)]
    remote: Remote,

    /// Ids or names of machines
    #[arg(required = true)]
    machines: Vec<String>,
}

/// Starts machines.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn start(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::POST, "/start")
}

/// Asks the programs of machines to end.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn stop(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::POST, "/stop")
}

/// Ends machines by force.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn kill(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::POST, "/kill")
}

/// Pauses machines.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn pause(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::POST, "/pause")
}

/// Resumes paused machines.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn resume(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::POST, "/resume")
}

/// Suspends running machines.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn suspend(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::POST, "/suspend")
}

/// Deletes machines.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn rm(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::DELETE, "")
}

fn each(arguments: &Named, method: &Method, end: &str) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        for id in &arguments.machines {
            let path = format!("/v1/machines/{}{end}", client::escape(id));
            let answer: Value = daemon
                .json(method.clone(), &path, None)
                .await
                .with_context(|| id.clone())?;
            if !arguments.remote.print_json(&answer)? {
                println!("{id}");
            }
        }
        done()
    })
}

/// Waits until machines have ended, and prints their exit codes.
///
/// # Errors
/// One of them has never been started, or failed.
pub fn wait_for(arguments: &Named) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        for id in &arguments.machines {
            let ended = until_ended(&mut daemon, id).await;
            let machine = ended.with_context(|| id.clone())?;
            let text = |field| table::text(&machine, field);
            let (state, code) = (text("state"), text("exit_code"));
            if !arguments.remote.print_json(&machine)? && !code.is_empty() {
                println!("{code}");
            }
            match state.as_str() {
                "created" => bail!("{id}: the machine has never been started"),
                "failed" => bail!("{id}: the machine failed: {}", text("message")),
                _ => {}
            }
        }
        done()
    })
}

/// Waits until a machine is not active. Result: the machine.
async fn until_ended(daemon: &mut Connection, id: &str) -> anyhow::Result<Value> {
    let path = format!("/v1/machines/{}/wait?seconds={WAIT}", client::escape(id));
    loop {
        let machine: Value = daemon.json(Method::GET, &path, None).await?;
        if ["created", "exited", "failed"].contains(&table::text(&machine, "state").as_str()) {
            return Ok(machine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        what: What,
    }

    #[test]
    fn what_follows_the_program_belongs_to_it() {
        let words = ["create", "--cpus", "2", "prog", "-v", "x", "--", "--mem"];
        let request = Line::try_parse_from(words).unwrap().what.request().unwrap();
        assert_eq!(request["program"], "prog");
        assert_eq!(request["args"], json!(words[4..]));
        assert_eq!(request["cpus"], 2);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("256"), Ok(256 << 20));
        assert_eq!(size("65536k"), Ok(64 << 20));
        assert_eq!(size("1T"), Ok(1 << 40));
        for bad in ["", "G", "1X", "-1", "18446744073709551615", "16777216T"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_have_an_address_or_not() {
        let expected = json!({ "host": 8080, "guest": 80 });
        assert_eq!(port("8080:80"), Ok(expected));
        for (text, address) in [("10.0.0.1:8080:80", "10.0.0.1"), ("[::1]:8080:80", "::1")] {
            let expected = json!({ "host": 8080, "guest": 80, "address": address });
            assert_eq!(port(text), Ok(expected));
        }
        for bad in [
            "",
            "80",
            "0:80",
            "80:0",
            "a:80",
            "::1:80:80",
            "x:80:80",
            "80:80/udp",
        ] {
            assert!(port(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn volumes_are_read_only_or_not() {
        let is = |text, path, read_only| {
            let expected = json!({ "volume": "v", "path": path, "read_only": read_only });
            assert_eq!(mount(text), Ok(expected), "{text}");
        };
        is("v:/x", "/x", false);
        is("v:/x:rw", "/x", false);
        is("v:/x:ro", "/x", true);
        for bad in ["v", "v:/x:", "v:/x:r", "v:/x:ro:rw:z"] {
            assert!(mount(bad).is_err(), "{bad}");
        }
    }
}
