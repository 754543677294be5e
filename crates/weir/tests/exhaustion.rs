//! A server that runs out of something: descriptors, cache memory, disk. It goes on with what it
//! has, says what is missing, and is itself again when there is more.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::fs::File;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::client::{self, Client};
use common::origin::{Origin, Step, answer};
use common::server::{Weir, front_config};
use common::{PATIENCE, free_address, wait_for};

/// A server that may have only so many descriptors.
struct Poor {
    child: Child,
    directory: tempfile::TempDir,
}

impl Poor {
    fn run(config: &str, descriptors: usize) -> Poor {
        let directory = tempfile::TempDir::new().unwrap();
        std::fs::write(directory.path().join("weir.kdl"), config).unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let weir = env!("CARGO_BIN_EXE_weir");
        let child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {descriptors}; exec {weir} run weir.kdl")])
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Poor { child, directory }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Poor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- the server's log\n{}\n---", self.log());
        }
    }
}

fn patient(address: SocketAddr, target: &str) -> Option<client::Response> {
    let mut client = Client::connect(address).ok()?;
    client.set_patience(Duration::from_millis(500));
    client.ask("GET", target, &[]).ok()
}

#[test]
fn descriptors() {
    let origin = Origin::start(|_| answer("200 OK", "Cache-Control: no-store\r\n", b"origin"));
    let files = tempfile::TempDir::new().unwrap();
    std::fs::write(files.path().join("page"), "a file").unwrap();
    let address = free_address();
    let routes = format!(
        r#"route "/files/*" {{ files "{}" strip-prefix=#true; cache "off"; }}
        route "/app/*" {{ proxy "{}"; }}
        route "/fixed" {{ respond "fixed"; }}"#,
        files.path().display(),
        origin.url()
    );
    // Half a request may last as long as a busy machine takes for all of this.
    let server = "server { workers 2; admin \"off\"; limits { header-timeout \"1m\"; }; }";
    let mut weir = Poor::run(&front_config(address, server, &routes), 64);
    assert!(wait_for(PATIENCE, || TcpStream::connect(address).ok()).is_some());
    let all_work = || {
        let bodies = ["/files/page", "/app/x", "/fixed"].map(|target| patient(address, target));
        bodies.into_iter().flatten().filter(|got| got.status == 200).count() == 3
    };
    assert!(wait_for(PATIENCE, || all_work().then_some(())).is_some());

    // It has been let in before the others come.
    let mut reader = Client::connect(address).unwrap();
    assert_eq!(reader.ask("GET", "/fixed", &[]).unwrap().status, 200);
    reader.send(b"GET /files/page HTTP/1.1\r\nHost: a\r\nX: ").unwrap();
    // Each has sent half a request, so that none may be closed to make room.
    let mut greedy: Vec<Client> = Vec::new();
    for _ in 0..200 {
        let mut client = Client::connect(address).unwrap();
        client.send(b"GET /fixed HTTP/1.1\r\nHost: a\r\nX: ").unwrap();
        greedy.push(client);
    }
    let said = wait_for(PATIENCE, || weir.log().contains("open files").then_some(()));
    assert!(said.is_some(), "the log says nothing:\n{}", weir.log());
    assert!(weir.child.try_wait().unwrap().is_none(), "the server has ended");
    // Longer than a root's descriptor is used without opening it anew.
    thread::sleep(Duration::from_millis(700));
    reader.send(b"y\r\n\r\n").unwrap();
    assert_eq!(reader.response("GET").unwrap().status, 503);
    let (log, root) = (weir.log(), files.path().display().to_string());
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&root)).collect();
    assert!(matches!(lines[..], [line] if line.contains("open files")), "said once: {lines:#?}");
    assert!(!log.contains("lost"), "the root is where it was:\n{log}");
    drop(reader);
    // Those who are in get their answers, those who wait get theirs when others leave.
    for client in &mut greedy {
        client.send(b"y\r\nConnection: close\r\n\r\n").unwrap();
    }
    let mut answered = 0;
    for mut client in greedy {
        answered += usize::from(client.response("GET").is_ok_and(|got| got.status == 200));
    }
    assert_eq!(answered, 200, "of 200 that waited their turn");
    assert!(wait_for(PATIENCE, || all_work().then_some(())).is_some(), "it did not recover");
}

/// With hardly a descriptor left for origins and files, a request gets a clear status.
#[test]
fn descriptors_for_origins() {
    let origin = Origin::start(|_| {
        let whole = answer("200 OK", "Cache-Control: no-store\r\n", b"origin").remove(0);
        vec![Step::Pause(Duration::from_millis(300)), whole]
    });
    let address = free_address();
    let route = format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url());
    let mut weir = Poor::run(&front_config(address, "", &route), 40);
    assert!(wait_for(PATIENCE, || TcpStream::connect(address).ok()).is_some());
    let statuses: Vec<u16> = thread::scope(|scope| {
        let ask = |number: usize| {
            scope.spawn(move || {
                let got = client::get(address, "a", &format!("/{number}"));
                got.map_or_else(|e| panic!("request {number}: {e:?}"), |got| got.status)
            })
        };
        let clients: Vec<_> = (0..60).map(ask).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [200, 502, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200));
    assert!(weir.child.try_wait().unwrap().is_none(), "the server has ended");
    if statuses.contains(&502) {
        let log = weir.log();
        assert!(log.contains(&origin.address.to_string()) && log.contains("open files"), "{log}");
    }
    let well = || patient(address, "/well").filter(|got| got.status == 200).map(drop);
    assert!(wait_for(PATIENCE, well).is_some(), "it did not recover");
}

