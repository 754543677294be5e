//! Any `adapt` block that a file could make, and whatever routes adapt.

use std::path::PathBuf;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::subsequence;
use weir_config::limits::IMAGE_SIDE_MAX;
use weir_config::*;

use super::time;

pub(crate) fn adapt() -> impl Strategy<Value = Adapt> {
    let memory = (64_u64 << 20..=64 << 30, 64_u64 << 10..=64 << 20);
    let numbers = (option::of(0_usize..=256), 1_usize..=100_000, 0_usize..=100_000);
    let cgroup = option::of("(/[a-z.]{1,9}x){1,3}".prop_map(PathBuf::from));
    let run = (time(100, 600_000), any::<bool>(), cgroup);
    let adapt = (numbers, memory, run, image_limits()).prop_map(
        |((helpers, queue, streams), (memory, output), (time, idle, cgroup), image)| Adapt {
            helpers,
            queue,
            streams,
            memory,
            output,
            time,
            priority: if idle { AdaptPriority::Idle } else { AdaptPriority::Normal },
            cgroup,
            image,
        },
    );
    prop_oneof![1 => Just(Adapt::default()), 4 => adapt]
}

pub(crate) fn route() -> impl Strategy<Value = RouteAdapt> {
    (option::of(compress()), option::of(html()), option::of(ads()), option::of(image()))
        .prop_map(|(compress, html, ads, image)| RouteAdapt { compress, html, ads, image })
}

fn image_limits() -> impl Strategy<Value = ImageLimits> {
    let sizes = (1_u64 << 10..=1 << 30, 1_u64 << 10..=64 << 20);
    (sizes, 1_u64..=1_000_000_000, 1_u32..=65_535, 1_u32..=100_000).prop_map(
        |((source_bytes, decoded), pixels, side, frames)| ImageLimits {
            source_bytes,
            pixels,
            side,
            frames,
            decoded,
        },
    )
}

fn image() -> impl Strategy<Value = Image> {
    let formats = subsequence(&ImageFormat::ALL[..], 1..=4).prop_shuffle();
    let sides = prop_oneof![
        Just((None, None, ImageFit::Inside)),
        (1..=IMAGE_SIDE_MAX).prop_map(|width| (Some(width), None, ImageFit::Inside)),
        (1..=IMAGE_SIDE_MAX, 1..=IMAGE_SIDE_MAX, proptest::sample::select(&ImageFit::ALL[..]))
            .prop_map(|(width, height, fit)| (Some(width), Some(height), fit)),
    ];
    let quality = (1_u8..=100, 1_u8..=100, 1_u8..=100)
        .prop_map(|(avif, webp, jpeg)| ImageQuality { avif, webp, jpeg });
    let hints = (option::of(1_u8..=100), option::of(0_u8..=99), option::of(1_u8..=4));
    let widths = proptest::collection::btree_set(1..=IMAGE_SIDE_MAX, 1..4)
        .prop_map(|widths| ImageQueryBy::Listed { widths: widths.into_iter().collect() });
    let key = "/[a-z]{1,5}".prop_map(|key| ImageQueryBy::Signed { key: key.into() });
    let query = (prop_oneof![widths, key], any::<bool>())
        .prop_map(|(by, refuses)| ImageQuery { by, refuses });
    let rest = (any::<(bool, bool, bool)>(), time(0, 60_000), option::of(query));
    (formats, sides, quality, hints, rest).prop_map(
        |(formats, (max_width, max_height, fit), quality, hints, rest)| Image {
            formats,
            max_width,
            max_height,
            fit,
            grey: rest.0.0,
            still: rest.0.1,
            quality,
            target: hints.0,
            save_data: hints.1,
            dpr: hints.2.filter(|_| max_width.is_some()),
            width_hint: rest.0.2,
            query: rest.2,
            wait: rest.1,
        },
    )
}

