//! Keys of the blocks `html` and `ads` of routes.

use crate::rules::PATH;
use crate::rules::html::{ATTRIBUTE, HOST_FROM, HOST_TO, MARKUP, PARAMETER, SELECTOR, VALUE};
use crate::table::Presence::{Optional, Repeated, Required, Within};
use crate::table::{Block, Key, Slot, key, slot};
use crate::value::Kind;

use super::MINUTE;

const WHICH: Slot = slot("selector", Kind::Text(&SELECTOR), Required, "Which elements.");
const TEXT: Slot = slot(
    "html",
    Kind::Text(&MARKUP),
    Required,
    "`{nonce}` stands for the nonce of the response's Content-Security-Policy.",
);
const NAME: Slot = slot("attribute", Kind::Text(&ATTRIBUTE), Required, "");
const GIVEN: Slot = slot("value", Kind::Text(&VALUE), Required, "");
const FROM: Slot = slot("from", Kind::Text(&HOST_FROM), Required, "");
const TO: Slot =
    slot("to", Kind::Text(&HOST_TO), Required, "With `\"\"` URLs have neither scheme nor host.");
const WAIT: Slot = slot(
    "wait",
    Kind::Time { min: 0, max: MINUTE },
    Within("0s"),
    "How long a request may wait for its variant to be made. After that it gets the original, or \
     what `stream` makes of it.",
);
const STREAM: Slot = slot(
    "stream",
    Kind::Switch,
    Within("#true"),
    "Change pages also as they are sent: those that are not stored, and those that no helper has \
     changed yet.",
);

pub(crate) const HTML: &[Key] = &[
    Key {
        block: Block::Route,
        name: "html",
        arguments: &[],
        properties: &[WAIT, STREAM],
        children: Some(Block::Html),
        repeats: false,
        doc: "Change the HTML pages that `files` and `proxy` answer. What is stored is changed by a \
              helper, once for all; until that is done, and where nothing is stored, pages are \
              changed as they are sent.",
        example: "html wait=\"100ms\" {\n    remove \"div.banner\"\n    lazy skip=2\n}",
    },
    texts("before", "Put a text before elements.", "before \"main\" \"<p>Closed on Monday.</p>\""),
    texts("after", "Put a text behind elements.", "after \"h1\" \"<hr>\""),
    texts(
        "prepend",
        "Put a text before what is in elements.",
        "prepend \"body\" \"<p>A copy.</p>\"",
    ),
    texts(
        "append",
        "Put a text behind what is in elements. Those without an end tag get none.",
        "append \"head\" \"<script src=\\\"/stats.js\\\" nonce=\\\"{nonce}\\\"></script>\"",
    ),
    texts("replace", "Put a text in the place of elements.", "replace \"#clock\" \"<p>Now.</p>\""),
    texts(
        "content",
        "Put a text in the place of what is in elements.",
        "content \"title\" \"Shop\"",
    ),
    line("remove", &[WHICH], "Take elements out.", "remove \"script[src*='tracker']\""),
    line("unwrap", &[WHICH], "Take elements out, and leave what is in them.", "unwrap \"font\""),
    line(
        "set",
        &[WHICH, NAME, GIVEN],
        "Give elements an attribute, whatever its value was.",
        "set \"a[target='_blank']\" \"rel\" \"noopener\"",
    ),
    line(
        "unset",
        &[WHICH, NAME],
        "Take an attribute from elements.",
        "unset \"[onclick]\" \"onclick\"",
    ),
    line(
        "host",
        &[FROM, TO],
        "Write another host in the URLs of pages: in `href`, `src`, `srcset`, `action` and their \
         like, not in scripts, styles and text.",
        "host \"10.0.0.5:8080\" \"https://shop.example\"",
    ),
    Key {
        properties: &[slot(
            "skip",
            Kind::Number { min: 0, max: 1000 },
            Within("0"),
            "So many at the beginning of a page, which are seen at once, are left as they are.",
        )],
        repeats: false,
        ..line(
            "lazy",
            &[],
            "Give images `loading=\"lazy\"`: browsers load them when they come into view.",
            "lazy skip=2",
        )
    },
    Key {
        properties: &[
            slot(
                "parameter",
                Kind::Text(&PARAMETER),
                Within("width"),
                "What in an image's query says how wide it shall be.",
            ),
            slot(
                "sizes",
                Kind::Text(&VALUE),
                Optional("images with a `width` or with `sizes` alone get `srcset`"),
                "How wide an image is shown that has no `width` and no `sizes`: without any of these, it \
                 would be shown as wide as the window.",
            ),
        ],
        repeats: false,
        ..line(
            "srcset",
            &[slot("width", Kind::Number { min: 1, max: 16_384 }, Repeated, "In pixels.")],
            "Give the site's own images `srcset`, so that browsers choose the width that they need.",
            "srcset 320 640 1280 sizes=\"(min-width: 60em) 50vw, 100vw\"",
        )
    },
    Key {
        repeats: false,
        ..line(
            "strip",
            &[slot("what", Kind::Choice(&["comments", "space"]), Repeated, "")],
            "Leave out comments, or white space beyond what separates words.",
            "strip \"comments\" \"space\"",
        )
    },
    Key {
        block: Block::Route,
        name: "ads",
        arguments: &[],
        properties: &[
            slot(
                "block",
                Kind::Switch,
                Within("#true"),
                "Answer requests that the lists block with something empty of their type, or with \
                 what the lists say instead.",
            ),
            slot("hide", Kind::Switch, Within("#true"), "Take out of pages what the lists hide."),
            WAIT,
            STREAM,
        ],
        children: Some(Block::Ads),
        repeats: false,
        doc: "Block ads and trackers, and take them out of pages, by lists in the usual syntax.",
        example: "ads {\n    lists \"easylist.txt\" \"own.txt\"\n}",
    },
    Key {
        block: Block::Ads,
        name: "lists",
        arguments: &[slot("file", Kind::Text(&PATH), Repeated, "")],
        properties: &[],
        children: None,
        repeats: false,
        doc: "Files of rules. They are read at the start and at each reload.",
        example: "lists \"easylist.txt\" \"/etc/weir/own.txt\"",
    },
];

/// A line of the `html` block that puts a text somewhere.
const fn texts(name: &'static str, doc: &'static str, example: &'static str) -> Key {
    line(name, &[WHICH, TEXT], doc, example)
}

/// A line of the `html` block.
const fn line(
    name: &'static str,
    arguments: &'static [Slot],
    doc: &'static str,
    example: &'static str,
) -> Key {
    Key { arguments, repeats: true, ..key(Block::Html, name, doc, example) }
}