/// The body of a target `/SIZE/NUMBER`.
fn body_of(target: &str) -> Vec<u8> {
    let mut words = target.trim_start_matches('/').split('/');
    let size: usize = words.next().unwrap().parse().unwrap();
    let seed: u32 = words.next().unwrap().parse().unwrap();
    // Of a prime length, so that no two pages are the same.
    let piece: Vec<u8> = (0..9973_u32).map(|n| (n.wrapping_mul(31) + seed * 7) as u8).collect();
    let mut body = piece.repeat(size / piece.len() + 1);
    body.truncate(size);
    body
}

#[test]
fn cache_memory() {
    let origin = Origin::start(|request| {
        let line = request.line();
        let target = line.split(' ').nth(1).unwrap();
        let body = body_of(target);
        if target.ends_with('7') {
            let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n";
            let size = format!("{:x}\r\n", body.len());
            return vec![Step::Send(
                [head.as_bytes(), size.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat(),
            )];
        }
        answer("200 OK", "Cache-Control: max-age=60\r\n", &body)
    });
    let rest = "cache { memory \"1MiB\"; object-max \"1MiB\"; }";
    let route = format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url());
    let (mut weir, address) = Weir::front(rest, &route);
    thread::scope(|scope| {
        for seed in 0..8 {
            scope.spawn(move || {
                let mut client = Client::connect(address).unwrap();
                for round in 0..40 {
                    let size = [100, 20_000, 300_000, 900_000, 2_000_000][(seed + round) % 5];
                    let target = format!("/{size}/{}", (seed * 3 + round) % 10);
                    let got = client.ask("GET", &target, &[]).unwrap();
                    assert_eq!(got.status, 200, "{target}");
                    assert!(got.body == body_of(&target), "{target} came back wrong");
                    // One that reads a little and leaves, while others follow its fill.
                    if round % 7 == 0 {
                        let mut leaver = Client::connect(address).unwrap();
                        let target = format!("GET /900000/{round} HTTP/1.1\r\nHost: a\r\n\r\n");
                        leaver.send(target.as_bytes()).unwrap();
                        leaver.take(1000).unwrap();
                    }
                }
            });
        }
    });
    assert!(weir.is_running());
    let log = weir.log();
    assert!(!log.contains("panic"), "{log}");
}

#[test]
fn disk() {
    let address = free_address();
    let admin = free_address();
    let rest = format!("server {{ admin \"{admin}\"; }}");
    let site = "access-log \"/dev/full\"\nroute \"/*\" { respond \"fine\"; }";
    let config = front_config(address, &rest, site);
    let mut weir = Weir::run(&config, &[address, admin]);
    let mut client = Client::connect(address).unwrap();
    for _ in 0..2000 {
        assert_eq!(client.ask("GET", "/", &[]).unwrap().body, b"fine");
    }
    weir.wait_for_log("/dev/full");
    assert!(weir.is_running());
    assert_eq!(weir.stop().code(), Some(0));
}

/// A file that gets shorter while it is sent: a torn body, and nothing of it stored.
#[test]
fn a_file_that_shrinks() {
    const LEN: usize = 64 << 20;
    for lines in ["cache \"off\"", "cache ttl=\"1h\""] {
        let files = tempfile::TempDir::new().unwrap();
        let path = files.path().join("large");
        std::fs::write(&path, vec![b'x'; LEN]).unwrap();
        let route = format!(r#"route "/*" {{ files "{}"; {lines}; }}"#, files.path().display());
        let rest = "cache { memory \"256MiB\"; object-max \"128MiB\"; }";
        let (mut weir, address) = Weir::front(rest, &route);
        let mut client = Client::connect(address).unwrap();
        client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let head = String::from_utf8(client.head().unwrap()).unwrap().to_lowercase();
        assert!(head.contains(&format!("content-length: {LEN}\r\n")), "{head}");
        client.take(1 << 20).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
        let rest = client.take(LEN - (1 << 20));
        // What had been stored before it shrank may come whole; then it was right.
        match rest {
            Ok(rest) => {
                assert!(lines.contains("ttl") && rest.iter().all(|&byte| byte == b'x'), "{lines}");
            }
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset),
                "{lines}: {error}"
            ),
        }
        if lines.contains("off") {
            weir.wait_for_log("response body torn");
            let log = weir.log();
            let torn = log.lines().find(|line| line.contains("torn")).unwrap();
            assert!(torn.contains(&*path.to_string_lossy()), "{torn}");
        }
        let next = client::get(address, "a", "/large").unwrap();
        assert_eq!((next.status, next.body.len()), (200, 2 << 20), "{lines}");
        assert!(weir.is_running(), "{lines}");
    }
}
