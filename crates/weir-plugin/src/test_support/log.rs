//! What the crate writes to its log.

use std::sync::Arc;

use parking_lot::Mutex;

/// Lines of the log that are written while `work` runs.
pub(crate) fn logged(work: impl FnOnce()) -> Vec<String> {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let recorder = Recorder(Arc::clone(&lines));
    tracing::subscriber::with_default(recorder, work);
    std::mem::take(&mut lines.lock())
}

struct Recorder(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Recorder {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        if event.metadata().target().starts_with("weir_plugin") {
            let mut message = Message(String::new());
            event.record(&mut message);
            self.0.lock().push(format!("{} {}", event.metadata().level(), message.0));
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
