//! The application of the A experiments: pages of any size, which it thinks about for a while, and
//! texts and pictures that it has at once. All of them may be stored. Thinking is waited for and
//! not computed, since the generator has the same core.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::background::page;
use crate::error::{Doing, Result};
use crate::photographs::{numbered, small};
use crate::texts::Writer;

/// A request head longer than this ends the connection.
const HEAD_SIZE_MAX: usize = 16 << 10;
/// Pages and texts have from so many bytes …
const SIZE_MIN: usize = 512;
/// … to so many.
const SIZE_MAX: usize = 4 << 20;

/// Answers requests on a Unix socket until an error ends it.
///
/// # Errors
/// When the socket cannot be bound, or there is no event loop.
pub fn serve(path: &Path, think: Duration) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing(|| "making an event loop".to_owned())?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let listener = UnixListener::bind(path).doing(|| path.display().to_string())?;
        let origin = Rc::new(Origin::new(think));
        loop {
            let (stream, _) = listener.accept().await.doing(|| "accepting".to_owned())?;
            let origin = Rc::clone(&origin);
            tokio::task::spawn_local(async move {
                // A connection that fails ends; there is nobody to tell.
                let _ = converse(stream, &origin).await;
            });
        }
    })
}

/// One request after the other, on a kept connection. Requests have no bodies.
async fn converse(mut stream: UnixStream, origin: &Origin) -> std::io::Result<()> {
    let mut input = Vec::with_capacity(4 << 10);
    loop {
        let Some(end) = memchr::memmem::find(&input, b"\r\n\r\n") else {
            if input.len() > HEAD_SIZE_MAX || stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let (think, answer) = origin.answer(&input[..end]);
        input.drain(..end + 4);
        if !think.is_zero() {
            tokio::time::sleep(think).await;
        }
        stream.write_all(&answer).await?;
    }
}

struct Origin {
    think: Duration,
    /// By size, as are the pages; made when first asked for. Few sizes are.
    writers: RefCell<HashMap<usize, Writer>>,
    pages: RefCell<HashMap<usize, Rc<[u8]>>>,
    /// The picture that all are, but for a number; `None` if it cannot be made.
    small: OnceCell<Option<Vec<u8>>>,
}

impl Origin {
    fn new(think: Duration) -> Origin {
        Origin {
            think,
            writers: RefCell::default(),
            pages: RefCell::default(),
            small: OnceCell::new(),
        }
    }

    /// How long to think, and the response.
    fn answer(&self, head: &[u8]) -> (Duration, Rc<[u8]>) {
        let nothing = || (Duration::ZERO, response("404 Not Found", "text/plain", b"").into());
        match target(head) {
            Some(Wanted::Page(size)) => (self.think, self.page(size)),
            Some(Wanted::Text(size, number)) => {
                let mut writers = self.writers.borrow_mut();
                let text = writers.entry(size).or_insert_with(|| Writer::new(size)).text(number);
                (Duration::ZERO, response("200 OK", "text/plain", &text).into())
            }
            Some(Wanted::Picture(number)) => {
                let Some(small) = self.small.get_or_init(|| small().ok()) else {
                    return nothing();
                };
                let picture = numbered(small, number);
                (Duration::ZERO, response("200 OK", "image/jpeg", &picture).into())
            }
            None => nothing(),
        }
    }

    fn page(&self, size: usize) -> Rc<[u8]> {
        let mut pages = self.pages.borrow_mut();
        let make = || response("200 OK", "text/html; charset=utf-8", &page(size)).into();
        Rc::clone(pages.entry(size).or_insert_with(make))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Page(usize),
    Text(usize, u64),
    Picture(u64),
}

/// What a request is for.
fn target(head: &[u8]) -> Option<Wanted> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let path = line.split(' ').nth(1)?;
    let [kind, size, name] = path.strip_prefix('/')?.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    let size = size.parse().ok().filter(|size| (SIZE_MIN..=SIZE_MAX).contains(size))?;
    match kind {
        "page" | "live-page" => Some(Wanted::Page(size)),
        "text" | "live-text" => Some(Wanted::Text(size, name.strip_suffix(".txt")?.parse().ok()?)),
        "image" => Some(Wanted::Picture(name.strip_suffix(".jpg")?.parse().ok()?)),
        _ => None,
    }
}

fn response(status: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nServer: app\r\nContent-Type: {content_type}\r\n\
         Cache-Control: public, max-age=3600\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::{Bodies, Each, Pages, live, picture_target, text_target};
    use crate::load::{Catalogue, Expect};

    fn ask(origin: &Origin, target: &str) -> (Duration, Vec<u8>) {
        let head = format!("GET {target} HTTP/1.1\r\nHost: app");
        let (think, answer) = origin.answer(head.as_bytes());
        let end = memchr::memmem::find(&answer, b"\r\n\r\n").unwrap();
        (think, answer[end + 4..].to_vec())
    }

    #[test]
    fn pages_are_those_that_are_expected_and_take_their_time() {
        let think = Duration::from_millis(7);
        let origin = Origin::new(think);
        let each = Each { pages: Pages::make(), bodies: Bodies::Plain };
        for number in 0..20 {
            let asked = each.ask(number);
            let Expect::Body(body) = asked.expect else { panic!("a known body") };
            assert_eq!(ask(&origin, &asked.target), (think, body.to_vec()));
        }
    }

    #[test]
    fn texts_are_there_at_once_and_nothing_else_is() {
        let origin = Origin::new(Duration::from_secs(1));
        let (think, text) = ask(&origin, &text_target(8_192, 4_711));
        assert!(think.is_zero() && text.starts_with(b"Text 000000004711.\n"));
        assert_eq!(text.len(), 8_192);
        assert_eq!(ask(&origin, &live(&text_target(8_192, 4_711))).1, text);
        let picture = ask(&origin, &picture_target(7));
        assert_eq!(picture, (Duration::ZERO, numbered(&small().unwrap(), 7)));
        for target in
            ["/", "/page/x/a", "/page/1/a", "/page/99999999/a", "/text/600/x.txt", "/text"]
        {
            assert_eq!(ask(&origin, target), (Duration::ZERO, Vec::new()), "{target}");
        }
    }
}
