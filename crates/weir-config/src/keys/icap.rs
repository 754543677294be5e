//! Keys of the `icap` block, and of the routes that use one.

use crate::rules::icap::ICAP_URL;
use crate::table::Presence::{Default, Otherwise, Required};
use crate::table::{Block, Key, Slot, key, slot};
use crate::url::UPSTREAM_NAME;
use crate::value::Kind;

use super::MINUTE;

pub(crate) const ICAP: &[Key] = &[
    Key {
        block: Block::Icap,
        name: "reqmod",
        arguments: &[slot("url", Kind::Text(&ICAP_URL), Otherwise("it sees no requests"), "")],
        ..line(
            "Show requests to this service before anything else is asked for them. It lets them \
             pass, puts others in their place, or answers them.",
            "reqmod \"icap://127.0.0.1:1344/reqmod\"",
        )
    },
    Key {
        name: "respmod",
        arguments: &[slot("url", Kind::Text(&ICAP_URL), Otherwise("it sees no responses"), "")],
        ..line(
            "Show responses of origins to this service, once, before they are stored. It lets them \
             pass, or puts others in their place.",
            "respmod \"icap://127.0.0.1:1344/respmod\"",
        )
    },
    Key {
        name: "timeout",
        arguments: &[slot(
            "time",
            Kind::Time { min: 10, max: 10 * MINUTE },
            Default("10s"),
            "Of content that is still on its way there the time is its origin's.",
        )],
        ..line(
            "How long the service may stand still, and how long a connection to it may take.",
            "timeout \"30s\"",
        )
    },
    Key {
        name: "connections",
        arguments: &[slot("count", Kind::Number { min: 1, max: 10_000 }, Default("64"), "")],
        ..line(
            "How many connections there may be to the service at a time. Who finds none waits for \
             one, no longer than `timeout`.",
            "connections 16",
        )
    },
    Key {
        name: "client-address",
        arguments: &[slot("tell", Kind::Switch, Default("#false"), "")],
        ..line(
            "Tell the service who asks, in `X-Client-IP`. Of responses it is whoever asked first.",
            "client-address #true",
        )
    },
    Key {
        name: "on-failure",
        arguments: &[slot(
            "policy",
            Kind::Choice(&["fail", "pass"]),
            Default("fail"),
            "`\"fail\"`: with an error; `\"pass\"`: as if there were no such service, as long as \
             nothing of the content is lost, of which 1 MiB is kept.",
        )],
        ..line("What becomes of a message when the service has no answer.", "on-failure \"pass\"")
    },
    Key {
        block: Block::Route,
        name: "icap",
        arguments: &[SERVICE],
        ..line(
            "Have an ICAP service see the route's requests, and what origins answer them.",
            "icap \"scanner\"",
        )
    },
];

const SERVICE: Slot =
    slot("name", Kind::Text(&UPSTREAM_NAME), Required, "The name of an `icap` block.");

const fn line(doc: &'static str, example: &'static str) -> Key {
    key(Block::Icap, "reqmod", doc, example)
}
