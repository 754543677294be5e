//! Keys of the file's outermost level: the blocks.

use crate::address::SITE_NAME;
use crate::rules::plugin::PLUGIN_NAME;
use crate::table::Presence::Repeated;
use crate::table::{Block, Key, Presence, slot};
use crate::url::UPSTREAM_NAME;
use crate::value::Kind;

pub(crate) const TOP: &[Key] = &[
    Key {
        block: Block::File,
        name: "server",
        arguments: &[],
        properties: &[],
        children: Some(Block::Server),
        repeats: false,
        doc: "Settings of the process.",
        example: "server {\n    workers 4\n    watch #true\n}",
    },
    Key {
        block: Block::File,
        name: "cache",
        arguments: &[],
        properties: &[],
        children: Some(Block::Cache),
        repeats: false,
        doc: "Settings of the cache that all sites share.",
        example: "cache { memory \"1GiB\" }",
    },
    Key {
        block: Block::File,
        name: "upstream",
        arguments: &[slot(
            "name",
            Kind::Text(&UPSTREAM_NAME),
            Presence::Required,
            "What `proxy`, metrics and logs call the group.",
        )],
        properties: &[],
        children: Some(Block::Upstream),
        repeats: true,
        doc: "A group of servers that hold the same content. A single server with the usual \
              settings needs no group: `proxy` takes its URL.",
        example: "upstream \"shop\" {\n    server \"http://10.0.0.5:8080\"\n    server \"http://10.0.0.6:8080\"\n}",
    },
    Key {
        block: Block::File,
        name: "plugins",
        arguments: &[],
        properties: &[],
        children: Some(Block::Plugins),
        repeats: false,
        doc: "What all plugins share.",
        example: "plugins { store \"/var/lib/weir/plugins\" }",
    },
    Key {
        block: Block::File,
        name: "plugin",
        arguments: &[slot(
            "name",
            Kind::Text(&PLUGIN_NAME),
            Presence::Required,
            "What `use`, metrics, logs and the admin API call it.",
        )],
        properties: &[],
        children: Some(Block::Plugin),
        repeats: true,
        doc: "A plugin: a WebAssembly module, what it is configured with, and what it may use. A \
              route has it run with `use`. More can be deployed while the server runs.",
        example: "plugin \"gray\" {\n    source \"plugins/gray.wasm\"\n    config-file \"gray.json\"\n    on-failure \"fail\"\n}",
    },
    Key {
        block: Block::File,
        name: "guard",
        arguments: &[],
        properties: &[],
        children: Some(Block::Guard),
        repeats: false,
        doc: "Overload control: classes of traffic, and rules that tell them apart and limit them. \
              Without it there is one class, and requests are refused only when more arrive than \
              can be served.",
        example: r#"guard {
    class "gold" priority=1
    class "bulk" priority=3
    rule "partners" { from "10.1.0.0/16"; class "gold" }
    rule "others" { rate 100; by "source"; always; class "bulk" }
}"#,
    },
    Key {
        block: Block::File,
        name: "adapt",
        arguments: &[],
        properties: &[],
        children: Some(Block::Adapt),
        repeats: false,
        doc: "Adaptation: the helper processes that make variants of stored responses, and what they \
              may use. What is adapted is up to routes.",
        example: "adapt {\n    helpers 2\n    time \"30s\"\n}",
    },
    Key {
        block: Block::File,
        name: "icap",
        arguments: &[slot(
            "name",
            Kind::Text(&UPSTREAM_NAME),
            Presence::Required,
            "What routes, metrics and logs call it.",
        )],
        properties: &[],
        children: Some(Block::Icap),
        repeats: true,
        doc: "An ICAP service (RFC 3507), such as a virus scanner: a server elsewhere that sees \
              requests, responses or both on the routes that name it.",
        example: "icap \"scanner\" {\n    respmod \"icap://127.0.0.1:1344/srv_clamav\"\n}",
    },
    Key {
        block: Block::File,
        name: "site",
        arguments: &[slot(
            "name",
            Kind::Text(&SITE_NAME),
            Repeated,
            "Host names the site answers to. The first is its name in logs and metrics. An exact \
             name goes before a wildcard, a longer wildcard before a shorter one, and both before \
             `\"*\"`.",
        )],
        properties: &[],
        children: Some(Block::Site),
        repeats: true,
        doc: "A web site: its names, listeners and routes. At least one is needed.",
        example: "site \"shop.example\" \"www.shop.example\" {\n    listen \":80\"\n    route \"/*\" { files \"/srv/shop\" }\n}",
    },
];
