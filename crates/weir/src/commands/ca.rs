//! `weir ca`: the authority of a forward proxy that inspects.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use weir_net::tls::NewAuthority;

use super::{Failure, print};
use crate::cli::{Ca, CaCreate, CaShow};

/// Runs one of the commands.
///
/// # Errors
/// What to tell the user.
pub(super) fn ca(command: &Ca) -> Result<(), Failure> {
    match command {
        Ca::Create(create) => self::create(create),
        Ca::Show(show) => self::show(show),
    }
}

fn create(command: &CaCreate) -> Result<(), Failure> {
    let hosts: Vec<String> =
        command.hosts.iter().map(|host| host.trim_start_matches("*.").to_lowercase()).collect();
    if let Some(host) = hosts.iter().find(|host| !is_name(host)) {
        let why = match host.parse::<IpAddr>() {
            Ok(_) => "is an address: authorities speak for host names",
            Err(_) => "is no host name",
        };
        return Err(format!("{host:?} {why}").into());
    }
    let directory = &command.directory;
    fs::create_dir_all(directory).map_err(|error| said(directory, &error))?;
    let (ca, key) = (directory.join("ca.pem"), directory.join("ca.key"));
    if let Some(there) = [&ca, &key].into_iter().find(|path| path.exists()) {
        return Err(format!("{} is there already; it stays as it is", there.display()).into());
    }
    let new = NewAuthority::new(&hosts, SystemTime::now()).map_err(|error| error.to_string())?;
    write(&key, &new.key, 0o600)?;
    if let Err(failure) = write(&ca, &new.certificate, 0o644) {
        // By itself it is good for nothing, and would be in the way of the next try.
        let _ = fs::remove_file(&key);
        return Err(failure);
    }
    let whom = match hosts.is_empty() {
        true => "any host".to_owned(),
        false => format!("{} and the names below", hosts.join(", ")),
    };
    print(&format!(
        "{ca}: the certificate, to be installed on the clients that are to be inspected\n\
         {key}: its key, for the proxy alone\n\n\
         Whoever has the key can pass for {whom} to every client that trusts the\n\
         certificate, for two years. Keep it where nobody but the proxy can read it, install the\n\
         certificate nowhere else than needed, and remove it when inspection ends.\n\n\
         Use:     inspect \"HOST\" ca=\"{ca}\" key=\"{key}\"     in `forward`\n\
         Install: Debian    copy {ca} to /usr/local/share/ca-certificates/weir.crt,\n\
         \x20                  then update-ca-certificates\n\
         \x20        Fedora    trust anchor {ca}\n\
         \x20        Firefox   Settings, Certificates, Authorities, Import\n\
         \x20        curl      --cacert {ca}\n\
         Remove:  delete that file and run update-ca-certificates --fresh; trust anchor\n\
         \x20        --remove {ca}; Delete in the same list of Firefox\n",
        ca = ca.display(),
        key = key.display(),
    ))
}

fn show(command: &CaShow) -> Result<(), Failure> {
    let text = fs::read(&command.file).map_err(|error| said(&command.file, &error))?;
    let facts = weir_server::certificate_facts(&text);
    let facts = facts.ok_or_else(|| format!("{}: no certificate", command.file.display()))?;
    print(&format!(
        "subject      {}\nvalid from   {}\nvalid until  {}\nSHA-256      {}\n",
        facts.subject, facts.not_before, facts.not_after, facts.digest
    ))
}

fn is_name(host: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // What ends in a number is an address, or would be one (WHATWG URL, 3.5).
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    host.bytes().all(known) && !host.starts_with('.') && !last.is_empty() && !is_number
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    let mut file = file.map_err(|error| said(path, &error))?;
    file.write_all(text.as_bytes()).map_err(|error| {
        // Half of it would be taken for a file that is there.
        let _ = fs::remove_file(path);
        said(path, &error).into()
    })
}

fn said(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
