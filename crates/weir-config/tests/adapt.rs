//! What configurations of adaptation mean: every setting, and what is left to Weir.

#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

use std::time::Duration;

use weir_config::*;

fn parse_ok(text: &str) -> Config {
    parse("weir.kdl", text).unwrap_or_else(|errors| panic!("{errors}\n\nin:\n{text}"))
}

/// A configuration with an `adapt` block, and a route with lines.
fn with(adapt: &str, route: &str) -> Config {
    let site =
        format!("site \"*\" {{ listen \":80\"; route \"/*\" {{ files \"srv\"\n{route}\n}}; }}");
    parse_ok(&format!("{adapt}\n{site}"))
}

fn compress(line: &str) -> Option<Compress> {
    with("", line).sites[0].routes[0].adapt.compress.clone()
}

fn format(coding: Coding, level: u32, level_large: u32) -> CompressFormat {
    CompressFormat { coding, level, level_large }
}

#[test]
fn every_setting_of_the_block() {
    let text =
        "adapt { helpers 3; queue 7; streams 5; memory \"128MiB\"; time \"2s\"; output \"1MiB\"
                priority \"normal\"; cgroup \"/sys/fs/cgroup/a\"
                image source-bytes=\"1MiB\" pixels=9 side=8 frames=7 decoded=\"2MiB\"; }";
    let expected = Adapt {
        helpers: Some(3),
        queue: 7,
        streams: 5,
        memory: 128 << 20,
        output: 1 << 20,
        time: Duration::from_secs(2),
        priority: AdaptPriority::Normal,
        cgroup: Some("/sys/fs/cgroup/a".into()),
        image: ImageLimits {
            source_bytes: 1 << 20,
            pixels: 9,
            side: 8,
            frames: 7,
            decoded: 2 << 20,
        },
    };
    assert_eq!(with(text, "").adapt, expected);
    assert_eq!(with("adapt { helpers 0; }", "compress").adapt.helpers, Some(0));
    let defaults = "adapt { helpers \"auto\"; priority \"idle\"; }";
    for text in ["", "adapt { }", defaults] {
        assert_eq!(with(text, "").adapt, Adapt::default(), "{text}");
    }
}

#[test]
fn every_setting_of_compress() {
    let line = "compress \"gzip:1\" \"br\" min-size=\"2KiB\" wait=\"50ms\" stream=#false {
                    types \"Text/HTML\" \"*+json\" \"image/*\"
                }";
    let types = ["text/html", "*+json", "image/*"].map(str::to_owned).to_vec();
    let expected = Compress {
        formats: vec![format(Coding::Gzip, 1, 1), format(Coding::Brotli, 11, 9)],
        types: MediaTypes(types),
        min_size: 2048,
        wait: Duration::from_millis(50),
        stream: false,
    };
    assert_eq!(compress(line), Some(expected));
    assert_eq!(compress(""), None);
    for line in [
        "compress",
        "compress { }",
        "compress strength=\"strongest\"",
        "compress \"br\" \"zstd\" \"gzip\"",
    ] {
        assert_eq!(compress(line), Some(Compress::default()), "{line}");
    }
}

#[test]
fn the_strength_is_of_formats_without_a_level() {
    let formats = |line: &str| compress(line).unwrap().formats;
    let check = |line: &str, levels: [(u32, u32); 3]| {
        let levels = Coding::ALL.iter().zip(levels);
        let expected: Vec<_> = levels.map(|(coding, (a, b))| format(*coding, a, b)).collect();
        assert_eq!(formats(line), expected, "{line}");
    };
    check("compress", [(11, 9), (19, 12), (9, 9)]);
    check("compress strength=\"balanced\"", [(6, 6), (9, 9), (6, 6)]);
    check("compress \"br\" \"zstd:22\" \"gzip\" strength=\"quick\"", [(4, 4), (22, 22), (4, 4)]);
    // The least level of each.
    check("compress \"br:0\" \"zstd:1\" \"gzip:1\"", [(0, 0), (1, 1), (1, 1)]);
}

#[test]
fn what_is_printed_shows_what_was_chosen() {
    let shown = |line: &str| {
        let text = print(&with("", line));
        let line = text.lines().find(|line| line.contains("compress")).map(str::trim);
        line.map(str::to_owned)
    };
    assert_eq!(shown("").as_deref(), None);
    assert_eq!(shown("compress strength=\"strongest\"").as_deref(), Some("compress"));
    assert_eq!(
        shown("compress \"gzip\" \"br\" strength=\"quick\"").as_deref(),
        Some("compress \"gzip:4\" \"br:4\"")
    );
    assert_eq!(
        shown("compress \"gzip\" wait=\"1s\" { types \"text/*\"; }").as_deref(),
        Some("compress \"gzip\" wait=\"1s\" {")
    );
    assert!(!print(&with("adapt { }", "")).contains("adapt"));
    assert!(print(&with("adapt { queue 9; }", "")).contains("\n    queue 9\n"));
}

