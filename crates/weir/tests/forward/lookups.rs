//! Names that clients have looked up: once for all who ask, and no more at a time than may be.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{Method, Request, Version};
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::http2::{begin, run, speak};
use super::tunnels::metric;
use super::*;

/// How long the server's resolver waits for an answer.
const RESOLVER_WAITS: Duration = Duration::from_secs(2);

/// Names that a name server was asked for, which never answers; of each, as often as it was.
type Asked = Arc<Mutex<Vec<Vec<u8>>>>;

/// A proxy whose name server is silent, with its admin API. `None`, and a line that says why,
/// without the privilege to be one.
fn with_a_silent_name_server(number: u8) -> Option<(Weir, SocketAddr, SocketAddr, Asked)> {
    let server = format!("127.77.53.{number}");
    let socket = match UdpSocket::bind((&*server, 53)) {
        Ok(socket) => socket,
        Err(error) => {
            eprintln!("skipped: no name server here: {error}");
            return None;
        }
    };
    let directory = TempDir::new().unwrap();
    let resolv = format!("nameserver {server}\noptions timeout:2 attempts:1\n");
    std::fs::write(directory.path().join("resolv.conf"), resolv).unwrap();
    std::fs::write(directory.path().join("hosts"), "127.0.0.1 localhost\n").unwrap();
    let (address, admin) = (free_address(), free_address());
    let rest = format!("server {{ workers 2; admin \"{admin}\"; }}");
    let route = "route \"/*\" { forward; }";
    let config = front_config(address, &rest, route);
    let weir = Weir::run_with_hosts(directory, &config, &[address, admin])?;
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok(len) = socket.recv(&mut packet) {
            // Behind the header: the name, ended by an empty label, and what of it is wanted.
            let name = packet[12..len].split(|byte| *byte == 0).next().unwrap_or_default();
            noted.lock().unwrap().push(name.to_vec());
        }
    });
    Some((weir, address, admin, asked))
}

#[test]
fn a_name_is_looked_up_once_for_all_who_ask() {
    let Some((_weir, proxy, admin, asked)) = with_a_silent_name_server(1) else { return };
    run(async {
        let mut client = speak(TcpStream::connect(proxy).await.unwrap()).await;
        let answers: Vec<_> = (0..40)
            .map(|number| {
                // Different things of one host, so that nobody waits for another's response.
                let url = format!("http://silent.test/{number}");
                let request = Request::get(url).version(Version::HTTP_2).body(()).unwrap();
                client.send_request(request, true).unwrap().0
            })
            .collect();
        for answer in answers {
            assert_eq!(answer.await.unwrap().status().as_u16(), 502);
        }
        // Tunnels lead by the same look-ups.
        let (status, _, _) = begin(&mut client, Method::CONNECT, "silent.test:443").await;
        assert_eq!(status, 502);
    });
    let (asked, lookups) = (asked.lock().unwrap().len(), |result| {
        metric(admin, &format!("weir_forward_lookups_total{{result=\"{result}\"}}"))
    });
    // By each look-up for IPv4 and for IPv6; one for the requests and one for the tunnel.
    assert_eq!((asked, lookups("unresolved"), lookups("joined")), (4, 2, 39));
    assert_eq!(metric(admin, "weir_forward_lookups"), 0);
}

#[test]
fn names_beyond_those_that_may_be_asked_for_are_refused() {
    let Some((_weir, proxy, admin, asked)) = with_a_silent_name_server(2) else { return };
    let began = Instant::now();
    let mut refused = 0;
    run(async {
        let mut clients = Vec::new();
        let mut answers = FuturesUnordered::new();
        for number in 0..1400 {
            if number % 100 == 0 {
                clients.push(speak(TcpStream::connect(proxy).await.unwrap()).await);
            }
            let client = clients.last_mut().unwrap();
            let request = Request::get(format!("http://silent{number}.test/"));
            let request = request.version(Version::HTTP_2).body(()).unwrap();
            answers.push(client.send_request(request, true).unwrap().0);
        }
        // Some come when there are enough; the others are answered when the resolver gives up.
        while refused == 0 || began.elapsed() < RESOLVER_WAITS {
            let answer = answers.next().await.unwrap().unwrap();
            if answer.status().as_u16() == 502 {
                continue;
            }
            let field = answer.headers().get("proxy-status").unwrap().to_str().unwrap().to_owned();
            assert_eq!(answer.status().as_u16(), 503);
            assert_eq!(field, "weir; error=http_request_denied; details=\"lookups\"");
            assert_eq!(answer.headers()["retry-after"], "1");
            refused += 1;
        }
        let names: BTreeSet<_> = asked.lock().unwrap().iter().cloned().collect();
        let turns = began.elapsed().as_secs() / RESOLVER_WAITS.as_secs() + 1;
        assert!(names.len() as u64 <= 64 * turns, "{} names in {turns} turns", names.len());
    });
    assert!(refused > 0);
    assert!(metric(admin, "weir_forward_lookups") <= 1024);
    assert!(metric(admin, "weir_forward_denied_total{reason=\"lookups\"}") >= refused);
}
