//! G3, G4 and G6: classes of clients, by address and by page, who together ask for more than there
//! is.

use super::{BRONZE, CAPACITY, Entrant, GOLD, Rig, SILVER, axis, group};
use crate::contender::policy::{Classes, Pace, Policy, pages};
use crate::error::Result;
use crate::experiment::{Experiment, Options};
use crate::load::{Arrivals, Group};
use crate::result::Record;

/// Names of groups.
const TOP: &str = "gold";
const MIDDLE: &str = "silver";
const LAST: &str = "bronze";
/// Clients of each class. The application has 16 servers.
const CLIENTS: [usize; 8] = [2, 4, 8, 12, 16, 24, 32, 48];
const CLIENTS_QUICK: [usize; 3] = [4, 16, 32];
/// Clients of each class of G4: more than the application has servers, as the original's.
const CLIENTS_POLICED: usize = 24;
/// What the top class may have: the original's 300 and 200 of 381.
const POLICED: [(f64, &str); 2] = [(0.787, "300/381"), (0.525, "200/381")];
/// What the last class gets in any case, in percent: the original's 13 of 381.
const SHARE: u32 = 3;

fn of(name: &'static str, page: &str, block: u8, clients: usize) -> Group {
    group(name, page, block, clients, Arrivals::Closed)
}

fn three(clients: usize) -> Vec<Group> {
    [(TOP, GOLD), (MIDDLE, SILVER), (LAST, BRONZE)]
        .map(|(name, block)| of(name, pages::HIGH, block, clients))
        .to_vec()
}

fn two(clients: usize) -> Vec<Group> {
    vec![of(TOP, pages::HIGH, GOLD, clients), of(MIDDLE, pages::LOW, SILVER, clients)]
}

/// Priorities need to know where to queue: HAProxy is told how much the application can do at a
/// time, Weir finds out.
fn policy(classes: Classes) -> Policy {
    Policy { classes, servers: Some(CAPACITY.servers), ..Policy::default() }
}

fn counts(options: &Options) -> Vec<usize> {
    match options.clients {
        Some(clients) => vec![clients],
        None if options.quick => CLIENTS_QUICK.to_vec(),
        None => CLIENTS.to_vec(),
    }
}

/// G3: three classes by address, more and more clients of each.
pub(in crate::experiment) fn g3(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, mut record) = Rig::prepare(experiment, options)?;
    let mut ticks = Vec::new();
    for clients in counts(options) {
        let by_address = policy(Classes::ByAddress);
        let alone = three(clients).into_iter().take(1).collect();
        let entrants = [
            Entrant::new("weir", "alone", by_address.clone(), alone),
            Entrant::new("weir", "classes", by_address.clone(), three(clients)),
            Entrant::new("haproxy", "priorities", by_address, three(clients)),
            Entrant::new("nginx", "no classes", Policy::default(), three(clients)),
        ];
        ticks.push((clients as f64, clients.to_string()));
        rig.point(clients as f64, &entrants, &mut record)?;
    }
    record.axis = Some(axis("clients of each class", ticks));
    Ok(record)
}

/// G4: the top class may not have everything.
pub(in crate::experiment) fn g4(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, mut record) = Rig::prepare(experiment, options)?;
    let clients = options.clients.unwrap_or(CLIENTS_POLICED);
    let unlimited = (rig.capacity_per_s.round(), "none".to_owned(), None);
    let limits = POLICED.map(|(share, name)| {
        let pace = Pace::per_second(rig.share(share));
        (f64::from(pace.rate), format!("{} ({name} of capacity)", pace.rate), Some(pace))
    });
    let mut ticks = Vec::new();
    for (x, name, gold) in std::iter::once(unlimited).chain(limits) {
        let strict = Policy { gold, ..policy(Classes::ByAddress) };
        let shared = Policy { last_share: Some(SHARE), ..strict.clone() };
        let cases = [
            ("weir", "classes", &strict),
            ("weir", "classes, a share for bronze", &shared),
            ("haproxy", "priorities", &strict),
        ];
        let entrants = cases.map(|(contender, case, policy)| {
            let entrant = Entrant::new(contender, case, policy.clone(), three(clients));
            match gold {
                Some(pace) => entrant.limited(TOP, pace.rate),
                None => entrant,
            }
        });
        ticks.push((x, name));
        rig.point(x, &entrants, &mut record)?;
    }
    record.axis = Some(axis("limit of the top class, connections per second", ticks));
    Ok(record)
}

/// G6: two classes by page, more and more clients of each, beside the same two by address.
pub(in crate::experiment) fn g6(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, mut record) = Rig::prepare(experiment, options)?;
    let mut ticks = Vec::new();
    for clients in counts(options) {
        let (by_page, by_address) = (policy(Classes::ByPage), policy(Classes::ByAddress));
        let alone = two(clients).into_iter().take(1).collect();
        let entrants = [
            Entrant::new("weir", "alone", by_page.clone(), alone),
            Entrant::new("weir", "by page", by_page.clone(), two(clients)),
            Entrant::new("weir", "by address", by_address, two(clients)),
            Entrant::new("haproxy", "by page", by_page, two(clients)),
        ];
        ticks.push((clients as f64, clients.to_string()));
        rig.point(clients as f64, &entrants, &mut record)?;
    }
    record.axis = Some(axis("clients for each page", ticks));
    Ok(record)
}
