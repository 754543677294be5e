//! `weir password`: a line for the file of a forward proxy's users.

use std::io::{self, BufRead, IsTerminal, Write};

use nix::sys::termios::{self, LocalFlags, SetArg, Termios};
use weir_server::passwords::Hash;

use super::{Failure, print};
use crate::cli::Password;

/// Longest password, in bytes.
const PASSWORD_MAX: usize = 512;

/// Prints the line.
///
/// # Errors
/// A name or a password that cannot be one.
pub(super) fn password(command: &Password) -> Result<(), Failure> {
    let name = &command.name;
    if name.is_empty() || name.starts_with('#') || name.trim() != name {
        return Err("a user's name begins neither with # nor with a space".to_owned().into());
    }
    if name.contains(':') || name.chars().any(char::is_control) {
        return Err("a user's name has no colon and no control characters".to_owned().into());
    }
    let password = read().map_err(|error| Failure(format!("no password: {error}")))?;
    if password.is_empty() || password.len() > PASSWORD_MAX {
        let wanted =
            format!("a password has 1 to {PASSWORD_MAX} bytes, in the first line of input");
        return Err(wanted.into());
    }
    let hash = Hash::new(password.as_bytes());
    let hash = hash.ok_or_else(|| "the system gives no random numbers".to_owned())?;
    print(&format!("{name}:{hash}\n"))
}

/// The first line of standard input. At a terminal it is asked for, and not shown.
fn read() -> io::Result<String> {
    let stdin = io::stdin();
    let hidden = match stdin.is_terminal() {
        true => Some(Hidden::new(&stdin)?),
        false => None,
    };
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    drop(hidden);
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A terminal that shows nothing of what is typed.
struct Hidden<'a> {
    terminal: &'a io::Stdin,
    before: Termios,
}

impl Hidden<'_> {
    fn new(terminal: &io::Stdin) -> io::Result<Hidden<'_>> {
        let before = termios::tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO);
        termios::tcsetattr(terminal, SetArg::TCSAFLUSH, &silent)?;
        io::stderr().write_all(b"Password: ")?;
        Ok(Hidden { terminal, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(self.terminal, SetArg::TCSANOW, &self.before);
        let _ = io::stderr().write_all(b"\n");
    }
}
