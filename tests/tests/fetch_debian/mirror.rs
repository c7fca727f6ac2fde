//! An HTTP server on the loopback interface with answers that a test sets.

use hartline_tests::Result;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The server's answer for a path.
#[derive(Clone)]
pub enum Answer {
    /// A file.
    Whole(Vec<u8>),
    /// Half of a file, with its full length in the header.
    Half(Vec<u8>),
}

#[derive(Default)]
struct State {
    /// Answers by path; the last one stays.
    answers: HashMap<String, Vec<Answer>>,
    requests: Vec<String>,
}

/// A running server. Its thread ends with the test program.
pub struct Mirror {
    pub url: String,
    state: Arc<Mutex<State>>,
}

impl Mirror {
    /// Starts a server that answers 404 to everything.
    pub fn new() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/debian/", listener.local_addr()?);
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A client that disconnects early is not a failure of the server.
                thread::spawn(move || serve(&stream, &state));
            }
        });
        Ok(Self { url, state })
    }

    /// Sets the answers for `path`, one for each request; the last one is repeated.
    pub fn set(&self, path: &str, mut answers: Vec<Answer>) {
        answers.reverse();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answers.insert(format!("/debian/{path}"), answers);
    }

    /// Returns how many requests there were for paths that contain `part`.
    pub fn requests(&self, part: &str) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = state.requests.iter();
        requests.filter(|path| path.contains(part)).count()
    }
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    let path = path.replace("%2b", "+").replace("%7e", "~");
    let answer = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests.push(path.clone());
        state.answers.get_mut(&path).and_then(|answers| {
            let more = answers.len() > 1;
            if more {
                answers.pop()
            } else {
                answers.last().cloned()
            }
        })
    };
    let (status, length, body) = match &answer {
        Some(Answer::Whole(bytes)) => ("200 OK", bytes.len(), &bytes[..]),
        Some(Answer::Half(bytes)) => ("200 OK", bytes.len(), &bytes[..bytes.len() / 2]),
        None => ("404 Not Found", 0, &[][..]),
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(body)
}
