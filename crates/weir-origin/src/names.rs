//! Addresses of the names that a forward proxy's clients ask for. Clients choose these names, and a
//! look-up blocks a thread for as long as somebody else's name server likes: so there are no more
//! than [`LOOKUPS_MAX`] at a time, one for all who ask for the same name, and no more than
//! [`ASKED_MAX`] names that anybody waits for.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

/// Names that are looked up at a time, each on a blocking thread of which a worker has some
/// hundreds, most of them for files. A place is taken until the resolver has given up, however soon
/// whoever asked has: with the usual settings of a resolver, ten seconds for a name server that is
/// silent.
pub const LOOKUPS_MAX: usize = 64;
/// Names that are looked up, or wait for a place. Others are refused.
pub const ASKED_MAX: usize = 1024;

/// Why a name has no address.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unknown {
    /// As many as may be are asked for.
    #[error("{} other names are being looked up", ASKED_MAX)]
    TooMany,
    /// The resolver has none, or fails.
    #[error("{0}")]
    Unresolved(Arc<str>),
}

/// What has become of look-ups since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Names that are asked for now.
    pub asked: usize,
    /// Look-ups that found addresses.
    pub found: u64,
    /// Those that found none.
    pub unresolved: u64,
    /// Questions that waited for a look-up which was under way.
    pub joined: u64,
    /// Questions that were refused.
    pub refused: u64,
}

/// Finds addresses, and may block for it.
type Resolve = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

type Answer = Result<Arc<[IpAddr]>, Unknown>;

/// Who looks up names: one for all forward proxies of a server.
pub struct Names {
    resolve: Box<Resolve>,
    places: Semaphore,
    asked_max: usize,
    asked: Mutex<HashMap<String, watch::Receiver<Option<Answer>>>>,
    found: AtomicU64,
    unresolved: AtomicU64,
    joined: AtomicU64,
    refused: AtomicU64,
}

