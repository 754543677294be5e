//! Keys of the `rule` block of `guard`: conditions, then what happens to those who meet them.

use crate::address::SITE_NAME;
use crate::prefix::ADDRESSES;
use crate::rules::guard::{
    BUCKET_KEY, COOKIE_EXACT, COOKIE_MATCH, COOKIE_NAME, FIELD_EXACT, FIELD_MATCH, FIELD_NAME,
    GUARD_NAME, MEDIA_RANGE, METHOD, PARAMETER_EXACT, PARAMETER_MATCH, PARAMETER_NAME, PATH_MATCH,
    SERVER_NAME_MATCH, SOURCE_KEY, VERDICT,
};
use crate::table::Presence::{AnyNumber, Default, Optional, Otherwise, Repeated, Required};
use crate::table::{Block, Key, slot};
use crate::value::Kind;

use super::{DAY, SECOND};

/// The largest rate, burst or concurrency.
const COUNT_MAX: u64 = 10_000_000;

/// What a named value may be where none is given.
const ANY: &str = "any value";
/// And where none is given exactly.
const VALUES: &str = "the values before it say all";
const ABSENT: &str = "It must not be there.";

/// A condition: a key that may stand more than once.
const fn condition(name: &'static str, doc: &'static str, example: &'static str) -> Key {
    Key { repeats: true, ..action(name, doc, example) }
}

/// A line that stands once.
const fn action(name: &'static str, doc: &'static str, example: &'static str) -> Key {
    Key {
        block: Block::Rule,
        name,
        arguments: &[],
        properties: &[],
        children: None,
        repeats: false,
        doc,
        example,
    }
}

