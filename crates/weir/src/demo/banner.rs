//! What `weir demo` prints once everything listens: what to open, and what to try.

use super::plugin::{GRAY_PATTERN, GRAY_PICTURE, Shown};

/// The text for a terminal. `front` is where Weir listens, `admin` its admin API; either may come
/// with or without `http://`. `plugin` is what the demo's plugin did, or why it could not be
/// deployed. Every command in it can be pasted into a shell as it is.
pub fn banner(front: &str, admin: &str, plugin: &Result<Shown, String>) -> String {
    banner_for(&program(), front, admin, plugin)
}

pub(super) fn banner_for(
    program: &str,
    front: &str,
    admin: &str,
    plugin: &Result<Shown, String>,
) -> String {
    let front = match front.trim_end_matches('/') {
        url if url.contains("://") => url.to_owned(),
        address => format!("http://{address}"),
    };
    let admin = admin.trim_start_matches("http://").trim_end_matches('/');
    let plugin = plugin_for(program, &front, admin, plugin);
    let head = "curl -s -o /dev/null -D -";
    let timed = "curl -s -o /dev/null -w '%{time_total} s\\n'";
    format!(
        "\
Weir is in front of a small origin of its own. Open

    {front}/

or try, in another terminal:

  a miss, then a hit (look at Cache-Status and Age)
    {head} {front}/pictures/landscape-960.jpg
    {head} {front}/pictures/landscape-960.jpg

  a page that takes the origin 800 ms, and the next visitor nothing
    {timed} '{front}/slow?ms=800'
    {timed} '{front}/slow?ms=800'

  a purge: the next request is a miss again
    {program} purge '{front}/slow?ms=800' --admin {admin}
    {timed} '{front}/slow?ms=800'

  an answer that is never stored
    curl -s {front}/api/quote

  what the origin sees of a request (Via, Forwarded)
    curl -s -d 'hello' {front}/echo

  a reload while a download runs: not a byte is lost
    curl -s --limit-rate 1M {front}/large | wc -c &
    {program} reload --admin {admin}; wait

{plugin}
  a flash crowd, without Guard and with it; 16 seconds, also at {front}/crowd
    curl -sN -X POST {front}/crowd/run
    {program} guard status --admin {admin}

  pictures, a page and a text, adapted; sizes, also at {front}/adapt
    curl -sN {front}/adapt/figures

  what the server has done so far
    {program} status --admin {admin}

Ctrl-C ends it.
"
    )
}

/// What became of the plugin, and how to do it oneself.
fn plugin_for(program: &str, front: &str, admin: &str, plugin: &Result<Shown, String>) -> String {
    let shown = match plugin {
        Ok(shown) => shown,
        Err(why) => return format!("  a plugin: not this time, since {why}\n"),
    };
    let (lines, ms) = (shown.lines(), shown.deployed_ms);
    format!(
        "  a plugin: gray was deployed into the running server a moment ago, in {ms} ms;
  {front}{GRAY_PICTURE} was in colour, and is grey
{lines}
  ({front}/plugin shows both). Take it out, look again, and put it back
    {program} plugin remove gray --admin {admin}
    curl -s -o gray.wasm {front}/gray.wasm
    {program} plugin deploy gray gray.wasm --route '{GRAY_PATTERN}' --at fill \\
        --admin {admin}
    {program} plugin show gray --admin {admin}
"
    )
}

/// The program as it was called, so that its commands work where they are pasted.
fn program() -> String {
    let name = std::env::args().next().unwrap_or_else(|| "weir".to_owned());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
    if !name.is_empty() && name.bytes().all(plain) {
        return name;
    }
    format!("'{}'", name.replace('\'', "'\\''"))
}
