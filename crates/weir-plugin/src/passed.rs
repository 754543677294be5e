//! What a plugin is shown of a message, and what came of it.

use crate::exchange::Wishes;
use crate::failure::Failure;
use crate::services::CallBody;
use crate::side::Released;

/// What came of showing a head to a plugin.
pub struct Passed<H> {
    /// The head, if the plugin changed it.
    pub head: Option<H>,
    /// What else it wants done.
    pub wishes: Wishes,
    /// The body, seen through the plugin's eyes; none if there was none and none was made.
    pub body: Option<CallBody>,
    /// The plugin sees the body: what it makes of it is another one.
    pub is_seen: bool,
    /// The body broke off while the plugin held the head back, and has not judged it therefore.
    pub is_torn: bool,
    /// The plugin failed: its policy says what that means. Head and body are as they were.
    pub failure: Option<Failure>,
}

impl<H> Passed<H> {
    /// The plugin failed before it saw anything.
    pub fn failed(failure: Failure) -> Passed<H> {
        let (wishes, failure) = (Wishes::default(), Some(failure));
        Passed { head: None, wishes, body: None, is_seen: false, is_torn: false, failure }
    }
}

/// The content that follows a head.
pub enum Content {
    /// There is none.
    None,
    /// The plugin has no hook that would look at it, or may not.
    Unseen,
    /// This.
    Shown(CallBody),
}

/// The plugin ended a body, or could not let it go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// It failed, and its policy is `fail`.
    #[error("plugin {plugin:?} failed: {failure}")]
    Failed {
        /// Its name.
        plugin: String,
        /// How.
        failure: Failure,
    },
    /// It ended the stream, or answered by itself.
    #[error("plugin {plugin:?} ended the body")]
    Ended {
        /// Its name.
        plugin: String,
    },
}

/// What there is when a head was let go.
pub(crate) struct LetGo {
    pub(crate) released: Released,
    pub(crate) body: Option<CallBody>,
    pub(crate) is_seen: bool,
    pub(crate) is_torn: bool,
    pub(crate) failure: Option<Failure>,
}

impl LetGo {
    pub(crate) fn passed<H>(mut self, head: impl FnOnce(&mut Released) -> Option<H>) -> Passed<H> {
        let head = head(&mut self.released);
        let LetGo { released, body, is_seen, is_torn, failure } = self;
        Passed { head, wishes: released.wishes, body, is_seen, is_torn, failure }
    }
}
