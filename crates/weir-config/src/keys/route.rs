//! Keys of the `route` block and of the blocks inside it.

use crate::rules::plugin::PLUGIN_NAME;
use crate::rules::{
    BODY, FILE_NAME, HEADER_NAME, HEADER_VALUE, LOCATION, MEDIA_TYPE, PATH, PATH_PREFIX,
};
use crate::table::Presence::{Default, Optional, Repeated, Required};
use crate::table::{Block, Key, slot};
use crate::url::{HOST_HEADER, PROXY_TARGET};
use crate::value::Kind;

use super::{DAY, MIB, MINUTE, TIB};

const YEAR: u64 = 365 * DAY;

pub(crate) const ROUTE: &[Key] = &[
    Key {
        block: Block::Route,
        name: "files",
        arguments: &[slot(
            "root",
            Kind::Text(&PATH),
            Required,
            "The directory. Nothing outside it is ever served.",
        )],
        properties: &[
            slot(
                "listing",
                Kind::Switch,
                Default("#false"),
                "List directories that have no index file.",
            ),
            slot(
                "precompressed",
                Kind::Switch,
                Default("#true"),
                "Send `x.br`, `x.zst` or `x.gz` in place of `x` to clients that accept it.",
            ),
            slot(
                "strip-prefix",
                Kind::Switch,
                Default("#false"),
                "Take the route's beginning off the path before looking for the file.",
            ),
            slot(
                "cache-control",
                Kind::Text(&HEADER_VALUE),
                Optional("none is sent"),
                "`Cache-Control` sent with the files.",
            ),
        ],
        children: Some(Block::Files),
        repeats: false,
        doc: "Answer with the files of a directory.",
        example: "files \"/srv/www\" cache-control=\"public, max-age=3600\" {\n    index \"index.html\" \"index.htm\"\n}",
    },
    Key {
        block: Block::Files,
        name: "index",
        arguments: &[slot("name", Kind::Text(&FILE_NAME), Repeated, "")],
        properties: &[],
        children: None,
        repeats: false,
        doc: "Names tried for a directory, in order. Without this line: `\"index.html\"`.",
        example: "index \"index.html\" \"index.htm\"",
    },
    Key {
        block: Block::Route,
        name: "proxy",
        arguments: &[slot(
            "target",
            Kind::Text(&PROXY_TARGET),
            Required,
            "An upstream's name, or a server's URL. The URL's path is put before the request's.",
        )],
        properties: &[
            slot(
                "strip-prefix",
                Kind::Switch,
                Default("#false"),
                "Take the route's beginning off the path.",
            ),
            slot(
                "path-prefix",
                Kind::Text(&PATH_PREFIX),
                Optional("nothing"),
                "Path put before the request's, where the target is an upstream's name.",
            ),
            slot(
                "host",
                Kind::Text(&HOST_HEADER),
                Default("client"),
                "The `Host` sent: the client's own, that of the upstream server's URL, or this one.",
            ),
        ],
        children: None,
        repeats: false,
        doc: "Answer with what an origin server answers.",
        example: "proxy \"http://10.0.0.5:8080/shop\" strip-prefix=#true host=\"upstream\"",
    },
    Key {
        block: Block::Route,
        name: "redirect",
        arguments: &[slot(
            "location",
            Kind::Text(&LOCATION),
            Required,
            "Where to. `{path}`, `{query}`, `{host}` and `{uri}` (path and query) are filled in.",
        )],
        properties: &[slot(
            "status",
            Kind::Status(&[301, 302, 303, 307, 308]),
            Default("302"),
            "Browsers remember 301 and 308.",
        )],
        children: None,
        repeats: false,
        doc: "Answer with a redirect.",
        example: "redirect \"https://shop.example{uri}\" status=308",
    },
    Key {
        block: Block::Route,
        name: "respond",
        arguments: &[slot("body", Kind::Text(&BODY), Required, "Sent as it is; may be `\"\"`.")],
        properties: &[
            slot("status", Kind::Number { min: 200, max: 599 }, Default("200"), ""),
            slot(
                "content-type",
                Kind::Text(&MEDIA_TYPE),
                Default("text/plain; charset=utf-8"),
                "Media type of the body.",
            ),
        ],
        children: None,
        repeats: false,
        doc: "Answer with a fixed text.",
        example: "respond \"Back at noon.\" status=503",
    },
    Key {
        block: Block::Route,
        name: "cache",
        arguments: &[slot(
            "off",
            Kind::Choice(&["off"]),
            Optional("the cache is used"),
            "Look nothing up and store nothing.",
        )],
        properties: &[
            slot(
                "ttl",
                Kind::Time { min: 0, max: YEAR },
                Optional("the origin decides"),
                "Freshness lifetime, in place of the one the origin gives.",
            ),
            slot(
                "default-ttl",
                Kind::Time { min: 0, max: YEAR },
                Optional("the heuristic of RFC 9111"),
                "Freshness lifetime of responses for which the origin gives none.",
            ),
            slot(
                "stale-while-revalidate",
                Kind::Time { min: 0, max: YEAR },
                Optional("only where the origin allows it"),
                "How long after its lifetime a response may be sent while a fresh one is fetched.",
            ),
            slot(
                "stale-if-error",
                Kind::Time { min: 0, max: YEAR },
                Optional("only where the origin allows it"),
                "How long after its lifetime a response may be sent when the origin fails.",
            ),
            slot(
                "collapse-timeout",
                Kind::Time { min: 0, max: 10 * MINUTE },
                Default("5s"),
                "How long a request waits for another's fill of the same object.",
            ),
        ],
        children: None,
        repeats: false,
        doc: "How the responses of `files` and `proxy` are cached. Without this line the cache is \
              used, and what the origin says holds.",
        example: "cache ttl=\"10m\" stale-if-error=\"1d\"",
    },
    Key {
        block: Block::Route,
        name: "header",
        arguments: &[],
        properties: &[],
        children: Some(Block::Header),
        repeats: false,
        doc: "Edits of the response's header, in order.",
        example: "header {\n    set \"X-Frame-Options\" \"DENY\"\n    remove \"Server\"\n}",
    },
    Key {
        block: Block::Route,
        name: "request-header",
        arguments: &[],
        properties: &[],
        children: Some(Block::Header),
        repeats: false,
        doc: "Edits of the header sent to the origin, in order. For `proxy` only.",
        example: "request-header { set \"X-Site\" \"shop\" }",
    },
    Key {
        block: Block::Header,
        name: "set",
        arguments: &[
            slot("name", Kind::Text(&HEADER_NAME), Required, ""),
            slot("value", Kind::Text(&HEADER_VALUE), Required, ""),
        ],
        properties: &[],
        children: None,
        repeats: true,
        doc: "Give a field this value, whatever it had.",
        example: "set \"X-Frame-Options\" \"DENY\"",
    },
    Key {
        block: Block::Header,
        name: "add",
        arguments: &[
            slot("name", Kind::Text(&HEADER_NAME), Required, ""),
            slot("value", Kind::Text(&HEADER_VALUE), Required, ""),
        ],
        properties: &[],
        children: None,
        repeats: true,
        doc: "Give a field one more value.",
        example: "add \"Vary\" \"Accept-Language\"",
    },
    Key {
        block: Block::Header,
        name: "remove",
        arguments: &[slot("name", Kind::Text(&HEADER_NAME), Required, "")],
        properties: &[],
        children: None,
        repeats: true,
        doc: "Remove a field.",
        example: "remove \"X-Powered-By\"",
    },
    Key {
        block: Block::Route,
        name: "limits",
        arguments: &[],
        properties: &[
            slot(
                "body-size",
                Kind::Size { min: 0, max: TIB },
                Optional("the server's limit"),
                "How large the body of a request may be.",
            ),
            slot(
                "body-buffer",
                Kind::Size { min: 0, max: 16 * MIB },
                Optional("the server's"),
                "How much of it is gathered before an upstream is asked.",
            ),
            slot(
                "body-min-rate",
                Kind::Size { min: 0, max: 1024 * MIB },
                Optional("the server's"),
                "How fast it must come, in a second, while an upstream waits for it.",
            ),
        ],
        children: None,
        repeats: false,
        doc: "Limits of this route, in place of the server's.",
        example: "limits body-size=\"1GiB\"",
    },
    Key {
        block: Block::Route,
        name: "use",
        arguments: &[slot(
            "plugin",
            Kind::Text(&PLUGIN_NAME),
            Required,
            "The name of a `plugin` block, or of a plugin deployed at run time.",
        )],
        properties: &[slot(
            "at",
            Kind::Choice(&["delivery", "fill"]),
            Default("delivery"),
            "Where it sees responses: every one on the way to its client, or, with `\"fill\"`, \
             once what `files` or `proxy` answers, before it is stored.",
        )],
        children: None,
        repeats: true,
        doc: "Have a plugin see the route's requests and responses. Several do so in the order of \
              their lines.",
        example: "use \"token-check\"\nuse \"gray\" at=\"fill\"",
    },
];
