mod ends;

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { output_bytes: 64 << 20, time: Duration::from_secs(60) };

fn rule(selector: &str, action: Action) -> Rule {
    Rule { selector: selector.to_owned(), action }
}

fn rules(rules: &[(&str, Action)]) -> Html {
    let rules = rules.iter().map(|(selector, action)| rule(selector, action.clone())).collect();
    Html { rules, ..Html::default() }
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn page(html: &Html) -> Rewriting {
    Rewriting { html: html.clone().into(), ..Rewriting::default() }
}

/// What becomes of a page; `None` if it stays as it is.
fn rewritten(html: &Html, input: &[u8]) -> Option<Vec<u8>> {
    match rewrite(input, &page(html), &[], &LIMITS).unwrap() {
        Adapted::Made(bytes, _) => Some(bytes),
        Adapted::Original(_) => None,
    }
}

#[track_caller]
fn check(html: &Html, input: &str, expected: &str) {
    let made = rewritten(html, input.as_bytes()).expect("nothing was changed");
    assert_eq!(String::from_utf8(made).unwrap(), expected);
}

#[test]
fn elements_are_changed_by_selector() {
    let page = "<body><p class=\"a b\">One<br></p><p id=x>Two</p></body>";
    for (selector, action, expected) in [
        (
            ".a",
            Action::Before(text("<hr>")),
            "<body><hr><p class=\"a b\">One<br></p><p id=x>Two</p></body>",
        ),
        (
            "#x",
            Action::After(text("<hr>")),
            "<body><p class=\"a b\">One<br></p><p id=x>Two</p><hr></body>",
        ),
        (
            "#x",
            Action::Prepend(text("<i>")),
            "<body><p class=\"a b\">One<br></p><p id=x><i>Two</p></body>",
        ),
        (
            "body",
            Action::Append(text("<hr>")),
            "<body><p class=\"a b\">One<br></p><p id=x>Two</p><hr></body>",
        ),
        (".a.b", Action::Replace(text("–")), "<body>–<p id=x>Two</p></body>"),
        (
            "p:nth-child(2)",
            Action::Content(text("2")),
            "<body><p class=\"a b\">One<br></p><p id=x>2</p></body>",
        ),
        ("body > p:not(.a)", Action::Remove, "<body><p class=\"a b\">One<br></p></body>"),
        ("p", Action::Unwrap, "<body>One<br>Two</body>"),
        (
            "#x",
            Action::Set(text("title"), text("a \"b\"")),
            "<body><p class=\"a b\">One<br></p><p id=x title=\"a &quot;b&quot;\">Two</p></body>",
        ),
        ("#x", Action::Unset(text("ID")), "<body><p class=\"a b\">One<br></p><p>Two</p></body>"),
    ] {
        check(&rules(&[(selector, action)]), page, expected);
    }
}

#[test]
fn what_is_put_in_is_not_looked_at_again() {
    let html = rules(&[
        ("body", Action::Append(text("<p>new</p>"))),
        ("p", Action::Set(text("class"), text("seen"))),
    ]);
    check(&html, "<body><p>old</p></body>", "<body><p class=\"seen\">old</p><p>new</p></body>");
}

#[test]
fn unknown_selectors_are_errors() {
    for selector in ["a + b", "p:has(a)", "::before", ""] {
        let error = rewrite(b"<p>", &page(&rules(&[(selector, Action::Remove)])), &[], &LIMITS);
        assert!(matches!(error, Err(AdaptError::Codec { what: "html", .. })), "{selector}");
    }
}

#[test]
fn the_nonce_is_put_in_its_places() {
    let html = rules(&[("head", Action::Append(text("<script nonce=\"{nonce}\">1</script>")))]);
    assert!(html.wants_nonce() && !rules(&[("p", Action::Remove)]).wants_nonce());
    for (nonce, expected) in [(Some("r4nd0m"), "r4nd0m"), (None, "")] {
        let rewriting = Rewriting { nonce: nonce.map(text), ..page(&html) };
        let made = rewrite(b"<head></head>", &rewriting, &[], &LIMITS).unwrap();
        let Adapted::Made(bytes, _) = made else { panic!("{made:?}") };
        let expected = format!("<head><script nonce=\"{expected}\">1</script></head>");
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}

#[test]
fn images_that_nobody_knows_the_width_of_stay() {
    let srcset = Srcset { parameter: text("w"), widths: vec![320, 640], sizes: None };
    let images = Images { lazy_after: None, srcset: Some(srcset) };
    let html = Html { images, ..Html::default() };
    check(
        &html,
        "<img src=/a.jpg><img src=/b.jpg width=160><img src=/c.jpg sizes=50vw>",
        "<img src=/a.jpg><img src=/b.jpg width=160 srcset=\"/b.jpg?w=320 320w\" sizes=\"160px\">\
         <img src=/c.jpg sizes=50vw srcset=\"/c.jpg?w=320 320w, /c.jpg?w=640 640w\">",
    );
}

#[test]
fn images_get_what_they_lack() {
    let srcset =
        Srcset { parameter: text("w"), widths: vec![320, 640, 1280], sizes: Some(text("90vw")) };
    let images = Images { lazy_after: Some(1), srcset: Some(srcset) };
    let html = Html { images, ..Html::default() };
    check(
        &html,
        "<img src=/a.jpg><img src='b.png?v=1' width=\"300\" loading=eager><img src=c.svg>\
         <img src=d.webp srcset=x sizes=y><img>",
        "<img src=/a.jpg srcset=\"/a.jpg?w=320 320w, /a.jpg?w=640 640w, /a.jpg?w=1280 1280w\" \
         sizes=\"90vw\">\
         <img src='b.png?v=1' width=\"300\" loading=eager \
         srcset=\"b.png?v=1&amp;w=320 320w, b.png?v=1&amp;w=640 640w\" sizes=\"300px\">\
         <img src=c.svg loading=\"lazy\"><img src=d.webp srcset=x sizes=y loading=\"lazy\"><img>",
    );
    // They are another site's.
    let elsewhere = "<base href='https://cdn.example/'><img src=a.jpg>";
    assert_eq!(rewritten(&html, elsewhere.as_bytes()), None);
    let beside = "<base href='/b/'><img src=a.jpg width=100>";
    assert!(rewritten(&html, beside.as_bytes()).is_some());
}

#[test]
fn white_space_that_means_something_stays() {
    let html = Html { strip: Strip { comments: false, space: true }, ..Html::default() };
    let kept = "<pre>a  b</pre><script>'a  b'</script><svg><script>'a  b'</script>\
                <style>a{content:'a  b'}</style></svg>";
    check(&html, &format!("{kept}<svg>a  b</svg>"), &format!("{kept}<svg>a b</svg>"));
}

#[test]
fn hosts_are_written_otherwise() {
    let hosts = vec![Host { from: text("old.example"), to: text("new.example") }];
    let html = Html { hosts, ..Html::default() };
    check(
        &html,
        "<a href=\"https://old.example/?a&amp;b\">https://old.example/</a>\
         <img src=//old.example/i srcset=\"//old.example/i 1x, /j 2x\">\
         <meta http-equiv=refresh content='0; url=http://old.example/'>\
         <svg><use xlink:href='//old.example/s.svg#a'/></svg>\
         <a href=/own href=https://old.example/b>\
         <script>location = \"https://old.example/\"</script>",
        "<a href=\"https://new.example/?a&amp;b\">https://old.example/</a>\
         <img src=\"//new.example/i\" srcset=\"//new.example/i 1x, /j 2x\">\
         <meta http-equiv=refresh content=\"0; url=http://new.example/\">\
         <svg><use xlink:href=\"//new.example/s.svg#a\" /></svg>\
         <a href=/own href=https://old.example/b>\
         <script>location = \"https://old.example/\"</script>",
    );
}

#[test]
fn comments_and_white_space_are_stripped() {
    let html = Html { strip: Strip { comments: true, space: true }, ..Html::default() };
    check(
        &html,
        "<!-- a --><p>  one\n\n   two </p><!--[if IE]>x<![endif]--><!--# include -->\
         <pre>  a\n  b  </pre><textarea>  c  d</textarea><script>a  =  1</script><p>x  y</p>",
        "<p> one\ntwo </p><!--[if IE]>x<![endif]--><!--# include -->\
         <pre>  a\n  b  </pre><textarea>  c  d</textarea><script>a  =  1</script><p>x y</p>",
    );
    // Bytes that are no text come back, beside white space, too.
    let invalid = b"<p>a  b \xff  \xc3 \x81\t\n\x98</p><!-- x -->";
    assert_eq!(rewritten(&html, invalid).unwrap(), b"<p>a b \xff \xc3 \x81\n\x98</p>");
    // Those of an encoding whose characters end in what is ASCII elsewhere.
    let shift_jis = Rewriting { charset: Some(text("shift_jis")), ..page(&html) };
    let made = rewrite(b"<p>\x83\x5c  \x83\x5c</p>", &shift_jis, &[], &LIMITS).unwrap();
    let Adapted::Made(bytes, _) = made else { panic!("{made:?}") };
    assert_eq!(bytes, b"<p>\x83\x5c \x83\x5c</p>");
}

#[test]
fn other_encodings_are_kept() {
    let rewrite = |charset: Option<&str>, input: &[u8]| {
        let html = rules(&[("p", Action::Append(text("ü€語")))]);
        let rewriting = Rewriting { charset: charset.map(text), ..page(&html) };
        match rewrite(input, &rewriting, &[], &LIMITS).unwrap() {
            Adapted::Made(bytes, _) => Ok(bytes),
            Adapted::Original(why) => Err(why),
        }
    };
    for (charset, expected) in [
        (Some("windows-1252"), &b"<p>\xfc\xfc\x80&#35486;</p>"[..]),
        (Some("UTF-8"), b"<p>\xfc\xc3\xbc\xe2\x82\xac\xe8\xaa\x9e</p>"),
    ] {
        assert_eq!(rewrite(charset, b"<p>\xfc</p>").unwrap(), expected, "{charset:?}");
    }
    let made = rewrite(None, b"<meta charset=windows-1252><p>\xfc</p>").unwrap();
    assert_eq!(made, b"<meta charset=windows-1252><p>\xfc\xfc\x80&#35486;</p>");
    // No ASCII in it: it passes.
    for (charset, page) in [
        (Some("utf-16"), &b"<p></p>"[..]),
        (None, b"\xff\xfe<\0p\0>\0"),
        (Some("nonsense"), b"<p>"),
    ] {
        assert_eq!(rewrite(charset, page), Err(Why::Charset), "{charset:?}");
    }
}

#[test]
fn what_is_hidden_goes() {
    let table = Hidden::of([".ad", "#banner", ".sponsored\t.sponsored > img"].map(text));
    let hide = Hide {
        style: hide::sheet([".generic", "a:has(> b)"]),
        remove: vec![text("div[data-ad]")],
        table: Some(0),
        exceptions: [text(".kept")].into(),
    };
    let html =
        Rewriting { hide: Some(hide.into()), nonce: Some(text("n0")), ..Rewriting::default() };
    let input = "<head></head><div class='x ad'>1<p class=ad>2</p></div><i id=banner>3</i>\
                <div data-ad>4</div><div class=sponsored>5</div><p class=fine>6</p>";
    let expected = "<head><style nonce=\"n0\">.generic{display:none!important}\
                    a:has(> b){display:none!important}</style></head>\
                    <div class=sponsored>5</div><p class=fine>6</p>\
                    <style nonce=\"n0\">.sponsored > img{display:none!important}</style>";
    let made = rewrite(input.as_bytes(), &html, &[table.as_bytes()], &LIMITS).unwrap();
    let Adapted::Made(bytes, detail) = made else { panic!("{made:?}") };
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    assert!(detail.contains(";hidden="), "{detail}");
    // An exception of the page's own.
    let exceptions = [text(".ad"), text(".sponsored > img")].into();
    let hide = Hide { table: Some(0), exceptions, ..Hide::default() };
    let html = Rewriting { hide: Some(hide.into()), ..Rewriting::default() };
    let made = rewrite(b"<p class='ad sponsored'>", &html, &[table.as_bytes()], &LIMITS).unwrap();
    assert!(matches!(made, Adapted::Original(Why::Unchanged)), "{made:?}");
}

/// All kinds of things to do, none of which finds anything in the pages below.
fn nothing_matches() -> Rewriting {
    let hide = Hide { remove: vec![text(".nowhere")], table: Some(0), ..Hide::default() };
    let srcset = Srcset { parameter: text("w"), widths: vec![1], sizes: Some(text("1vw")) };
    let html = Html {
        rules: vec![
            rule("nowhere", Action::Remove),
            rule("[data-nowhere] > p:first-child", Action::Append(text("x"))),
        ],
        hosts: vec![Host { from: text("nowhere.example"), to: text("x.example") }],
        images: Images { lazy_after: Some(1_000_000), srcset: Some(srcset) },
        strip: Strip { comments: false, space: false },
    };
    Rewriting { html: html.into(), hide: Some(hide.into()), ..Rewriting::default() }
}

fn as_it_is(html: &Rewriting, page: &[u8], pieces: usize) {
    let table = Hidden::of([".nowhere-else", "#nowhere"].map(text));
    let mut rewriter = Rewriter::new(html, Some(table), page).unwrap();
    let mut output = Vec::new();
    for piece in page.chunks(pieces) {
        rewriter.push(piece, &mut output);
    }
    rewriter.finish(&mut output);
    assert!(output == page, "{:?}", String::from_utf8_lossy(page));
}

/// What pages are made of, and are not.
const PARTS: &[&[u8]] = &[
    b"<p class=\"a\" id='b' style=x>",
    b"</p>",
    b"<!-- c -->",
    b"<IMG SRC=a.gif ALT>",
    b"<",
    b"<a href=https://a.example/?b&c>",
    b"&amp;&nbsp;",
    b"\xff\xc3",
    b"\0",
    b"  \r\n\t",
    b"<script>if (a < b) '</p>'</script>",
    b"<svg><path d=''/></svg>",
    b"<![CDATA[ x ]]>",
    b"<!DOCTYPE html>",
    b"<textarea><p></textarea>",
    b"<div x=1 x=2 \"=>",
    b"\xc3\xbc\xe8\xaa\x9e",
    b"</",
    b"<p a='",
];

proptest! {
    /// The page, to the byte, whatever it is, in pieces of any size.
    #[test]
    fn what_nothing_matches_stays_as_it_is(
        parts in proptest::collection::vec(
            proptest::sample::select(PARTS),
            0..40,
        ),
        noise in proptest::collection::vec(any::<u8>(), 0..40),
        pieces in 1_usize..60,
    ) {
        let page = [parts.concat(), noise].concat();
        prop_assume!(encoding_rs::Encoding::for_bom(&page).is_none());
        as_it_is(&nothing_matches(), &page, pieces);
    }

    /// Whatever a page is made of, nothing but white space is taken out with white space.
    #[test]
    fn only_white_space_is_lost_with_white_space(
        parts in proptest::collection::vec(proptest::sample::select(PARTS), 0..40),
        noise in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let input = [parts.concat(), noise].concat();
        prop_assume!(encoding_rs::Encoding::for_bom(&input).is_none());
        let html = Html { strip: Strip { comments: false, space: true }, ..Html::default() };
        let made = rewritten(&html, &input).unwrap_or_else(|| input.clone());
        let dense = |bytes: &[u8]| -> Vec<u8> {
            bytes.iter().copied().filter(|byte| !b" \t\n\r\x0c".contains(byte)).collect()
        };
        prop_assert_eq!(dense(&made), dense(&input));
        prop_assert!(made.len() <= input.len());
    }

    /// What comes out does not depend on how the page comes in.
    #[test]
    fn pieces_do_not_matter(pieces in 1_usize..50) {
        let html = Html {
            strip: Strip { comments: true, space: true },
            ..rules(&[("p", Action::Append(text("<b>x</b>"))), (".y", Action::Remove)])
        };
        let text = "<body>  <p>a  b <i class='x y'>c</i>\n\n </p><!-- d --><p>ü  語</p></body>".repeat(9);
        let whole = rewritten(&html, text.as_bytes()).unwrap();
        let (mut rewriter, mut output) = (Rewriter::new(&page(&html), None, b"").unwrap(), Vec::new());
        for piece in text.as_bytes().chunks(pieces) {
            rewriter.push(piece, &mut output);
        }
        rewriter.finish(&mut output);
        prop_assert_eq!(output, whole);
    }
}

/// Memory is bounded: what would take more goes on as it is, and nothing is lost.
#[test]
fn what_takes_too_much_memory_is_left_from_there_on() {
    let html = rules(&[("p", Action::Set(text("x"), text("y"))), ("p div div a", Action::Remove)]);
    let unclosed = [b"<p>1</p><p title=\"".to_vec(), vec![b'a'; 8 << 20]].concat();
    let deep = ["<p>1</p><p>", &"<div>".repeat(400_000)].concat().into_bytes();
    for input in [unclosed, deep] {
        let made = rewrite(&input, &page(&html), &[], &LIMITS).unwrap();
        let Adapted::Made(bytes, detail) = made else { panic!("{made:?}") };
        assert!(detail.ends_with(";partial"), "{detail}");
        assert!(bytes.starts_with(b"<p x=\"y\">1</p>"));
        let changed = bytes.windows(6).filter(|bytes| bytes == b" x=\"y\"").count() * 6;
        assert_eq!(bytes.len() - changed, input.len());
        assert!(bytes.ends_with(&input[input.len() - 1000..]));
    }
}

/// 100 MB pass through a few.
#[test]
fn a_page_of_a_hundred_megabytes_streams() {
    let html = rules(&[("p.last", Action::Append(text("!")))]);
    let mut rewriter = Rewriter::new(&page(&html), None, b"").unwrap();
    let line = "Water runs down to the weir, and over it. ".repeat(20);
    let piece = format!("<p class=\"a\">{line}</p>\n").repeat(60);
    let (mut output, mut bytes, mut most) = (Vec::new(), 0_u64, 0);
    while bytes < 100 << 20 {
        rewriter.push(piece.as_bytes(), &mut output);
        bytes += output.len() as u64;
        most = most.max(output.capacity());
        output.clear();
    }
    rewriter.push(b"<p class=last>end</p>", &mut output);
    rewriter.finish(&mut output);
    assert!(output.ends_with(b"<p class=last>end!</p>"));
    assert!(most < 1 << 20 && !rewriter.has_bailed_out(), "{most}");
}

#[test]
fn results_have_a_limit() {
    let html = rules(&[("p", Action::Append("x".repeat(1000)))]);
    let limits = Limits { output_bytes: 100_000, ..LIMITS };
    let made = rewrite("<p></p>".repeat(1000).as_bytes(), &page(&html), &[], &limits);
    assert!(matches!(made, Err(AdaptError::TooLarge { limit_bytes: 100_000 })), "{made:?}");
}
