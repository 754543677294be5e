//! How a call into a plugin fails.

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The code trapped: unreachable, out-of-bounds access, division by zero …
    Trap,
    /// It ran longer than its CPU limit.
    Deadline,
    /// Its call stack is exhausted.
    Stack,
    /// It could not get memory: its cap is reached, or its allocator gave none.
    Memory,
    /// It called exit.
    Exit,
    /// It broke a rule of its interface: malformed edits, addresses outside its memory.
    Protocol,
    /// It said so itself, by a hook's result.
    Reported,
    /// It refused to start, or its configuration.
    Start,
    /// A body that it holds back grew beyond what may be held.
    Overflow,
    /// It paused a request and did not say in time how to go on.
    Stalled,
    /// There is no instance of it at the moment.
    Unavailable,
}

impl FailureKind {
    /// Every kind, for metrics.
    pub const ALL: [FailureKind; 11] = [
        FailureKind::Trap,
        FailureKind::Deadline,
        FailureKind::Stack,
        FailureKind::Memory,
        FailureKind::Exit,
        FailureKind::Protocol,
        FailureKind::Reported,
        FailureKind::Start,
        FailureKind::Overflow,
        FailureKind::Stalled,
        FailureKind::Unavailable,
    ];

    /// As metrics and logs write it.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::Trap => "trap",
            FailureKind::Deadline => "deadline",
            FailureKind::Stack => "stack",
            FailureKind::Memory => "memory",
            FailureKind::Exit => "exit",
            FailureKind::Protocol => "protocol",
            FailureKind::Reported => "reported",
            FailureKind::Start => "start",
            FailureKind::Overflow => "overflow",
            FailureKind::Stalled => "stalled",
            FailureKind::Unavailable => "unavailable",
        }
    }
}

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {message}", kind.as_str())]
pub struct Failure {
    /// What went wrong.
    pub kind: FailureKind,
    /// For people: what happened, with the guest's backtrace where there is one.
    pub message: String,
}

impl Failure {
    /// A failure of a kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into() }
    }

    /// What wasmtime says of a call that did not return.
    pub(crate) fn of(error: &wasmtime::Error) -> Failure {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return failure.clone();
        }
        let kind = match error.downcast_ref::<wasmtime::Trap>() {
            Some(wasmtime::Trap::Interrupt) => FailureKind::Deadline,
            Some(wasmtime::Trap::StackOverflow) => FailureKind::Stack,
            _ => FailureKind::Trap,
        };
        Failure::new(kind, format!("{error:#}"))
    }
}
