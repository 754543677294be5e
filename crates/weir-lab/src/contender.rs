//! The contenders: how each is called, installed, configured and started. All settings are in the
//! files under `peers/`, each with its reason; this is only the table that leads to them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::template::render;

/// What a contender is set up to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serve a folder of files.
    Files,
    /// Serve the folder, and stand in front of the application.
    Proxy,
}

/// A server that takes part in experiments.
#[derive(Debug)]
pub struct Contender {
    /// Name on the command line, in tables and figures.
    pub name: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// Arguments that make it print its version.
    version: &'static [&'static str],
    /// Arguments that start it in the foreground; the values of templates are filled in.
    arguments: &'static [&'static str],
    /// Configuration by role: file name and text.
    files: Option<Config>,
    proxy: Option<Config>,
    /// Whether it serves files at all.
    pub serves_files: bool,
}

type Config = (&'static str, &'static str);

/// Where a contender's program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A Debian package and the program it installs.
    Debian {
        /// Name of the package.
        package: &'static str,
        /// Name of the program.
        program: &'static str,
    },
    /// The binary under test, by path.
    Weir,
    /// This program.
    Lab,
}

macro_rules! config {
    ($file:literal) => {
        Some(($file, include_str!(concat!("../peers/", $file))))
    };
}

/// Every contender that the lab knows.
pub static ALL: [Contender; 8] = [
    Contender {
        name: "weir",
        origin: Origin::Weir,
        version: &["--version"],
        arguments: &["run", "{{config}}"],
        files: config!("weir-files.kdl"),
        proxy: config!("weir-proxy.kdl"),
        serves_files: true,
    },
    Contender {
        name: "nginx",
        origin: Origin::Debian { package: "nginx-light", program: "nginx" },
        version: &["-v"],
        arguments: &["-p", "{{dir}}", "-e", "{{dir}}/error.log", "-c", "{{config}}"],
        files: config!("nginx-files.conf"),
        proxy: config!("nginx-proxy.conf"),
        serves_files: true,
    },
    Contender {
        name: "apache",
        origin: Origin::Debian { package: "apache2", program: "apache2" },
        version: &["-v"],
        arguments: &["-DFOREGROUND", "-d", "{{dir}}", "-f", "{{config}}"],
        files: config!("apache-files.conf"),
        proxy: None,
        serves_files: true,
    },
    Contender {
        name: "h2o",
        origin: Origin::Debian { package: "h2o", program: "h2o" },
        version: &["--version"],
        arguments: &["-c", "{{config}}"],
        files: config!("h2o-files.conf"),
        proxy: None,
        serves_files: true,
    },
    Contender {
        name: "lighttpd",
        origin: Origin::Debian { package: "lighttpd", program: "lighttpd" },
        version: &["-v"],
        arguments: &["-D", "-f", "{{config}}"],
        files: config!("lighttpd-files.conf"),
        proxy: None,
        serves_files: true,
    },
    Contender {
        name: "haproxy",
        origin: Origin::Debian { package: "haproxy", program: "haproxy" },
        version: &["-v"],
        arguments: &["-db", "-f", "{{config}}"],
        files: None,
        proxy: config!("haproxy-proxy.conf"),
        serves_files: false,
    },
    Contender {
        name: "floor",
        origin: Origin::Lab,
        version: &["--version"],
        arguments: &["floor", "--port", "{{port}}", "--root", "{{root}}"],
        files: Some(("none", "")),
        proxy: None,
        serves_files: true,
    },
    // The same, but large bodies come from the page cache: what a memfd's small pages cost.
    Contender {
        name: "floor-file",
        origin: Origin::Lab,
        version: &["--version"],
        arguments: &["floor", "--from-files", "--port", "{{port}}", "--root", "{{root}}"],
        files: Some(("none", "")),
        proxy: None,
        serves_files: true,
    },
];

/// Where a contender finds things, and what goes into its templates.
#[derive(Clone, Debug)]
pub struct Place {
    /// The contender's own folder.
    pub dir: PathBuf,
    /// The document root.
    pub root: PathBuf,
    /// The application's Unix socket.
    pub app: PathBuf,
    /// Port on 127.0.0.1 to listen on.
    pub port: u16,
}

