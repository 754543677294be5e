use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use super::synthetic::large;
use super::*;

fn ads(text: &str) -> Ads {
    let mut gathered = Gathered::default();
    gathered.add(Path::new("list.txt"), text).unwrap();
    Ads::new(gathered, Rules::Used)
}

fn ask(ads: &Ads, url: &str, kind: Kind, page: &str) -> Verdict {
    let split = |url: &str| -> Option<(bool, String, String)> {
        let (scheme, rest) = url.split_once("://")?;
        let (host, path) = rest.split_once('/')?;
        Some((scheme == "https", host.to_owned(), format!("/{path}")))
    };
    let Some((is_secure, host, target)) = split(url) else { return Verdict::Pass };
    let page = split(page).map(|(_, host, _)| host).unwrap_or_default();
    ads.verdict(&Question { is_secure, host: &host, target: &target, kind, page: &page })
}

const PAGE: &str = "https://shop.example/";

#[test]
fn requests_are_blocked_by_url_type_and_page() {
    let ads = ads("||ads.example^\n\
                   @@||ads.example/fine/$image\n\
                   /banner/*/img^$image\n\
                   ||stats.example^$third-party\n\
                   ||cdn.example/player.js$script,domain=shop.example\n\
                   ||frame.example^$subdocument\n");
    let blocked = |url: &str, kind, page: &str| {
        // The second answer is from the table.
        let first = ask(&ads, url, kind, page);
        assert_eq!(ask(&ads, url, kind, page), first, "{url}");
        first == Verdict::Block
    };
    for (url, kind, page, expected) in [
        ("https://ads.example/a.js", Kind::Script, PAGE, true),
        ("https://sub.ads.example/a.js", Kind::Script, PAGE, true),
        ("https://ads.example/fine/a.gif", Kind::Image, PAGE, false),
        ("https://ads.example/fine/a.js", Kind::Script, PAGE, true),
        ("https://shop.example/banner/1/img?x", Kind::Image, PAGE, true),
        ("https://shop.example/banner/1/img?x", Kind::Script, PAGE, false),
        ("https://stats.example/", Kind::Fetch, PAGE, true),
        ("https://stats.example/", Kind::Fetch, "https://www.stats.example/", false),
        ("https://cdn.example/player.js", Kind::Script, PAGE, true),
        ("https://cdn.example/player.js", Kind::Script, "https://other.example/", false),
        ("https://frame.example/", Kind::Frame, PAGE, true),
        ("https://frame.example/", Kind::Document, "https://frame.example/", false),
        ("https://shop.example/", Kind::Document, PAGE, false),
        ("nonsense", Kind::Other, "", false),
    ] {
        assert_eq!(blocked(url, kind, page), expected, "{url} {kind:?} {page}");
    }
    let long = format!("https://ads.example/{}", "x".repeat(URL_BYTES_MAX));
    assert_eq!(ask(&ads, &long, Kind::Image, PAGE), Verdict::Pass);
}

#[test]
fn requests_are_redirected_to_neutral_bodies() {
    let ads = ads("||a.example/x.gif$image,redirect=1x1.gif\n\
                   ||a.example/x.js$script,redirect=noopjs\n\
                   ||a.example/y.js$script,redirect=somebody-elses.js\n\
                   ||a.example/v.xml$redirect=noopvast-2.0\n\
                   ||b.example^\n");
    let answer = |url: &str, kind: Kind| {
        let verdict = ask(&ads, url, kind, PAGE);
        assert_ne!(verdict, Verdict::Pass, "{url}");
        verdict.answer(kind).map(|neutral| (neutral.name, neutral.media_type))
    };
    let gif = Some(("1x1.gif", "image/gif"));
    let js = Some(("noop.js", "text/javascript"));
    assert_eq!(answer("https://a.example/x.gif", Kind::Image), gif);
    assert_eq!(answer("https://a.example/x.js", Kind::Script), js);
    // One that is not there, and one that is not asked for: empty, of the type.
    assert_eq!(answer("https://a.example/y.js", Kind::Script), js);
    assert_eq!(answer("https://b.example/", Kind::Image), gif);
    assert_eq!(answer("https://b.example/", Kind::Style), Some(("noop.css", "text/css")));
    assert_eq!(answer("https://b.example/", Kind::Frame), Some(("noop.html", "text/html")));
    assert_eq!(answer("https://b.example/", Kind::Fetch), None);
    let vast = Some(("noop-vast2.xml", "text/xml"));
    assert_eq!(answer("https://a.example/v.xml", Kind::Fetch), vast);
}

#[test]
fn pages_have_rules_of_their_host() {
    let ads = ads("##.ad\n##a[href*=\"/ads/\"]:has(> img)\nshop.example##.promo\n\
                   shop.example##div:has(> .x)\nother.example#@#.ad\n\
                   @@||quiet.example^$generichide\n##.c\n#@#.c\n##i:not(.x)\n#@#i:not(.x)\n\
                   shop.example##.again\n#@#.again\n");
    let shop = ads.page("shop.example");
    let style = &shop.hide.style;
    assert_eq!(shop.hide.remove, [".promo"]);
    assert!(style.contains("div:has(> .x){display:none!important}"), "{style}");
    assert!(style.contains("a[href*=\"/ads/\"]:has(> img){"), "{style}");
    assert_eq!((shop.hide.table, &ads.table()[..]), (Some(0), &b".ad\n"[..]));
    assert!(!style.contains("i:not") && !style.contains(".again"), "{style}");
    assert!(ads.page("other.example").hide.exceptions.contains(".ad"));
    assert_eq!(ads.page("quiet.example").hide.table, None);
    assert!(std::ptr::eq(&*shop.hide, &*ads.page("shop.example").hide));
    assert_ne!(shop.id, ads.page("other.example").id);
}