pub(crate) const RULE: &[Key] = &[
    Key {
        arguments: &[slot("address", Kind::Text(&ADDRESSES), Repeated, "")],
        ..condition(
            "from",
            "Where it comes from. Of a connection that is the address at its other end; of a request \
             it is the client's, as far as the PROXY protocol and `trusted-proxies` tell it. All \
             values of all `from` lines are one set. As for every condition: a rule means those \
             who meet all conditions that it gives, and one given several times is met by any of \
             its values. A rule without conditions means everybody.",
            "from \"10.1.0.0/16\" \"10.2.0.1-10.2.0.9\" \"@crawlers\"",
        )
    },
    Key {
        arguments: &[slot("port", Kind::Ports, Repeated, "")],
        ..condition("from-port", "The port it comes from.", "from-port \"1024-65535\"")
    },
    Key {
        arguments: &[slot("address", Kind::Text(&ADDRESSES), Repeated, "")],
        ..condition(
            "to",
            "The address of this machine that it came to. Values as of `from`.",
            "to \"192.0.2.1\" \"2001:db8::/64\"",
        )
    },
    Key {
        arguments: &[slot("port", Kind::Ports, Repeated, "")],
        ..condition("port", "The port it came to.", "port 443 \"8000-8999\"")
    },
    Key {
        arguments: &[slot("name", Kind::Text(&SITE_NAME), Repeated, "The first name of a site.")],
        ..condition("site", "The site that answers.", "site \"shop.example\"")
    },
    Key {
        arguments: &[slot("path", Kind::Text(&PATH_MATCH), Repeated, "")],
        ..condition(
            "path",
            "The path of the URL, without its query. `/x/*` is all that begins with `/x/`; a `*` \
         elsewhere stands for anything, `/` included; without one it is this path alone. Dots and \
         percent-encodings are resolved before paths are compared.",
            "path \"/search/*\" \"/*.php\" \"/login\"",
        )
    },
    Key {
        arguments: &[slot("name", Kind::Text(&METHOD), Repeated, "")],
        ..condition("method", "The method.", "method \"POST\" \"PUT\"")
    },
    Key {
        arguments: &[
            slot("name", Kind::Text(&FIELD_NAME), Required, ""),
            slot("value", Kind::Text(&FIELD_MATCH), AnyNumber(ANY), "Case counts."),
        ],
        properties: &[
            slot("exact", Kind::Text(&FIELD_EXACT), Optional(VALUES), ""),
            slot("absent", Kind::Switch, Default("#false"), ABSENT),
        ],
        ..condition(
            "header",
            "A field of the request's header. Lines of the same name are alternatives; all names must \
         be met. In `exact=` a `*` has no meaning.",
            r#"header "user-agent" "*BadBot*" "*WorseBot*"
header "accept" exact="*/*"
header "authorization" absent=#true"#,
        )
    },
    Key {
        arguments: &[
            slot("name", Kind::Text(&COOKIE_NAME), Required, ""),
            slot("value", Kind::Text(&COOKIE_MATCH), AnyNumber(ANY), "Case counts."),
        ],
        properties: &[
            slot("exact", Kind::Text(&COOKIE_EXACT), Optional(VALUES), ""),
            slot("absent", Kind::Switch, Default("#false"), ABSENT),
        ],
        ..condition(
            "cookie",
            "A cookie, likewise. Quotes around its value do not count.",
            "cookie \"tier\" \"gold\" \"silver\"",
        )
    },
    Key {
        arguments: &[
            slot("name", Kind::Text(&PARAMETER_NAME), Required, ""),
            slot("value", Kind::Text(&PARAMETER_MATCH), AnyNumber(ANY), "Case counts."),
        ],
        properties: &[
            slot("exact", Kind::Text(&PARAMETER_EXACT), Optional(VALUES), ""),
            slot("absent", Kind::Switch, Default("#false"), ABSENT),
        ],
        ..condition(
            "query",
            "A parameter of the URL's query, likewise. Names and values are compared as an application \
         reads them: `+` is a space, and percent-encodings are resolved.",
            "query \"format\" \"pdf\"",
        )
    },
    Key {
        arguments: &[slot("name", Kind::Text(&SERVER_NAME_MATCH), Repeated, "")],
        ..condition(
            "server-name",
            "The name that a TLS client asked for in its handshake. Connections without TLS have none.",
            "server-name \"api.shop.example\" \"*.cdn.example\"",
        )
    },
    Key {
        arguments: &[slot("type", Kind::Text(&MEDIA_RANGE), Repeated, "")],
        ..condition(
            "content-type",
            "The media type of the request's body, without its parameters.",
            "content-type \"multipart/form-data\" \"video/*\"",
        )
    },
    Key {
        arguments: &[slot("text", Kind::Text(&VERDICT), Repeated, "")],
        ..condition(
            "verdict",
            "What a plugin made of the request: its property `weir.guard.verdict`.",
            "verdict \"robot\"",
        )
    },
    Key {
        arguments: &[slot(
            "name",
            Kind::Text(&GUARD_NAME),
            Otherwise("a later rule, or else `default`, decides"),
            "",
        )],
        ..action(
            "class",
            "The class they get, unless a rule before gave them one.",
            "class \"gold\"",
        )
    },
    Key {
        arguments: &[slot(
            "count",
            Kind::Number { min: 1, max: COUNT_MAX },
            Otherwise("there is no limit"),
            "",
        )],
        properties: &[
            slot(
                "burst",
                Kind::Number { min: 1, max: COUNT_MAX },
                Optional("a tenth of the count, and at least 1"),
                "How many may come at once.",
            ),
            slot("per", Kind::Choice(&["second", "minute", "hour"]), Default("second"), ""),
        ],
        ..action(
            "rate",
            "How many requests, or connections, may come in a time; those beyond are refused. It \
             acts under overload only, unless there is an `always` line.",
            "rate 10 burst=5 per=\"minute\"",
        )
    },
    Key {
        arguments: &[slot(
            "count",
            Kind::Number { min: 1, max: COUNT_MAX },
            Otherwise("there is no limit"),
            "",
        )],
        ..action(
            "concurrency",
            "How many requests may be served at a time; those beyond are refused. It acts under \
             overload only, unless there is an `always` line.",
            "concurrency 20",
        )
    },
    Key {
        arguments: &[slot(
            "what",
            Kind::Text(&BUCKET_KEY),
            Default("rule"),
            "All whom the rule means together; each source address; each source prefix of so many \
             bits of IPv4 and IPv6 addresses; or each value of a header field or cookie. Requests \
             without that field or cookie are not limited by the rule.",
        )],
        ..action(
            "by",
            "For whom `rate` and `concurrency` count.",
            "by \"source/24,56\"\nrate 100\nconcurrency 5",
        )
    },
    Key {
        arguments: &[slot(
            "what",
            Kind::Choice(&["auto", "connections", "requests"]),
            Default("auto"),
            "With `\"auto\"`, connections where conditions and buckets need no more than addresses \
             and ports. With `\"connections\"` it is an error to need more.",
        )],
        ..action(
            "unit",
            "What the rule counts and refuses. New connections are refused before they cost \
             anything; requests get an answer.",
            "unit \"requests\"\nrate 300",
        )
    },
    action(
        "refuse",
        "All of them are refused. It acts under overload only, unless there is an `always` line.",
        "refuse",
    ),
    action("pass", "They pass: no rule after this one is looked at.", "pass"),
    action(
        "always",
        "`rate`, `concurrency` and `refuse` act at all times, not under overload only.",
        "always\nrefuse",
    ),
    action(
        "dry-run",
        "The rule is only tried. It matches, its buckets count, and it gives its class and lets \
         `pass` as it says; but what it would refuse is let through, counted as `dry-run` and \
         noted in the access log, and no penalty follows.",
        "dry-run\nrate 5\nby \"source\"",
    ),
    Key {
        arguments: &[slot(
            "status",
            Kind::StatusOr { word: "reset", codes: &[429, 503] },
            Otherwise("429 where buckets are for each source, prefix, header or cookie, else 503"),
            "A status is sent with `Retry-After`; a reset is the cheapest answer and ends the \
             connection (of HTTP/2: the stream).",
        )],
        ..action(
            "answer",
            "What refused requests get. Refused connections get none: they are dropped in the \
             kernel, or reset.",
            "answer \"reset\"\nconcurrency 20",
        )
    },
    Key {
        properties: &[
            slot("after", Kind::Number { min: 1, max: COUNT_MAX }, Required, "Refusals."),
            slot(
                "within",
                Kind::Time { min: 100, max: DAY },
                Required,
                "The time in which they happen.",
            ),
            slot(
                "lasts",
                Kind::Time { min: SECOND, max: DAY },
                Required,
                "How long new connections of that source are not let in.",
            ),
            slot(
                "by",
                Kind::Text(&SOURCE_KEY),
                Default("source/32,64"),
                "What a source is: an address, or a prefix of so many bits of IPv4 and IPv6 \
                 addresses. Whoever has a /64 of IPv6 has all addresses in it.",
            ),
        ],
        ..action(
            "penalty",
            "A source that this rule refuses so often is kept out for a while.",
            "penalty after=20 within=\"10s\" lasts=\"1m\"\nrate 5\nby \"source\"\nunit \"requests\"",
        )
    },
];
