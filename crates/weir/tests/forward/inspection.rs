//! Tunnels that are opened: in the host's name, by an authority of one's own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use weir_net::tls::NewAuthority;

use super::common::server::command;
use super::users::line;
use super::*;

/// An origin for `localhost`, with TLS and without, a proxy that trusts its certificate unless told
/// otherwise, and inspects these hosts.
pub(super) struct Inspected {
    _origin: Weir,
    pub(super) proxy: Weir,
    pub(super) address: SocketAddr,
    pub(super) port: u16,
    /// The origin's port without TLS.
    cleartext_port: u16,
}

pub(super) fn inspected(hosts: &str, trusts: bool, beside: &str) -> Inspected {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (origin_address, address) = (free_address(), free_address());
    let cleartext = free_address();
    let files = TempDir::new().unwrap();
    std::fs::write(files.path().join("own.pem"), own.cert.pem()).unwrap();
    std::fs::write(files.path().join("own.key"), own.signing_key.serialize_pem()).unwrap();
    let origin = format!(
        "server {{ admin \"off\"; }}\nsite \"*\" {{ listen \"{cleartext}\"\n\
         listen \"{origin_address}\" tls=\"auto\"; certificate \"own.pem\" key=\"own.key\"\n\
         route \"/*\" {{ respond \"inside\"; }}\n}}"
    );
    let origin = Weir::run_in(files, &origin, &[origin_address, cleartext]);

    let files = TempDir::new().unwrap();
    std::fs::write(files.path().join("own.pem"), own.cert.pem()).unwrap();
    for address in ["127.0.0.1", "::1", "10.1", "a.1"] {
        let refused = command(files.path(), &["ca", "create", ".", "--host", address]);
        assert!(!refused.status.success(), "{address}");
        assert!(!files.path().join("ca.key").exists());
    }
    let made = command(files.path(), &["ca", "create", ".", "--host", "localhost"]);
    assert!(made.status.success(), "{made:?}");
    let again = command(files.path(), &["ca", "create", "."]);
    assert!(!again.status.success(), "{again:?}");
    let mode = std::fs::metadata(files.path().join("ca.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let shown = command(files.path(), &["ca", "show", "ca.pem"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("CN=Weir inspection") && shown.contains("SHA-256"), "{shown}");

    let tls = if trusts { "tls ca=\"own.pem\"" } else { "tls ca=\"ca.pem\"" };
    let route = format!(
        "access-log \"-\" format=\"json\"\nroute \"/*\" {{ forward {{ private \"127.0.0.1\"\n\
         ports \"1024-65535\"\nconnect \"1024-65535\"\n{tls}\n\
         inspect {hosts} ca=\"ca.pem\" key=\"ca.key\"\n}}\n{beside}\n}}"
    );
    let proxy = Weir::run_in(files, &front_config(address, "", &route), &[address]);
    let (port, cleartext_port) = (origin_address.port(), cleartext.port());
    Inspected { _origin: origin, proxy, address, port, cleartext_port }
}

/// TLS with whom `roots` vouch for.
pub(super) fn trusting(roots: &Path) -> ClientConfig {
    let mut known = RootCertStore::empty();
    known.add(CertificateDer::from_pem_file(roots).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(known)
        .with_no_client_auth()
}

/// A tunnel to `to`, and TLS inside of it with whom `roots` vouch for.
fn tls(
    proxy: SocketAddr,
    to: &str,
    roots: &Path,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    tls_with("", proxy, to, roots)
}

/// The same with these fields when it is asked for.
fn tls_with(
    fields: &str,
    proxy: SocketAddr,
    to: &str,
    roots: &Path,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let client = tunnel(fields, proxy, to);
    let config = trusting(roots);
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = client.stream().try_clone().unwrap();
    session.complete_io(&mut stream)?;
    Ok(StreamOwned::new(session, stream))
}

/// A tunnel to `to`, with these fields when it is asked for.
fn tunnel(fields: &str, proxy: SocketAddr, to: &str) -> Client {
    let mut client = Client::connect(proxy).unwrap();
    let head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{fields}\r\n");
    client.send(head.as_bytes()).unwrap();
    let head = String::from_utf8(client.head().unwrap()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    client
}

/// Asks inside of a tunnel, once, and returns all that comes.
fn ask_inside(stream: &mut StreamOwned<ClientConnection, TcpStream>, host: &str) -> String {
    ask_inside_for("/a", stream, host)
}

fn ask_inside_for(
    path: &str,
    stream: &mut StreamOwned<ClientConnection, TcpStream>,
    host: &str,
) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends these bytes inside of a tunnel to the origin, and returns all that comes.
pub(super) fn ask_inside_raw(inspected: &Inspected, sent: &[u8]) -> String {
    let to = format!("localhost:{}", inspected.port);
    let roots = inspected.proxy.directory().join("ca.pem");
    let mut stream = tls(inspected.address, &to, &roots).unwrap();
    stream.write_all(sent).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_is_inside_is_served_as_other_requests_are() {
    let beside = "header { set \"X-Seen\" \"1\"; }";
    // Another route of the site, which does not forward.
    let beside = format!("{beside}\n}}\nroute \"/own\" {{ respond \"own\"");
    let inspected = inspected("\"localhost\"", true, &beside);
    let to = format!("localhost:{}", inspected.port);
    let roots = inspected.proxy.directory().join("ca.pem");
    let mut stream = tls(inspected.address, &to, &roots).unwrap();
    let answer = ask_inside(&mut stream, &to);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("inside"), "{answer}");
    assert!(answer.to_lowercase().contains("x-seen: 1"), "{answer}");
    // Another host than the tunnel's is not asked.
    let mut stream = tls(inspected.address, &to, &roots).unwrap();
    let answer = ask_inside(&mut stream, "other.example");
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    let mut stream = tls(inspected.address, &to, &roots).unwrap();
    stream.write_all(b"GET /own HTTP/1.1\r\nHost: other.example\r\n\r\n").unwrap();
    let mut answer = [0; 13];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 421 ");
    inspected.proxy.wait_for_log("\"method\":\"CONNECT\"");
}

/// Who may have a tunnel may not go by every route of the site with what is inside.
/// As `fetch` of Node does it with a proxy, for `http://` too.
#[test]
fn what_is_inside_may_be_cleartext() {
    let inspected = inspected("\"localhost\"", true, "header { set \"X-Seen\" \"1\"; }");
    let to = format!("localhost:{}", inspected.cleartext_port);
    let mut client = tunnel("", inspected.address, &to);
    for path in ["/a".to_owned(), format!("http://{to}/b")] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).unwrap();
        let answer = client.response("GET").unwrap();
        assert_eq!((answer.status, &*answer.body), (200, &b"inside"[..]), "{path}");
        assert_eq!(answer.header("x-seen"), Some("1"), "{path}");
    }
    let elsewhere = format!("localhost:{}", inspected.port);
    client.send(format!("GET / HTTP/1.1\r\nHost: {elsewhere}\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(client.response("GET").unwrap().status, 421);
    // Neither is it asked in cleartext for what it has by TLS alone.
    let mut client = tunnel("", inspected.address, &elsewhere);
    client.send(format!("GET / HTTP/1.1\r\nHost: {elsewhere}\r\n\r\n").as_bytes()).unwrap();
    assert!(client.response("GET").unwrap().status >= 500);
    let mut client = tunnel("", inspected.address, &to);
    client.send(b"SSH-2.0-x\r\n\r\n").unwrap();
    assert_eq!(client.response("GET").unwrap().status, 400);
}

#[test]
fn another_route_inside_has_its_own_clients_and_users() {
    let users = TempDir::new().unwrap();
    let file = users.path().join("users");
    std::fs::write(&file, line("ann", "se:cret")).unwrap();
    let forward = "private \"127.0.0.1\"; ports \"1024-65535\"; tls ca=\"own.pem\"";
    let beside = format!(
        "\n}}\nroute \"/ann/*\" {{ forward {{ users {file:?}; {forward}; }}\n}}\n\
         route \"/far/*\" {{ forward {{ from \"10.0.0.0/8\"; {forward}; }}"
    );
    let inspected = inspected("\"localhost\"", true, &beside);
    let to = format!("localhost:{}", inspected.port);
    let roots = inspected.proxy.directory().join("ca.pem");
    let right = "Proxy-Authorization: Basic YW5uOnNlOmNyZXQ=\r\n";
    let wrong = "Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n";
    for (fields, path, expected) in [
        ("", "/a", "200"),
        ("", "/ann/a", "403"),
        (wrong, "/ann/a", "403"),
        (right, "/ann/a", "200"),
        (right, "/far/a", "403"),
    ] {
        let mut stream = tls_with(fields, inspected.address, &to, &roots).unwrap();
        let answer = ask_inside_for(path, &mut stream, &to);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{fields}{path}: {answer}");
    }
}

#[test]
fn an_origin_that_cannot_be_verified_is_502() {
    let inspected = inspected("\"localhost\"", false, "");
    let to = format!("localhost:{}", inspected.port);
    let roots = inspected.proxy.directory().join("ca.pem");
    let mut stream = tls(inspected.address, &to, &roots).unwrap();
    let answer = ask_inside(&mut stream, &to);
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("the certificate is not to be trusted"), "{answer}");
}

#[test]
fn other_hosts_stay_closed() {
    let inspected = inspected("\"other.localhost\"", true, "");
    let to = format!("localhost:{}", inspected.port);
    let directory = inspected.proxy.directory();
    // The origin's own certificate, not one of the authority's.
    assert!(tls(inspected.address, &to, &directory.join("ca.pem")).is_err());
    let mut stream = tls(inspected.address, &to, &directory.join("own.pem")).unwrap();
    assert!(ask_inside(&mut stream, &to).ends_with("inside"));
}

/// `weir check` on a proxy that inspects by the authority in these files.
fn checked(files: &TempDir) -> (bool, String) {
    let route = "route \"/*\" { forward { inspect \"a.example\" ca=\"ca.pem\" key=\"ca.key\"; }\n}";
    let config = front_config(free_address(), "", route);
    std::fs::write(files.path().join("weir.kdl"), config).unwrap();
    let checked = command(files.path(), &["check", "weir.kdl"]);
    (checked.status.success(), String::from_utf8_lossy(&checked.stderr).into_owned())
}

#[test]
fn an_authority_whose_time_is_over_is_refused() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let files = TempDir::new().unwrap();
    for (made, is_right, expected) in [
        (SystemTime::now() - 800 * DAY, false, "and no client takes its word now"),
        (SystemTime::now() + 2 * DAY, false, "is the clock right?"),
        (SystemTime::now() - 700 * DAY, true, "an authority ends soon"),
        (SystemTime::now(), true, ""),
    ] {
        let new = NewAuthority::new(&[], made).unwrap();
        std::fs::write(files.path().join("ca.pem"), new.certificate).unwrap();
        std::fs::write(files.path().join("ca.key"), new.key).unwrap();
        let (was_right, said) = checked(&files);
        assert_eq!(was_right, is_right, "{said}");
        assert!(said.contains(expected), "{expected}: {said}");
        assert!(is_right || said.contains("ca.pem: it "), "{said}");
    }
}

/// A key by itself would be in the way of the next try.
#[test]
fn an_authority_is_made_whole_or_not_at_all() {
    let files = TempDir::new().unwrap();
    // There is nothing behind it, and it is there.
    std::os::unix::fs::symlink("nowhere/ca.pem", files.path().join("ca.pem")).unwrap();
    let made = command(files.path(), &["ca", "create", "."]);
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(!made.status.success() && said.contains("ca.pem: "), "{said}");
    assert!(!files.path().join("ca.key").exists());
    std::fs::remove_file(files.path().join("ca.pem")).unwrap();
    assert!(command(files.path(), &["ca", "create", "."]).status.success());
}

#[test]
fn an_authority_that_may_not_speak_for_a_host_is_refused() {
    let files = TempDir::new().unwrap();
    let made = command(files.path(), &["ca", "create", ".", "--host", "shop.example"]);
    assert!(made.status.success(), "{made:?}");
    let route =
        "route \"/*\" { forward { inspect \"other.example\" ca=\"ca.pem\" key=\"ca.key\"; }\n}";
    let config = front_config(free_address(), "", route);
    std::fs::write(files.path().join("weir.kdl"), config).unwrap();
    let checked = command(files.path(), &["check", "weir.kdl"]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && said.contains("would not be taken"), "{said}");
}
