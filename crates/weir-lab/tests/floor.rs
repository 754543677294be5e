//! The floor and the generator against each other on loopback: what one sends the other counts,
//! and each notices when the other is wrong.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use weir_lab::app::{self, Application};
use weir_lab::documents::{self, document};
use weir_lab::floor::{Content, Folder, Pages, serve};
use weir_lab::load::blocking::{self, Options};
use weir_lab::load::{self, Arrivals, Asks, Edge, Group, Plan};

const SIZES: [usize; 4] = [1, 1_024, 16_385, 1 << 20];

/// Serves on a free port for as long as the test runs.
fn serve_in_thread<C: Content + 'static>(
    content: impl FnOnce() -> C + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("a bound socket");
    thread::spawn(move || serve(&OwnedFd::from(listener), &mut content()));
    address
}

fn floor() -> SocketAddr {
    floor_from(Pages::Memfd)
}

fn floor_from(pages: Pages) -> SocketAddr {
    let root = tempfile::tempdir().expect("a writable folder for temporary files");
    documents::write_all(root.path(), &SIZES).expect("room for files");
    let folder = Folder::load(root.path(), pages).expect("the files just written");
    serve_in_thread(move || folder)
}

fn plan(server: SocketAddr, size: usize, persistent: bool) -> Plan {
    let group = Group {
        name: "all",
        asks: Asks::same(documents::target(size), document(size)),
        mark: None,
        clients: 5,
        arrivals: Arrivals::Closed,
        sources: Vec::new(),
    };
    Plan {
        server,
        persistent,
        warm_up: Duration::from_millis(20),
        window: Duration::from_millis(150),
        groups: vec![group],
        refusals: None,
    }
}

#[test]
fn requests_and_bytes_add_up() {
    let server = floor();
    for size in SIZES {
        for persistent in [true, false] {
            let mut edges = Vec::new();
            let plan = plan(server, size, persistent);
            let outcome = load::run_one(&plan, &mut |edge| edges.push(edge)).unwrap();
            let what = format!("{size} bytes, persistent {persistent}: {outcome:?}");
            assert_eq!(edges, [Edge::Opens, Edge::Closes]);
            assert!(outcome.requests > 0, "{what}");
            assert_eq!(outcome.body_bytes, outcome.requests * size as u64, "{what}");
            assert_eq!((outcome.errors, &outcome.first_error), (0, &None), "{what}");
            assert_eq!(outcome.latency_ns.len(), outcome.requests, "{what}");
            assert!(outcome.elapsed >= plan.window, "{what}");
            if persistent {
                assert_eq!(outcome.connections, 0, "all were opened before the window: {what}");
            } else {
                let open = plan.groups[0].clients as u64;
                assert!(outcome.connections.abs_diff(outcome.requests) <= open, "{what}");
            }
        }
    }
}

#[test]
fn bodies_are_compared() {
    let mut plan = plan(floor(), 1_024, true);
    let mut wrong = document(1_024);
    wrong[1_023] ^= 1;
    plan.groups[0].asks = Asks::same(documents::target(1_024), wrong);
    let message = load::run_one(&plan, &mut |_| ()).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("body differs"), "{message}");
}

#[test]
fn wrong_status_and_length_are_noticed() {
    let server = floor();
    let check = |change: fn(&mut Plan), expect: &str| {
        let mut plan = plan(server, 1_024, true);
        change(&mut plan);
        let message = load::run_one(&plan, &mut |_| ()).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(expect), "{message}");
    };
    check(
        |plan| plan.groups[0].asks = Asks::same("/static/none.html", document(1_024)),
        "status 404, expected 200",
    );
    check(
        |plan| plan.groups[0].asks = Asks::same(documents::target(1_024), document(1_023)),
        "Length(1024), expected Length(1023)",
    );
}

#[test]
fn nobody_listening_is_an_error_and_no_hang() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let plan = plan(listener.local_addr().unwrap(), 1_024, false);
    drop(listener);
    assert!(load::run_one(&plan, &mut |_| ()).is_err());
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let mut plan = plan(floor(), 1_024, true);
    plan.groups[0].arrivals = Arrivals::Even(1_000.0);
    plan.window = Duration::from_millis(500);
    let outcome = load::run_one(&plan, &mut |_| ()).unwrap();
    // 500 are due; a busy machine may shift some over the edges, but never make more of them.
    assert!((300..=530).contains(&outcome.requests), "{outcome:?}");
}

#[test]
fn requests_in_pieces_and_several_at_once_are_answered() {
    let mut stream = TcpStream::connect(floor()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", documents::target(1_024));
    for piece in request.as_bytes().chunks(7) {
        stream.write_all(piece).unwrap();
        stream.flush().unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(blocking::read_response(&mut stream).unwrap(), document(1_024));

    let last = request.replace("Host: a", "Host: a\r\nConnection: close");
    stream.write_all(format!("{request}{request}{last}").as_bytes()).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let bodies = all.windows(1_024).filter(|part| *part == document(1_024)).count();
    assert_eq!(bodies, 3, "and then the connection was closed");
}

#[test]
fn a_client_that_ends_its_side_is_answered_and_closed() {
    for size in SIZES {
        let mut stream = TcpStream::connect(floor()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        blocking::send_request(&mut stream, &documents::target(size)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert!(all.ends_with(&document(size)), "{size}");
    }
}

#[test]
fn bodies_from_the_files_themselves_are_the_same() {
    let server = floor_from(Pages::File);
    for size in SIZES {
        assert!(blocking::fetch(server, &documents::target(size)).unwrap() == document(size));
    }
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let options =
        Options { receive_buffer: Some(2_048), segment_size: Some(1_460), ..Options::default() };
    let mut stream = blocking::open(floor(), options).unwrap();
    blocking::send_request(&mut stream, &documents::target(1 << 20)).unwrap();
    // Long enough for the server to fill the socket and have to wait.
    thread::sleep(Duration::from_millis(50));
    assert!(blocking::read_response(&mut stream).unwrap() == document(1 << 20));
}

#[test]
fn the_application_makes_any_size() {
    let server = serve_in_thread(Application::default);
    for (cached, size) in [(true, 0), (false, 1_000), (true, 100_000)] {
        let body = blocking::fetch(server, &app::target(cached, size)).unwrap();
        assert!(body == document(size), "{size}");
    }
    assert!(blocking::fetch(server, "/elsewhere").is_err());
}
