//! Silent connections, and connections that never end.

use super::neighbour::Scene;
use super::{Test, check};
use hartline_tests::Result;
use hartline_tests::daemon::{Answer, until};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

pub const TESTS: &[(&str, Test)] = &[
    ("silent connections of a user", silent_user),
    ("silent connections of many users", silent_users),
    ("silent connections over TCP", silent_tcp),
    ("streams of a tenant", streams),
];

const CONFIGURATION: &str = "pool = 2\nmax_connections = 64\nlisten = '127.0.0.1:0'";
/// The share of a peer, or a tenant, of the 64 connections.
const SHARE: u64 = 16;
/// More connections than the limit.
const MANY: u32 = 70;
/// The first of the user ids for peers, which no user of the host has.
const FIRST_UID: u32 = 30_000;
/// The longest wait for an answer on a busy machine. Connections that occupy the request's slot
/// would block it for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// Connects to the daemon's socket as these users, one connection each.
fn connect_as(scene: &Scene, uids: impl Iterator<Item = u32> + Send) -> Result<Vec<UnixStream>> {
    let connect = |uid: u32| -> Result<UnixStream> {
        const KEEP: libc::uid_t = libc::uid_t::MAX;
        // SAFETY: no memory is involved; both calls change this thread only. Its fsuid stays
        // root's, so that it can access the socket.
        unsafe {
            libc::syscall(libc::SYS_setresuid, KEEP, uid, KEEP);
            libc::syscall(libc::SYS_setfsuid, 0);
        }
        let stream = scene.daemon.connect();
        // SAFETY: no memory is involved.
        let back = unsafe { libc::syscall(libc::SYS_setresuid, KEEP, 0, KEEP) };
        check("root again", back == 0, &back)?;
        stream
    };
    thread::scope(|scope| {
        let connecting = scope.spawn(|| uids.map(connect).collect());
        connecting.join().map_err(|_| "the thread ended early")?
    })
}

/// Sends a request over a connection. Result: the beginning of the answer.
fn ask(mut stream: impl Read + Write, path: &str, key: &str) -> Result<String> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

const OK: &str = "HTTP/1.1 200";

/// Checks that the daemon closes silent connections by itself.
fn are_closed(streams: Vec<impl Read>) -> Result<()> {
    for mut stream in streams {
        // The connection may be reset.
        let read = stream.read(&mut [0]).unwrap_or(0);
        check("closed", read == 0, &read)?;
    }
    Ok(())
}

/// Checks that root, a client of another user with a key, and the neighbour are served.
fn others_are_served(scene: &Scene) -> Result<()> {
    scene.daemon.request("GET", "/readyz", b"")?.expect(200)?;
    let other = connect_as(scene, std::iter::once(FIRST_UID - 1))?;
    for stream in other {
        let answer = ask(stream, "/v1/programs", scene.attacker())?;
        check("another user", answer == OK, &answer)?;
    }
    scene.neighbour_is_well("while connections are held")
}

fn silent_user() -> Result<()> {
    let scene = Scene::start(CONFIGURATION)?;
    let silent = connect_as(&scene, (0..MANY).map(|_| FIRST_UID))?;
    others_are_served(&scene)?;
    // The user itself is served too: its oldest silent connections are closed first.
    for stream in connect_as(&scene, std::iter::once(FIRST_UID))? {
        let answer = ask(stream, "/v1/programs", scene.attacker())?;
        check("the same user", answer == OK, &answer)?;
    }
    are_closed(silent)?;
    scene.end()
}

fn silent_users() -> Result<()> {
    let scene = Scene::start(CONFIGURATION)?;
    let _silent = connect_as(&scene, (0..MANY).map(|number| FIRST_UID + number))?;
    others_are_served(&scene)?;
    scene.end()
}

fn silent_tcp() -> Result<()> {
    let scene = Scene::start(CONFIGURATION)?;
    let log = scene.daemon.log();
    let (_, address) = log.split_once("tcp=\"").ok_or("no address")?;
    let address = address.split('"').next().unwrap_or_default().to_owned();
    let connect = || -> Result<TcpStream> {
        let stream = TcpStream::connect(&address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    let silent = (0..MANY).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    others_are_served(&scene)?;
    let answer = ask(connect()?, "/v1/programs", scene.attacker())?;
    check("the same address", answer == OK, &answer)?;
    are_closed(silent)?;
    scene.end()
}

/// A tenant with a key opens streams of events, which do not end by themselves.
fn streams() -> Result<()> {
    let scene = Scene::start(CONFIGURATION)?;
    let open = || -> Result<(UnixStream, bool)> {
        let mut stream = scene.daemon.connect()?;
        let answer = ask(&mut stream, "/v1/events", scene.attacker())?;
        check("answer", [OK, "HTTP/1.1 429"].contains(&&*answer), &answer)?;
        Ok((stream, answer == OK))
    };
    let streams = (0..MANY).map(|_| open()).collect::<Result<Vec<_>>>()?;
    let accepted = streams.iter().filter(|(_, accepted)| *accepted).count() as u64;
    check("accepted", accepted == SHARE, &accepted)?;
    let refused = scene.attack("GET", "/v1/programs", b"")?;
    let code = (refused.status, refused.text("code"));
    let expected = (429, "too-many-connections".to_owned());
    check("refused", code == expected, &code)?;
    let used = || -> Result<u64> {
        let usage = scene
            .daemon
            .request("GET", "/v1/tenants/attacker/usage", b"")?;
        let usage = usage.expect(200)?.json();
        let of = |entry: &&serde_json::Value| entry["resource"] == "connections";
        let entry = usage
            .as_array()
            .and_then(|all| all.iter().find(of))
            .cloned();
        let entry = entry.unwrap_or_default();
        check("limit", entry["limit"] == json!(SHARE), &entry)?;
        Ok(entry["used"].as_u64().unwrap_or(u64::MAX))
    };
    let now = used()?;
    check("used", now == SHARE, &now)?;
    others_are_refused_nothing(&scene)?;
    drop(streams);
    until(|| used().is_ok_and(|used| used == 0))?;
    let answer: Answer = scene.attack("GET", "/v1/programs", b"")?;
    answer.expect(200)?;
    scene.end()
}

/// Checks that root and the neighbour are served while the attacker has its share of connections.
fn others_are_refused_nothing(scene: &Scene) -> Result<()> {
    scene.daemon.request("GET", "/readyz", b"")?.expect(200)?;
    scene.neighbour_is_well("while streams are open")
}
