//! Our message that asks P to drop transfers `[P09]`.

use super::DropTransfers;
use super::envelope::{self, DROP};
use super::reader::{Reader, Result};
use crate::ids::{Grant, Incarnation, RequestId, TransferId};

/// Elements of a drop after its kind.
const ELEMENTS: usize = 3;

impl DropTransfers {
    /// Appends the message. Only our own nodes understand it; a stock P answers ERROR.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = envelope::begin(out, DROP, ELEMENTS);
        writer.uint(self.incarnation.0);
        writer.uint(u64::from(self.tp_rank));
        writer.array(self.transfers.len());
        for (request, transfer, grant) in &self.transfers {
            writer.array(3);
            writer.str(request.as_str());
            writer.str(transfer.as_str());
            writer.uint(grant.0);
        }
    }

    /// Reads the `elements` elements after the kind.
    pub(super) fn read(reader: &mut Reader<'_>, elements: usize) -> Result<Self> {
        let more = envelope::beyond(reader, elements, ELEMENTS)?;
        reader.field = "drop";
        let message = Self {
            incarnation: Incarnation(reader.u64()?),
            tp_rank: reader.u32()?,
            transfers: reader.list((reader.limits.requests, "transfers"), 4, read_transfer)?,
        };
        reader.skip_values(more)?;
        Ok(message)
    }
}

fn read_transfer(reader: &mut Reader<'_>) -> Result<(RequestId, TransferId, Grant)> {
    let more = reader.array_of_at_least(3)?;
    let request = RequestId::from(reader.str()?);
    let transfer = TransferId::from(reader.str()?);
    let grant = Grant(reader.u64()?);
    reader.skip_values(more)?;
    Ok((request, transfer, grant))
}
