//! What may be written, and is hardly meant.

use super::{Config, Pattern, Route};

impl Config {
    /// What of a configuration does nothing, though it is written: a sentence each.
    pub fn doubts(&self) -> Vec<String> {
        if self.adapt.helpers != Some(0) {
            return Vec::new();
        }
        let doubts = self.sites.iter().flat_map(|site| {
            site.routes.iter().filter_map(|route| without_helpers(&site.names[0], route))
        });
        doubts.collect()
    }
}

fn without_helpers(site: &str, route: &Route) -> Option<String> {
    let adapt = &route.adapt;
    let lines = [
        ("`compress` of what is stored", adapt.compress.is_some()),
        ("`image`", adapt.image.is_some()),
        ("`html`", adapt.html.is_some()),
    ];
    let idle: Vec<&str> = lines.into_iter().filter(|line| line.1).map(|line| line.0).collect();
    let (path, star) = match &route.pattern {
        Pattern::Exact(path) => (path, ""),
        Pattern::Prefix(path) => (path, "*"),
    };
    let idle = idle.join(", ");
    (!idle.is_empty()).then(|| {
        format!("site \"{site}\", route \"{path}{star}\": nothing does {idle}: `helpers` is 0")
    })
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn what_helpers_would_do_is_named() {
        let doubts = |adapt: &str| {
            let route = |path: &str, lines: &str| {
                format!("route \"{path}\" {{ proxy \"http://127.0.0.1:1\"; {lines}; }}\n")
            };
            let routes =
                [route("/x/*", "compress; image"), route("/y", "cache ttl=\"1m\"")].concat();
            let text = format!("{adapt}\nsite \"a\" \"b\" {{\nlisten \":80\"\n{routes}}}\n");
            parse("a.kdl", &text).unwrap().doubts()
        };
        let expected = "site \"a\", route \"/x/*\": nothing does `compress` of what is stored, \
                        `image`: `helpers` is 0";
        assert_eq!(doubts("adapt { helpers 0; }"), [expected]);
        assert!(doubts("adapt { helpers 1; }").is_empty() && doubts("").is_empty());
    }
}
