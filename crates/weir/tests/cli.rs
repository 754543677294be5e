//! The command line as people and programs meet it: exit codes, what is printed where, and servers
//! without a configuration file.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::TcpListener;
use std::path::Path;

use common::origin::{self, Origin};
use common::server::{Weir, command};
use common::{client, free_address};
use serde_json::Value;
use tempfile::TempDir;

/// Runs a command and checks its exit code; what it printed to standard output and error.
fn run(directory: &Path, arguments: &[&str], code: i32) -> (String, String) {
    let output = command(directory, arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "weir {arguments:?}\n{out}\n{err}");
    assert!(!err.contains("panicked"), "{err}");
    (out, err)
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).unwrap();
}

#[test]
fn check_says_yes_or_where_and_why_not() {
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    std::fs::create_dir(directory.join("www")).unwrap();
    write(
        directory,
        "good.kdl",
        "site \"a\" {\n    listen \":80\"\n    route \"/*\" { files \"www\"; }\n}\n",
    );
    let (out, err) = run(directory, &["check", "good.kdl"], 0);
    assert_eq!((&*out, &*err), ("good.kdl: ok (1 site, 1 route, 0 upstreams)\n", ""));
    let (out, err) = run(directory, &["check", "good.kdl", "--json"], 0);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), serde_json::json!([]));
    assert_eq!(err, "");

    let bad = "site \"a\" {\n    lisen \":80\"\n    route \"/*\" { files \"www\" listing=1; }\n}\n";
    write(directory, "bad.kdl", bad);
    let (out, err) = run(directory, &["check", "bad.kdl"], 1);
    assert_eq!(out, "");
    assert!(err.contains("bad.kdl:2:5: unknown key \"lisen\" in site"), "{err}");
    assert!(err.contains("did you mean \"listen\"?"), "{err}");
    assert!(err.contains("2 |     lisen \":80\"\n  |     ^^^^^\n"), "{err}");
    assert!(err.contains("bad.kdl:3:38: "), "every error is told: {err}");
    let (out, _) = run(directory, &["check", "--json", "bad.kdl"], 1);
    let errors: Value = serde_json::from_str(&out).unwrap();
    let first = &errors[0];
    assert_eq!((&first["line"], &first["column"]), (&2.into(), &5.into()), "{errors}");
    assert_eq!((&first["file"], &first["suggestion"]), (&"bad.kdl".into(), &"listen".into()));
    assert_eq!(errors.as_array().unwrap().len(), 2, "{errors}");

    // What is written, and does nothing, is no error.
    let idle = "adapt { helpers 0; }\nsite \"a\" {\n listen \":80\"\n route \"/*\" { files \"www\"; \
                compress; }\n}\n";
    write(directory, "idle.kdl", idle);
    let (out, _) = run(directory, &["check", "idle.kdl"], 0);
    assert!(out.starts_with("idle.kdl: warning: site \"a\", route \"/*\": nothing does "), "{out}");

    // The files that it names are looked at too.
    for (name, text, expected) in [
        ("folder.kdl", "route \"/*\" { files \"nowhere\"; }", "nowhere"),
        ("log.kdl", "access-log \"nowhere/log\"; route \"/*\" { files \"www\"; }", "nowhere"),
    ] {
        write(directory, name, &format!("site \"a\" {{\n listen \":80\"\n {text}\n}}\n"));
        let (_, err) = run(directory, &["check", name], 1);
        assert!(err.contains(expected) && err.contains(&format!("{name}:3:")), "{err}");
    }
    // Plugins are started, as a start would.
    let plugin = |hook: &str| {
        format!(
            "(module {hook} (memory (export \"memory\") 2) (func (export \"weir_abi_1\")) \
             (func (export \"weir_buffer\") (param i32 i32) (result i32) (i32.const 8)))"
        )
    };
    let refuses = "(func (export \"weir_configure\") (param i32 i32) (result i32) (i32.const 7))";
    write(directory, "fine.wat", &plugin(""));
    write(directory, "refuses.wat", &plugin(refuses));
    write(directory, "wants.wat", &plugin("(import \"weir\" \"teleport\" (func))"));
    write(directory, "none.wat", "(module)");
    let file = |module: &str, used: &str, store: &str| {
        format!(
            "{store}\nplugin \"p\" {{ source \"{module}\"; }}\nsite \"a\" {{\n listen \":80\"\n \
             route \"/*\" {{ files \"www\"; use \"{used}\"; }}\n}}\n"
        )
    };
    let store = "plugins { store \"store\"; }";
    write(directory, "plugin.kdl", &file("fine.wat", "p", ""));
    run(directory, &["check", "plugin.kdl"], 0);
    write(directory, "plugin.kdl", &file("fine.wat", "other", store));
    run(directory, &["check", "plugin.kdl"], 0);
    assert!(!directory.join("store").exists());
    for (module, used, expected) in [
        ("none.wat", "p", "plugin \"p\": the module speaks no interface"),
        (
            "wants.wat",
            "p",
            "plugin \"p\": the module imports what Weir does not have: weir.teleport",
        ),
        ("refuses.wat", "p", "plugin \"p\" does not start: start: weir_configure refused"),
        ("fine.wat", "other", "route \"a/*\" uses the plugin \"other\", which is neither"),
        ("nowhere.wat", "p", "plugin.kdl:2:21: cannot read the plugin's module"),
    ] {
        write(directory, "plugin.kdl", &file(module, used, ""));
        for command in ["check", "run"] {
            let (_, err) = run(directory, &[command, "plugin.kdl"], 1);
            assert!(err.contains(expected), "{command} {module}: {err}");
            assert!(!err.contains("listening"), "{err}");
        }
    }

    // So is what stands in them, and who is to serve: a start would fail for it.
    for name in ["a", "b"] {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![format!("{name}.example")]).unwrap();
        write(directory, &format!("{name}.pem"), &certificate.self_signed(&key).unwrap().pem());
        write(directory, &format!("{name}.key"), &key.serialize_pem());
    }
    let tls = |key: &str| {
        format!(
            "site \"a\" {{ listen \":443\" tls=\"auto\"; certificate \"a.pem\" key=\"{key}\"; \
             route \"/*\" {{ respond \"a\"; }}; }}\n"
        )
    };
    write(directory, "tls.kdl", &tls("a.key"));
    run(directory, &["check", "tls.kdl"], 0);
    let stranger = "server { user \"no-such-account\"; }\n";
    for (text, expected) in [
        (tls("b.key"), "b.key"),
        (format!("{stranger}{}", tls("a.key")), "no-such-account"),
        (
            format!(
                "upstream \"u\" {{ server \"https://a\"; tls ca=\"a.key\"; }}\n{}",
                tls("a.key")
            ),
            "a.key",
        ),
    ] {
        write(directory, "start.kdl", &text);
        let (out, err) = run(directory, &["check", "start.kdl"], 1);
        assert!(out.is_empty() && err.contains(expected), "no {expected:?} in\n{err}");
        let (out, _) = run(directory, &["check", "--json", "start.kdl"], 1);
        let errors: Value = serde_json::from_str(&out).unwrap();
        let message = errors[0]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{errors}");
        assert_eq!((&errors[0]["file"], &errors[0]["line"]), (&"start.kdl".into(), &0.into()));
    }
    let (_, err) = run(directory, &["check", "missing.kdl"], 1);
    assert!(err.contains("missing.kdl") && err.contains("No such file"), "{err}");
    write(directory, "empty.kdl", "");
    let (_, err) = run(directory, &["check", "empty.kdl"], 1);
    assert!(err.contains("site"), "{err}");
    std::fs::write(directory.join("binary.kdl"), b"\xff\xfe\0").unwrap();
    let (_, err) = run(directory, &["check", "binary.kdl"], 1);
    assert!(err.contains("binary.kdl"), "{err}");
    // `run` refuses what `check` refuses.
    let (_, err) = run(directory, &["run", "bad.kdl"], 1);
    assert!(err.contains("bad.kdl:2:5: unknown key"), "{err}");
}

