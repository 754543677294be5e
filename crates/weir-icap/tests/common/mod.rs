//! A service that says what it is told to when it has heard what it waits for.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use weir_icap::{Address, BoxError, Content, Failed, Modified, Service, Settings, Shown};

/// How long a service may stand still: long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// For one connection after the other: what is said when something has been heard.
type Lines<'a> = Vec<Vec<(&'a str, &'a str)>>;

pub(crate) struct Script(JoinHandle<String>);

impl Script {
    /// Nothing is said, and the connection stays open.
    pub(crate) const SILENT: &str = "silent";

    /// Waits until all has been said; returns what was heard.
    pub(crate) async fn end(self) -> String {
        tokio::time::timeout(PATIENCE, self.0).await.unwrap().unwrap()
    }
}

pub(crate) async fn service(lines: Lines<'_>) -> (Service, Script) {
    patient_service(PATIENCE, lines).await
}

/// One that may stand still for so long.
pub(crate) async fn patient_service(timeout: Duration, lines: Lines<'_>) -> (Service, Script) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let owned = lines.into_iter().map(|line| {
        line.into_iter().map(|(say, hear)| (say.to_owned(), hear.to_owned())).collect()
    });
    let lines: Vec<Vec<(String, String)>> = owned.collect();
    let task = tokio::spawn(async move {
        let mut all = String::new();
        for line in lines {
            let (stream, _) = listener.accept().await.unwrap();
            all.push_str(&serve(stream, line).await);
        }
        all
    });
    (service_at(port, timeout), Script(task))
}

async fn serve(mut stream: TcpStream, line: Vec<(String, String)>) -> String {
    let mut heard = String::new();
    let mut from = 0;
    for (say, hear) in line {
        while !heard[from..].contains(&hear) {
            let mut buffer = [0; 65_536];
            let len = stream.read(&mut buffer).await.unwrap();
            if len == 0 {
                return heard;
            }
            heard.push_str(std::str::from_utf8(&buffer[..len]).unwrap());
        }
        from = heard.len();
        if say == Script::SILENT {
            tokio::time::sleep(PATIENCE).await;
            continue;
        }
        stream.write_all(say.as_bytes()).await.unwrap();
    }
    heard
}

fn service_at(port: u16, timeout: Duration) -> Service {
    let settings = Settings {
        address: Address { host: "127.0.0.1".to_owned(), port },
        path: "/respmod".to_owned(),
        connections: 4,
        timeout,
    };
    Service::new(settings, 1)
}

/// A service that nobody serves.
pub(crate) async fn nobody() -> Service {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    service_at(listener.local_addr().unwrap().port(), PATIENCE)
}

/// Shows a response.
pub(crate) async fn ask(service: &Service, content: Option<Content>) -> Result<Modified, Failed> {
    let (uri, headers) = (Uri::from_static("http://a.example/x"), HeaderMap::new());
    let response = Some((StatusCode::OK, &headers));
    let shown = Shown { method: &Method::GET, uri: &uri, headers: &headers, response, extra: &[] };
    service.modify(0, shown, content).await
}

/// Content in these pieces, whose length is known.
pub(crate) fn content(pieces: &[&str]) -> Content {
    Pieces::boxed(pieces, true)
}

pub(crate) fn unsized_content(pieces: &[&str]) -> Content {
    Pieces::boxed(pieces, false)
}

pub(crate) fn slow_content() -> (Sender<Bytes, BoxError>, Content) {
    let (sender, channel) = Channel::new(4);
    (sender, channel.boxed_unsync())
}

pub(crate) async fn text_of(content: Content) -> Result<String, BoxError> {
    let bytes = content.collect().await?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

/// How often content ended in what a service heard.
pub(crate) fn chunks(heard: &str) -> usize {
    heard.matches("\r\n0\r\n\r\n").count()
}

struct Pieces {
    left: std::collections::VecDeque<Bytes>,
    is_sized: bool,
}

impl Pieces {
    fn boxed(pieces: &[&str], is_sized: bool) -> Content {
        if let ([piece], true) = (pieces, is_sized) {
            let full = Full::new(Bytes::from((*piece).to_owned()));
            return full.map_err(|never| match never {}).boxed_unsync();
        }
        let left = pieces.iter().map(|piece| Bytes::from((*piece).to_owned())).collect();
        Pieces { left, is_sized }.boxed_unsync()
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        let piece = self.left.pop_front();
        std::task::Poll::Ready(piece.map(|piece| Ok(http_body::Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_sized && self.left.is_empty()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        let len = self.left.iter().map(|piece| piece.len() as u64).sum();
        match self.is_sized {
            true => http_body::SizeHint::with_exact(len),
            false => http_body::SizeHint::default(),
        }
    }
}
