//! Hooks without a body: what a plugin says to a look-up, a hit, a miss, a response about to be
//! stored. It may hold them, again and again, for a while.

use std::future::poll_fn;
use std::sync::Arc;

use tokio::time::Instant;

use crate::exchange::{
    Action, Exchange, Lend, Lent, Phase, RequestHead, ResponseHead, StoredFacts, Wishes,
};
use crate::failure::{Failure, FailureKind};
use crate::limits::PAUSE_MAX;
use crate::side::{Released, Side, look_at_paused};
use crate::stream::Stream;

impl Stream {
    /// Shows a request before the cache is asked; one that the plugin changed comes back.
    ///
    /// # Errors
    /// If it fails.
    pub async fn lookup(
        &self,
        head: Arc<dyn Lend<RequestHead>>,
    ) -> Result<(Wishes, Option<RequestHead>), Failure> {
        let put = move |exchange: &mut Exchange| exchange.request = Some(Lent::Shared(head));
        let released = self.consult(Phase::Lookup, put).await?;
        Ok((released.wishes, released.request))
    }

    /// Shows what is known of a stored response that is the answer.
    ///
    /// # Errors
    /// If it fails.
    pub async fn hit(
        &self,
        stored: StoredFacts,
        head: Arc<dyn Lend<ResponseHead>>,
    ) -> Result<Wishes, Failure> {
        let put = move |exchange: &mut Exchange| {
            exchange.stored = stored;
            exchange.response = Some(Lent::Shared(head));
        };
        self.consult(Phase::Hit, put).await.map(|released| released.wishes)
    }

    /// Shows a request that nothing stored answers, before the source is asked; one that the plugin
    /// changed comes back.
    ///
    /// # Errors
    /// If it fails.
    pub async fn miss(
        &self,
        head: Arc<dyn Lend<RequestHead>>,
    ) -> Result<(Wishes, Option<RequestHead>), Failure> {
        let put = move |exchange: &mut Exchange| exchange.request = Some(Lent::Shared(head));
        let released = self.consult(Phase::Miss, put).await?;
        Ok((released.wishes, released.request))
    }

    /// Shows the head of a response that is about to be stored; one that the plugin changed comes
    /// back.
    ///
    /// # Errors
    /// If it fails.
    pub async fn store(
        &self,
        stored: StoredFacts,
        head: Arc<dyn Lend<ResponseHead>>,
    ) -> Result<(Wishes, Option<ResponseHead>), Failure> {
        let put = move |exchange: &mut Exchange| {
            exchange.stored = stored;
            exchange.response = Some(Lent::Shared(head));
        };
        let released = self.consult(Phase::Store, put).await?;
        Ok((released.wishes, released.response))
    }

    /// Runs a hook without a body, again and again while it holds the request.
    pub(crate) async fn consult(
        &self,
        phase: Phase,
        put: impl FnOnce(&mut Exchange) + Send + 'static,
    ) -> Result<Released, Failure> {
        if !self.has(phase) {
            return Ok(Released::default());
        }
        let side = match phase {
            Phase::Lookup | Phase::Miss => Side::Request,
            _ => Side::Response,
        };
        let take = move |exchange: &mut Exchange, action: Action| {
            look_at_paused(side, exchange, action == Action::Pause)
        };
        let mut heard = self.signal().heard();
        let (_, mut released) = self.hook(phase, true, 0, put, take).wait().await?;
        let since = Instant::now();
        while released.is_held {
            let left = PAUSE_MAX.saturating_sub(since.elapsed());
            if left.is_zero() {
                let message = format!("paused for {} s without a word", PAUSE_MAX.as_secs());
                let failure = Failure::new(FailureKind::Stalled, message);
                self.count_failure(&failure);
                return Err(failure);
            }
            let patience = released.wishes.hold.unwrap_or(PAUSE_MAX).min(left);
            // Told or late, the plugin is asked again.
            let told = poll_fn(|cx| self.signal().poll_told(&mut heard, cx));
            let _ = tokio::time::timeout(patience, told).await;
            let again = |exchange: &mut Exchange| exchange.again = true;
            (_, released) = self.hook(phase, true, 0, again, take).wait().await?;
        }
        Ok(released)
    }
}
