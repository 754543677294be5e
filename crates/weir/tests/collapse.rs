//! One fill for many: concurrent misses make one request to the origin, whoever of them leaves.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::client::{self, Client, Response};
use common::origin::{self, Origin, Step, answer, read_head};
use common::server::{Weir, front_config};
use common::{PATIENCE, free_address, wait_for};

const FRESH: &str = "Cache-Control: max-age=600\r\n";
const ASK: &[u8] = b"GET /a HTTP/1.1\r\nHost: site.example\r\n\r\n";

/// An origin that hands over each connection once a request is read from it, for the test to
/// answer when it likes.
struct Held {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    connections: Receiver<TcpStream>,
}

fn held() -> Held {
    let (send, connections) = channel();
    let send: Mutex<Sender<TcpStream>> = Mutex::new(send);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let address = origin::raw(move |_, mut stream| {
        if read_head(&mut stream).is_ok() {
            count.fetch_add(1, SeqCst);
            let _ = send.lock().unwrap().send(stream);
        }
    });
    Held { address, asked, connections }
}

impl Held {
    fn next(&self) -> TcpStream {
        self.connections.recv_timeout(PATIENCE).expect("the origin is not asked")
    }
}

/// Weir before an origin, and its admin address.
fn front(origin: SocketAddr, lines: &str) -> (Weir, SocketAddr, SocketAddr) {
    let (address, admin) = (free_address(), free_address());
    let rest = format!("server {{ workers 2; admin \"{admin}\"; }}");
    let route = format!(r#"route "/*" {{ proxy "http://{origin}"; {lines}; }}"#);
    (Weir::run(&front_config(address, &rest, &route), &[address, admin]), address, admin)
}

/// Requests that have joined another's fill so far.
fn collapsed(admin: SocketAddr) -> usize {
    let page = client::get(admin, "localhost", "/metrics").unwrap().body;
    let page = String::from_utf8(page).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("weir_cache_collapsed_total "));
    line.unwrap().trim().parse().unwrap()
}

fn wait_for_followers(admin: SocketAddr, count: usize) {
    let reached = wait_for(PATIENCE, || (collapsed(admin) >= count).then_some(()));
    assert!(reached.is_some(), "{} of {count} follow", collapsed(admin));
}

fn ask(address: SocketAddr) -> Client {
    let mut client = Client::connect(address).unwrap();
    client.send(ASK).unwrap();
    client
}

fn purge(admin: SocketAddr, what: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let purge = command.arg("purge").args(what).args(["--admin", &admin.to_string()]);
    let purge = purge.output().unwrap();
    assert!(purge.status.success(), "{}", String::from_utf8_lossy(&purge.stderr));
}

fn is_hit(response: &Response) -> bool {
    response.header("cache-status").is_some_and(|value| value.starts_with("weir; hit"))
}

#[test]
fn a_hundred_misses_are_one_request() {
    let origin = held();
    let (_weir, address, admin) = front(origin.address, "");
    let clients: Vec<Client> = (0..100).map(|_| ask(address)).collect();
    let mut connection = origin.next();
    wait_for_followers(admin, 99);
    let body: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let head = format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: {}\r\n\r\n", body.len());
    connection.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    let mut shared = 0;
    for mut client in clients {
        let got = client.response("GET").unwrap();
        assert!(got.status == 200 && got.body == body, "{:?}", got.headers);
        shared += usize::from(got.header("cache-status").unwrap().contains("collapsed"));
    }
    assert_eq!((origin.asked.load(SeqCst), shared), (1, 99));
    assert!(is_hit(&client::ask(address, "GET", "/a", &[])));
}

