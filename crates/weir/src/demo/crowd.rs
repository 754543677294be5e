//! A flash crowd on the demo itself: visitors over loopback, who come at their own pace, wait for a
//! second and leave; first where Weir lets all of them through, then where Guard stands. Ends by
//! itself; one at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::GUARDED;
use super::sale::{PLACES, Sale, WORK};
use super::tally::{Group, Outcome, Tally, Visit, comparison, heading, row};

/// Visitors a second, nearly four times what the page's application can do.
const VISITORS_PER_S: u32 = 600;
/// And among them customers who pay.
const CUSTOMERS_PER_S: u32 = 20;
/// How long each waits for the page.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long they keep coming, each time, unless somebody wishes otherwise, and the longest.
const SECONDS: u32 = 6;
const SECONDS_MAX: u32 = 60;
/// The first third of them comes before everything is as it stays; the comparison is over the rest.
const SETTLING_PART: u32 = 3;
/// Between the two.
const REST: Duration = Duration::from_millis(1500);
/// How often arrivals are looked at.
const TICK: Duration = Duration::from_millis(5);
/// Bytes of an answer that a visitor looks at.
const ANSWER_MAX: usize = 4096;

/// Where crowds come from.
pub(super) struct Crowds {
    one_at_a_time: Arc<Semaphore>,
}

/// The two applications that sell the same.
pub(super) type Sales = [Arc<Sale>; 2];

/// One crowd, from its first visitor to its last.
struct Crowd<'a> {
    seconds: u32,
    front: SocketAddr,
    path: &'static str,
    sale: &'a Sale,
    report: &'a mut Sender<Bytes>,
}

impl Crowds {
    pub(super) fn new() -> Crowds {
        Crowds { one_at_a_time: Arc::new(Semaphore::new(1)) }
    }

    /// Has crowds come to `front`, as long as the query says, and returns what is told of them
    /// meanwhile; `None` if there is one already.
    pub(super) fn start(
        &self,
        front: SocketAddr,
        query: &str,
        sales: &Sales,
    ) -> Option<Channel<Bytes>> {
        let wished = query.split('&').find_map(|pair| pair.strip_prefix("seconds=")?.parse().ok());
        let seconds = wished.unwrap_or(SECONDS).clamp(1, SECONDS_MAX);
        let only = Arc::clone(&self.one_at_a_time).try_acquire_owned().ok()?;
        let (sender, body) = Channel::new(4);
        tokio::spawn(run(front, seconds, sales.clone(), sender, only));
        Some(body)
    }
}

/// Both crowds, one after the other. Ends early when nobody reads the report any more.
async fn run(
    front: SocketAddr,
    seconds: u32,
    sales: Sales,
    mut report: Sender<Bytes>,
    _only: OwnedSemaphorePermit,
) -> Option<()> {
    let capacity = f64::from(PLACES) / WORK.as_secs_f64();
    let text = format!(
        "A flash crowd: {VISITORS_PER_S} visitors and {CUSTOMERS_PER_S} customers a second want a \
         page\nof which the application makes {capacity:.0} a second, and fewer the more wait for \
         it.\nEverybody gives up after {} s.\n",
        PATIENCE.as_secs()
    );
    report.send_data(text.into()).await.ok()?;
    let mut tallies = Vec::new();
    for (title, path, sale) in
        [("without Guard", super::UNGUARDED, &sales[0]), ("with Guard", GUARDED, &sales[1])]
    {
        report.send_data(heading(title, path).into()).await.ok()?;
        sale.take_most();
        let mut crowd = Crowd { seconds, front, path, sale, report: &mut report };
        tallies.push(crowd.come().await?);
        tokio::time::sleep(REST).await;
    }
    report.send_data(comparison(&tallies[0], &tallies[1]).into()).await.ok()
}

impl Crowd<'_> {
    /// Visitors come, each on a connection of their own, whatever has become of those before.
    async fn come(&mut self) -> Option<Tally> {
        let mut visits = JoinSet::new();
        let began = Instant::now();
        let (mut tally, mut shown) = (Tally::default(), Tally::default());
        let settling_s = self.seconds / SETTLING_PART;
        let mut second = 0;
        let mut came = [0; 2];
        while second < self.seconds || !visits.is_empty() {
            let now = Instant::now();
            let passed = (now - began).min(Duration::from_secs(self.seconds.into()));
            for (group, per_s) in
                [(Group::Visitors, VISITORS_PER_S), (Group::Customers, CUSTOMERS_PER_S)]
            {
                let due = (passed.as_secs_f64() * f64::from(per_s)) as u32;
                for _ in came[group as usize]..due {
                    visits.spawn(visit(self.front, self.path, group, second));
                }
                came[group as usize] = due;
            }
            while let Some(ended) = visits.try_join_next() {
                let Ok(visit) = ended else { continue };
                shown.add(&visit);
                if visit.came_in >= settling_s {
                    tally.add(&visit);
                }
            }
            if now - began >= Duration::from_secs((second + 1).into()) {
                second += 1;
                let row = row(second, &shown);
                self.report.send_data(row.into()).await.ok()?;
                shown = Tally::default();
            }
            sleep_until((now + TICK).into()).await;
        }
        (tally.seconds, tally.settling_s) = (self.seconds - settling_s, settling_s);
        tally.most_inside = self.sale.take_most();
        Some(tally)
    }
}

async fn visit(front: SocketAddr, path: &'static str, group: Group, came_in: u32) -> Visit {
    let began = Instant::now();
    let outcome = match timeout(PATIENCE, ask(front, path, group)).await {
        Ok(Ok(200)) => Outcome::InTime,
        Ok(Ok(429 | 503)) => Outcome::Refused,
        Ok(_) => Outcome::Failed,
        Err(_) => Outcome::GaveUp,
    };
    Visit { group, outcome, took: began.elapsed(), came_in }
}

/// The status of the answer.
async fn ask(front: SocketAddr, path: &str, group: Group) -> std::io::Result<u16> {
    let cookie = match group {
        Group::Visitors => "",
        Group::Customers => "Cookie: tier=gold\r\n",
    };
    let mut stream = TcpStream::connect(front).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n{cookie}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX as u64).read_to_end(&mut answer).await?;
    let status =
        answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    status.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}
