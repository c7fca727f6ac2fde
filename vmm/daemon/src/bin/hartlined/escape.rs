//! Makes logged values printable: they contain untrusted text.

use hartline_daemon::printable::printable;
use std::fmt::Debug;
use tracing::field::{Field, Value, Visit, display};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Passes events on to another layer, with all values made [`printable`]. Spans are dropped.
#[derive(Debug)]
pub struct Escaped<L>(pub L);

impl<S: Subscriber, L: Layer<S>> Layer<S> for Escaped<L> {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let fields = event.metadata().fields();
        let mut values = Values(fields.iter().map(|_| None).collect());
        event.record(&mut values);
        let values: Vec<_> = values.0.iter().map(Option::as_deref).collect();
        let values = fields.value_set_all(&values);
        self.0
            .on_event(&Event::new(event.metadata(), &values), context);
    }
}

/// The values of an event, by the index of their field.
struct Values(Vec<Option<Box<dyn Value>>>);

impl Values {
    fn set(&mut self, field: &Field, value: Box<dyn Value>) {
        if let Some(place) = self.0.get_mut(field.index()) {
            *place = Some(value);
        }
    }
}

impl Visit for Values {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, Box::new(printable(value).into_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        self.set(field, Box::new(display(printable(&text).into_owned())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_line() {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .with_ansi(false);
        let subscriber = tracing_subscriber::registry().with(Escaped(lines));
        let evil = "x\n2026 ERROR forged\r\u{1b}[2K\u{202e}";
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(id = %evil, quoted = evil, count = 3_u64, "not prepared: {evil}");
        });
        let bytes = written.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let end = text.strip_suffix('\n').unwrap();
        assert!(
            !end.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{text}"
        );
        let escaped = "x\\n2026 ERROR forged\\r\\u{1b}[2K\\u{202e}";
        for part in [
            format!("not prepared: {escaped}"),
            format!("id={escaped}"),
            "count=3".to_owned(),
        ] {
            assert!(text.contains(&part), "{part}: {text}");
        }
    }
}