fn html() -> impl Strategy<Value = Html> {
    let host = ("[a-z]{1,4}[.]example", prop_oneof!["", "[a-z]{1,4}[.]test", "https://[a-z]{1,4}"]);
    let hosts = proptest::collection::btree_map(host.0, host.1, 0..3).prop_map(|hosts| {
        let hosts = hosts.into_iter().map(|(from, to)| HtmlHost { from, to });
        hosts.collect::<Vec<_>>()
    });
    let widths = proptest::collection::btree_set(1_u32..=16_384, 1..4);
    let srcset =
        (widths, "[a-z]{1,4}", option::of("[ -~]{0,9}")).prop_map(|(widths, parameter, sizes)| {
            Srcset { widths: widths.into_iter().collect(), parameter, sizes }
        });
    let rules = proptest::collection::vec(html_rule(), 1..5);
    let images = (option::of(0_u32..=1000), option::of(srcset));
    (rules, hosts, images, any::<(bool, bool, bool)>(), time(0, 60_000)).prop_map(
        |(rules, hosts, (lazy_after, srcset), (strip_comments, strip_space, stream), wait)| Html {
            rules,
            hosts,
            lazy_after,
            srcset,
            strip_comments,
            strip_space,
            wait,
            stream,
        },
    )
}

fn html_rule() -> impl Strategy<Value = HtmlRule> {
    const SELECTORS: &[&str] = &["p", "#a > .b", "div:not([x='y z'])", "a[href^=\"/\"]", "*"];
    let selector = proptest::sample::select(SELECTORS).prop_map(str::to_owned);
    let text = || "[ -~äß\n]{0,9}";
    let action = prop_oneof![
        text().prop_map(HtmlAction::Before),
        text().prop_map(HtmlAction::After),
        text().prop_map(HtmlAction::Prepend),
        text().prop_map(HtmlAction::Append),
        text().prop_map(HtmlAction::Replace),
        text().prop_map(HtmlAction::Content),
        Just(HtmlAction::Remove),
        Just(HtmlAction::Unwrap),
        ("[a-z-]{1,5}", text()).prop_map(|(name, value)| HtmlAction::Set(name, value)),
        "[a-z-]{1,5}".prop_map(HtmlAction::Unset),
    ];
    (selector, action).prop_map(|(selector, action)| HtmlRule { selector, action })
}

fn ads() -> impl Strategy<Value = Ads> {
    let lists = proptest::collection::btree_set("/[a-z]{1,5}", 1..4);
    let does = prop_oneof![Just((true, true)), Just((true, false)), Just((false, true))];
    let all = (lists, does, any::<bool>(), time(0, 60_000));
    all.prop_map(|(lists, (block, hide), stream, wait)| Ads {
        lists: lists.into_iter().map(Into::into).collect(),
        block,
        hide,
        wait,
        stream,
    })
}

fn compress() -> impl Strategy<Value = Compress> {
    let formats = subsequence(&Coding::ALL[..], 1..=3).prop_shuffle();
    let formats = formats.prop_flat_map(|codings| {
        let formats: Vec<_> = codings.into_iter().map(format).collect();
        formats
    });
    let rest = (0_u64..=1 << 30, time(0, 60_000), any::<bool>());
    (formats, types(), rest).prop_map(|(formats, types, (min_size, wait, stream))| Compress {
        stream,
        formats,
        types,
        min_size,
        wait,
    })
}

fn format(coding: Coding) -> impl Strategy<Value = CompressFormat> {
    let (least, most) = coding.levels();
    let own =
        (least..=most).prop_map(move |level| CompressFormat { coding, level, level_large: level });
    prop_oneof![Just(CompressFormat::new(coding)), own]
}

fn types() -> impl Strategy<Value = MediaTypes> {
    let name =
        prop_oneof!["[a-z]{1,4}/[a-z.+-]{1,6}", "[a-z]{1,4}/[a-z]{0,3}[*]", "[*][+][a-z]{1,4}"];
    let own = proptest::collection::btree_set(name, 1..5);
    let own = own.prop_map(|names| MediaTypes(names.into_iter().collect()));
    prop_oneof![Just(MediaTypes::default()), own]
}