#[test]
fn whoever_started_may_leave() {
    let origin = held();
    let (_weir, address, admin) = front(origin.address, "");
    let leader = ask(address);
    let mut connection = origin.next();
    let mut follower = ask(address);
    wait_for_followers(admin, 1);
    drop(leader);
    connection
        .write_all(format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: 6\r\n\r\nabc").as_bytes())
        .unwrap();
    follower.head().unwrap();
    assert_eq!(follower.take(3).unwrap(), b"abc");
    // Now nobody is left, and the cache still wants the rest.
    drop(follower);
    thread::sleep(Duration::from_millis(50));
    connection.write_all(b"def").unwrap();
    let hit = wait_for(PATIENCE, || {
        let got = client::ask(address, "GET", "/a", &[]);
        assert_eq!(got.body, b"abcdef");
        is_hit(&got).then_some(())
    });
    assert!(hit.is_some(), "the fill ended with its clients");
    assert_eq!(origin.asked.load(SeqCst), 1);
}

#[test]
fn a_slow_fill_is_read_while_it_is_written() {
    const PIECE: usize = 10_000;
    let origin = held();
    let (_weir, address, _) = front(origin.address, "");
    let mut readers = vec![ask(address)];
    let mut connection = origin.next();
    write!(connection, "HTTP/1.1 200 OK\r\n{FRESH}Content-Length: {}\r\n\r\n", 4 * PIECE).unwrap();
    readers[0].head().unwrap();
    for round in 0..4_u8 {
        let mut late = ask(address);
        late.head().unwrap();
        connection.write_all(&[round; PIECE]).unwrap();
        for reader in &mut readers {
            assert_eq!(reader.take(PIECE).unwrap(), [round; PIECE]);
        }
        // Who comes late gets all from the beginning.
        for earlier in 0..=round {
            assert_eq!(late.take(PIECE).unwrap(), [earlier; PIECE]);
        }
        readers.push(late);
    }
    assert_eq!(origin.asked.load(SeqCst), 1);
}

#[test]
fn followers_are_told_at_once_when_the_leader_fails() {
    let origin = held();
    let (weir, address, admin) = front(origin.address, "");
    let clients: Vec<Client> = (0..20).map(|_| ask(address)).collect();
    let mut connection = origin.next();
    wait_for_followers(admin, 19);
    let start = Instant::now();
    connection.write_all(b"what is this?\r\n\r\n").unwrap();
    for mut client in clients {
        assert_eq!(client.response("GET").unwrap().status, 502);
    }
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(origin.asked.load(SeqCst), 1);
    weir.wait_for_log(&origin.address.to_string());
    // Nothing of it is remembered.
    let mut next = ask(address);
    origin.next().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    assert_eq!(next.response("GET").unwrap().body, b"ok");
}

#[test]
fn a_torn_fill_tears_for_all_and_is_not_stored() {
    let origin = held();
    let (_weir, address, admin) = front(origin.address, "");
    let clients: Vec<Client> = (0..10).map(|_| ask(address)).collect();
    let mut connection = origin.next();
    wait_for_followers(admin, 9);
    let head = format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: 100\r\n\r\nonly this");
    connection.write_all(head.as_bytes()).unwrap();
    drop(connection);
    for mut client in clients {
        let torn = client.response("GET").unwrap_err();
        assert_eq!(torn.kind(), std::io::ErrorKind::UnexpectedEof);
    }
    let mut next = ask(address);
    origin.next().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    assert_eq!(next.response("GET").unwrap().body, b"ok");
}

/// What is purged while it arrives is still sent to those who wait, and never stored.
#[test]
fn a_purge_reaches_what_is_still_arriving() {
    let origin = held();
    let (_weir, address, admin) = front(origin.address, "");
    let mut leader = ask(address);
    let mut connection = origin.next();
    let head = format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: 6\r\n\r\nold");
    connection.write_all(head.as_bytes()).unwrap();
    leader.head().unwrap();
    purge(admin, &["http://site.example/a"]);
    // Who comes after the purge must not get what was there before it.
    let mut late = ask(address);
    let mut second = origin.next();
    connection.write_all(b"old").unwrap();
    assert_eq!(leader.take(6).unwrap(), b"oldold");
    let head = format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: 3\r\n\r\nnew");
    second.write_all(head.as_bytes()).unwrap();
    assert_eq!(late.response("GET").unwrap().body, b"new");
    let next = client::ask(address, "GET", "/a", &[]);
    assert!(is_hit(&next) && next.body == b"new", "{:?}", next.body);
}

#[test]
fn whom_the_answer_does_not_suit_asks_again() {
    let origin = Origin::start(|request| {
        let language = request.values("accept-language").concat();
        let fields = format!("{FRESH}Vary: Accept-Language\r\n");
        let whole = answer("200 OK", &fields, language.as_bytes()).remove(0);
        vec![Step::Pause(Duration::from_millis(200)), whole]
    });
    let (_weir, address, _) = front(origin.address, "");
    thread::scope(|scope| {
        for number in 0..30 {
            scope.spawn(move || {
                let language = ["de", "en", "fr"][number % 3];
                let got = client::ask(address, "GET", "/a", &[("Accept-Language", language)]);
                assert_eq!(got.body, language.as_bytes());
            });
        }
    });
    assert_eq!(origin.take().len(), 3, "one request for each variant");
}

#[test]
fn waiting_for_another_has_an_end() {
    let origin = held();
    let (_weir, address, admin) = front(origin.address, "cache collapse-timeout=\"200ms\"");
    let mut leader = ask(address);
    let mut first = origin.next();
    let mut follower = ask(address);
    wait_for_followers(admin, 1);
    // The one who waited goes by itself.
    origin.next().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown").unwrap();
    assert_eq!(follower.response("GET").unwrap().body, b"own");
    first.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate").unwrap();
    assert_eq!(leader.response("GET").unwrap().body, b"late");
}

/// Answers with a body, as the last on its connection: the origin reads one request from each.
fn tell(mut connection: TcpStream, status: &str, fields: &str, body: &str) {
    let length = body.len();
    let fields = format!("{fields}Connection: close\r\nContent-Length: {length}\r\n");
    let text = format!("HTTP/1.1 {status}\r\n{fields}\r\n{body}");
    connection.write_all(text.as_bytes()).unwrap();
}

/// Has an answer that cannot be stored leave its mark.
fn mark(origin: &Held, address: SocketAddr) {
    let mut client = ask(address);
    tell(origin.next(), "500 Oh", "", "no");
    assert_eq!(client.response("GET").unwrap().status, 500);
}

/// After an answer that could not be stored nobody waits, and the first that can be stored is.
#[test]
fn under_a_mark_the_first_storable_answer_is_stored() {
    let origin = held();
    let (_weir, address, _) = front(origin.address, "");
    mark(&origin, address);
    // All are at the origin before one is answered.
    let asked: Vec<(Client, TcpStream)> = (0..4).map(|_| (ask(address), origin.next())).collect();
    for (number, (mut client, connection)) in asked.into_iter().enumerate() {
        match number {
            0 => tell(connection, "500 Oh", "", "0"),
            _ => tell(connection, "200 OK", FRESH, &number.to_string()),
        }
        let got = client.response("GET").unwrap();
        assert_eq!(got.body, number.to_string().as_bytes());
        let stored = got.header("cache-status").unwrap().contains("stored");
        assert_eq!(stored, number == 1, "{number}: {:?}", got.headers);
    }
    let hit = client::ask(address, "GET", "/a", &[]);
    assert!(is_hit(&hit) && hit.body == b"1", "{:?}", hit.headers);
    assert_eq!(origin.asked.load(SeqCst), 5);
}

/// Those who waited for an answer that cannot be shared go to the origin all at once, and the first
/// of their answers that can be stored is.
#[test]
fn released_followers_store_what_they_get() {
    let origin = held();
    let (_weir, address, admin) = front(origin.address, "");
    let clients: Vec<Client> = (0..20).map(|_| ask(address)).collect();
    let first = origin.next();
    wait_for_followers(admin, 19);
    tell(first, "500 Oh", "", "no");
    let connections: Vec<TcpStream> = (0..19).map(|_| origin.next()).collect();
    for connection in connections {
        tell(connection, "200 OK", FRESH, "yes");
    }
    let got = clients.into_iter().map(|mut client| client.response("GET").unwrap().status);
    assert_eq!(got.filter(|&status| status == 200).count(), 19);
    assert!(is_hit(&client::ask(address, "GET", "/a", &[])));
    assert_eq!(origin.asked.load(SeqCst), 20);
}

/// What was asked for before a purge is not stored after it, though no fill had begun.
#[test]
fn a_purge_reaches_what_is_asked_for_under_a_mark() {
    let purges: [&[&str]; 4] = [
        &["http://site.example/a"],
        &["http://site.example/a", "--soft"],
        &["--site", "*"],
        &["--all"],
    ];
    for what in purges {
        let origin = held();
        let (_weir, address, admin) = front(origin.address, "");
        // Asked for before the purge, its head comes after.
        mark(&origin, address);
        let (mut client, connection) = (ask(address), origin.next());
        purge(admin, what);
        tell(connection, "200 OK", FRESH, "old");
        assert_eq!(client.response("GET").unwrap().body, b"old", "{what:?}");
        // Its head comes before the purge, its end after.
        mark(&origin, address);
        let (mut client, mut connection) = (ask(address), origin.next());
        let fields = format!("{FRESH}Connection: close\r\nContent-Length: 3\r\n");
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\nol");
        connection.write_all(head.as_bytes()).unwrap();
        client.head().unwrap();
        purge(admin, what);
        connection.write_all(b"d").unwrap();
        drop(connection);
        assert_eq!(client.take(3).unwrap(), b"old", "{what:?}");
        let mut next = ask(address);
        tell(origin.next(), "200 OK", FRESH, "new");
        assert_eq!(next.response("GET").unwrap().body, b"new", "{what:?}");
        let hit = client::ask(address, "GET", "/a", &[]);
        assert!(is_hit(&hit) && hit.body == b"new", "{what:?}: {:?}", hit.body);
    }
}
