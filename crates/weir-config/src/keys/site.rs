//! Keys of the `site` block.

use crate::address::LISTEN_ADDRESS;
use crate::rules::plugin::PLUGIN_NAME;
use crate::rules::{LOG_PATH, PATH, PATTERN};
use crate::table::Presence::{Default, Optional, Required};
use crate::table::{Block, Key, slot};
use crate::value::Kind;

pub(crate) const SITE: &[Key] = &[
    Key {
        block: Block::Site,
        name: "listen",
        arguments: &[slot(
            "address",
            Kind::Text(&LISTEN_ADDRESS),
            Required,
            "IP address and port. Without an IP address (`\":8080\"`): all interfaces, IPv6 and \
             IPv4. Port 0 lets the system choose. A Unix socket is open to every user who can \
             reach its directory (mode 0666).",
        )],
        properties: &[
            slot(
                "tls",
                Kind::Choice(&["auto", "self-signed"]),
                Optional("no TLS"),
                "`\"auto\"` takes the `certificate` that fits the name the client asks for; \
                 `\"self-signed\"` makes one at start, for development.",
            ),
            slot(
                "proxy-protocol",
                Kind::Switch,
                Default("#false"),
                "Every connection begins with a PROXY protocol header, version 1 or 2, which \
                 names the client. Only for listeners that nobody but a load balancer can reach.",
            ),
        ],
        children: None,
        repeats: true,
        doc: "Where the site listens; at least one is needed. Sites may share an address if their \
              lines for it say the same.",
        example: "listen \"127.0.0.1:8080\"\nlisten \":8443\" tls=\"self-signed\"",
    },
    Key {
        block: Block::Site,
        name: "certificate",
        arguments: &[slot(
            "chain",
            Kind::Text(&PATH),
            Required,
            "PEM file of the certificate and the intermediate ones, the site's own first.",
        )],
        properties: &[slot("key", Kind::Text(&PATH), Required, "PEM file of the private key.")],
        children: None,
        repeats: true,
        doc: "A certificate for the listeners with `tls=\"auto\"`. The files are read again when \
              they change.",
        example: "listen \":443\" tls=\"auto\"\ncertificate \"shop.pem\" key=\"shop.key\"",
    },
    Key {
        block: Block::Site,
        name: "access-log",
        arguments: &[slot(
            "path",
            Kind::Text(&LOG_PATH),
            Required,
            "A file, or `\"-\"` for standard output.",
        )],
        properties: &[slot(
            "format",
            Kind::Choice(&["combined", "json"]),
            Default("combined"),
            "Apache's combined format, or one JSON object a line.",
        )],
        children: None,
        repeats: false,
        doc: "Where a record of each request goes. Without this line there is none.",
        example: "access-log \"/var/log/weir/shop.log\" format=\"json\"",
    },
    Key {
        block: Block::Site,
        name: "use",
        arguments: &[slot(
            "plugin",
            Kind::Text(&PLUGIN_NAME),
            Required,
            "The name of a `plugin` block, or of a plugin deployed at run time.",
        )],
        properties: &[],
        children: None,
        repeats: true,
        doc: "Have a plugin see the connections to the site's listeners: when they are made, and \
              (proxy-wasm) their bytes both ways. Requests are another matter: see `use` in a \
              route.",
        example: "use \"knock\"",
    },
    Key {
        block: Block::Site,
        name: "route",
        arguments: &[slot(
            "pattern",
            Kind::Text(&PATTERN),
            Required,
            "An exact path (`\"/about\"`), or the beginning of one (`\"/images/*\"`).",
        )],
        properties: &[],
        children: Some(Block::Route),
        repeats: true,
        doc: "What happens to requests for a path; at least one is needed. An exact path goes \
              before a beginning, a longer beginning before a shorter one, whatever the order of \
              the lines.",
        example: "route \"/images/*\" { files \"/srv/images\" }\nroute \"/*\" { proxy \"http://127.0.0.1:8080\" }",
    },
];