#[test]
fn a_start_that_fails_says_why_in_a_line() {
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let free = free_address().to_string();
    let check = |arguments: &[&str], expected: &[&str]| {
        let (out, err) = run(directory, arguments, 1);
        assert_eq!(out, "", "{arguments:?}");
        for word in expected {
            assert!(err.contains(word), "{arguments:?}: no {word:?} in\n{err}");
        }
        let said: Vec<&str> = err.lines().filter(|line| !line.contains(" WARN ")).collect();
        assert!(said.len() <= 3 && said[0].starts_with("weir: "), "{arguments:?}:\n{err}");
    };
    check(&["serve", ".", "--listen", &taken, "--admin", "off"], &[&taken, "in use"]);
    check(&["serve", ".", "--listen", &free, "--admin", &taken], &[&taken, "in use"]);
    check(&["serve", "nowhere", "--listen", &free], &["nowhere", "No such file"]);
    write(directory, "file", "");
    check(&["serve", "file", "--listen", &free], &["file", "is no directory"]);
    check(&["serve", ".", "--listen", "nonsense"], &["nonsense", "127.0.0.1:8080"]);
    check(&["serve", ".", "--listen", "127.0.0.1:99999"], &["99999"]);
    check(&["serve", ".", "--listen", &free, "--admin", "0.0.0.0:1"], &["0.0.0.0:1", "loopback"]);
    check(&["proxy", "ftp://a", "--listen", &free], &["ftp://a", "http"]);
    check(&["proxy", "", "--listen", &free], &["http"]);
    check(&["run", "missing.kdl"], &["missing.kdl", "No such file"]);
    check(&["run", "."], &["."]);
}

