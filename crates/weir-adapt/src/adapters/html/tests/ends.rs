//! Where elements end whose end tags are left out.

use super::*;

#[test]
fn elements_end_where_browsers_end_them() {
    let long = format!("data:image/gif;base64,{}", "A".repeat(200_000));
    let gone = |selector: &str| rules(&[(selector, Action::Remove)]);
    for (selector, page, expected) in [
        (".x", "<ul><li>1<li class=x>2<li>3</ul>", "<ul><li>1<li>3</ul>"),
        (".x", "<ul><li class=x>1<ul><li>2</ul><b>3<LI>4</ul>5", "<ul><LI>4</ul>5"),
        (".x", "<ul><li class=x>1</ul>2", "<ul></ul>2"),
        (".x", "<ul><li class=x>1</li><li>2</ul>", "<ul><li>2</ul>"),
        (".x", "<div><p class=x>1<b>2</b><p>3</div>4", "<div><p>3</div>4"),
        (".x", "<p class=x>1<span>2</span><div>3</div>4", "<div>3</div>4"),
        (".x", "<div><p class=x>1</div>2", "<div></div>2"),
        (".x", "<p class=x>1<button><p>2</button>3<table>4</table>", "<table>4</table>"),
        (".x", "<dl><dt class=x>1<dd>2<dt>3</dl>", "<dl><dd>2<dt>3</dl>"),
        (".x", "<table><tr class=x><td>1<tr><td>2</table>3", "<table><tr><td>2</table>3"),
        (".x", "<table><tr><td class=x>1<td>2<tbody></table>", "<table><tr><td>2<tbody></table>"),
        (
            ".x",
            "<table><tbody class=x><tr><td>1<table><tr></table><tfoot><tr></table>",
            "<table><tfoot><tr></table>",
        ),
        (".x", "<select><option class=x>1<option>2</select>", "<select><option>2</select>"),
        (".x", "<div><p class=x>1<!-- <p> --><p>2</div>", "<div><p>2</div>"),
        (".x", "<p class=x>1<a title='<p>'>2</a><p>3", "<p>3"),
        (".x", "<p class=x>1<script>'<p>'</script>2<p>3", "<p>3"),
        (".x", "<ul><li class=x>1<p>2</ul>3", "<ul></ul>3"),
        // Neither long tags nor text that looks like tags is in the way.
        (
            ".x",
            &format!("<img src='{long}'><ul><li class=x>1<li>2</ul>"),
            &format!("<img src='{long}'><ul><li>2</ul>"),
        ),
        (
            ".x",
            "<svg><title/></svg><ul><li class=x>1<li>2</ul>",
            "<svg><title/></svg><ul><li>2</ul>",
        ),
        (
            ".x",
            "<svg><style>a</style><script href='a'/></svg><ul><li class=x>1<li>2</ul>",
            "<svg><style>a</style><script href='a'/></svg><ul><li>2</ul>",
        ),
        (
            ".x",
            "<svg><text><![CDATA[<li> > <script>]]></text></svg><ul><li class=x>1<li>2</ul>",
            "<svg><text><![CDATA[<li> > <script>]]></text></svg><ul><li>2</ul>",
        ),
        (
            ".x",
            "<svg><foreignObject><p class=x>1<p>2</foreignObject><path/><svg/></svg><p class=x>3<p>4",
            "<svg><foreignObject><p>2</foreignObject><path/><svg/></svg><p>4",
        ),
        (".x", "<p class=x>1<svg><g></svg>2<p>3", "<p>3"),
        (".x", "<!-- a --!><ul><li class=x>1<li>2</ul>", "<!-- a --!><ul><li>2</ul>"),
        (".x", "<!--!><li>--><ul><li class=x>1<li>2</ul>", "<!--!><li>--><ul><li>2</ul>"),
        (".x", "<!--><ul><li class=x>1<li>2</ul>", "<!--><ul><li>2</ul>"),
        (".x", "<!---><ul><li class=x>1<li>2</ul>", "<!---><ul><li>2</ul>"),
        (".x", "<p class=x>1<noscript><div>2</div></noscript>3<div>4</div>", "<div>4</div>"),
        (".x", "<select><option class=x>1<hr><option>2</select>", "<select><hr><option>2</select>"),
        // A stray end tag is nothing.
        (".x", "<div><p class=x>1</section>2<p>3</div>", "<div><p>3</div>"),
        (".x", "<ul><li class=x>1", "<ul>"),
        // What is inside of an element that goes does not end it.
        (".x", "<div class=x><p>1<p>2</div>3", "3"),
    ] {
        check(&gone(selector), page, expected);
    }
    for (action, expected) in [
        (Action::Content(text("new")), "<ul><li class=x>new<li>2</ul>"),
        (Action::Replace(text("<li>new")), "<ul><li>new<li>2</ul>"),
        (Action::Append(text("!")), "<ul><li class=x>1!<li>2</ul>"),
        (Action::After(text("<hr>")), "<ul><li class=x>1<hr><li>2</ul>"),
        (Action::Unwrap, "<ul>1<li>2</ul>"),
    ] {
        check(&rules(&[(".x", action)]), "<ul><li class=x>1<li>2</ul>", expected);
    }
    for (selector, expected) in [
        ("ul > li > a", "<ul><li><a x=\"\">1</a><li><a x=\"\">2</a></ul><a>3</a>"),
        ("li:nth-child(2) a", "<ul><li><a>1</a><li><a x=\"\">2</a></ul><a>3</a>"),
    ] {
        let html = rules(&[(selector, Action::Set(text("x"), text("")))]);
        check(&html, "<ul><li><a>1</a><li><a>2</a></ul><a>3</a>", expected);
    }
    // What one line has taken out is not there for those behind it.
    let html = rules(&[(".x", Action::Remove), ("ul > li", Action::Append(text("!")))]);
    check(&html, "<ul><li class=x>1<li>2</ul>", "<ul><li>2!</ul>");
    let scripts = rules(&[
        ("head", Action::Append(text("<link>"))),
        ("body", Action::Append(text("<script></script>"))),
    ]);
    check(
        &scripts,
        "<head><noscript><img src=a></noscript><title>1</title><body><p>2</html>",
        "<head><noscript><img src=a></noscript><title>1</title><link><body><p>2<script></script></html>",
    );
    check(
        &scripts,
        "<html><head><title>1</title><body><p>2",
        "<html><head><title>1</title><link><body><p>2<script></script>",
    );
}

