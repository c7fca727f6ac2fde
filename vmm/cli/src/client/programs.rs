//! Uploading programs, and waiting until the daemon has prepared them.

use super::{ClientError, Connection, escape, file};
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::Value;
use std::time::Duration;
use tokio::fs::File;

/// Period of the checks whether a program is ready.
const PERIOD: Duration = Duration::from_millis(200);

impl Connection {
    /// Uploads a file as a program called `name`, and returns the program in its current state.
    /// `programs` are paths in a root file system that are translated ahead, separated by commas.
    ///
    /// # Errors
    /// The file cannot be read, or the daemon refuses it.
    pub async fn upload(
        &mut self,
        program: File,
        name: &str,
        programs: &str,
    ) -> Result<Value, ClientError> {
        let (name, programs) = (escape(name), escape(programs));
        let path = format!("/v1/programs?name={name}&programs={programs}");
        let kind = Some("application/octet-stream");
        let answer = self.send(Method::POST, &path, kind, file(program)).await?;
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Polls until a program is ready or has failed, and returns the program.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn until_ready(&mut self, program: Value) -> Result<Value, ClientError> {
        self.while_in(program, &["packing", "translating"]).await
    }

    /// Polls until a program can run or has failed, and returns the program. Its translation may
    /// continue.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn until_packed(&mut self, program: Value) -> Result<Value, ClientError> {
        self.while_in(program, &["packing"]).await
    }

    async fn while_in(
        &mut self,
        mut program: Value,
        states: &[&str],
    ) -> Result<Value, ClientError> {
        let text = |program: &Value, field: &str| program[field].as_str().map(str::to_owned);
        let id = text(&program, "id").unwrap_or_default();
        let path = format!("/v1/programs/{id}");
        let is_busy = |program: &Value| {
            let state = text(program, "state");
            state.is_some_and(|state| states.contains(&state.as_str()))
        };
        while is_busy(&program) {
            tokio::time::sleep(PERIOD).await;
            program = self.json(Method::GET, &path, None).await?;
        }
        Ok(program)
    }
}
