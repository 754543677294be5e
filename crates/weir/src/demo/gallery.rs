//! What the demo shows of adaptation: routes that adapt a picture, a page and a text, and a report
//! of what they answer, which Weir is asked for over loopback while it is read.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// The routes, as lines of a site. `{origin}` and `{list}` are to be put in: the URL of the demo's
/// origin, and the path of a file with [`LIST`].
pub const ROUTES: &str = include_str!("assets/gallery.kdl");

/// What [`ROUTES`] have for a list of ads.
pub const LIST: &str = "! The demo's own list.\n/ads/*$image,script\n##.advert\n";

/// How long a report waits for helpers, which have only the time that nobody else wants.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a report is silent, at most: who reads it, and Weir in between, give up on what stands
/// still for 20 seconds or more.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// What it says then: no row.
const WAITING: &str = "(helpers are still at work)\n";
/// Between two looks at a variant that is being made.
const PAUSE: Duration = Duration::from_millis(50);
/// How long one answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an answer; those of the largest picture are a tenth of it.
const ANSWER_MAX: u64 = 8 << 20;

/// Parts of the report: what it is about, and its rows: a name, what is asked for, and fields of
/// the request.
const PARTS: [(&str, &[Row]); 3] = [
    (
        "a picture, 1920 pixels wide",
        &[
            ("picture", "/pictures/landscape-1920.jpg", ""),
            ("jpeg-320", "/fitted/landscape-1920.jpg?width=320&format=jpeg", ""),
            ("webp-320", "/fitted/landscape-1920.jpg?width=320&format=webp", ""),
            ("avif-320", "/fitted/landscape-1920.jpg?width=320&format=avif", ""),
            ("jpeg-640", "/fitted/landscape-1920.jpg?width=640&format=jpeg", ""),
            ("webp-640", "/fitted/landscape-1920.jpg?width=640&format=webp", ""),
            ("avif-640", "/fitted/landscape-1920.jpg?width=640&format=avif", ""),
            ("jpeg-1200", "/fitted/landscape-1920.jpg?width=1200&format=jpeg", ""),
            ("webp-1200", "/fitted/landscape-1920.jpg?width=1200&format=webp", ""),
            ("avif-1200", "/fitted/landscape-1920.jpg?width=1200&format=avif", ""),
            ("save-data", "/fitted/landscape-1920.jpg?width=640&format=webp", "Save-Data: on\r\n"),
            ("quality-40", "/rough/landscape-1920.jpg", "Accept: image/webp\r\n"),
            ("grey", "/grey/landscape-1920.jpg", "Accept: image/webp\r\n"),
        ],
    ),
    (
        "a page with an ad",
        &[
            ("page", "/paper/", ""),
            ("page-changed", "/clean/", ""),
            ("ad", "/paper/ads/banner.svg", "Sec-Fetch-Dest: image\r\n"),
            ("ad-blocked", "/clean/ads/banner.svg", "Sec-Fetch-Dest: image\r\n"),
            ("script", "/paper/ads/count.js", "Sec-Fetch-Dest: script\r\n"),
            ("script-blocked", "/clean/ads/count.js", "Sec-Fetch-Dest: script\r\n"),
        ],
    ),
    (
        "a text, quickly and as strongly as can be",
        &[
            ("identity", "/strong/pages.txt", "Accept-Encoding: identity\r\n"),
            ("gzip-quick", "/quick/pages.txt", "Accept-Encoding: gzip\r\n"),
            ("gzip-strong", "/strong/pages.txt", "Accept-Encoding: gzip\r\n"),
            ("zstd-quick", "/quick/pages.txt", "Accept-Encoding: zstd\r\n"),
            ("zstd-strong", "/strong/pages.txt", "Accept-Encoding: zstd\r\n"),
            ("br-quick", "/quick/pages.txt", "Accept-Encoding: br\r\n"),
            ("br-strong", "/strong/pages.txt", "Accept-Encoding: br\r\n"),
        ],
    ),
];

