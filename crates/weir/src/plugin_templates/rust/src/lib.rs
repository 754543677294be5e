//! {{name}}: a plugin for Weir. It adds a field to every response and answers `/{{name}}` itself;
//! put what you need in its place. `cargo test` runs the hooks without a server.

use weir_plugin_sdk::{Edits, Frame, Plugin, weir_plugin};

// The hooks that the server calls; the trait has more.
weir_plugin!(Greeter: on_request, on_response);
// Small, and therefore compiled quickly when the plugin is deployed; the SDK's documentation tells
// what makes the plugin smaller yet.
weir_plugin_sdk::allocator!();

/// Each of the server's threads has one of its own.
struct Greeter {
    greeting: String,
}

impl Plugin for Greeter {
    /// The configuration is any text; here, the greeting itself.
    fn configure(config: &[u8]) -> Result<Greeter, String> {
        let greeting = str::from_utf8(config).map_err(|_| "the greeting is no UTF-8")?;
        let greeting = if greeting.is_empty() { "Hello from {{name}}" } else { greeting };
        Ok(Greeter { greeting: greeting.to_owned() })
    }

    fn on_request(&mut self, frame: &Frame<'_>, edits: &mut Edits) {
        if frame.request().path() == "/{{name}}" {
            edits
                .answer(200)
                .field("content-type", "text/plain; charset=utf-8")
                .body(format!("{}\n", self.greeting));
        }
    }

    fn on_response(&mut self, _frame: &Frame<'_>, edits: &mut Edits) {
        edits.set("x-plugin", "{{name}}");
    }
}

#[cfg(test)]
mod tests {
    use weir_plugin_sdk::testing::Sample;

    use super::*;

    #[test]
    fn answers_its_own_path_only() {
        let mut plugin = Greeter::configure(b"").unwrap();
        let mut edits = Edits::new();
        let other = Sample::new().request("GET", "localhost", "/");
        other.show(|frame| plugin.on_request(frame, &mut edits));
        assert!(edits.is_empty());
        let own = Sample::new().request("GET", "localhost", "/{{name}}?x");
        own.show(|frame| plugin.on_request(frame, &mut edits));
        assert!(edits.to_string().starts_with("ANSWER 200"), "{edits}");
    }
}
