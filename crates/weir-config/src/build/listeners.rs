//! What sites say about the addresses they share: one socket has one kind of TLS, one protocol
//! before HTTP, and each name on it belongs to one site.

use std::collections::HashMap;

use crate::address::print_address;
use crate::check::Line;
use crate::model::{Address, Listener, Site};
use crate::source::Span;

use super::Build;

impl Build<'_, '_> {
    pub(super) fn check_listeners(
        &mut self,
        sites: &[(&Line, Option<Site>)],
        admin: Option<&Address>,
    ) {
        let mut sockets: HashMap<&Address, (&Listener, Span)> = HashMap::new();
        let mut names: HashMap<(&Address, &str), Span> = HashMap::new();
        for (line, site) in sites {
            let Some(site) = site else { continue };
            let mut own: HashMap<&Address, Span> = HashMap::new();
            for (listener, listen) in site.listeners.iter().zip(line.lines.all("listen")) {
                let span = listen.span_of("address");
                if Some(&listener.address) == admin {
                    let message = "the admin API listens on this address";
                    self.source
                        .error(span, message)
                        .expect(["another address here or for `admin`"]);
                }
                if let Some(earlier) = own.insert(&listener.address, span) {
                    let number = self.source.line_of(earlier.start);
                    let message = format!("the site listens here already, on line {number}");
                    self.source.error(span, message);
                    continue;
                }
                let (first, earlier) =
                    *sockets.entry(&listener.address).or_insert((listener, span));
                self.check_agreement(first, earlier, listener, span);
                self.check_names(site, line, &listener.address, &mut names);
            }
        }
    }

    fn check_agreement(&mut self, first: &Listener, earlier: Span, other: &Listener, span: Span) {
        let differs = if first.tls != other.tls {
            "tls"
        } else if first.proxy_protocol != other.proxy_protocol {
            "proxy-protocol"
        } else {
            return;
        };
        let number = self.source.line_of(earlier.start);
        let message = format!("line {number} has another `{differs}` for the same address");
        self.source.error(span, message).expect([format!("the same `{differs}` on both lines")]);
    }

    fn check_names<'site>(
        &mut self,
        site: &'site Site,
        line: &Line,
        address: &'site Address,
        names: &mut HashMap<(&'site Address, &'site str), Span>,
    ) {
        let spans = line.values::<String>("name").into_iter().map(|(_, span)| span);
        for (name, span) in site.names.iter().zip(spans) {
            let Some(earlier) = names.insert((address, name), span) else { continue };
            // Doubled within one site is reported as such.
            if line.values::<String>("name").iter().any(|(_, own)| *own == earlier) {
                continue;
            }
            let number = self.source.line_of(earlier.start);
            let address = print_address(address);
            let message = format!("the site on line {number} has this name on {address} already");
            self.source.error(span, message);
        }
    }
}