#[test]
fn every_setting_of_html() {
    let line = r##"html wait="1s" {
        append "head" "<script src=\"/a.js\"></script>"
        before "a" "1"; after "b" "2"; prepend "c" "3"; replace "d" "4"; content "e" "5"
        remove "p:not(.x) > [href^='http']"; unwrap "font"
        set "a" "REL" "noopener"; unset "[onclick]" "onclick"
        host "Old.example:80" "https://new.example"; host "10.0.0.5" ""
        lazy skip=2
        srcset 640 320 parameter="w" sizes="50vw"
        strip "space" "comments"
    }"##;
    let config = with("", line);
    let html = config.sites[0].routes[0].adapt.html.clone().unwrap();
    assert_eq!((html.wait, html.stream), (Duration::from_secs(1), true));
    let actions: Vec<_> = html.rules.iter().map(|rule| (&*rule.selector, &rule.action)).collect();
    let text = |text: &str| text.to_owned();
    let expected = [
        ("head", HtmlAction::Append(text("<script src=\"/a.js\"></script>"))),
        ("a", HtmlAction::Before(text("1"))),
        ("b", HtmlAction::After(text("2"))),
        ("c", HtmlAction::Prepend(text("3"))),
        ("d", HtmlAction::Replace(text("4"))),
        ("e", HtmlAction::Content(text("5"))),
        ("p:not(.x) > [href^='http']", HtmlAction::Remove),
        ("font", HtmlAction::Unwrap),
        ("a", HtmlAction::Set(text("rel"), text("noopener"))),
        ("[onclick]", HtmlAction::Unset(text("onclick"))),
    ];
    assert_eq!(actions, expected.each_ref().map(|(selector, action)| (*selector, action)));
    let hosts: Vec<_> = html.hosts.iter().map(|host| (&*host.from, &*host.to)).collect();
    assert_eq!(hosts, [("old.example:80", "https://new.example"), ("10.0.0.5", "")]);
    assert_eq!(html.lazy_after, Some(2));
    let srcset = Srcset { widths: vec![320, 640], parameter: text("w"), sizes: Some(text("50vw")) };
    assert_eq!(html.srcset, Some(srcset));
    assert!(html.strip_comments && html.strip_space);
    assert_eq!(parse_ok(&print(&config)), config);
    // The lines alone, as the command line has them.
    assert_eq!(parse_html("a.kdl", "strip \"comments\"").unwrap().rules, []);
    let error = parse_html("a.kdl", "remove \"a + b\"").unwrap_err().to_string();
    assert!(error.starts_with("a.kdl:1:8: `remove` cannot be \"a + b\""), "{error}");
}

#[test]
fn every_setting_of_ads() {
    let config = with("", "ads wait=\"1s\" stream=#false { lists \"/a.txt\" \"/b.txt\"; }");
    let expected = Ads {
        lists: vec!["/a.txt".into(), "/b.txt".into()],
        block: true,
        hide: true,
        wait: Duration::from_secs(1),
        stream: false,
    };
    assert_eq!(config.sites[0].routes[0].adapt.ads, Some(expected));
    for line in ["ads block=#false { lists \"/a\"; }", "ads hide=#false { lists \"/a\"; }"] {
        let config = with("", line);
        assert_eq!(parse_ok(&print(&config)), config, "{line}");
    }
}

#[test]
fn every_setting_of_image() {
    let image = |line: &str| with("", line).sites[0].routes[0].adapt.image.clone();
    let line = "image formats=\"WebP, jpeg\" max-width=1200 max-height=800 fit=\"cover\" \
                grey=#true animation=\"first\" wait=\"50ms\" {
                    quality avif=1 webp=2 jpeg=3
                    target 70
                    save-data less=30
                    dpr max=3
                    width-hint
                    widths 640 320
                    query \"listed\" otherwise=\"ignore\"
                }";
    let expected = Image {
        formats: vec![ImageFormat::WebP, ImageFormat::Jpeg],
        max_width: Some(1200),
        max_height: Some(800),
        fit: ImageFit::Cover,
        grey: true,
        still: true,
        quality: ImageQuality { avif: 1, webp: 2, jpeg: 3 },
        target: Some(70),
        save_data: Some(30),
        dpr: Some(3),
        width_hint: true,
        query: Some(ImageQuery {
            by: ImageQueryBy::Listed { widths: vec![320, 640] },
            refuses: false,
        }),
        wait: Duration::from_millis(50),
    };
    assert_eq!(image(line), Some(expected));
    assert_eq!(image(""), None);
    for line in ["image", "image { }", "image formats=\"avif,webp\" { quality avif=65; }"] {
        assert_eq!(image(line), Some(Image::default()), "{line}");
    }
    // Pictures are decoded in the memory that there is.
    let little = with("adapt { memory \"64MiB\"; output \"1MiB\"; }", "").adapt;
    assert_eq!(little.image.decoded, 64 << 20);
}