#[test]
fn a_mistake_on_the_command_line_is_explained() {
    let directory = TempDir::new().unwrap();
    let check = |arguments: &[&str], expected: &[&str]| {
        let (out, err) = run(directory.path(), arguments, 2);
        assert_eq!(out, "", "{arguments:?}");
        for word in expected {
            assert!(err.contains(word), "{arguments:?}: no {word:?} in\n{err}");
        }
    };
    check(&["serve", ".", "--lisen", ":80"], &["--lisen", "--listen"]);
    check(&["sevre", "."], &["sevre", "serve"]);
    check(&["serve"], &["DIRECTORY"]);
    check(&["serve", ".", "--workers", "0"], &["--workers", "1..=1024"]);
    check(&["purge"], &["URL", "--site", "--all"]);
    check(&["purge", "http://a/", "--all"], &["cannot be used with"]);
    check(&[], &["Usage"]);
    let (out, _) = run(directory.path(), &["--version"], 0);
    assert_eq!(out, format!("weir {}\n", env!("CARGO_PKG_VERSION")));
    let (out, _) = run(directory.path(), &["--help"], 0);
    for word in ["demo", "serve", "proxy", "run", "check", "reload", "purge", "status"] {
        assert!(out.contains(&format!("  {word}")), "{out}");
    }
}

#[test]
fn nobody_at_the_admin_address_is_said_with_what_to_do() {
    let directory = TempDir::new().unwrap();
    let free = free_address().to_string();
    for arguments in [&["status"][..], &["reload"], &["purge", "--all"], &["status", "--json"]] {
        let (out, err) = run(directory.path(), &[arguments, &["--admin", &free]].concat(), 1);
        assert_eq!(out, "");
        assert!(err.contains(&free) && err.contains("refused"), "{err}");
        assert!(err.contains("Is the server running?") && err.contains("--admin"), "{err}");
    }
    let (_, err) = run(directory.path(), &["status", "--admin", "unix:/nowhere/sock"], 1);
    assert!(err.contains("unix:/nowhere/sock") && err.contains("--admin"), "{err}");
    let (_, err) = run(directory.path(), &["status", "--admin", "shop.example"], 1);
    assert!(err.contains("--admin") && err.contains("shop.example"), "{err}");
    // Somebody else listens there.
    let origin = Origin::start(|_| origin::ok("<h1>not an admin API</h1>"));
    let (_, err) = run(directory.path(), &["status", "--admin", &origin.address.to_string()], 1);
    assert!(err.starts_with("weir: "), "{err}");
}

