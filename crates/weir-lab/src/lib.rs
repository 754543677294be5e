//! weir-lab repeats the experiments that Weir's design rests on: it starts the contenders, drives
//! load, accounts CPU time and memory from `/proc`, interleaves rounds and writes tables, JSON and
//! figures. Weir is one contender among others, started by its binary and a configuration file;
//! only what plugins cost by themselves is measured in the lab's own process (`local`).

pub mod agent;
pub mod app;
pub mod background;
pub mod contender;
pub mod costly;
pub mod documents;
pub mod error;
pub mod experiment;
pub mod floor;
pub mod goal;
pub mod histogram;
pub mod install;
pub mod load;
pub mod local;
pub mod machine;
pub mod modules;
pub mod network;
pub mod origin;
pub mod photographs;
pub mod pictures;
pub mod process;
pub mod procfs;
pub mod report;
pub mod result;
pub mod station;
pub mod stats;
pub mod template;
pub mod texts;
pub mod transcode;
