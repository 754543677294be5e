//! Keys of the `adapt` block, and of what routes adapt.

use crate::rules::adapt::{CGROUP, COMPRESS_FORMAT, COMPRESSED_TYPE};
use crate::table::Presence::{AnyNumber, Default, Otherwise, Repeated};
use crate::table::{Block, Key, key, slot};
use crate::value::Kind;

use super::{GIB, HOUR, KIB, MIB, MINUTE};

pub(crate) const ADAPT: &[Key] = &[
    Key {
        arguments: &[slot(
            "count",
            Kind::NumberOr { word: "auto", min: 0, max: 256 },
            Default("auto"),
            "Processes; `\"auto\"` is one for each core, and 0 switches adaptation off.",
        )],
        ..setting(
            "helpers",
            "How many helper processes there are. One is started with its first job. With 0 \
             everybody gets the originals, whatever routes say, and `weir check` warns of those \
             that say something.",
            "helpers 2",
        )
    },
    Key {
        arguments: &[slot("jobs", Kind::Number { min: 1, max: 100_000 }, Default("256"), "")],
        ..setting(
            "queue",
            "How many jobs may wait for a helper at a time. What finds no place is not made, until \
             a later request asks for it again.",
            "queue 1000",
        )
    },
    Key {
        arguments: &[slot(
            "count",
            Kind::Number { min: 0, max: 100_000 },
            Default("256"),
            "Each takes some MB at most while it is there.",
        )],
        ..setting(
            "streams",
            "How many responses may be compressed or changed at a time as they are sent. What finds \
             no place is sent as it is.",
            "streams 1000",
        )
    },
    Key {
        arguments: &[slot(
            "size",
            Kind::Size { min: 64 * MIB, max: 64 * GIB },
            Default("1GiB"),
            "For each helper.",
        )],
        ..setting(
            "memory",
            "How much memory a helper may have. A job that needs more fails.",
            "memory \"512MiB\"",
        )
    },
    Key {
        arguments: &[slot(
            "duration",
            Kind::Time { min: 10, max: HOUR },
            Default("10s"),
            "Of the processor; by the clock thirty times that.",
        )],
        ..setting(
            "time",
            "How long a helper may work on a job. One that takes longer is killed, and another one \
             tries once more.",
            "time \"30s\"",
        )
    },
    Key {
        arguments: &[slot(
            "size",
            Kind::Size { min: 64 * KIB, max: 4 * GIB },
            Default("64MiB"),
            "At most what `memory` says.",
        )],
        ..setting("output", "The largest variant that is made.", "output \"16MiB\"")
    },
    Key {
        arguments: &[slot(
            "when",
            Kind::Choice(&["idle", "normal"]),
            Default("idle"),
            "`\"idle\"`: only when nothing else on the machine wants to (`SCHED_IDLE`); \
             `\"normal\"`: like everything else, at the expense of requests.",
        )],
        ..setting("priority", "When helpers run.", "priority \"normal\"")
    },
    Key {
        arguments: &[slot(
            "directory",
            Kind::Text(&CGROUP),
            Otherwise("helpers stay in the server's"),
            "Made if only the last part of it is missing.",
        )],
        ..setting(
            "cgroup",
            "The control group (cgroup v2) that helpers are put in, [of their \
             own](adapting.md#a-cgroup-of-their-own). Weir gives it no share of the processor \
             while anything else wants it (`cpu.idle`), and limits its memory and its processes, \
             by what controllers it has.",
            "cgroup \"/sys/fs/cgroup/system.slice/weir.service/helpers\"",
        )
    },
    Key {
        block: Block::Route,
        name: "compress",
        arguments: &[slot(
            "format",
            Kind::Text(&COMPRESS_FORMAT),
            AnyNumber("`\"br\" \"zstd\" \"gzip\"`"),
            "Of those that a client likes equally, the first is taken.",
        )],
        properties: &[
            slot(
                "strength",
                Kind::Choice(&["quick", "balanced", "strongest"]),
                Default("strongest"),
                "Levels of formats that are given without one: 4, 3 and 4 of br, zstd and gzip; 6, \
                 9 and 6; or 11, 19 and 9, and 9, 12 and 9 for content of more than 1MiB.",
            ),
            slot(
                "min-size",
                Kind::Size { min: 0, max: GIB },
                Default("1KiB"),
                "Content of fewer bytes stays as it is: with its head it fits one packet or two \
                 anyway.",
            ),
            slot(
                "wait",
                Kind::Time { min: 0, max: MINUTE },
                Default("0s"),
                "How long a request may wait for its variant to be made. After that, or where \
                 there is no hope, it gets the original.",
            ),
            slot(
                "stream",
                Kind::Switch,
                Default("#true"),
                "Compress what `proxy` answers and is not stored too, as it comes, at a quick level.",
            ),
        ],
        children: Some(Block::Compress),
        repeats: false,
        doc: "Send what `files` and `proxy` answer compressed to clients that accept it. What is \
              stored is compressed by a helper, once for all who want the same; until that is done \
              they get the original. What is not stored is compressed as it comes.",
        example: "compress \"br\" \"zstd:12\" \"gzip\" min-size=\"2KiB\"",
    },
    Key {
        block: Block::Compress,
        name: "types",
        arguments: &[slot("type", Kind::Text(&COMPRESSED_TYPE), Repeated, "")],
        properties: &[],
        children: None,
        repeats: false,
        doc: "What is compressed, by Content-Type. Without this line: `text/*`, `*+json`, `*+xml`, \
              JavaScript, JSON, XML, YAML, WebAssembly, and the fonts and images that are not \
              compressed in themselves.",
        example: "types \"text/*\" \"application/json\" \"*+json\"",
    },
];

/// A line of the `adapt` block.
const fn setting(name: &'static str, doc: &'static str, example: &'static str) -> Key {
    key(Block::Adapt, name, doc, example)
}