#[test]
fn serve_does_what_its_printed_configuration_does() {
    let address = free_address();
    let directory = TempDir::new().unwrap();
    std::fs::create_dir_all(directory.path().join("my www/empty")).unwrap();
    write(directory.path(), "my www/index.html", "home");
    write(directory.path(), "my www/.hidden", "hidden");
    let listen = address.to_string();
    let arguments =
        ["serve", "my www", "--listing", "--workers", "1", "--listen", &listen, "--admin", "off"];
    let look = || {
        let seen = ["/", "/index.html", "/.hidden", "/empty/", "/nothing"].map(|target| {
            let response = client::get(address, "any.example", target).unwrap();
            let content_type = response.header("content-type").map(str::to_owned);
            (response.status, response.body, content_type)
        });
        assert_eq!((seen[0].0, &seen[0].1[..]), (200, &b"home"[..]));
        assert_eq!((seen[2].0, seen[3].0, seen[4].0), (404, 200, 404));
        seen
    };
    let (printed, _) = run(directory.path(), &[&arguments[..], &["--print-config"]].concat(), 0);
    let mut first = Weir::start(directory, &arguments, &[address]);
    let seen = look();
    assert!(first.stop().success());
    // The directory is printed as a whole path, so that the file may lie anywhere.
    let mut weir = Weir::run(&printed, &[address]);
    assert_eq!(look(), seen);
    assert!(weir.stop().success());
    let (again, _) = run(weir.directory(), &["check", "weir.kdl"], 0);
    assert!(again.contains("ok (1 site, 1 route"), "{again}");
}

#[test]
fn proxy_does_what_its_printed_configuration_does() {
    let origin = Origin::start(|request| origin::ok(&request.line()));
    let address = free_address();
    let (listen, url) = (address.to_string(), format!("{}/base", origin.url()));
    let arguments = ["proxy", &url, "--workers", "1", "--listen", &listen, "--admin", "off"];
    let look = || {
        let seen = ["/", "/a?b=c", "/%2F"].map(|target| {
            let response = client::get(address, "any.example", target).unwrap();
            (response.status, String::from_utf8(response.body).unwrap())
        });
        assert_eq!(seen[1], (200, "GET /base/a?b=c HTTP/1.1".to_owned()));
        seen
    };
    let directory = TempDir::new().unwrap();
    let (printed, _) = run(directory.path(), &[&arguments[..], &["--print-config"]].concat(), 0);
    let mut weir = Weir::start(directory, &arguments, &[address]);
    let seen = look();
    assert!(weir.stop().success());
    let mut weir = Weir::run(&printed, &[address]);
    assert_eq!(look(), seen);
    assert!(weir.stop().success());
}

#[test]
fn a_second_server_goes_on_without_an_admin_address_of_its_own() {
    // Both want the usual admin address; at most one has it, and both serve.
    let start = || {
        let address = free_address();
        let listen = address.to_string();
        let weir = Weir::start(TempDir::new().unwrap(), &["serve", ".", "--listen", &listen], &[]);
        (weir, address)
    };
    let servers = [start(), start()];
    for (weir, address) in &servers {
        weir.wait_for_log(&format!("listening on http://{address}/"));
        assert_eq!(client::get(*address, "a", "/nothing").unwrap().status, 404);
    }
    servers[1].0.wait_for_log("admin API");
    let without = servers.iter().filter(|(weir, _)| weir.log().contains("no admin API"));
    assert!(without.count() >= 1);
}
