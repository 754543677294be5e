//! Lists of addresses: from the text of a file to a set, and the sets of the rules that name lists.
//! Reading the files is [`crate::files`]' job.

use std::collections::HashMap;
use std::sync::Arc;

use crate::limits::{ADDRESS_RANGES_MAX, LIST_ENTRIES_MAX, LIST_ERRORS_MAX};
use crate::model::{AddressList, AddressSet, Guard, GuardRule, Parts};
use crate::prefix;

/// The addresses of a list, or what is wrong with it, a phrase for each line.
pub(crate) fn parse(text: &str) -> Result<AddressSet, Vec<String>> {
    let mut ranges = Vec::new();
    let mut errors = Vec::new();
    for (number, line) in (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines()) {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        if ranges.len() == LIST_ENTRIES_MAX {
            errors.push(format!("line {number}: more than {LIST_ENTRIES_MAX} entries"));
            break;
        }
        match prefix::range(entry) {
            Ok(range) => ranges.push(range),
            Err(wrong) => {
                let shown: String = entry.chars().take(60).collect();
                let mut error =
                    format!("line {number}: \"{shown}\" is no address, prefix or range");
                if let Some(reason) = wrong.reason {
                    error.push_str(&format!(": {reason}"));
                }
                if let Some(suggestion) = wrong.suggestion {
                    error.push_str(&format!("; did you mean \"{suggestion}\"?"));
                }
                errors.push(error);
            }
        }
        if errors.len() == LIST_ERRORS_MAX {
            break;
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(AddressSet::new(ranges).unwrap_or_default())
}

/// Puts what the lists hold into the rules that name them. `false` if that is too much.
pub(crate) fn fill(guard: &mut Guard) -> bool {
    let Guard { lists, rules, .. } = guard;
    fill_rules(rules, lists)
}

/// The same for rules that name these lists.
pub(crate) fn fill_rules(rules: &mut [GuardRule], lists: &[AddressList]) -> bool {
    let by_name: HashMap<&str, &AddressSet> =
        lists.iter().map(|list| (list.name.as_str(), &list.addresses)).collect();
    let mut total: usize = lists.iter().map(|list| list.addresses.ranges().len()).sum();
    // Rules that are written alike share one set.
    let mut known: HashMap<Arc<Parts>, AddressSet> = HashMap::new();
    for rule in rules {
        for set in [&mut rule.on.from, &mut rule.on.to].into_iter().flatten() {
            let Some(parts) = set.parts().map(Arc::clone) else { continue };
            if let Some(same) = known.get(&parts) {
                *set = same.clone();
                continue;
            }
            let named: Vec<&AddressSet> =
                parts.lists.iter().filter_map(|name| by_name.get(&**name).copied()).collect();
            *set = set.filled(&named);
            if !(parts.own.is_empty() && named.len() == 1) {
                total += set.ranges().len();
            }
            if total > ADDRESS_RANGES_MAX {
                return false;
            }
            known.insert(parts, set.clone());
        }
    }
    total <= ADDRESS_RANGES_MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is accepted is what each line says alone; what is not names its line.
        #[test]
        fn any_text_is_a_list_or_is_refused(
            lines in "([0-9a-f.:/#-]{0,12}\n|.{0,9}\n|10[.]0[.]0[.][0-9](-10[.]0[.]0[.]9)?\n){0,6}"
        ) {
            match parse(&lines) {
                Ok(set) => for line in lines.lines() {
                    let entry = line.split('#').next().unwrap().trim();
                    if let Ok((first, last)) = prefix::range(entry) {
                        prop_assert!(set.contains(first) && set.contains(last), "{}", entry);
                    }
                },
                Err(errors) => for error in errors {
                    prop_assert!(error.starts_with("line "), "{}", error);
                },
            }
        }
    }

    #[test]
    fn entries_stand_on_lines() {
        let text = "\u{feff}# crawlers\r\n10.0.0.0/8\r\n\r\n  10.255.255.255-11.0.0.1 # two\n::1\n";
        let set = parse(text).unwrap();
        let shown: Vec<_> = set.ranges().iter().map(|(a, b)| format!("{a}-{b}")).collect();
        assert_eq!(shown, ["10.0.0.0-11.0.0.1", "::1-::1"]);
        assert_eq!(parse("# nobody\n\n"), Ok(AddressSet::default()));
    }

    #[test]
    fn wrong_lines_are_named() {
        let errors =
            parse("10.0.0.0/8\nexample.com # 1\n10.0.0.1/8\n1.2.3.9-1.2.3.4\n").unwrap_err();
        assert_eq!(
            errors,
            [
                "line 2: \"example.com\" is no address, prefix or range",
                "line 3: \"10.0.0.1/8\" is no address, prefix or range: its address goes beyond its \
                 8 bits; did you mean \"10.0.0.0/8\"?",
                "line 4: \"1.2.3.9-1.2.3.4\" is no address, prefix or range: the lower end of a \
                 range stands first; did you mean \"1.2.3.4-1.2.3.9\"?",
            ]
        );
        assert_eq!(parse(&"?\n".repeat(100)).unwrap_err().len(), LIST_ERRORS_MAX);
        let many = "10.0.0.1\n".repeat(LIST_ENTRIES_MAX);
        assert!(parse(&many).is_ok());
        let errors = parse(&(many + "10.0.0.1\n")).unwrap_err();
        assert_eq!(errors, ["line 1000001: more than 1000000 entries"]);
    }
}