impl Contender {
    /// The contender of that name.
    ///
    /// # Errors
    /// Names the ones there are.
    pub fn named(name: &str) -> Result<&'static Contender> {
        ALL.iter().find(|contender| contender.name == name).ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|contender| contender.name).collect();
            Error::Usage(format!("no contender {name:?}; known are {}", known.join(", ")))
        })
    }

    /// True if it can play `role`.
    #[must_use]
    pub fn plays(&self, role: Role) -> bool {
        self.config(role).is_some()
    }

    /// Its program.
    ///
    /// # Errors
    /// [`Error::Missing`], with what to do about it.
    pub fn program(&self, weir: &Path) -> Result<PathBuf> {
        let missing = |looked_for: String, remedy: String| Error::Missing {
            contender: self.name,
            looked_for,
            remedy,
        };
        match self.origin {
            Origin::Lab => Ok(this_program()),
            Origin::Weir if weir.is_file() => Ok(weir.to_owned()),
            Origin::Weir => Err(missing(
                weir.display().to_string(),
                "build it with `cargo build --release -p weir`, or name it with --weir".to_owned(),
            )),
            Origin::Debian { package, program } => find_program(program).ok_or_else(|| {
                missing(program.to_owned(), format!("`apt-get install {package}`, or --install"))
            }),
        }
    }

    /// Its version: the first line it prints when asked.
    #[must_use]
    pub fn version(&self, program: &Path) -> String {
        let Ok(output) = Command::new(program).args(self.version).output() else {
            return "unknown".to_owned();
        };
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("unknown");
        line.trim_start_matches("nginx version: ")
            .trim_start_matches("Server version: ")
            .trim()
            .to_owned()
    }

    /// Configuration text for `role` and the arguments to start it with.
    ///
    /// # Errors
    /// When it cannot play the role, or its template asks for an unknown value.
    pub fn configure(&self, role: Role, place: &Place) -> Result<(String, Vec<String>)> {
        let Some((file, text)) = self.config(role) else {
            return Err(Error::Usage(format!("{} cannot play {role:?}", self.name)));
        };
        let show = |path: &Path| path.display().to_string();
        let (user, group) = worker_user();
        let values = [
            ("dir", show(&place.dir)),
            ("root", show(&place.root)),
            ("app", show(&place.app)),
            ("port", place.port.to_string()),
            ("config", show(&place.dir.join("config"))),
            ("modules", "/usr/lib/apache2/modules".to_owned()),
            ("user", user),
            ("group", group),
        ];
        let config = render(file, text, &values)?;
        let arguments = self.arguments.iter().map(|argument| render(file, argument, &values));
        Ok((config, arguments.collect::<Result<_>>()?))
    }

    fn config(&self, role: Role) -> Option<Config> {
        match role {
            Role::Files => self.files,
            Role::Proxy => self.proxy,
        }
    }
}

/// This program as it runs, even if its file has been built anew in the meantime.
#[must_use]
pub fn this_program() -> PathBuf {
    PathBuf::from(format!("/proc/{}/exe", std::process::id()))
}

/// Looks in the search path and where Debian keeps servers.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")])
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// User and group for servers that insist on leaving root: Debian's for web servers, or nobody's.
fn worker_user() -> (String, String) {
    let known = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().any(|line| line.starts_with(&format!("{name}:")))
    };
    let pick = |file| if known(file, "www-data") { "www-data" } else { "nobody" };
    let group = match pick("/etc/group") {
        "nobody" if known("/etc/group", "nogroup") => "nogroup",
        other => other,
    };
    (pick("/etc/passwd").to_owned(), group.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_finds_its_values() {
        let place = Place {
            dir: "/lab/dir".into(),
            root: "/lab/root".into(),
            app: "/lab/app".into(),
            port: 8_123,
        };
        for contender in &ALL {
            for role in [Role::Files, Role::Proxy] {
                if !contender.plays(role) {
                    continue;
                }
                let (config, arguments) = contender.configure(role, &place).unwrap();
                let all = format!("{config} {}", arguments.join(" "));
                assert!(all.contains("8123"), "{}: the port is used", contender.name);
                assert!(!all.contains("{{"), "{}: nothing is left over", contender.name);
            }
        }
    }

    #[test]
    fn unknown_names_are_told_the_known_ones() {
        let message = Contender::named("ngnix").map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("nginx") && message.contains("\"ngnix\""), "{message}");
    }
}