impl Default for Names {
    /// By the operating system's resolver.
    fn default() -> Names {
        Names::new(LOOKUPS_MAX, ASKED_MAX, |host| {
            let found = (host, 0).to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

impl Names {
    fn new(
        places: usize,
        asked_max: usize,
        resolve: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Names {
        Names {
            resolve: Box::new(resolve),
            places: Semaphore::new(places),
            asked_max,
            asked: Mutex::default(),
            found: AtomicU64::new(0),
            unresolved: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The addresses of a name, in the resolver's order, and at least one. The limit on the waiting
    /// is the caller's; a look-up goes on without him.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn look_up(self: &Arc<Self>, host: &str) -> Answer {
        let mut said = self.ask(host)?;
        let answer = said.wait_for(Option::is_some).await;
        // Without a word the worker that looked it up ends.
        let ended = || Err(Unknown::Unresolved("the look-up ended without an answer".into()));
        answer.ok().and_then(|answer| answer.clone()).unwrap_or_else(ended)
    }

    /// What has become of look-ups.
    pub fn counts(&self) -> Counts {
        Counts {
            asked: self.asked.lock().len(),
            found: self.found.load(Relaxed),
            unresolved: self.unresolved.load(Relaxed),
            joined: self.joined.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }

    /// Begins to look a name up, unless that is done already.
    fn ask(self: &Arc<Self>, host: &str) -> Result<watch::Receiver<Option<Answer>>, Unknown> {
        let mut asked = self.asked.lock();
        // One that has ended without a word leaves its entry.
        if let Some(same) = asked.get(host).filter(|same| same.has_changed().is_ok()) {
            self.joined.fetch_add(1, Relaxed);
            return Ok(same.clone());
        }
        if asked.len() >= self.asked_max {
            self.refused.fetch_add(1, Relaxed);
            return Err(Unknown::TooMany);
        }
        let (sender, said) = watch::channel(None);
        asked.insert(host.to_owned(), said.clone());
        let (names, host) = (Arc::clone(self), host.to_owned());
        tokio::spawn(async move {
            let answer = names.find(&host).await;
            let count = if answer.is_ok() { &names.found } else { &names.unresolved };
            count.fetch_add(1, Relaxed);
            names.asked.lock().remove(&host);
            // Nobody may be left who wants to know.
            let _ = sender.send(Some(answer));
        });
        Ok(said)
    }

    /// Looks a name up when there is a place.
    async fn find(self: &Arc<Self>, host: &str) -> Answer {
        // Nobody closes it.
        let Ok(_place) = self.places.acquire().await else { return Err(Unknown::TooMany) };
        let (names, host) = (Arc::clone(self), host.to_owned());
        let found = tokio::task::spawn_blocking(move || (names.resolve)(&host)).await;
        let unresolved = |what: &str| Err(Unknown::Unresolved(what.into()));
        match found {
            Ok(Ok(found)) if found.is_empty() => unresolved("the name has no address"),
            Ok(Ok(found)) => Ok(found.into()),
            Ok(Err(error)) => unresolved(&error.to_string()),
            Err(_) => unresolved("the look-up failed"),
        }
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

    use std::net::Ipv4Addr;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Names whose look-ups end when a word is sent for each, and how many are under way.
    fn held(places: usize, asked_max: usize) -> (Arc<Names>, mpsc::Sender<()>, Arc<AtomicU64>) {
        let (go, gone) = mpsc::channel();
        let (gone, under_way) = (Mutex::new(gone), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&under_way);
        let names = Names::new(places, asked_max, move |host| {
            count.fetch_add(1, Relaxed);
            let _ = gone.lock().recv_timeout(Duration::from_secs(20));
            count.fetch_sub(1, Relaxed);
            match host {
                "nowhere" => Ok(Vec::new()),
                "broken" => Err(io::Error::other("no name server")),
                _ => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
            }
        });
        (Arc::new(names), go, under_way)
    }

    async fn until(is_so: impl Fn() -> bool) {
        let waiting = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap();
    }

    fn asking(names: &Arc<Names>, host: &str) -> tokio::task::JoinHandle<Answer> {
        let (names, host) = (Arc::clone(names), host.to_owned());
        tokio::spawn(async move { names.look_up(&host).await })
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_for_all_who_ask() {
        let (names, go, under_way) = held(4, 4);
        let asked: Vec<_> = (0..50).map(|_| asking(&names, "a")).collect();
        until(|| names.counts().joined == 49 && under_way.load(Relaxed) == 1).await;
        go.send(()).unwrap();
        for one in asked {
            assert_eq!(one.await.unwrap().unwrap()[..], [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        }
        // What was answered is not remembered here.
        let again = asking(&names, "a");
        go.send(()).unwrap();
        assert!(again.await.unwrap().is_ok());
        let expected = Counts { asked: 0, found: 2, unresolved: 0, joined: 49, refused: 0 };
        assert_eq!(names.counts(), expected);
    }

    #[tokio::test]
    async fn there_are_no_more_at_a_time_than_may_be() {
        let (names, go, under_way) = held(2, 5);
        let asked: Vec<_> = (0..5).map(|n| asking(&names, &n.to_string())).collect();
        until(|| names.counts().asked == 5 && under_way.load(Relaxed) == 2).await;
        assert!(matches!(names.look_up("other").await, Err(Unknown::TooMany)));
        // Who asks for one of those that are looked up is none more.
        let same = asking(&names, "4");
        // A place is taken for as long as the resolver takes, whoever waits for it.
        asked.iter().for_each(|asking| asking.abort());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!((names.counts().asked, under_way.load(Relaxed)), (5, 2));
        for _ in 0..5 {
            go.send(()).unwrap();
        }
        assert!(same.await.unwrap().is_ok());
        until(|| names.counts().asked == 0).await;
        assert_eq!((names.counts().refused, names.counts().found), (1, 5));
    }

    #[tokio::test]
    async fn what_has_no_address_is_said_to_have_none() {
        let (names, go, _) = held(1, 2);
        for (host, expected) in
            [("nowhere", "the name has no address"), ("broken", "no name server")]
        {
            go.send(()).unwrap();
            let said = names.look_up(host).await.unwrap_err();
            assert_eq!(said.to_string(), expected, "{host}");
        }
        assert_eq!(names.counts().unresolved, 2);
    }
}
