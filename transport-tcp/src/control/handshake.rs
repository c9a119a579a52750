//! Greeting, READY, and who must prove the cluster key `[Z04]`.

use super::config::ControlConfig;
use super::framed::{Fault, FrameReader, FrameWriter};
use super::zmtp::{self, Malformed, Offer, SocketType};
use crate::key::{Nonce, Plane, Side, Signer, Verifier, fresh_nonce};
use tokio::io::{AsyncRead, AsyncWrite};

/// How an ERROR about the key starts, so that the other side can say what to do.
pub(super) const KEY_ERROR: &str = "cluster key: ";

/// One side's part of a handshake.
pub(super) struct Handshake<'a> {
    config: &'a ControlConfig,
    side: Side,
    nonce: Option<Nonce>,
}

impl<'a> Handshake<'a> {
    pub(super) fn new(config: &'a ControlConfig, side: Side) -> Self {
        let nonce = config.key.as_ref().map(|_| fresh_nonce());
        Self { config, side, nonce }
    }

    /// Our greeting and READY. Nothing in them depends on the peer, so they go out
    /// at once, in one packet.
    pub(super) fn opening(&self) -> Vec<u8> {
        let mut bytes = zmtp::greeting().to_vec();
        let required = !self.config.admits_unproven();
        let offer = self.nonce.map(|nonce| Offer { nonce, required });
        let socket_type = match self.side {
            Side::Dialer => SocketType::Dealer,
            Side::Listener => SocketType::Router,
        };
        zmtp::put_ready(&mut bytes, socket_type, offer);
        bytes
    }

    /// Reads the peer's greeting and READY, and arms proof on both halves if both have a key.
    pub(super) async fn finish<R, W>(
        &self,
        reader: &mut FrameReader<R>,
        writer: &mut FrameWriter<W>,
    ) -> Result<(), Fault>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        reader.greeting().await?;
        let ready = reader.ready().await?;
        let partner = match self.side {
            Side::Dialer => SocketType::Router,
            Side::Listener => SocketType::Dealer,
        };
        if ready.socket_type != Some(partner) {
            return Err(Malformed::SocketType.into());
        }
        if let Some((signer, verifier)) = self.agree(ready.offer).map_err(Fault::NotAuthentic)? {
            writer.sign_with(signer);
            reader.expect_proof(verifier);
        }
        Ok(())
    }

    fn agree(&self, offer: Option<Offer>) -> Result<Option<(Signer, Verifier)>, &'static str> {
        let (Some(key), Some(own)) = (&self.config.key, self.nonce) else {
            return match offer {
                Some(offer) if offer.required => {
                    Err("it requires the cluster key, and none is configured here")
                }
                _ => Ok(None),
            };
        };
        match offer {
            Some(offer) => {
                let keys = match self.side {
                    Side::Dialer => key.session(Plane::Control, &own, &offer.nonce),
                    Side::Listener => key.session(Plane::Control, &offer.nonce, &own),
                };
                Ok(Some(keys.split(self.side)))
            }
            None if self.config.admits_unproven() => Ok(None),
            None => Err("it has no key configured, or is a stock peer (see `allow_stock_peers`)"),
        }
    }
}
