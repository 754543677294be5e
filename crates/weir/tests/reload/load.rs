//! Clients that ask without pause, and count strictly: a request fails if its bytes were sent and
//! no complete right response came. A connection found closed before a request is sent on it, and
//! one that cannot be made, are no failures.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::common::PATIENCE;
use crate::common::client::Client;

/// Whether a body is a right one for a target.
pub(crate) type Right = fn(&str, &[u8]) -> bool;

/// Clients at work.
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    address: SocketAddr,
    targets: &'static [&'static str],
    right: Right,
    over: AtomicBool,
    answered: AtomicUsize,
    answered_http2: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

impl Load {
    /// Starts clients with kept connections, with a connection for each request, and with HTTP/2.
    pub(crate) fn start(
        address: SocketAddr,
        targets: &'static [&'static str],
        right: Right,
    ) -> Load {
        let shared = Arc::new(Shared {
            address,
            targets,
            right,
            over: AtomicBool::new(false),
            answered: AtomicUsize::new(0),
            answered_http2: AtomicUsize::new(0),
            failures: Mutex::default(),
        });
        let kinds: [fn(&Shared, usize); 7] =
            [keep_alive, keep_alive, keep_alive, slow_keep_alive, single, single, http2];
        let run = |(number, kind): (usize, fn(&Shared, usize))| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || kind(&shared, number))
        };
        let threads = kinds.into_iter().enumerate().map(run).collect();
        Load { shared, threads }
    }

    /// Requests answered so far.
    pub(crate) fn answered(&self) -> usize {
        self.shared.answered.load(SeqCst)
    }

    /// Ends the clients; requests answered in all and by HTTP/2, and what failed.
    pub(crate) fn stop(self) -> (usize, usize, Vec<String>) {
        self.shared.over.store(true, SeqCst);
        self.finish()
    }

    /// Waits until the clients cannot connect any more, which ends them.
    pub(crate) fn finish(self) -> (usize, usize, Vec<String>) {
        for thread in self.threads {
            thread.join().unwrap();
        }
        let failures = std::mem::take(&mut *self.shared.failures.lock().unwrap());
        (self.shared.answered.load(SeqCst), self.shared.answered_http2.load(SeqCst), failures)
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    fn target(&self, number: usize) -> &'static str {
        self.targets[number % self.targets.len()]
    }

    fn judge(&self, what: &str, target: &str, status: u16, body: &[u8]) {
        if status == 200 && (self.right)(target, body) {
            self.answered.fetch_add(1, SeqCst);
        } else {
            let start = String::from_utf8_lossy(&body[..body.len().min(100)]).into_owned();
            self.fail(format!("{what} {target}: {status}, {} bytes, {start}", body.len()));
        }
    }

    fn fail(&self, what: String) {
        self.failures.lock().unwrap().push(what);
    }
}

fn keep_alive(shared: &Shared, number: usize) {
    on_kept_connections(shared, number, Duration::ZERO);
}

/// With pauses such as people make, shorter than those in which idle connections are closed.
fn slow_keep_alive(shared: &Shared, number: usize) {
    on_kept_connections(shared, number, Duration::from_millis(20));
}

fn on_kept_connections(shared: &Shared, number: usize, pause: Duration) {
    let mut next = number;
    'connect: while !shared.is_over() {
        let Ok(mut client) = Client::connect(shared.address) else { return };
        while !shared.is_over() {
            match has_ended(&client) {
                Ok(false) => {}
                Ok(true) => continue 'connect,
                Err(what) => shared.fail(what),
            }
            let target = shared.target(next);
            next += 1;
            match client.ask("GET", target, &[]) {
                Ok(got) => {
                    shared.judge("kept", target, got.status, &got.body);
                    if got.says_close() {
                        continue 'connect;
                    }
                }
                Err(error) => {
                    shared.fail(format!("kept {target}: {error}"));
                    continue 'connect;
                }
            }
            thread::sleep(pause);
        }
    }
}

/// Whether the server has closed a connection; bytes that nobody asked for are a failure.
fn has_ended(client: &Client) -> Result<bool, String> {
    client.stream().set_nonblocking(true).unwrap();
    let peeked = client.stream().peek(&mut [0]);
    client.stream().set_nonblocking(false).unwrap();
    match peeked {
        Ok(0) => Ok(true),
        Ok(_) => Err("kept: bytes between two responses".to_owned()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(format!("kept, idle: {error}")),
    }
}

fn single(shared: &Shared, number: usize) {
    let mut next = number;
    while !shared.is_over() {
        let Ok(mut client) = Client::connect(shared.address) else { return };
        let target = shared.target(next);
        next += 1;
        match client.ask("GET", target, &[("Connection", "close")]) {
            Ok(got) => shared.judge("single", target, got.status, &got.body),
            Err(error) => shared.fail(format!("single {target}: {error}")),
        }
    }
}

fn http2(shared: &Shared, number: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut next = number;
        while !shared.is_over() {
            if http2_connection(shared, &mut next).await.is_err() {
                return;
            }
        }
    });
}

/// Requests on one connection until the server says that it takes no more; an error if none can be
/// made.
async fn http2_connection(shared: &Shared, next: &mut usize) -> io::Result<()> {
    let stream = tokio::net::TcpStream::connect(shared.address).await?;
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(io::Error::other)?;
    tokio::spawn(connection);
    while !shared.is_over() && sender.ready().await.is_ok() {
        let target = shared.target(*next);
        *next += 1;
        let url = format!("http://site.example{target}");
        let request = Request::get(url).body(Empty::<Bytes>::new()).unwrap();
        let exchange = async {
            let response = match sender.try_send_request(request).await {
                Ok(response) => response,
                // It comes back with the error if not a byte of it was sent.
                Err(mut error) => match error.take_message() {
                    Some(_) => return Ok(None),
                    None => return Err(error.into_error()),
                },
            };
            let status = response.status().as_u16();
            Ok(Some((status, response.into_body().collect().await?.to_bytes())))
        };
        match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(Ok(Some((status, body)))) => {
                shared.judge("http2", target, status, &body);
                shared.answered_http2.fetch_add(1, SeqCst);
            }
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => shared.fail(format!("http2 {target}: {error:?}")),
            Err(_) => shared.fail(format!("http2 {target}: no answer")),
        }
    }
    Ok(())
}
