//! Keys of the `guard` block; those of its rules are in [`super::rule`].

use crate::limits::SHARES_MAX;
use crate::rules::PATH;
use crate::rules::guard::{GUARD_NAME, INTERFACE_NAME};
use crate::table::Presence::{Default, Required};
use crate::table::{Block, Key, slot};
use crate::value::Kind;

use super::{MINUTE, SECOND};

pub(crate) const GUARD: &[Key] = &[
    Key {
        block: Block::Guard,
        name: "class",
        arguments: &[slot(
            "name",
            Kind::Text(&GUARD_NAME),
            Required,
            "What rules, metrics and logs call it.",
        )],
        properties: &[
            slot(
                "priority",
                Kind::Number { min: 1, max: 16 },
                Required,
                "1 goes first. No two classes have the same.",
            ),
            slot(
                "queue",
                Kind::Number { min: 0, max: 1_000_000 },
                Default("10000"),
                "How many of its requests may wait for an upstream at a time, for each upstream.",
            ),
            slot(
                "wait",
                Kind::Time { min: 1, max: 10 * MINUTE },
                Default("5s"),
                "How long one of them waits at most; then it is refused. Once somebody has waited \
                 for half of it, whoever came last goes first.",
            ),
            slot(
                "share",
                Kind::Number { min: 0, max: SHARES_MAX },
                Default("0"),
                "So many of 100 turns at an upstream are its own while one of its requests waits, \
                 whoever else waits; likewise of 100 connections that are let in. Those of all \
                 classes are 50 at most: the others go by priority.",
            ),
        ],
        children: None,
        repeats: true,
        doc: "A class of traffic. Under overload the classes that go first are served first, and \
              the last is the first to be refused. Whatever no rule gives a class is of the class \
              `default`, which has priority 2 unless a line declares it. There are at most 8.",
        example: "class \"gold\" priority=1 queue=2000 wait=\"1s\"\nclass \"bulk\" priority=3 share=5",
    },
    Key {
        block: Block::Guard,
        name: "list",
        arguments: &[
            slot("name", Kind::Text(&GUARD_NAME), Required, "Rules write it with an `@` before."),
            slot(
                "path",
                Kind::Text(&PATH),
                Required,
                "Text of at most 64MiB and 1,000,000 entries: an address, a prefix or a range on \
                 each line. After a `#` stands a comment.",
            ),
        ],
        properties: &[],
        children: None,
        repeats: true,
        doc: "Addresses from a file, for `from` and `to` of rules. The file is read when this one \
              is. One that is empty is a list of nobody.",
        example: "list \"crawlers\" \"lists/crawlers.txt\"",
    },
    Key {
        block: Block::Guard,
        name: "rule",
        arguments: &[slot(
            "name",
            Kind::Text(&GUARD_NAME),
            Required,
            "What metrics, logs and the admin API call it. What a rule has counted is kept by its \
             name when the configuration is loaded anew.",
        )],
        properties: &[],
        children: Some(Block::Rule),
        repeats: true,
        doc: "Whom it means, and what happens to them. Rules are looked at in the order of their \
              lines. Each one that matches applies its limits; the first that gives a class \
              decides the class; one with `pass` is the last that is looked at. There are at most \
              20,000.",
        example: r#"rule "search" {
    site "shop.example"; path "/search/*"
    rate 10 burst=5 per="minute"; by "source"
}"#,
    },
    Key {
        block: Block::Guard,
        name: "overload",
        arguments: &[],
        properties: &[
            slot(
                "target",
                Kind::Time { min: 1, max: SECOND },
                Default("5ms"),
                "Time that requests may wait to be served.",
            ),
            slot(
                "interval",
                Kind::Time { min: 10, max: 10 * SECOND },
                Default("100ms"),
                "How long they must have waited longer than that. Limits are thought over as often.",
            ),
        ],
        children: None,
        repeats: false,
        doc: "When the server counts as overloaded (the two settings of CoDel, RFC 8289). Then \
              limits hold that are not for always, and if there are classes, those of the last are \
              refused first. What is normal for an upstream is measured; there is nothing to be \
              set.",
        example: "overload target=\"10ms\" interval=\"200ms\"",
    },
    Key {
        block: Block::Guard,
        name: "keys",
        arguments: &[slot(
            "count",
            Kind::Number { min: 1, max: 10_000_000 },
            Default("1048576"),
            "",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "How many buckets by source, prefix, header or cookie are kept at a time, over all \
              rules. The oldest are forgotten.",
        example: "keys 2000000",
    },
    Key {
        block: Block::Guard,
        name: "kernel",
        arguments: &[slot(
            "use",
            Kind::Choice(&["auto", "off"]),
            Default("auto"),
            "With `\"off\"` the same is decided after connections are accepted.",
        )],
        properties: &[],
        children: None,
        repeats: false,
        doc: "Whether rules that need only addresses and ports run in the kernel, as far as it and \
              the privileges of the process allow. `weir status` shows what runs where.",
        example: "kernel \"off\"",
    },
    Key {
        block: Block::Guard,
        name: "interface",
        arguments: &[slot("name", Kind::Text(&INTERFACE_NAME), Required, "As `ip link` shows it.")],
        properties: &[slot(
            "hook",
            Kind::Choice(&["xdp", "tcx"]),
            Default("xdp"),
            "Where packets are met: before the network stack, or at its ingress, which every \
             driver has.",
        )],
        children: None,
        repeats: false,
        doc: "A network interface at which refused connections are dropped already, against \
              floods. Without this line that happens at Weir's own sockets, and nothing is \
              attached to an interface.",
        example: "interface \"eth0\" hook=\"tcx\"",
    },
];
