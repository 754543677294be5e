//! The generator against servers that refuse, reset or stay silent: it counts what happened, group
//! by group, and goes on.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use socket2::SockRef;
use weir_lab::load::{self, Arrivals, Asks, Group, Outcome, Patience, Plan};

/// Serves every connection with `answer` for as long as the test runs.
fn server(answer: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
    address
}

fn read_request(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut buffer = [0; 1_024];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Serves `/good` and refuses everything else.
fn choosy(mut stream: TcpStream) {
    let good = read_request(&mut stream).starts_with("GET /good ");
    let (status, body) = if good { ("200 OK", "body") } else { ("503 No", "go away") };
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}

fn resets(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("an open socket");
}

fn silent(mut stream: TcpStream) {
    thread::spawn(move || {
        read_request(&mut stream);
        thread::sleep(Duration::from_secs(30));
    });
}

fn group(name: &'static str, target: &str, arrivals: Arrivals) -> Group {
    let (asks, sources) = (Asks::same(target, *b"body"), vec![Ipv4Addr::LOCALHOST]);
    Group { name, asks, mark: None, clients: 4, arrivals, sources }
}

fn run(server: SocketAddr, groups: Vec<Group>) -> Vec<Outcome> {
    let plan = Plan {
        server,
        persistent: false,
        warm_up: Duration::from_millis(50),
        window: Duration::from_millis(400),
        groups,
        refusals: Some(Patience {
            wait: Duration::from_millis(100),
            pause: Duration::from_millis(20),
        }),
    };
    load::run(&plan, &mut |_| ()).expect("refusals are no failures")
}

#[test]
fn each_group_has_its_own_counts() {
    let groups = vec![
        group("served", "/good", Arrivals::Closed),
        group("refused", "/bad", Arrivals::Closed),
        group("open", "/bad", Arrivals::Even(100.0)),
    ];
    let [served, refused, open] = &run(server(choosy), groups)[..] else {
        panic!("three groups, three outcomes");
    };
    assert!(served.requests > 0 && served.refused.is_empty(), "{served:?}");
    assert_eq!(served.body_bytes, served.requests * 4);
    let count = refused.refused[&503];
    // Four clients that pause for 20 ms after each refusal ask at most 4 x 21 times in 400 ms.
    assert!(refused.requests == 0 && (1..=84).contains(&count), "{refused:?}");
    assert!((1..=43).contains(&open.refused[&503]), "{open:?}");
    assert_eq!((served.errors, refused.errors, open.errors), (0, 0, 0));
}

#[test]
fn resets_are_counted() {
    let outcomes = run(server(resets), vec![group("all", "/good", Arrivals::Closed)]);
    let all = &outcomes[0];
    assert!(all.requests == 0 && all.resets > 0 && all.errors == 0, "{all:?}");
}

#[test]
fn silence_ends_patience_and_open_loops_say_what_they_could_not_send() {
    let groups = vec![
        group("closed", "/good", Arrivals::Closed),
        group("open", "/good", Arrivals::Poisson(1_000.0)),
    ];
    let outcomes = run(server(silent), groups);
    for outcome in &outcomes {
        assert!(outcome.timeouts > 0 && outcome.requests == 0, "{outcome:?}");
    }
    assert_eq!(outcomes[0].unsent, 0);
    assert!(outcomes[1].unsent > 0, "four at a time, each for 100 ms: {:?}", outcomes[1]);
}
