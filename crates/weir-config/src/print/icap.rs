//! Prints `icap` blocks.

use super::{Printer, quote, switch, time};
use crate::model::{Icap, OnFailure};

impl Printer {
    pub(super) fn icap(&mut self, icap: &Icap) {
        self.block(format_args!("icap {}", quote(&icap.name)), |out| {
            for (name, url) in [("reqmod", &icap.reqmod), ("respmod", &icap.respmod)] {
                if let Some(url) = url {
                    out.line(format_args!("{name} {}", quote(&url.to_string())));
                }
            }
            out.line(format_args!("timeout {}", time(icap.timeout)));
            out.line(format_args!("connections {}", icap.connections));
            out.line(format_args!("client-address {}", switch(icap.client_address)));
            let on_failure = match icap.on_failure {
                OnFailure::Pass => "pass",
                OnFailure::Fail => "fail",
            };
            out.line(format_args!("on-failure \"{on_failure}\""));
        });
    }
}
