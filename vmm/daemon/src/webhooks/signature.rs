//! The signature of a message, as Standard Webhooks (version 1) says: HMAC-SHA256 of its id, its time
//! stamp and its body.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The prefix of a secret that is a key in Base64.
const PREFIX: &[u8] = b"whsec_";

/// The header `webhook-signature`, made with the contents of a secret. `time` is in seconds since 1970.
/// `None`: the secret has the prefix `whsec_`, but no Base64 after it.
pub fn signature(secret: &[u8], id: &str, time: i64, body: &str) -> Option<String> {
    let key = match secret.strip_prefix(PREFIX) {
        Some(text) => BASE64_STANDARD.decode(text.trim_ascii_end()).ok()?,
        None => secret.to_vec(),
    };
    // A key may have any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    mac.update(format!("{id}.{time}.{body}").as_bytes());
    let code = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    Some(format!("v1,{code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn the_example_of_the_specification() {
        let secret = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let made = signature(secret, id, 1_614_265_330, r#"{"test": 2432232314}"#);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(made.as_deref(), Some(expected));
    }

    #[test]
    fn keys_are_bytes_or_base64() {
        let of = |secret: &[u8]| signature(secret, "id", 1, "{}");
        assert_eq!(of(b"whsec_a2V5\n"), of(b"key"));
        assert_ne!(of(b"key\n"), of(b"key"));
        assert_eq!(of(b"whsec_?"), None);
        assert!(of(&[0xff; 200]).is_some());
    }
}
