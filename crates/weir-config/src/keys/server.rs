//! Keys of the `server`, `limits` and `cache` blocks.

use crate::address::ADMIN_ADDRESS;
use crate::prefix::PREFIX;
use crate::rules::ACCOUNT;
use crate::table::Presence::{Default, Otherwise, Repeated};
use crate::table::{Block, Key, slot};
use crate::value::Kind;

use super::{DAY, HOUR, KIB, MIB, MINUTE, TIB};

/// Below this hyper refuses to read a request head at all.
const HEADER_SIZE_MIN: u64 = 8 * KIB;

pub(crate) const SERVER: &[Key] = &[
    Key {
        block: Block::Server,
        name: "workers",
        arguments: &[slot(
            "count",
            Kind::NumberOr { word: "auto", min: 1, max: 1024 },
            Default("auto"),
            "Threads; `\"auto\"` is one for each core.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How many workers serve requests.",
        example: "workers 4",
    },
    Key {
        block: Block::Server,
        name: "admin",
        arguments: &[slot("address", Kind::Text(&ADMIN_ADDRESS), Default("127.0.0.1:9900"), "")],
        properties: &[slot(
            "allow-remote",
            Kind::Switch,
            Default("#false"),
            "Needed to listen on an address that other machines can reach.",
        )],
        children: None,
        repeats: false,
        doc: "Where the admin API listens: status, metrics, reload, purge. Who reaches it controls \
              the server.",
        example: "admin \"unix:/run/weir/admin.sock\"",
    },
    Key {
        block: Block::Server,
        name: "user",
        arguments: &[slot(
            "account",
            Kind::Text(&ACCOUNT),
            Otherwise("stay who started the server"),
            "",
        )],
        properties: &[slot(
            "keep-bpf",
            Kind::Switch,
            Default("#false"),
            "Keep the capability `CAP_BPF`, and `CAP_NET_ADMIN` where `guard` has an `interface`, so \
             that a reload can put other rules into the kernel. All others are dropped. Only the \
             thread that reloads has them; plugins and children do not.",
        )],
        children: None,
        repeats: false,
        doc: "The user to become once all sockets are bound.",
        example: "user \"www-data\" keep-bpf=#true",
    },
    Key {
        block: Block::Server,
        name: "group",
        arguments: &[slot("account", Kind::Text(&ACCOUNT), Otherwise("the user's own group"), "")],
        properties: &[],
        children: None,
        repeats: false,
        doc: "The group to become once all sockets are bound. Needs `user`.",
        example: "user \"www-data\"\ngroup \"www-data\"",
    },
    Key {
        block: Block::Server,
        name: "watch",
        arguments: &[slot("on", Kind::Switch, Default("#false"), "")],
        properties: &[],
        children: None,
        repeats: false,
        doc: "Reload by itself when this file, or a list that its `guard` block names, changes. A \
              file with errors changes nothing.",
        example: "watch #true",
    },
    Key {
        block: Block::Server,
        name: "drain-timeout",
        arguments: &[slot("time", Kind::Time { min: 0, max: HOUR }, Default("30s"), "")],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How long a graceful stop waits for the requests in flight.",
        example: "drain-timeout \"1m\"",
    },
    Key {
        block: Block::Server,
        name: "trusted-proxies",
        arguments: &[slot("prefix", Kind::Text(&PREFIX), Repeated, "")],
        properties: &[],
        children: None,
        repeats: false,
        doc: "Peers that are believed what they say of the client in `Forwarded` and \
              `X-Forwarded-*`: origins get these fields with the peer added, and access logs and \
              `balance \"hash\" key=\"client\"` go by the client that `X-Forwarded-For` names. \
              Nobody is believed without this line, and all get what this server saw itself.",
        example: "trusted-proxies \"10.0.0.0/8\" \"192.168.0.0/16\"",
    },
    Key {
        block: Block::Server,
        name: "limits",
        arguments: &[],
        properties: &[],
        children: Some(Block::Limits),
        repeats: false,
        doc: "Limits that hold for every connection.",
        example: "limits {\n    connections 10000\n    header-timeout \"5s\"\n}",
    },
    Key {
        block: Block::Limits,
        name: "connections",
        arguments: &[slot(
            "count",
            Kind::Number { min: 1, max: 10_000_000 },
            Default("65536"),
            "Over all workers.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How many client connections may be open.",
        example: "connections 10000",
    },
    Key {
        block: Block::Limits,
        name: "header-size",
        arguments: &[slot(
            "size",
            Kind::Size { min: HEADER_SIZE_MIN, max: MIB },
            Default("32KiB"),
            "Request line and fields together.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How large the head of a request may be.",
        example: "header-size \"16KiB\"",
    },
    Key {
        block: Block::Limits,
        name: "header-count",
        arguments: &[slot("count", Kind::Number { min: 1, max: 1_000 }, Default("100"), "")],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How many header fields a request may have.",
        example: "header-count 64",
    },
    Key {
        block: Block::Limits,
        name: "body-size",
        arguments: &[slot("size", Kind::Size { min: 0, max: TIB }, Default("64MiB"), "")],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How large the body of a request may be. A route may set its own.",
        example: "body-size \"1GiB\"",
    },
    Key {
        block: Block::Limits,
        name: "header-timeout",
        arguments: &[slot(
            "time",
            Kind::Time { min: 100, max: 10 * MINUTE },
            Default("10s"),
            "From a request's first byte to the end of its head.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How long a client may take to send the head of a request.",
        example: "header-timeout \"5s\"",
    },
    Key {
        block: Block::Limits,
        name: "body-timeout",
        arguments: &[slot(
            "time",
            Kind::Time { min: 100, max: HOUR },
            Default("30s"),
            "Between two pieces of the body.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How long a client may pause while it sends the body of a request.",
        example: "body-timeout \"10s\"",
    },
    Key {
        block: Block::Limits,
        name: "send-timeout",
        arguments: &[slot(
            "time",
            Kind::Time { min: 100, max: HOUR },
            Default("30s"),
            "Between two writes that make progress.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How long a client may take nothing of a response that waits for it. After that it loses \
              the connection, or in HTTP/2 the stream if others go on.",
        example: "send-timeout \"10s\"",
    },
    Key {
        block: Block::Limits,
        name: "idle-timeout",
        arguments: &[slot(
            "time",
            Kind::Time { min: 100, max: DAY },
            Default("75s"),
            "Between two requests.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How long a connection is kept open for the client's next request.",
        example: "idle-timeout \"30s\"",
    },
    Key {
        block: Block::Limits,
        name: "http2-streams",
        arguments: &[slot(
            "count",
            Kind::Number { min: 1, max: 10_000 },
            Default("128"),
            "Per connection.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How many requests a client may have open at once on one HTTP/2 connection.",
        example: "http2-streams 256",
    },
    Key {
        block: Block::Cache,
        name: "memory",
        arguments: &[slot(
            "size",
            Kind::Size { min: MIB, max: 64 * TIB },
            Default("256MiB"),
            "Bodies and heads together.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How much may be stored.",
        example: "memory \"1GiB\"",
    },
    Key {
        block: Block::Cache,
        name: "object-max",
        arguments: &[slot(
            "size",
            Kind::Size { min: KIB, max: 64 * TIB },
            Otherwise("an eighth of `memory`"),
            "At most `memory`.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "The largest object that is stored; a larger one passes through.",
        example: "object-max \"32MiB\"",
    },
    Key {
        block: Block::Cache,
        name: "policy",
        arguments: &[slot(
            "name",
            Kind::Choice(&["gdsf", "lru"]),
            Default("gdsf"),
            "`\"gdsf\"` keeps small and often used objects, `\"lru\"` those used last.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "What to keep when there is no room for all.",
        example: "policy \"lru\"",
    },
];
