//! Keys of the `upstream` block.

use crate::rules::{HASH_KEY, PATH, REQUEST_TARGET, STATUSES};
use crate::table::Presence::{Default, Optional, Required};
use crate::table::{Block, Key, slot};
use crate::url::{SERVER_NAME, SERVER_URL};
use crate::value::Kind;

use super::{HOUR, MINUTE};

pub(crate) const UPSTREAM: &[Key] = &[
    Key {
        block: Block::Upstream,
        name: "server",
        arguments: &[slot(
            "url",
            Kind::Text(&SERVER_URL),
            Required,
            "Scheme, host and port: `http`, `https`, or `unix` and a socket's path.",
        )],
        properties: &[slot(
            "weight",
            Kind::Number { min: 1, max: 1_000 },
            Default("1"),
            "Its share of requests, relative to the other servers.",
        )],
        children: None,
        repeats: true,
        doc: "A server of the group; at least one is needed.",
        example: "server \"http://10.0.0.5:8080\" weight=2\nserver \"unix:/run/app.sock\"",
    },
    Key {
        block: Block::Upstream,
        name: "balance",
        arguments: &[slot(
            "method",
            Kind::Choice(&["round-robin", "least-connections", "two-choices", "hash"]),
            Default("round-robin"),
            "In turn; the one with the fewest requests in flight; the less loaded of two drawn at \
             random; or by a key, so that a key stays with its server.",
        )],
        properties: &[slot(
            "key",
            Kind::Text(&HASH_KEY),
            Optional("no key"),
            "What `\"hash\"` hashes; needed there and only there.",
        )],
        children: None,
        repeats: false,
        doc: "How a server is chosen for a request.",
        example: "balance \"hash\" key=\"cookie:session\"",
    },
    Key {
        block: Block::Upstream,
        name: "protocol",
        arguments: &[slot(
            "name",
            Kind::Choice(&["auto", "http1", "http2"]),
            Default("auto"),
            "`\"auto\"` is HTTP/1.1, and HTTP/2 where TLS negotiates it.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "The protocol spoken to the servers. gRPC without TLS needs `\"http2\"`.",
        example: "protocol \"http2\"",
    },
    Key {
        block: Block::Upstream,
        name: "keep-alive",
        arguments: &[slot(
            "count",
            Kind::Number { min: 0, max: 4_096 },
            Default("64"),
            "Idle connections kept for each server and worker; 0 closes after each request.",
        )],
        properties: &[slot(
            "timeout",
            Kind::Time { min: 100, max: HOUR },
            Default("60s"),
            "How long an idle connection is kept. Shorter than the server's own is best.",
        )],
        children: None,
        repeats: false,
        doc: "Connections kept open for the next request.",
        example: "keep-alive 128 timeout=\"30s\"",
    },
    Key {
        block: Block::Upstream,
        name: "timeout",
        arguments: &[],
        properties: &[
            slot(
                "connect",
                Kind::Time { min: 1, max: 5 * MINUTE },
                Default("2s"),
                "To establish a connection, TLS included.",
            ),
            slot(
                "first-byte",
                Kind::Time { min: 1, max: HOUR },
                Default("30s"),
                "From the end of the request to the head of the response.",
            ),
            slot(
                "idle",
                Kind::Time { min: 1, max: HOUR },
                Default("60s"),
                "Between two pieces of the response's body.",
            ),
        ],
        children: None,
        repeats: false,
        doc: "How long a server may take.",
        example: "timeout connect=\"500ms\" first-byte=\"10s\"",
    },
    Key {
        block: Block::Upstream,
        name: "retries",
        arguments: &[slot(
            "count",
            Kind::Number { min: 0, max: 10 },
            Default("1"),
            "Further attempts, on another server where there is one.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How often a failed request is tried again. Only what is safe to repeat is.",
        example: "retries 2",
    },
    Key {
        block: Block::Upstream,
        name: "max-requests",
        arguments: &[slot(
            "count",
            Kind::Number { min: 0, max: 1_000_000 },
            Default("0"),
            "Over all workers; 0 means no limit.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How many requests each server may have in flight.",
        example: "max-requests 200",
    },
    Key {
        block: Block::Upstream,
        name: "concurrency",
        arguments: &[slot(
            "limit",
            Kind::NumberOr { word: "auto", min: 0, max: 1_000_000 },
            Default("auto"),
            "`\"auto\"` finds the limit by how long the servers take to answer; 0 means none.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How many requests the group may have in flight. The others wait by class, for as \
              long as their classes say (`guard`), and are then refused. `\"auto\"` begins at 64 \
              and follows how long the servers take to answer. For requests that are held on \
              purpose, as long polling does, 0 is right.",
        example: "concurrency 64",
    },
    Key {
        block: Block::Upstream,
        name: "health-check",
        arguments: &[slot(
            "path",
            Kind::Text(&REQUEST_TARGET),
            Required,
            "Path of the probe, with its query if it has one.",
        )],
        properties: &[
            slot(
                "interval",
                Kind::Time { min: 100, max: HOUR },
                Default("5s"),
                "Between two probes of a server.",
            ),
            slot(
                "timeout",
                Kind::Time { min: 10, max: 5 * MINUTE },
                Default("2s"),
                "For one probe; at most the interval.",
            ),
            slot(
                "healthy",
                Kind::Number { min: 1, max: 100 },
                Default("2"),
                "Successes in a row that bring a server back.",
            ),
            slot(
                "unhealthy",
                Kind::Number { min: 1, max: 100 },
                Default("3"),
                "Failures in a row that take a server out.",
            ),
            slot("status", Kind::Text(&STATUSES), Default("200-399"), "What counts as a success."),
        ],
        children: None,
        repeats: false,
        doc: "Ask each server regularly whether it works. Without this line nobody asks.",
        example: "health-check \"/healthz\" interval=\"2s\" timeout=\"1s\" status=\"200\"",
    },
    Key {
        block: Block::Upstream,
        name: "passive-health",
        arguments: &[],
        properties: &[
            slot(
                "failures",
                Kind::Number { min: 0, max: 1_000 },
                Default("3"),
                "Failures within the window that eject a server; 0 switches this off.",
            ),
            slot(
                "window",
                Kind::Time { min: 100, max: HOUR },
                Default("10s"),
                "Time over which failures are counted.",
            ),
            slot(
                "eject",
                Kind::Time { min: 100, max: HOUR },
                Default("10s"),
                "How long an ejected server rests.",
            ),
        ],
        children: None,
        repeats: false,
        doc: "Leave a server alone for a while when requests to it fail.",
        example: "passive-health failures=5 window=\"30s\" eject=\"1m\"",
    },
    Key {
        block: Block::Upstream,
        name: "tls",
        arguments: &[],
        properties: &[
            slot(
                "server-name",
                Kind::Text(&SERVER_NAME),
                Optional("the host of the server's URL"),
                "The name asked for and verified.",
            ),
            slot(
                "ca",
                Kind::Text(&PATH),
                Optional("the system's trusted roots"),
                "PEM file of the roots to trust instead.",
            ),
            slot(
                "insecure",
                Kind::Switch,
                Default("#false"),
                "Accept any certificate. For tests only.",
            ),
        ],
        children: None,
        repeats: false,
        doc: "TLS to the servers with an `https` URL.",
        example: "server \"https://10.0.0.5\"\ntls server-name=\"app.internal\" ca=\"internal-ca.pem\"",
    },
];
