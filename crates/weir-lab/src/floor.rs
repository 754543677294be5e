//! The floor: what serving costs when nothing but the system calls is done. One thread, one epoll,
//! documents loaded before the start, the least parsing that keeps a connection correct. It is the
//! measure for contenders, not a web server: no HEAD, no conditions, no time-outs.
//!
//! The same loop serves as the separate application of S3 (`app.rs`), with documents made on
//! demand.

mod connection;
mod content;

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::error::{Doing, Result};
use connection::{Connection, Wait};

pub use content::{Content, Document, Folder, Pages};

/// Connections taken per wake-up, so that those already open are not starved.
const ACCEPT_MAX: usize = 64;
/// Events handled per call of epoll.
const EVENTS_MAX: usize = 256;
/// Open connections; further ones wait in the listen queue.
const CONNECTIONS_MAX: usize = 65_536;

/// Serves `content` on a listening, non-blocking socket until an error ends it.
///
/// # Errors
/// When epoll or the listener fails; what goes wrong on one connection only ends that one.
pub fn serve(listener: &OwnedFd, content: &mut dyn Content) -> Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC).doing(|| "epoll_create".to_owned())?;
    let listener_key = listener.as_raw_fd();
    epoll::add(&epoll, listener, EventData::new_u64(listener_key as u64), EventFlags::IN)
        .doing(|| "epoll_ctl".to_owned())?;
    let mut server = Server { epoll, connections: Vec::new(), open: 0 };
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
    loop {
        match epoll::wait(&server.epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).doing(|| "epoll_wait".to_owned()),
        }
        for event in events.drain(..) {
            let key = event.data.u64() as usize;
            if key == listener_key as usize {
                server.accept(listener, content)?;
            } else {
                server.advance(key, content);
            }
        }
    }
}

struct Server {
    epoll: OwnedFd,
    /// By descriptor number, which the kernel keeps small and dense.
    connections: Vec<Option<Connection>>,
    open: usize,
}

impl Server {
    fn accept(&mut self, listener: &OwnedFd, content: &mut dyn Content) -> Result<()> {
        for _ in 0..ACCEPT_MAX {
            if self.open >= CONNECTIONS_MAX {
                return Ok(());
            }
            match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    let key = socket.as_raw_fd() as usize;
                    if key >= self.connections.len() {
                        self.connections.resize_with(key + 1, || None);
                    }
                    self.connections[key] = Some(Connection::new(socket));
                    self.open += 1;
                    // The request is usually there already; if so, epoll never hears of a
                    // connection for a single request.
                    self.advance(key, content);
                }
                Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR | Errno::MFILE) => {
                    return Ok(());
                }
                Err(errno) => return Err(errno).doing(|| "accept".to_owned()),
            }
        }
        Ok(())
    }

    fn advance(&mut self, key: usize, content: &mut dyn Content) {
        let Some(slot) = self.connections.get_mut(key) else { return };
        let Some(connection) = slot else { return };
        let keep = match connection.advance(content) {
            Wait::Readable => connection.watch(&self.epoll, EventFlags::IN),
            Wait::Writable => connection.watch(&self.epoll, EventFlags::OUT),
            Wait::Over => false,
        };
        if !keep {
            *slot = None;
            self.open -= 1;
        }
    }
}
