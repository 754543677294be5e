//! The server: the pipeline that joins the stages, the workers that run it, the admin API, metrics
//! and access logs. Knows nothing of the command line.

mod accept;
mod access_log;
mod adapt;
pub mod admin;
mod body;
mod body_budget;
mod certificate;
mod chain;
mod check;
mod connection;
mod error;
mod fast_lane;
mod guard;
mod icap;
mod lane_choice;
mod live;
mod metrics;
mod outgoing;
pub mod passwords;
mod pipeline;
mod properties;
mod record;
mod router;
mod seldom;
mod sent_on;
mod server;
mod services;
mod shared;
mod sockets;
mod stall;
mod taps;
mod turn;
mod upstream;
mod variants;
mod worker;

pub use adapt::{
    AdsAnswer, AdsRequest, compress_step, helper_arguments, html_rewriting, image_step, judge_ads,
};
pub use certificate::{CertificateFacts, facts as certificate_facts};
pub use check::check;
pub use error::StartError;
pub use server::{Ready, Server};
pub use worker::forgo_privileges;
