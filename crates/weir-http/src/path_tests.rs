//! Tests of [`super`]: tables for each form, and the invariants on arbitrary paths.

use super::*;
use proptest::prelude::*;

#[test]
fn routing_form() {
    let check = |raw: &str, expect: &str| {
        assert_eq!(normalise(raw).expect(raw).as_str(), expect, "{raw}");
    };
    check("/", "/");
    check("/a/b.html", "/a/b.html");
    check("/%61%2Db", "/a-b");
    check("/%3A%40%2b", "/:@+");
    check("/a%2fb", "/a%2Fb");
    check("/a%5cb", "/a%5Cb");
    check("/a\\b", "/a%5Cb");
    check("/%2541", "/%2541");
    check("/a%20b", "/a%20b");
    check("/%C3%A4", "/%C3%A4");
    check("/ä", "/%C3%A4");
    check("/%ff", "/%FF");
    check("/a?b", "/a%3Fb");
    check("/a//b/", "/a//b/");
    check("//a", "//a");
    check("/./a", "/a");
    check("/a/.", "/a/");
    check("/a/..", "/");
    check("/a/b/../c", "/a/c");
    check("/a/%2e%2E/c", "/c");
    check("/a/.%2e/c", "/c");
    check("/a//../b", "/a/b");
    check("/...", "/...");
    check("/.well-known/x", "/.well-known/x");
    check("/%2e.a", "/..a");
    // Decoded once only: the second layer is a file name, not a dot segment.
    check("/%252e%252e/a", "/%252e%252e/a");
}

#[test]
fn forwarding_form_keeps_the_clients_spelling() {
    let check = |raw: &str, expect: &str, verbatim: bool| {
        let path = normalise(raw).expect(raw);
        assert_eq!((path.forward(), path.is_verbatim()), (expect, verbatim), "{raw}");
    };
    check("/a/b", "/a/b", true);
    check("/%61%3a", "/%61%3a", true);
    check("/a//b", "/a//b", true);
    check("/a/../%62", "/%62", false);
    check("/ä\"<", "/%C3%A4%22%3C", false);
    check("/a\\b", "/a%5Cb", false);
}

#[test]
fn errors() {
    use Malformed::*;
    for (raw, expect) in [
        ("", PathStart),
        ("a", PathStart),
        ("*", PathStart),
        ("/%", PathEncoding),
        ("/%4", PathEncoding),
        ("/%zz", PathEncoding),
        ("/%+1", PathEncoding),
        ("/%00", PathNul),
        ("/\0", PathNul),
        ("/a\nb", PathControl),
        ("/\u{7f}", PathControl),
        ("/..", PathClimbs),
        ("/../etc/passwd", PathClimbs),
        ("/a/../../b", PathClimbs),
        ("/a/%2e%2e/%2e./b", PathClimbs),
    ] {
        assert_eq!(normalise(raw), Err(expect), "{raw:?}");
    }
}

#[test]
fn file_names() {
    let check = |raw: &str, prefix: &str, expect: Result<&str, Malformed>| {
        let path = normalise(raw).expect(raw);
        let relative = path.relative(prefix);
        let expect = expect.map(|text| Cow::Borrowed(text.as_bytes()));
        assert_eq!(relative, expect, "{raw}");
    };
    check("/", "", Ok(""));
    check("/a/b", "", Ok("a/b"));
    check("/a/b/", "", Ok("a/b"));
    check("//a///b", "", Ok("a/b"));
    check("/a%20b/%C3%A4", "", Ok("a b/ä"));
    check("/ä", "", Ok("ä"));
    check("/static/a", "/static", Ok("a"));
    check("/static/", "/static/", Ok(""));
    check("/static", "/static", Ok(""));
    check("/statics/a", "/static", Ok("statics/a"));
    check("/other/a", "/static/", Ok("other/a"));
    check("/%2541", "", Ok("%41"));
    check("/a%2Fb", "", Err(Malformed::PathFile));
    check("/a%5Cb", "", Err(Malformed::PathFile));
    check("/a\\..\\b", "", Err(Malformed::PathFile));
    check("/..%2fb", "", Err(Malformed::PathFile));
}

#[test]
fn hidden_files_and_directories() {
    for (raw, hidden, directory) in [
        ("/a.b", false, false),
        ("/.git/config", true, false),
        ("/%2egit/", true, true),
        ("/a/.b", true, false),
        ("/a/", false, true),
        ("/a/..", false, true),
    ] {
        let path = normalise(raw).unwrap();
        assert_eq!((path.has_hidden_segment(), path.is_directory()), (hidden, directory), "{raw}");
    }
}

#[test]
fn plain_paths_are_borrowed() {
    for raw in ["/", "/a/b-c_d~e.html", "/a;b=c,d:e@f", "/a/"] {
        assert!(matches!(normalise(raw).unwrap().routing, Cow::Borrowed(_)), "{raw}");
    }
}

#[test]
fn queries_are_encoded_only_where_they_must() {
    assert!(matches!(encode("a=b&c=%20?/"), Cow::Borrowed(_)));
    assert_eq!(encode("q=ä|\"{}"), "q=%C3%A4%7C%22%7B%7D");
}

/// Paths built of what matters here, far more often hostile than random text would be.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("/"),
        Just("."),
        Just(".."),
        Just("%2e"),
        Just("%2E"),
        Just("%2f"),
        Just("%25"),
        Just("%5c"),
        Just("\\"),
        Just("a"),
        Just("ä"),
        Just("%00"),
        Just("%ff"),
        Just("%"),
    ];
    proptest::collection::vec(piece, 0..16).prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    #[test]
    fn never_panics(raw in any::<String>()) {
        let _ = normalise(&raw);
    }

    #[test]
    fn result_is_normal_and_stable(raw in prop_oneof![hostile(), "/[ -~]{0,24}"]) {
        if let Ok(path) = normalise(&raw) {
            for form in [path.as_str(), path.forward()] {
                prop_assert!(form.starts_with('/'));
                prop_assert!(form.is_ascii());
                prop_assert!(form.split('/').all(|segment| dot_count(segment) == 0), "{}", form);
                // Both forms are the same resource, and normalising again changes neither.
                let again = normalise(form).unwrap();
                prop_assert_eq!(again.as_str(), path.as_str());
                prop_assert_eq!(again.forward(), form);
            }
        }
    }

    #[test]
    fn files_stay_below_the_root(raw in hostile()) {
        if let Ok(path) = normalise(&raw) {
            for segment in path.segments().filter_map(Result::ok) {
                prop_assert!(!segment.is_empty() && !segment.contains(&b'/'));
                prop_assert!(!segment.contains(&0) && *segment != *b"." && *segment != *b"..");
            }
            let joined: Result<Vec<_>, _> = path.segments().collect();
            let joined = joined.map(|segments| segments.join(&b'/'));
            prop_assert_eq!(path.relative("").map(Cow::into_owned), joined);
        }
    }
}