#[test]
fn pages_of_some_hosts_are_spared() {
    let ads = ads("||ads.example^\n##.ad\nown.example##.promo\n@@||let.example^$document\n\
                   @@||quiet.example^$elemhide\n@@||own.example^$specifichide\n\
                   ||ws.example^$websocket\n");
    assert_eq!((ads.reports()[0].network, ads.reports()[0].unknown), (5, 0));
    let url = "https://ads.example/a.js";
    assert_eq!(ask(&ads, url, Kind::Script, PAGE), Verdict::Block);
    assert_eq!(ask(&ads, url, Kind::Script, "https://www.let.example/"), Verdict::Pass);
    assert_eq!(ask(&ads, url, Kind::Script, "https://quiet.example/"), Verdict::Block);
    assert_eq!(*ads.page("let.example").hide, Hide::default());
    assert_eq!(*ads.page("quiet.example").hide, Hide::default());
    assert_eq!(ads.page("own.example").hide, ads.any_page().hide);
    let chat = "https://ws.example/chat";
    assert_eq!(ask(&ads, chat, Kind::WebSocket, PAGE), Verdict::Block);
    assert_eq!(ask(&ads, chat, Kind::Fetch, PAGE), Verdict::Pass);
}

#[test]
fn a_large_list_is_read_and_asked() {
    let began = Instant::now();
    let ads = ads(&large());
    let report = &ads.reports()[0];
    println!("{} rules in {:?} (debug build)", report.network + report.cosmetic, began.elapsed());
    assert_eq!((report.network + report.cosmetic, report.unknown), (70_000, 0), "{report:?}");
    assert!(report.network > 40_000 && ads.table().len() > 100_000);
    let find = |text: &str| large().lines().find(|line| line.contains(text)).unwrap().to_owned();
    let host = find("^").trim_start_matches("||").trim_end_matches('^').to_owned();
    assert_ne!(ask(&ads, &format!("https://{host}/x"), Kind::Script, PAGE), Verdict::Pass);
    assert_eq!(ask(&ads, "https://shop.example/a.js", Kind::Script, PAGE), Verdict::Pass);
    let hidden = ads.page("shop.example").hide;
    assert!(hidden.style.len() <= STYLE_BYTES_MAX && hidden.style.len() > 20_000);
}

/// Not a measurement, which `--example ads` is, but the table must be what answers.
#[test]
fn what_was_asked_before_is_answered_from_the_table() {
    let ads = ads("||ads.example^\n");
    let question = Question {
        is_secure: true,
        host: "ads.example",
        target: "/a.js",
        kind: Kind::Script,
        page: "shop.example",
    };
    assert_eq!(ads.verdict(&question), Verdict::Block);
    let key = ads.verdicts.key(question);
    assert_eq!(ads.verdicts.find(key), Some(BLOCK));
    ads.verdicts.keep(key, PASS);
    assert_eq!(ads.verdict(&question), Verdict::Pass);
}

/// Rules that no part of a URL picks out are tried for each; there may be so many, and no more.
#[test]
fn pathological_lists_stay_within_bounds() {
    let mut text = String::new();
    for number in 0..5000 {
        writeln!(text, "/(a+)+(b|{number})*c$/").unwrap();
        writeln!(text, "*{}*", "*a".repeat(50)).unwrap();
    }
    text.push_str("/(((((a{1000}){1000}){1000}){1000}){1000})/\n/[/\n||\n##\n##{}\n@@\n$\n");
    text.push_str(&format!("##{}\n", ":not(".repeat(1000)));
    let ads = ads(&text);
    let url = format!("https://shop.example/{}", "a".repeat(4000));
    let began = Instant::now();
    ask(&ads, &url, Kind::Image, PAGE);
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    assert!(ads.page("shop.example").hide.style.len() <= STYLE_BYTES_MAX);
}

/// Where Debian's package is unpacked; the lists have a licence of their own and are not here.
const REAL: [&str; 2] = [
    "/usr/share/webext/ublock-origin-firefox/assets/thirdparties/easylist/easylist.txt",
    "/usr/share/webext/ublock-origin/assets/thirdparties/easylist/easylist.txt",
];

#[test]
fn a_real_list_is_understood() {
    let Some(path) = REAL.iter().map(PathBuf::from).find(|path| path.exists()) else {
        println!("skipped: the package webext-ublock-origin-firefox is not installed");
        return;
    };
    let ads = Ads::load(&[path]).unwrap();
    let report = &ads.reports()[0];
    assert!(report.network > 20_000 && report.cosmetic > 10_000, "{report:?}");
    assert!(report.unknown < 100, "{report:?}");
}