proptest! {
    /// What the page does not have does not come out.
    #[test]
    fn ends_that_are_left_out_stay_so(page in "(<|>|/|p|li|ul|div|td|tr|table|!--|-->|script|=|\"|'| |a){0,60}") {
        let html = rules(&[(".none", Action::Remove)]);
        prop_assert_eq!(rewritten(&html, page.as_bytes()), None);
    }

    /// Where a page is cut makes no difference.
    #[test]
    fn ends_are_found_wherever_a_page_is_cut(
        page in "(<p>|<p class=x>|<li class=x>|<li>|<ul>|</ul>|<div>|</div>|<!--|-->|<script>\
            |</script>|<td class=x>|<tr>|<table>|</table>|a|<b title='>'>|--!>|<svg>|</svg>|<g/>\
            |<title>|</title>|<!\\[CDATA\\[|\\]\\]>|<foreignObject>|<svg/>){0,30}",
        step in 1_usize..20,
    ) {
        let rewriting = self::page(&rules(&[(".x", Action::Remove), ("p", Action::Append(text("!")))]));
        let by = |step: usize| {
            let mut output = Vec::new();
            let mut rewriter = Rewriter::new(&rewriting, None, page.as_bytes()).unwrap();
            page.as_bytes().chunks(step).for_each(|piece| rewriter.push(piece, &mut output));
            rewriter.finish(&mut output);
            String::from_utf8(output).unwrap()
        };
        prop_assert_eq!(by(step), by(usize::MAX));
    }
}