type Row = (&'static str, &'static str, &'static str);

/// Where reports come from.
pub(super) struct Gallery {
    one_at_a_time: Arc<Semaphore>,
}

impl Gallery {
    pub(super) fn new() -> Gallery {
        Gallery { one_at_a_time: Arc::new(Semaphore::new(1)) }
    }

    /// Asks `front` for everything, by the name that its client has for it, and returns what is
    /// told of it as it comes. Reports wait for each other.
    pub(super) fn report(&self, front: SocketAddr, host: String) -> Channel<Bytes> {
        let (sender, body) = Channel::new(4);
        let turn = Arc::clone(&self.one_at_a_time).acquire_owned();
        tokio::spawn(async move {
            let _only = turn.await;
            run(&Front { address: front, host }, sender).await
        });
        body
    }
}

/// Where Weir listens, and under which name: what is stored is stored for a host.
struct Front {
    address: SocketAddr,
    host: String,
}

/// Ends early when nobody reads the report any more.
async fn run(front: &Front, mut report: Sender<Bytes>) -> Option<()> {
    let deadline = Instant::now() + PATIENCE;
    telling(&mut report, begin(front)).await?;
    for (title, rows) in PARTS {
        let heading = format!("{title}\n{:>28}  type            Weir-Adapt\n", "bytes");
        report.send_data(heading.into()).await.ok()?;
        for row in rows {
            let line = match telling(&mut report, settled(front, row, deadline)).await? {
                Ok(answer) => answer.line(row.0),
                Err(cause) => format!("{:<18}cannot be had: {cause}\n", row.0),
            };
            report.send_data(line.into()).await.ok()?;
        }
        report.send_data("\n".into()).await.ok()?;
    }
    Some(())
}

/// The first request has an original stored, and the second its variant made: helpers work on some
/// while others are looked at.
async fn begin(front: &Front) {
    for _ in 0..2 {
        for (_, target, fields) in PARTS.iter().flat_map(|(_, rows)| *rows) {
            let _looked_at_later = ask(front, target, fields).await;
        }
    }
}

/// Waits for `work`, and says now and then that it does. `None` when nobody reads the report any
/// more.
async fn telling<T>(report: &mut Sender<Bytes>, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    loop {
        match timeout(SILENCE_MAX, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) => report.send_data(WAITING.into()).await.ok()?,
        }
    }
}

/// Asks until what is answered stays, or it has taken too long.
async fn settled(
    front: &Front,
    (_, target, fields): &Row,
    deadline: Instant,
) -> std::io::Result<Answer> {
    loop {
        let answer = ask(front, target, fields).await?;
        if answer.is_settled() || Instant::now() >= deadline {
            return Ok(answer);
        }
        sleep(PAUSE).await;
    }
}

/// What Weir says of a response.
struct Answer {
    bytes: usize,
    media_type: String,
    adapt: String,
}

impl Answer {
    /// Of what was sent on a connection until its end.
    fn parse(sent: &[u8]) -> Option<Answer> {
        let end = sent.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&sent[..end]).ok()?;
        head.lines().next()?.split(' ').nth(1).filter(|status| *status == "200")?;
        let field = |wanted: &str| {
            let fields = head.lines().filter_map(|line| line.split_once(':'));
            let mut values = fields.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            values.next().map_or("-", |(_, value)| value.trim()).to_owned()
        };
        let media_type = field("content-type").split(';').next().unwrap_or_default().to_owned();
        Some(Answer { bytes: sent.len() - end - 4, media_type, adapt: field("weir-adapt") })
    }

    fn is_settled(&self) -> bool {
        let is_awaited = ["original;reason=pending", "original;reason=not-stored"];
        let is_meanwhile = [";draft", ";stream"].iter().any(|end| self.adapt.ends_with(end));
        !is_awaited.contains(&&*self.adapt) && !is_meanwhile
    }

    fn line(&self, name: &str) -> String {
        format!("{name:<18}{:>10}  {:<15} {}\n", self.bytes, self.media_type, self.adapt)
    }
}

async fn ask(front: &Front, target: &str, fields: &str) -> std::io::Result<Answer> {
    let asked = async {
        let mut stream = TcpStream::connect(front.address).await?;
        let line = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n", front.host);
        stream.write_all(format!("{line}Connection: close\r\n{fields}\r\n").as_bytes()).await?;
        let mut sent = Vec::new();
        stream.take(ANSWER_MAX).read_to_end(&mut sent).await?;
        Answer::parse(&sent).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
    };
    timeout(ANSWER_TIMEOUT, asked)
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_report_is_not_silent_while_it_waits() {
        let (mut report, body) = Channel::new(4);
        let late = telling(&mut report, sleep(SILENCE_MAX * 2 + PAUSE)).await;
        assert_eq!((late, telling(&mut report, async { 1 }).await), (Some(()), Some(1)));
        drop(report);
        assert_eq!(body.collect().await.unwrap().to_bytes(), WAITING.repeat(2));
        let (mut report, body) = Channel::new(4);
        drop(body);
        let unread = telling(&mut report, std::future::pending::<()>()).await;
        assert_eq!(unread, None);
    }
}
