//! What lists say of a request, and which of their rules says it: for people.

use std::path::PathBuf;

use adblock::sourcemap::FilterRuleDebugInfo;

use super::lists::Gathered;
use super::{Ads, ListError, Question, Rules, URL_BYTES_MAX, Verdict, code};

/// What lists say of a request, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What they say.
    pub verdict: Verdict,
    /// The rule that is about it, as it stands in its list.
    pub rule: Option<String>,
    /// The rule by which the other one does not hold.
    pub exception: Option<String>,
}

impl Ads {
    /// Reads lists as [`Ads::load`] does, and keeps their rules for [`Ads::explain`]. What is made
    /// of them takes more memory and more time.
    ///
    /// # Errors
    /// [`ListError`]
    pub fn load_with_rules(paths: &[PathBuf]) -> Result<Ads, ListError> {
        Ok(Ads::new(Gathered::read(paths)?, Rules::Kept))
    }

    /// What the lists say of a request, and which of their rules says it. Without
    /// [`Ads::load_with_rules`] the rules are not known.
    pub fn explain(&self, question: &Question<'_>) -> Explained {
        let is_short = question.host.len() + question.target.len() <= URL_BYTES_MAX;
        let is_asked = is_short && !self.is_spared(question);
        let Some(found) = self.found(question).filter(|_| is_asked) else {
            return Explained { verdict: Verdict::Pass, rule: None, exception: None };
        };
        let verdict = Verdict::of_code(code(&found));
        let text = |rule: Option<FilterRuleDebugInfo>| rule?.raw_line;
        Explained { verdict, rule: text(found.filter), exception: text(found.exception) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ads::Kind;

    #[test]
    fn the_rule_is_told_and_its_exception() {
        let text = "||ads.example^\n\
                    @@||ads.example/fine/\n\
                    ||tracker.example^$script,redirect=noopjs\n";
        let mut gathered = Gathered::default();
        gathered.add(Path::new("list.txt"), text).unwrap();
        let ads = Ads::new(gathered, Rules::Kept);
        let found = |host: &str, target: &str| {
            let kind = Kind::Script;
            let page = "shop.example";
            let told = ads.explain(&Question { is_secure: true, host, target, kind, page });
            let word = match told.verdict {
                Verdict::Pass => "pass",
                Verdict::Block => "block",
                Verdict::Redirect(neutral) => neutral.name,
            };
            (word, told.rule, told.exception)
        };
        let some = |text: &str| Some(text.to_owned());
        let (ads, fine) = ("||ads.example^", "@@||ads.example/fine/");
        assert_eq!(found("ads.example", "/a.js"), ("block", some(ads), None));
        assert_eq!(found("ads.example", "/fine/a.js"), ("pass", some(ads), some(fine)));
        let redirect = some("||tracker.example^$script,redirect=noopjs");
        assert_eq!(found("tracker.example", "/t.js"), ("noop.js", redirect, None));
        assert_eq!(found("shop.example", "/a.js"), ("pass", None, None));
        let long = format!("/{}", "x".repeat(URL_BYTES_MAX));
        assert_eq!(found("ads.example", &long), ("pass", None, None));
    }
}
