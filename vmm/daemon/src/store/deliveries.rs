//! Deliveries of webhooks. One is added in the transaction that notes the end of its machine, so that
//! none is lost, and is there until its receiver has taken it.

use super::state::has_ended;
use super::{Kind, Machine, Store, StoreError, now_ms};
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::futures::Notified;

/// Most deliveries of a tenant that wait. Further ones are dropped.
pub const MAX_DELIVERIES: u32 = 10_000;
/// Longest message of a machine in the body, characters.
const MAX_TEXT: usize = 1000;

/// A delivery that waits for its receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Delivery {
    /// Its id, which is the header `webhook-id` of each attempt.
    pub id: String,
    /// Id of the machine or run that has ended.
    pub machine: String,
    /// The address.
    pub url: String,
    /// Number of failed attempts.
    pub attempts: u32,
    /// The fault of the last attempt; empty before the first one.
    pub error: String,
    /// Time of the machine's end, milliseconds since 1970.
    pub created_ms: i64,
    /// Time of the next attempt.
    pub next_ms: i64,
    /// The delivery's tenant.
    #[serde(skip)]
    pub tenant: String,
    /// Name of the secret that signs.
    #[serde(skip)]
    pub secret: String,
    /// The body.
    #[serde(skip)]
    pub body: String,
}

impl Delivery {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            machine: row.get("machine")?,
            url: row.get("url")?,
            attempts: row.get("attempts")?,
            error: row.get("error")?,
            created_ms: row.get("created_ms")?,
            next_ms: row.get("next_ms")?,
            tenant: row.get("tenant")?,
            secret: row.get("secret")?,
            body: row.get("body")?,
        })
    }
}

/// The result of [`add`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// There is a new delivery.
    New,
    /// The machine has no webhook, or has ended before.
    None,
    /// The tenant has [`MAX_DELIVERIES`].
    Dropped,
}

impl Store {
    /// Deliveries of a tenant that wait, by id, after the id `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn deliveries(
        &self,
        tenant: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Delivery>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT * FROM delivery WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?",
        )?;
        let found = statement.query_map(params![tenant, after, limit], Delivery::from_row)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Tenants with deliveries, and the time of the first attempt of each, milliseconds since 1970.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn next_deliveries(&self) -> Result<Vec<(String, i64)>, StoreError> {
        let connection = self.connection();
        let mut statement = connection
            .prepare_cached("SELECT tenant, min(next_ms) FROM delivery GROUP BY tenant")?;
        let tenants = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(tenants.collect::<Result<_, _>>()?)
    }

    /// Deliveries of a tenant to be attempted until `now`, milliseconds since 1970, those that wait the
    /// longest first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn due_deliveries(
        &self,
        tenant: &str,
        now: i64,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT * FROM delivery WHERE tenant = ? AND next_ms <= ? ORDER BY next_ms LIMIT ?",
        )?;
        let found = statement.query_map(params![tenant, now, limit], Delivery::from_row)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Notes a failed attempt, after which the next one is at `next_ms`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn postpone_delivery(&self, id: &str, next_ms: i64, error: &str) -> Result<(), StoreError> {
        self.connection().execute(
            "UPDATE delivery SET attempts = attempts + 1, next_ms = ?, error = ? WHERE id = ?",
            params![next_ms, error, id],
        )?;
        Ok(())
    }

    /// Deletes a delivery.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete_delivery(&self, id: &str) -> Result<(), StoreError> {
        let delete = "DELETE FROM delivery WHERE id = ?";
        self.connection().execute(delete, [id])?;
        Ok(())
    }

    /// Number of deliveries that wait.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn waiting_deliveries(&self) -> Result<u64, StoreError> {
        let count = "SELECT count(*) FROM delivery";
        Ok(self.connection().query_row(count, [], |row| row.get(0))?)
    }

    /// Completes when there is a new delivery.
    pub fn new_delivery(&self) -> Notified<'_> {
        self.new_delivery.notified()
    }
}

/// Adds the delivery for the end of a machine that the database has as one that has not ended.
pub(super) fn add(connection: &Connection, machine: &Machine) -> Result<Added, StoreError> {
    let Some(webhook) = &machine.spec.webhook else {
        return Ok(Added::None);
    };
    let count = "SELECT count(*) FROM delivery WHERE tenant = ?";
    let count: u32 = connection.query_row(count, [&machine.tenant], |row| row.get(0))?;
    if count >= MAX_DELIVERIES {
        return Ok(Added::Dropped);
    }
    let now = now_ms();
    let added = connection.execute(
        concat!(
            "INSERT INTO delivery (id, tenant, machine, url, secret, body, created_ms, next_ms)
             SELECT 'msg_' || lower(hex(randomblob(16))), tenant, id, ?2, ?3, ?4, ?5, ?5
             FROM machine WHERE id = ?1 AND NOT ",
            has_ended!("state")
        ),
        params![machine.id, webhook.url, webhook.secret, body(machine), now],
    )?;
    Ok(match added {
        0 => Added::None,
        _ => Added::New,
    })
}

/// The body that tells the end of a machine.
fn body(machine: &Machine) -> String {
    let kind = match machine.kind {
        Kind::Run => "run.ended",
        Kind::Machine => "machine.ended",
    };
    let ended_ms = machine.ended_ms.unwrap_or_else(now_ms);
    let result = machine.result.as_ref();
    let message = result.map_or(&machine.message, |result| &result.message);
    json!({
        "type": kind,
        "timestamp": rfc3339(ended_ms),
        "data": {
            "id": machine.id,
            "name": machine.name,
            "state": machine.state,
            "exit_code": result.map(|result| result.code),
            "message": message.chars().take(MAX_TEXT).collect::<String>(),
            "created_ms": machine.created_ms,
            "started_ms": machine.started_ms,
            "ended_ms": ended_ms,
        },
    })
    .to_string()
}

/// A time, given in milliseconds since 1970, as RFC 3339 writes it.
fn rfc3339(ms: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok();
    let text = time.and_then(|time| time.format(&Rfc3339).ok());
    text.unwrap_or_default()
}
