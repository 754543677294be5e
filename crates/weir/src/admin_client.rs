//! The client side of the admin API.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use weir_config::Address;

/// Bytes of an answer; a status with thousands of routes has some.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A reload with slow disks may take a while, and so may the compiler with a large plugin on a busy
/// machine; nothing takes longer.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Why a command got no answer.
pub(crate) enum Failure {
    /// The address is none.
    Address(String),
    /// Nobody answered.
    Unreachable { admin: String, cause: String },
    /// The server refused, for this reason.
    Refused(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Address(why) => write!(f, "--admin: {why}"),
            Failure::Unreachable { admin, cause } => write!(
                f,
                "cannot reach a server's admin API at {admin}: {cause}\n\
                 Is the server running? `--admin ADDR` names another address."
            ),
            Failure::Refused(why) => write!(f, "the server refused: {why}"),
        }
    }
}

/// Asks for a resource; the answer is JSON.
pub(crate) fn get(admin: &str, path: &str) -> Result<String, Failure> {
    ask(admin, Method::GET, path, Content::json(""))
}

/// Asks for a change; body and answer are JSON.
pub(crate) fn post(admin: &str, path: &str, body: &str) -> Result<String, Failure> {
    ask(admin, Method::POST, path, Content::json(body))
}

/// Asks for a change with a body of another type; the answer is JSON.
pub(crate) fn upload(
    admin: &str,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> Result<String, Failure> {
    let content = Content { media_type: content_type.to_owned(), bytes: body.into() };
    ask(admin, Method::POST, path, content)
}

/// Sends what is to be in the place of what is there; the answer is JSON.
pub(crate) fn put(
    admin: &str,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> Result<String, Failure> {
    let content = Content { media_type: content_type.to_owned(), bytes: body.into() };
    ask(admin, Method::PUT, path, content)
}

/// Asks for something to be removed; the answer is JSON.
pub(crate) fn delete(admin: &str, path: &str) -> Result<String, Failure> {
    ask(admin, Method::DELETE, path, Content::json(""))
}

/// A request's body.
struct Content {
    media_type: String,
    bytes: Bytes,
}

impl Content {
    fn json(text: &str) -> Content {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        Content { media_type: "application/json".to_owned(), bytes }
    }
}

/// Reads an answer.
pub(crate) fn parse<T: DeserializeOwned>(answer: &str) -> Result<T, Failure> {
    serde_json::from_str(answer)
        .map_err(|cause| Failure::Refused(format!("its answer is not understood: {cause}")))
}

fn ask(admin: &str, method: Method, path: &str, body: Content) -> Result<String, Failure> {
    let address = weir_config::parse_listen(admin).map_err(Failure::Address)?;
    let unreachable = |cause: String| Failure::Unreachable { admin: admin.to_owned(), cause };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| unreachable(e.to_string()))?;
    let answer = runtime.block_on(async {
        tokio::time::timeout(TIMEOUT, exchange(address, method, path, body)).await
    });
    let (accepted, text) = answer
        .map_err(|_| unreachable(format!("no answer within {} s", TIMEOUT.as_secs())))?
        .map_err(|e| unreachable(e.to_string()))?;
    if accepted {
        return Ok(text);
    }
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    Err(Failure::Refused(answer["error"].as_str().unwrap_or(text.trim()).to_owned()))
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    address: Address,
    method: Method,
    path: &str,
    body: Content,
) -> Result<(bool, String), BoxError> {
    match address {
        Address::Tcp(address) => {
            let stream = tokio::net::TcpStream::connect(address).await?;
            send(stream, &address.to_string(), method, path, body).await
        }
        Address::Unix(socket) => {
            let stream = tokio::net::UnixStream::connect(socket).await?;
            send(stream, "localhost", method, path, body).await
        }
    }
}

async fn send<S>(
    stream: S,
    host: &str,
    method: Method,
    path: &str,
    body: Content,
) -> Result<(bool, String), BoxError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, body.media_type)
        .body(Full::new(body.bytes))?;
    let response = sender.send_request(request).await?;
    let accepted = response.status().is_success();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?.to_bytes();
    Ok((accepted, String::from_utf8_lossy(&body).into_owned()))
}
