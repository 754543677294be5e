//! What became of a crowd's visits, as text.

use std::time::Duration;

/// Who came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Visitors,
    Customers,
}

/// What became of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The page came.
    InTime,
    /// 429 or 503: to come back later.
    Refused,
    /// Nothing came in time.
    GaveUp,
    /// Another answer, or none.
    Failed,
}

pub(super) struct Visit {
    pub(super) group: Group,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
    /// The second in which it began, from 0.
    pub(super) came_in: u32,
}

/// Counts of visits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// By group and outcome.
    counts: [[u32; 4]; 2],
    /// How long customers waited for the page.
    customers: Vec<Duration>,
    /// Over so many seconds.
    pub(super) seconds: u32,
    /// After so many that do not count.
    pub(super) settling_s: u32,
    /// The most requests with the application at a time.
    pub(super) most_inside: u32,
}

impl Tally {
    pub(super) fn add(&mut self, visit: &Visit) {
        self.counts[visit.group as usize][visit.outcome as usize] += 1;
        if visit.group == Group::Customers && visit.outcome == Outcome::InTime {
            self.customers.push(visit.took);
        }
    }

    fn count(&self, group: Group, outcome: Outcome) -> u32 {
        self.counts[group as usize][outcome as usize]
    }

    fn in_time_per_s(&self) -> u32 {
        let of = |group| self.count(group, Outcome::InTime);
        (of(Group::Visitors) + of(Group::Customers)) / self.seconds.max(1)
    }

    fn percent(&self, group: Group, outcome: Outcome) -> String {
        let all: u32 = self.counts[group as usize].iter().sum();
        match all {
            0 => "-".to_owned(),
            _ => format!("{} %", (self.count(group, outcome) * 100 + all / 2) / all),
        }
    }

    /// How long customers waited, at most so many of a hundred of them.
    fn waited(&self, percent: usize) -> String {
        let mut all = self.customers.clone();
        all.sort_unstable();
        let rank = (all.len() * percent).div_ceil(100).max(1);
        all.get(rank - 1).map_or_else(|| "-".to_owned(), |at| format!("{} ms", at.as_millis()))
    }
}

/// The head of one crowd's rows.
pub(super) fn heading(title: &str, path: &str) -> String {
    format!(
        "\n{title}: {path}\n{:>9}{:>10}{:>10}{:>10}{:>13}{:>10}{:>10}{:>10}\n",
        "visitors:", "in time", "refused", "gave up", "customers:", "in time", "gave up", "p99"
    )
}

/// What has ended in a second.
pub(super) fn row(second: u32, tally: &Tally) -> String {
    use Outcome::{GaveUp, InTime, Refused};
    let of = |group, outcome| tally.count(group, outcome);
    let (visitors, customers) = (Group::Visitors, Group::Customers);
    format!(
        "{second:>7} s{:>10}{:>10}{:>10}{:>13}{:>10}{:>10}{:>10}\n",
        of(visitors, InTime),
        of(visitors, Refused),
        of(visitors, GaveUp),
        "",
        of(customers, InTime),
        of(customers, GaveUp),
        tally.waited(99),
    )
}

/// Both side by side.
pub(super) fn comparison(without: &Tally, with: &Tally) -> String {
    use Group::{Customers, Visitors};
    use Outcome::{Failed, GaveUp, InTime, Refused};
    let settling = format!("(those who came after the first {} s)", with.settling_s);
    let mut text = format!("\n{settling:<38}{:>15}{:>15}\n", "without Guard", "with Guard");
    let mut line = |name: &str, of: &dyn Fn(&Tally) -> String| {
        text.push_str(&format!("{name:<38}{:>15}{:>15}\n", of(without), of(with)));
    };
    line("pages in time, a second", &|tally| tally.in_time_per_s().to_string());
    line("visitors  had the page in time", &|tally| tally.percent(Visitors, InTime));
    line("          told to come back later", &|tally| tally.percent(Visitors, Refused));
    line("          gave up waiting", &|tally| tally.percent(Visitors, GaveUp));
    line("customers had the page in time", &|tally| tally.percent(Customers, InTime));
    line("          median / 99 of 100 within", &|tally| {
        format!("{} / {}", tally.waited(50), tally.waited(99))
    });
    line("at the application at a time", &|tally| tally.most_inside.to_string());
    let failed = |tally: &Tally| tally.count(Visitors, Failed) + tally.count(Customers, Failed);
    if failed(without) + failed(with) > 0 {
        line("visits that failed otherwise", &|tally| failed(tally).to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_crowds_are_compared() {
        let visit = |group, outcome, ms| {
            let took = Duration::from_millis(ms);
            Visit { group, outcome, took, came_in: 0 }
        };
        let mut without = Tally { seconds: 2, settling_s: 1, most_inside: 70, ..Tally::default() };
        assert_eq!(without.waited(99), "-");
        without.add(&visit(Group::Visitors, Outcome::GaveUp, 1000));
        let mut with = Tally { most_inside: 8, ..without.clone() };
        without.add(&visit(Group::Visitors, Outcome::Failed, 1));
        for ms in 1..=100 {
            with.add(&visit(Group::Customers, Outcome::InTime, ms));
        }
        with.add(&visit(Group::Visitors, Outcome::Refused, 1));
        let text = comparison(&without, &with);
        let shown: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            shown,
            [
                "",
                "(those who came after the first 1 s) without Guard with Guard",
                "pages in time, a second 0 50",
                "visitors had the page in time 0 % 0 %",
                "told to come back later 0 % 50 %",
                "gave up waiting 50 % 50 %",
                "customers had the page in time - 100 %",
                "median / 99 of 100 within - / - 50 ms / 99 ms",
                "at the application at a time 70 8",
                "visits that failed otherwise 1 0",
            ]
        );
        let columns = |text: &str| text.lines().nth(2).map(str::len);
        assert_eq!(columns(&heading("with", "/x")), Some(row(1, &with).len() - 1));
    }
}
