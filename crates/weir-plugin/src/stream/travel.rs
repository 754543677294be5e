//! On Weir's own interface a request's exchange travels: it is at its stream, or on its way through
//! an instance, or was lost there. Both directions of a request use it, one after the other.

use std::time::Duration;

use parking_lot::Mutex;

use super::{Seat, Stream, lost};
use crate::exchange::Exchange;
use crate::failure::Failure;

/// How often it is looked whether an exchange is back.
const LOOK_PERIOD: Duration = Duration::from_millis(1);

/// Where the exchange is.
pub(super) struct Travelling(Mutex<Whereabouts>);

enum Whereabouts {
    Here(Box<Exchange>),
    Away,
    Lost,
}

/// Whether the exchange can leave.
pub(super) enum Departure {
    Now(Box<Exchange>),
    Later,
    Never,
}

impl Travelling {
    pub(super) fn new(exchange: Box<Exchange>) -> Travelling {
        Travelling(Mutex::new(Whereabouts::Here(exchange)))
    }

    pub(super) fn depart(&self) -> Departure {
        let mut now = self.0.lock();
        match std::mem::replace(&mut *now, Whereabouts::Away) {
            Whereabouts::Here(exchange) => Departure::Now(exchange),
            Whereabouts::Away => Departure::Later,
            Whereabouts::Lost => {
                *now = Whereabouts::Lost;
                Departure::Never
            }
        }
    }

    /// It is back, or lost.
    pub(super) fn arrive(&self, exchange: Option<Box<Exchange>>) {
        *self.0.lock() = exchange.map_or(Whereabouts::Lost, Whereabouts::Here);
    }

    /// The request is over.
    pub(super) fn end(&mut self) -> Option<Box<Exchange>> {
        match std::mem::replace(self.0.get_mut(), Whereabouts::Lost) {
            Whereabouts::Here(exchange) => Some(exchange),
            Whereabouts::Away | Whereabouts::Lost => None,
        }
    }
}

/// An exchange on its way. Wherever that ends, the stream has it again, or knows that it is lost.
pub(super) struct Trip {
    pub(super) stream: Stream,
    pub(super) exchange: Option<Box<Exchange>>,
}

impl Drop for Trip {
    fn drop(&mut self) {
        self.stream.arrive(self.exchange.take());
    }
}

impl Stream {
    /// Waits until the exchange is back from where it is.
    pub(super) async fn departs(&self) -> Result<Box<Exchange>, Failure> {
        let Seat::Travelling(seat) = &self.0.seat else { return Err(lost()) };
        loop {
            match seat.depart() {
                Departure::Now(exchange) => return Ok(exchange),
                Departure::Later => tokio::time::sleep(LOOK_PERIOD).await,
                Departure::Never => return Err(lost()),
            }
        }
    }

    pub(super) fn arrive(&self, exchange: Option<Box<Exchange>>) {
        if let Seat::Travelling(seat) = &self.0.seat {
            seat.arrive(exchange);
        }
    }
}
