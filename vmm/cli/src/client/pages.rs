//! Lists that come page by page: each answer has a `Link` header with the next page, if there is one
//! (RFC 8288).

use super::{ClientError, Connection, full};
use http_body_util::BodyExt;
use hyper::{Method, header};
use serde::de::DeserializeOwned;

impl Connection {
    /// All entries of a list, whose first page has this path.
    ///
    /// # Errors
    /// As [`send`](Self::send); also if an answer is no list.
    pub async fn pages<T: DeserializeOwned>(&mut self, path: &str) -> Result<Vec<T>, ClientError> {
        let (mut all, mut path) = (Vec::new(), path.to_owned());
        loop {
            let nothing = full(Vec::new());
            let answer = self.send(Method::GET, &path, None, nothing).await?;
            let links = answer.headers().get_all(header::LINK).iter();
            let next = links.filter_map(|link| next(link.to_str().ok()?)).next();
            let next = next.map(str::to_owned);
            let bytes = answer.into_body().collect().await?.to_bytes();
            let mut page: Vec<T> = serde_json::from_slice(&bytes)?;
            // A page that moves nothing would be asked for again and again.
            let is_empty = page.is_empty();
            all.append(&mut page);
            match next {
                Some(next) if !is_empty => path = next,
                _ => return Ok(all),
            }
        }
    }
}

/// The path of the next page in a `Link` header.
fn next(header: &str) -> Option<&str> {
    let mut rest = header;
    while let Some((_, link)) = rest.split_once('<') {
        let (target, after) = link.split_once('>')?;
        let end = after.find('<').unwrap_or(after.len());
        let (parameters, others) = after.split_at(end);
        let mut parameters = parameters.split([';', ',']).map(str::trim);
        let is_next = parameters.any(|parameter| ["rel=\"next\"", "rel=next"].contains(&parameter));
        // The daemon's links have no host.
        if is_next && target.starts_with('/') {
            return Some(target);
        }
        rest = others;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn links_have_relations() {
        assert_eq!(
            next(r#"</v1/x?after=a>; rel="next""#),
            Some("/v1/x?after=a")
        );
        let several = r#"</a>; rel="prev", </b,c>; title="t"; rel=next, </d>; rel=last"#;
        assert_eq!(next(several), Some("/b,c"));
        for none in [
            "",
            "<",
            "</a>",
            r#"</a>; rel="prev""#,
            "<http://x/>; rel=next",
        ] {
            assert_eq!(next(none), None, "{none}");
        }
    }
}
