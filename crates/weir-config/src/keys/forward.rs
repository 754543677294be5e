//! Keys of the `forward` block of routes.

use crate::prefix::PREFIX;
use crate::rules::PATH;
use crate::rules::forward::{DESTINATION, NAMED, REALM};
use crate::table::Presence::{AnyNumber, Optional, Repeated, Required, Within};
use crate::table::{Block, Key, Slot, key, slot};
use crate::value::Kind;

use super::{DAY, HOUR, TIB};

const PORT: Slot = slot("port", Kind::Ports, Optional("any"), "At these ports only.");
const FROM: Slot = slot("client", Kind::Text(&PREFIX), Repeated, "");
const FILE: Slot = slot(
    "file",
    Kind::Text(&PATH),
    Required,
    "Lines `name:hash` as `weir password` prints them, read at the start and at each reload.",
);
const INSPECTED: Slot = slot("host", Kind::Text(&NAMED), Repeated, "");
const RANGE: Slot = slot("range", Kind::Text(&PREFIX), Repeated, "");
const PORTS: Slot = slot("port", Kind::Ports, Repeated, "");
const CONNECT_PORTS: Slot = slot("port", Kind::Ports, AnyNumber("CONNECT is refused"), "");
const TO: Slot = slot("destination", Kind::Text(&DESTINATION), Repeated, "");

pub(crate) const FORWARD: &[Key] = &[
    Key {
        block: Block::Route,
        name: "forward",
        arguments: &[],
        properties: &[
            time("connect-timeout", "10s", "To connect, resolution and TLS included."),
            time("first-byte-timeout", "1m", "From a request's end to its response's head."),
            time("idle-timeout", "1m", "Between two reads of a response body."),
        ],
        children: Some(Block::Forward),
        repeats: false,
        doc: "Be a forward proxy: answer with what the host answers that the request names, \
              whichever that is. Private addresses are not connected to.",
        example: "forward {\n    from \"10.0.0.0/8\"\n    deny \"*.internal.example\"\n}",
    },
    Key {
        repeats: false,
        ..line(
            "from",
            &[FROM],
            "Clients that may use it. Others are answered 403. This or `users` is needed where a \
             listener is open to more than this machine.",
            "from \"10.0.0.0/8\" \"fd00::/8\"",
        )
    },
    Key {
        properties: &[
            slot(
                "realm",
                Kind::Text(&REALM),
                Within("Weir"),
                "What browsers show whom the password is for.",
            ),
            slot(
                "cleartext",
                Kind::Switch,
                Within("#false"),
                "Allow it on listeners without TLS that others than this machine reach, where \
                 passwords can be read on the way.",
            ),
        ],
        repeats: false,
        ..line(
            "users",
            &[FILE],
            "Ask clients for a name and a password (`Basic`); others are answered 407.",
            "users \"/etc/weir/users\"",
        )
    },
    Key {
        properties: &[PORT],
        ..line(
            "allow",
            &[TO],
            "Where requests may go. With one such line, they may go nowhere else; without, \
             anywhere that is not denied.",
            "allow \"*.example\" \"198.51.100.0/24\"",
        )
    },
    Key {
        properties: &[PORT],
        ..line(
            "deny",
            &[TO],
            "Where requests may not go, whatever is allowed.",
            "deny \"ads.example\" \"*.tracker.example\"",
        )
    },
    Key {
        repeats: false,
        ..line(
            "ports",
            &[PORTS],
            "Ports that may be asked for. Without this line: 80 and 443.",
            "ports 80 443 \"8000-8999\"",
        )
    },
    Key {
        repeats: false,
        ..line(
            "private",
            &[RANGE],
            "Addresses that may be connected to although they are not public: this machine, \
             private networks, link-local and the like, which are denied otherwise.",
            "private \"10.1.0.0/16\"",
        )
    },
    Key {
        properties: &[
            slot(
                "idle",
                Kind::Time { min: 1_000, max: DAY },
                Within("5m"),
                "How long a tunnel may be silent.",
            ),
            slot(
                "bytes",
                Kind::Size { min: 1, max: TIB },
                Optional("any number"),
                "How much may pass, both ways together.",
            ),
            slot(
                "open",
                Kind::Number { min: 1, max: 1_000_000 },
                Within("10000"),
                "How many may be open at a time; others are answered 503.",
            ),
        ],
        repeats: false,
        ..line(
            "connect",
            &[CONNECT_PORTS],
            "Ports that CONNECT may open tunnels to, as `https` needs them. Without this line: \
             443.",
            "connect 443 8443 idle=\"10m\"",
        )
    },
    Key {
        properties: &[
            slot(
                "ca",
                Kind::Text(&PATH),
                Required,
                "PEM file of the authority that clients trust, as `weir ca create` makes it.",
            ),
            slot("key", Kind::Text(&PATH), Required, "PEM file of its key."),
        ],
        repeats: false,
        ..line(
            "inspect",
            &[INSPECTED],
            "Open tunnels to these hosts, in their names, and serve what passes as other requests \
             are: the proxy reads all of it. Other tunnels stay closed.",
            "inspect \"shop.example\" \"*.shop.example\" ca=\"ca.pem\" key=\"ca.key\"",
        )
    },
    Key {
        block: Block::Forward,
        name: "tls",
        arguments: &[],
        properties: &[slot(
            "ca",
            Kind::Text(&PATH),
            Required,
            "PEM file of the roots that origins are verified by, in place of the operating \
             system's.",
        )],
        children: None,
        repeats: false,
        doc: "How origins with `https` are verified.",
        example: "tls ca=\"roots.pem\"",
    },
];

/// How long an origin may take for something.
const fn time(name: &'static str, default: &'static str, doc: &'static str) -> Slot {
    slot(name, Kind::Time { min: 1, max: HOUR }, Within(default), doc)
}

/// A line of the `forward` block.
const fn line(
    name: &'static str,
    arguments: &'static [Slot],
    doc: &'static str,
    example: &'static str,
) -> Key {
    Key { arguments, repeats: true, ..key(Block::Forward, name, doc, example) }
}
