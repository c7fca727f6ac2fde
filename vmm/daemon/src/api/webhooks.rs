//! Webhooks: the form of a request for one, and the messages that wait for their receivers.

use super::Refused;
use super::pages::{List, Listed, Page};
use super::secrets::{NAME, is_name};
use crate::Daemon;
use crate::problem::Problem;
use crate::store::{Delivery, Spec, Store, Webhook};
use crate::webhooks::Address;

/// Checks everything of a webhook that needs no database and no name server.
///
/// # Errors
/// [`Problem`] with the fault.
pub(super) fn check(webhook: &Webhook) -> Result<(), Problem> {
    if let Err(error) = Address::parse(&webhook.url) {
        return Err(Problem::field("webhook", format!("url {error}")));
    }
    match is_name(&webhook.secret) {
        true => Ok(()),
        false => Err(Problem::field("webhook", NAME)),
    }
}

/// Refuses a webhook if the daemon sends none.
///
/// # Errors
/// The daemon sends none.
pub(super) fn check_sent(daemon: &Daemon, spec: &Spec) -> Result<(), Problem> {
    match spec.webhook.is_none() || daemon.config().webhooks {
        true => Ok(()),
        false => {
            let detail = "the operator has not switched webhooks on (webhooks in hartlined.toml)";
            Err(Problem::conflict("webhooks-off", detail))
        }
    }
}

/// Refuses a webhook for a run that the daemon does not keep.
///
/// # Errors
/// There is a webhook.
pub(super) fn refuse_unkept(spec: &Spec) -> Result<(), Problem> {
    match &spec.webhook {
        None => Ok(()),
        Some(_) => {
            let detail = "a webhook tells the end of a run that is kept: set wait to false";
            Err(Problem::conflict("no-webhook", detail))
        }
    }
}

/// List the webhooks that wait for their receivers, by id
///
/// Each has the fault of its last attempt. A message that the receiver has taken is in the list no
/// more, and neither is one that was given up after a day.
#[utoipa::path(get, path = "/v1/deliveries", operation_id = "list_deliveries", params(Page),
    responses((status = 200, description = "The messages, by id", body = [Delivery],
        headers(("Link" = String, description = "The next page, if there is one (rel=next)"))),
    Refused))]
pub async fn list(list: List<Page>) -> Result<Listed<Delivery>, Problem> {
    list.page(Store::deliveries, |delivery| &delivery.id)
}
