//! Keys of the block `image` of routes, and of what pictures may cost.

use crate::limits::IMAGE_SIDE_MAX;
use crate::rules::PATH;
use crate::rules::image::IMAGE_FORMATS;
use crate::table::Presence::{Default, Optional, Repeated, Required, Within};
use crate::table::{Block, Key, Slot, key, slot};
use crate::value::Kind;

use super::{GIB, KIB, MINUTE};

const SIDE: Kind = Kind::Number { min: 1, max: IMAGE_SIDE_MAX as u64 };
const QUALITY: Kind = Kind::Number { min: 1, max: 100 };

pub(crate) const IMAGE: &[Key] = &[
    Key {
        arguments: &[],
        properties: &[
            slot(
                "formats",
                Kind::Text(&IMAGE_FORMATS),
                Within("avif,webp"),
                "Of those that a client takes, the first that suits the picture is made. Clients \
                 that take none get the format of the original.",
            ),
            slot("max-width", SIDE, Optional("as wide as the original"), "In pixels."),
            slot("max-height", SIDE, Optional("as high as the original"), "In pixels."),
            slot(
                "fit",
                Kind::Choice(&["inside", "cover", "fill"]),
                Within("inside"),
                "Where both are given: `\"inside\"` keeps the whole picture, `\"cover\"` fills them \
                 and cuts off what is too much, `\"fill\"` stretches it.",
            ),
            slot("grey", Kind::Switch, Within("#false"), "Without colours."),
            slot(
                "animation",
                Kind::Choice(&["keep", "first"]),
                Within("keep"),
                "Pictures that move become WebP that moves, or their first frame.",
            ),
            slot(
                "wait",
                Kind::Time { min: 0, max: MINUTE },
                Within("0s"),
                "How long a request may wait for its variant to be made. After that it gets the \
                 original.",
            ),
        ],
        children: Some(Block::Image),
        block: Block::Route,
        ..line(
            "image",
            &[],
            "Send the pictures that `files` and `proxy` answer in the format, size and quality that \
             fit the client. What is stored is made into another picture by a helper, once for all \
             who want the same; until that is done the original is sent, and for good where it is \
             the smallest.",
            "image max-width=1200 formats=\"avif,webp\" {\n    quality avif=60\n}",
        )
    },
    line(
        "quality",
        &[
            slot("avif", QUALITY, Default("65"), "As rav1e understands it."),
            slot("webp", QUALITY, Default("80"), "As libwebp understands it."),
            slot("jpeg", QUALITY, Default("80"), "As libjpeg understands it."),
        ],
        "How good pictures are, from 1 to 100. The same number is not the same quality in another \
         format. PNG loses nothing, nor do drawings of up to 256 colours as WebP.",
        "quality avif=55 webp=70 jpeg=75",
    ),
    Key {
        arguments: &[slot(
            "score",
            Kind::Number { min: 1, max: 100 },
            Required,
            "By SSIMULACRA2: 90 is hard to tell from the original, 70 good, 50 fair.",
        )],
        ..line(
            "target",
            &[],
            "Find for each picture the lowest quality, up to that of `quality`, at which it looks \
             so much like the original. It takes up to seven times as long.",
            "target 75",
        )
    },
    line(
        "save-data",
        &[slot("less", Kind::Number { min: 0, max: 99 }, Within("20"), "Points of quality.")],
        "Look at `Save-Data`: who sends `on` gets so much less quality, and no more pixels for a \
         screen that has more.",
        "save-data less=30",
    ),
    line(
        "dpr",
        &[slot(
            "max",
            Kind::Number { min: 1, max: 4 },
            Within("2"),
            "Screens with more get as much as this.",
        )],
        "Look at `Sec-CH-DPR` and `DPR`, by which a client says how many pixels of its screen there \
         are to one of a page: `max-width` and `max-height` are those of a page then. It is taken \
         for 1, 1.5, 2, 3 or 4.",
        "dpr max=3",
    ),
    line(
        "width-hint",
        &[],
        "Look at `Sec-CH-Width` and `Width`, by which a client says how many pixels of its screen a \
         picture is shown in: it becomes no wider than that, taken for the next larger of 160, \
         320, 480, 640, 960, 1280, 1920, 2560 and 3840.",
        "width-hint",
    ),
    Key {
        arguments: &[slot("width", SIDE, Repeated, "In pixels.")],
        ..line(
            "widths",
            &[],
            "What `query \"listed\"` may ask for.",
            "widths 320 640 1280\nquery \"listed\"",
        )
    },
    Key {
        arguments: &[slot(
            "which",
            Kind::Choice(&["listed", "signed"]),
            Required,
            "`\"listed\"`: `width` of `widths`, and `format` of `formats`. `\"signed\"`: `width`, \
             `height`, `fit`, `format`, `quality`, `target`, `grey` and `animation`, where \
             `signature` is their last parameter.",
        )],
        properties: &[
            slot(
                "key",
                Kind::Text(&PATH),
                Optional("none"),
                "The file that has the key of signatures, of 16 to 1024 bytes.",
            ),
            slot(
                "otherwise",
                Kind::Choice(&["refuse", "ignore"]),
                Within("refuse"),
                "What is neither is answered by 400, and 403 without a good signature; or the \
                 route's settings hold.",
            ),
        ],
        ..line(
            "query",
            &[],
            "Let the query of a URL say what it wants of a picture. Nothing of that is part of what \
             is stored, and the origin is not asked for it.",
            "widths 320 640\nquery \"listed\" otherwise=\"ignore\"",
        )
    },
    Key {
        block: Block::Adapt,
        ..line(
            "image",
            &[
                slot(
                    "source-bytes",
                    Kind::Size { min: KIB, max: GIB },
                    Default("32MiB"),
                    "Of the original.",
                ),
                slot(
                    "pixels",
                    Kind::Number { min: 1, max: 1_000_000_000 },
                    Default("50000000"),
                    "Of a frame.",
                ),
                slot(
                    "side",
                    Kind::Number { min: 1, max: 65_535 },
                    Default("16384"),
                    "The longer one, in pixels.",
                ),
                slot(
                    "frames",
                    Kind::Number { min: 1, max: 100_000 },
                    Default("1000"),
                    "Of an animation.",
                ),
                slot(
                    "decoded",
                    Kind::Size { min: KIB, max: 64 * GIB },
                    Default("512MiB"),
                    "What all frames come to, at four bytes a pixel; at most what `memory` says.",
                ),
            ],
            "What pictures may cost, judged by their headers before memory is taken. Of those beyond \
             it the original is sent.",
            "image pixels=100000000 frames=200",
        )
    },
];

/// A line of the `image` block.
const fn line(
    name: &'static str,
    properties: &'static [Slot],
    doc: &'static str,
    example: &'static str,
) -> Key {
    Key { properties, ..key(Block::Image, name, doc, example) }
}
