//! Upstream groups against real sockets: small origins that behave well, badly or not at all.

#[cfg(test)]
mod balancing;
#[cfg(test)]
mod bodies;
#[cfg(test)]
mod health;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod keep_alive;
#[cfg(test)]
mod retries;
#[cfg(test)]
mod support;
#[cfg(test)]
mod timeouts;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod upgrade;
