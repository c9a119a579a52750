//! What a stock P knows of transfers.

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::Shared;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{RequestId, TransferId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// One transfer. It is made by P's engine or by the first pull, whichever comes first.
pub(super) struct Transfer {
    fire: RefCell<Option<oneshot::Sender<()>>>,
    /// Done once the blocks are there; never for a transfer that is forgotten before.
    pub ready: Shared<oneshot::Receiver<()>>,
    held: RefCell<Option<Held>>,
    /// D ranks that read it; 0 until the first pull is served.
    pub need: Cell<u32>,
    sent: Cell<u32>,
    sending: Cell<u32>,
}

/// A finished request's blocks.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub request: RequestId,
    pub blocks: Vec<BlockList>,
}

impl Transfer {
    fn new() -> Rc<Self> {
        let (fire, ready) = oneshot::channel();
        Rc::new(Self {
            fire: RefCell::new(Some(fire)),
            ready: ready.shared(),
            held: RefCell::default(),
            need: Cell::new(0),
            sent: Cell::new(0),
            sending: Cell::new(0),
        })
    }

    /// Its blocks, once they are there.
    pub fn held(&self) -> Option<Held> {
        self.held.borrow().clone()
    }

    /// Whether a write reads its blocks.
    pub fn is_sending(&self) -> bool {
        self.sending.get() > 0
    }

    /// A write begins: the blocks do not expire meanwhile.
    pub fn begin(&self) {
        self.sending.set(self.sending.get() + 1);
    }

    /// A write has ended. True when it was the last that is waited for.
    pub fn end(&self, ok: bool) -> bool {
        self.sending.set(self.sending.get() - 1);
        if ok {
            self.sent.set(self.sent.get() + 1);
        }
        ok && self.sent.get() == self.need.get()
    }
}

/// All transfers that P knows.
#[derive(Default)]
pub(super) struct Transfers(BTreeMap<TransferId, Rc<Transfer>>);

impl Transfers {
    /// The transfer, made if it is not known.
    pub fn get_or_make(&mut self, id: &TransferId) -> Rc<Transfer> {
        self.0.entry(id.clone()).or_insert_with(Transfer::new).clone()
    }

    /// Whether this very transfer is still known.
    pub fn knows(&self, id: &TransferId, transfer: &Rc<Transfer>) -> bool {
        self.0.get(id).is_some_and(|it| Rc::ptr_eq(it, transfer))
    }

    /// A request is finished: whoever waits for its blocks goes on.
    pub fn hold(&mut self, id: &TransferId, held: Held) -> Rc<Transfer> {
        let transfer = self.get_or_make(id);
        *transfer.held.borrow_mut() = Some(held);
        if let Some(fire) = transfer.fire.borrow_mut().take() {
            let _ = fire.send(()); // `ready` itself is always there.
        }
        transfer
    }

    /// The request was aborted before it was finished: whoever waits goes on waiting.
    pub fn abort(&mut self, id: &TransferId) {
        if self.0.get(id).is_some_and(|it| it.held.borrow().is_none()) {
            self.0.remove(id);
        }
    }

    /// Forgets a transfer whose blocks are given back.
    pub fn remove(&mut self, id: &TransferId) -> Option<Rc<Transfer>> {
        self.0.remove(id)
    }

    /// Transfers with blocks.
    pub fn held(&self) -> usize {
        self.0.values().filter(|it| it.held.borrow().is_some()).count()
    }

    /// All.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Held {
        Held { request: "p".into(), blocks: Vec::new() }
    }

    #[test]
    fn a_pull_that_came_first_waits_for_the_prefill() {
        let mut all = Transfers::default();
        let transfer = all.get_or_make(&"t".into());
        assert_eq!(transfer.ready.clone().now_or_never(), None);
        all.hold(&"t".into(), held());
        assert_eq!(transfer.ready.clone().now_or_never(), Some(Ok(())));
        assert!(all.knows(&"t".into(), &transfer));
    }

    #[test]
    fn whoever_waits_for_an_aborted_request_is_not_told() {
        let mut all = Transfers::default();
        let transfer = all.get_or_make(&"t".into());
        all.abort(&"t".into());
        assert_eq!((all.len(), transfer.ready.clone().now_or_never()), (0, None));
        all.hold(&"t".into(), held());
        all.abort(&"t".into());
        assert_eq!((all.held(), transfer.ready.clone().now_or_never()), (1, None));
    }

    #[test]
    fn the_last_rank_that_was_sent_to_ends_a_transfer() {
        let mut all = Transfers::default();
        let transfer = all.hold(&"t".into(), held());
        transfer.need.set(2);
        (0..3).for_each(|_| transfer.begin());
        assert!(!transfer.end(false));
        assert!(!transfer.end(true));
        assert!(transfer.is_sending());
        assert!(transfer.end(true));
        assert!(!transfer.is_sending());
    }
}
