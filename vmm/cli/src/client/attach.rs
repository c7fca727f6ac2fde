//! The input and output of a machine's program, over a WebSocket.

use super::connect::{self, Stream};
use super::{ClientError, Target, escape, problem};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::header;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message};

type Socket = WebSocketStream<Box<dyn Stream>>;

/// A message from a machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Received {
    /// Standard output of its program.
    Stdout(Vec<u8>),
    /// Standard error of its program.
    Stderr(Vec<u8>),
    /// The machine, the command or the run has ended, and is as the API shows it.
    Ended(serde_json::Value),
}

/// A connection to a machine.
pub struct Attached {
    sink: SplitSink<Socket, Message>,
    messages: SplitStream<Socket>,
}

impl Attached {
    /// Attaches to a machine; with `logs` also to its earlier output, with `input` to its standard
    /// input.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Problem`] if the daemon refuses.
    pub async fn open(
        target: &Target,
        machine: &str,
        logs: bool,
        input: bool,
    ) -> Result<Self, ClientError> {
        let machine = escape(machine);
        let path = format!("/v1/machines/{machine}/attach?logs={logs}&input={input}");
        Self::connect(target, &path).await
    }

    /// Runs a command in a machine: `command` is the request, as the API describes it.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Problem`] if the daemon refuses.
    pub async fn exec(
        target: &Target,
        machine: &str,
        command: &serde_json::Value,
    ) -> Result<Self, ClientError> {
        let path = format!("/v1/machines/{}/exec", escape(machine));
        Self::begin(target, &path, command).await
    }

    /// Connects a debugger with a machine: input and output are GDB's remote serial protocol. `lost` is
    /// what the program does when the connection breaks, as the API names it.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Problem`] if the daemon refuses.
    pub async fn debug(target: &Target, machine: &str, lost: &str) -> Result<Self, ClientError> {
        let machine = escape(machine);
        Self::connect(target, &format!("/v1/machines/{machine}/debug?lost={lost}")).await
    }

    /// Connects and sends the first message.
    async fn begin(
        target: &Target,
        path: &str,
        first: &serde_json::Value,
    ) -> Result<Self, ClientError> {
        let mut attached = Self::connect(target, path).await?;
        let message = Message::Text(first.to_string().into());
        attached.sink.send(message).await.map_err(refused)?;
        Ok(attached)
    }

    /// Runs a program whose standard streams stay open: `run` is the request, as the API describes it.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Problem`] if the daemon refuses.
    pub async fn run(target: &Target, run: &serde_json::Value) -> Result<Self, ClientError> {
        Self::begin(target, "/v1/runs/attached", run).await
    }

    async fn connect(target: &Target, path: &str) -> Result<Self, ClientError> {
        let stream = connect::connect(target).await?;
        let mut request = format!("ws://hartlined{path}")
            .into_client_request()
            .map_err(refused)?;
        if let Some(key) = &target.key {
            let value = header::HeaderValue::try_from(format!("Bearer {key}"))
                .map_err(hyper::http::Error::from)?;
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let (socket, _) = tokio_tungstenite::client_async(request, stream)
            .await
            .map_err(refused)?;
        let (sink, messages) = socket.split();
        Ok(Self { sink, messages })
    }

    /// Changes the size of the program's terminal, as [`Input::resize`].
    ///
    /// # Errors
    /// The connection broke.
    pub async fn resize(&mut self, size: (u16, u16)) -> Result<(), ClientError> {
        self.sink.send(resize(size)).await.map_err(refused)
    }

    /// Splits the connection into both directions, for simultaneous use.
    #[must_use]
    pub fn split(self) -> (Input, Output) {
        (Input(self.sink), Output(self.messages))
    }
}

/// Standard input of a machine's program.
pub struct Input(SplitSink<Socket, Message>);

impl Input {
    /// Sends bytes; an empty message ends the input.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&mut self, bytes: Vec<u8>) -> Result<(), ClientError> {
        let message = Message::Binary(bytes.into());
        self.0.send(message).await.map_err(refused)
    }

    /// Changes the size of the command's terminal: lines, and characters of a line.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn resize(&mut self, size: (u16, u16)) -> Result<(), ClientError> {
        self.0.send(resize(size)).await.map_err(refused)
    }
}

/// The message with the size of a terminal.
fn resize((rows, columns): (u16, u16)) -> Message {
    let size = serde_json::json!({ "resize": { "rows": rows, "columns": columns } });
    Message::Text(size.to_string().into())
}

/// The receiving direction of a connection.
pub struct Output(SplitStream<Socket>);

impl Output {
    /// The next message; `None` when the connection has ended.
    ///
    /// # Errors
    /// The connection broke, or a message cannot be decoded.
    pub async fn next(&mut self) -> Result<Option<Received>, ClientError> {
        while let Some(message) = self.0.next().await {
            match message.map_err(refused)? {
                Message::Binary(bytes) => match bytes.split_first() {
                    Some((1, output)) => return Ok(Some(Received::Stdout(output.to_vec()))),
                    Some((2, output)) => return Ok(Some(Received::Stderr(output.to_vec()))),
                    _ => {}
                },
                Message::Text(text) => {
                    return Ok(Some(Received::Ended(serde_json::from_str(&text)?)));
                }
                Message::Close(Some(frame)) if frame.code == CloseCode::Policy => {
                    return Err(ClientError::Refused(frame.reason.to_string()));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// The daemon's problem if the answer was no WebSocket, otherwise the error.
fn refused(error: tungstenite::Error) -> ClientError {
    match error {
        tungstenite::Error::Http(answer) => {
            let body = answer.body().as_deref().unwrap_or_default();
            problem(answer.status(), body)
        }
        error => ClientError::WebSocket(Box::new(error)),
    }
}
