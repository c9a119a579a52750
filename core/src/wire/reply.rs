//! The answer to a pull: the stock form, with our extension as one field more.

use super::envelope::FIELD;
use super::reader::{Reader, Result};
use super::writer::Writer;
use super::{FailureReason, Limits, Malformed, Problem, Reply, ReplyExtension, Settled, Status};
use crate::ids::{Incarnation, LayoutId, RequestId};

impl Reply {
    /// Appends the message: without an extension, byte for byte what the reference
    /// encoder makes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let optional = [
            self.ok.is_some(),
            self.failed.is_some(),
            self.message.is_some(),
            !self.layout_id.is_none(),
            self.extension.is_some(),
        ];
        let writer = &mut Writer::new(out);
        writer.map(1 + optional.into_iter().filter(|there| *there).count());
        writer.str("status");
        writer.uint(self.status as u64);
        for (field, requests) in [("ok_reqs", &self.ok), ("err_reqs", &self.failed)] {
            if let Some(requests) = requests {
                writer.str(field);
                writer.array(requests.len());
                requests.iter().for_each(|request| writer.str(request.as_str()));
            }
        }
        if let Some(message) = &self.message {
            writer.str("err_msg");
            writer.str(message);
        }
        if !self.layout_id.is_none() {
            writer.str("layout_id");
            writer.uint(self.layout_id.0);
        }
        if let Some(extension) = &self.extension {
            writer.str(FIELD);
            extension.write(writer);
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Malformed`] when it breaks the wire form or passes a limit.
    pub fn decode(bytes: &[u8], limits: &Limits) -> std::result::Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, limits)?;
        let mut fields = Fields::default();
        for _ in 0..reader.map()? {
            fields.read_one(&mut reader)?;
        }
        let status = reader.required("status", fields.status)?;
        reader.finish()?;
        Ok(Self {
            status,
            ok: fields.ok.flatten(),
            failed: fields.failed.flatten(),
            message: fields.message.flatten(),
            layout_id: LayoutId(fields.layout_id.unwrap_or(0)),
            extension: fields.extension,
        })
    }
}

/// The fields of a reply as they come in; nil is a value of some.
#[derive(Default)]
struct Fields {
    status: Option<Status>,
    ok: Option<Option<Vec<RequestId>>>,
    failed: Option<Option<Vec<RequestId>>>,
    message: Option<Option<String>>,
    layout_id: Option<u64>,
    extension: Option<ReplyExtension>,
}

impl Fields {
    fn read_one(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let Some(key) = reader.key()? else {
            return reader.skip_values(2);
        };
        match key {
            b"status" => reader.once("status", &mut self.status, read_status),
            b"ok_reqs" => reader.once("ok_reqs", &mut self.ok, read_requests),
            b"err_reqs" => reader.once("err_reqs", &mut self.failed, read_requests),
            b"err_msg" => reader.once("err_msg", &mut self.message, read_message),
            b"layout_id" => reader.once("layout_id", &mut self.layout_id, Reader::u64),
            _ if key == FIELD.as_bytes() => {
                reader.once(FIELD, &mut self.extension, ReplyExtension::read)
            }
            _ => reader.skip_values(1),
        }
    }
}

fn read_status(reader: &mut Reader<'_>) -> Result<Status> {
    Ok(match reader.u64()? {
        0 => Status::Finish,
        1 => Status::Continue,
        2 => Status::Error,
        3 => Status::LayoutMiss,
        other => return Err(reader.error(Problem::Unknown(other))),
    })
}

fn read_requests(reader: &mut Reader<'_>) -> Result<Option<Vec<RequestId>>> {
    if reader.is_nil()? {
        return Ok(None);
    }
    reader.list((reader.limits.requests, "requests"), 1, |r| r.str().map(RequestId::from)).map(Some)
}

fn read_message(reader: &mut Reader<'_>) -> Result<Option<String>> {
    if reader.is_nil()? {
        return Ok(None);
    }
    reader.str().map(|message| Some(message.to_owned()))
}

impl ReplyExtension {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.array(4);
        writer.uint(u64::from(self.revision));
        writer.uint(self.features);
        writer.uint(self.incarnation.0);
        writer.array(self.outcomes.len());
        for (request, reason, settled) in &self.outcomes {
            writer.array(3);
            writer.str(request.as_str());
            writer.uint(*reason as u64);
            writer.bool(*settled);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let more = reader.array_of_at_least(4)?;
        let extension = Self {
            revision: reader.u32()?,
            features: reader.u64()?,
            incarnation: Incarnation(reader.u64()?),
            outcomes: reader.list((reader.limits.requests, "outcomes"), 4, read_outcome)?,
        };
        reader.skip_values(more)?;
        Ok(extension)
    }
}

fn read_outcome(reader: &mut Reader<'_>) -> Result<(RequestId, FailureReason, Settled)> {
    let more = reader.array_of_at_least(3)?;
    let request = RequestId::from(reader.str()?);
    let reason = FailureReason::from_wire(reader.u64()?);
    let settled = reader.bool()?;
    reader.skip_values(more)?;
    Ok((request, reason, settled))
}

impl FailureReason {
    /// The reason of that number; a newer peer's numbers are [`FailureReason::Other`].
    fn from_wire(number: u64) -> Self {
        match number {
            1 => Self::Aborted,
            2 => Self::Released,
            3 => Self::Expired,
            4 => Self::TimedOut,
            5 => Self::UnknownIncarnation,
            6 => Self::WriteFailed,
            7 => Self::BlocksDiffer,
            8 => Self::Dropped,
            9 => Self::AlreadyUsed,
            10 => Self::Unavailable,
            11 => Self::Overloaded,
            12 => Self::Reset,
            13 => Self::OtherWeights,
            _ => Self::Other,
        }
    }
}
