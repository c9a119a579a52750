//! The compact form of a pull, between our own nodes.
//!
//! After the kind, the array holds: host, port, TP size, TP rank, PP size, layout id,
//! layout or nil, extension or nil, requests. An extension is an array of revision,
//! features, incarnation, generation, seconds and nanoseconds that D waits, and D's weight
//! version, which is left out when it is zero. A request is an array of request id,
//! transfer id, grant or nil, end token or nil, and a byte string of varints with the
//! runs of each group: number of runs, then per run the (signed) distance from the end of
//! the run before and the number of blocks.

use super::envelope::{self, PULL};
use super::pull::refuse_repeated_requests;
use super::reader::{Reader, Result};
use super::varint::{self, Varints};
use super::writer::Writer;
use super::{LayoutColumns, Problem, Pull, PullExtension, PullRequest};
use crate::blocks::BlockList;
use crate::ids::{
    BlockId, Generation, Grant, Incarnation, LayoutId, RequestId, SessionAddress, TransferId,
    WeightVersion,
};
use std::time::Duration;

/// Elements of a pull after its kind.
const ELEMENTS: usize = 9;
/// Elements that every extension has.
const EXTENSION_ELEMENTS: usize = 6;
/// Elements of a request.
const REQUEST_ELEMENTS: usize = 5;

impl Pull {
    /// Appends the compact form, which carries everything. Its size grows with the runs
    /// of blocks, not with the blocks. Only our own nodes understand it; a stock P
    /// answers ERROR.
    pub fn encode_compact(&self, out: &mut Vec<u8>) {
        let mut writer = envelope::begin(out, PULL, ELEMENTS);
        writer.str(&self.session.host);
        writer.uint(u64::from(self.session.port));
        writer.uint(u64::from(self.tp_size));
        writer.uint(u64::from(self.tp_rank));
        writer.uint(u64::from(self.pp_size));
        writer.uint(self.layout_id.0);
        match &self.layout {
            Some(layout) => layout.write_compact(&mut writer),
            None => writer.nil(),
        }
        match &self.extension {
            Some(extension) => extension.write(&mut writer),
            None => writer.nil(),
        }
        writer.array(self.requests.len());
        let mut runs = Vec::new();
        for request in &self.requests {
            request.write(&mut writer, &mut runs);
        }
    }

    /// Reads the `elements` elements after the kind.
    pub(super) fn read_compact(reader: &mut Reader<'_>, elements: usize) -> Result<Self> {
        let more = envelope::beyond(reader, elements, ELEMENTS)?;
        reader.field = "session";
        let session = SessionAddress { host: reader.str()?.into(), port: reader.u16()? };
        reader.field = "topology";
        let (tp_size, tp_rank, pp_size) = (reader.u32()?, reader.u32()?, reader.u32()?);
        reader.field = "layout_id";
        let layout_id = LayoutId(reader.u64()?);
        reader.field = "layout";
        let layout = optional(reader, LayoutColumns::read_compact)?;
        reader.field = "extension";
        let extension = optional(reader, PullExtension::read)?;
        reader.field = "requests";
        let requests = reader.list(
            (reader.limits.requests, "requests"),
            REQUEST_ELEMENTS + 1,
            PullRequest::read,
        )?;
        refuse_repeated_requests(reader, &requests)?;
        reader.skip_values(more)?;
        Ok(Self { session, tp_size, tp_rank, pp_size, layout_id, layout, requests, extension })
    }
}

/// Nil, or what `read` reads.
pub(super) fn optional<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T>,
) -> Result<Option<T>> {
    if reader.is_nil()? { Ok(None) } else { read(reader).map(Some) }
}

impl PullExtension {
    fn write(&self, writer: &mut Writer<'_>) {
        let stated = self.weights != WeightVersion::default();
        writer.array(EXTENSION_ELEMENTS + usize::from(stated));
        writer.uint(u64::from(self.revision));
        writer.uint(self.features);
        writer.uint(self.incarnation.0);
        writer.uint(self.generation.0);
        writer.uint(self.timeout.as_secs());
        writer.uint(u64::from(self.timeout.subsec_nanos()));
        if stated {
            writer.uint(self.weights.0);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let mut more = reader.array_of_at_least(EXTENSION_ELEMENTS)?;
        let mut extension = Self {
            revision: reader.u32()?,
            features: reader.u64()?,
            incarnation: Incarnation(reader.u64()?),
            generation: Generation(reader.u64()?),
            timeout: read_duration(reader)?,
            weights: WeightVersion::default(),
        };
        if let Some(rest) = more.checked_sub(1) {
            extension.weights = WeightVersion(reader.u64()?);
            more = rest;
        }
        reader.skip_values(more)?;
        Ok(extension)
    }
}

fn read_duration(reader: &mut Reader<'_>) -> Result<Duration> {
    let (seconds, nanos) = (reader.u64()?, reader.u32()?);
    if nanos >= 1_000_000_000 {
        return Err(reader.error(Problem::OutOfRange { expected: "less than 10^9 nanoseconds" }));
    }
    Ok(Duration::new(seconds, nanos))
}

impl PullRequest {
    fn write(&self, writer: &mut Writer<'_>, runs: &mut Vec<u8>) {
        writer.array(REQUEST_ELEMENTS);
        writer.str(self.request_id.as_str());
        writer.str(self.transfer_id.as_str());
        match self.grant {
            Some(grant) => writer.uint(grant.0),
            None => writer.nil(),
        }
        match self.end_token {
            Some(token) => writer.uint(u64::from(token)),
            None => writer.nil(),
        }
        runs.clear();
        self.groups.iter().for_each(|group| write_runs(runs, group));
        writer.bin(runs);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let more = reader.array_of_at_least(REQUEST_ELEMENTS)?;
        let request_id = RequestId::from(reader.str()?);
        let transfer_id = TransferId::from(reader.str()?);
        let grant = optional(reader, Reader::u64)?.map(Grant);
        let end_token = optional(reader, Reader::u32)?;
        let groups = read_groups(reader)?;
        reader.skip_values(more)?;
        Ok(Self { request_id, transfer_id, groups, grant, end_token })
    }
}

fn write_runs(out: &mut Vec<u8>, blocks: &BlockList) {
    varint::put(out, blocks.runs().len() as u64);
    let mut end = 0;
    for run in blocks.runs() {
        varint::put_signed(out, i64::from(run.start.0) - end);
        varint::put(out, u64::from(run.len));
        end = run.end() as i64;
    }
}

fn read_groups(reader: &mut Reader<'_>) -> Result<Vec<BlockList>> {
    let bytes = reader.bin()?;
    let mut varints = Varints::new(bytes, "block runs", reader.offset());
    let mut groups = Vec::new();
    let mut room = reader.limits.blocks_per_request;
    while !varints.is_done() {
        if groups.len() == reader.limits.groups {
            return Err(reader.over("groups", reader.limits.groups));
        }
        let blocks = read_runs(&mut varints)?;
        let Some(rest) = room.checked_sub(blocks.len()) else {
            let limit = reader.limits.blocks_per_request;
            return Err(varints.error(Problem::OverLimit { what: "blocks of a request", limit }));
        };
        room = rest;
        groups.push(blocks);
    }
    Ok(groups)
}

/// Reads runs as runs: however many blocks they claim, only the runs are kept.
fn read_runs(varints: &mut Varints<'_>) -> Result<BlockList> {
    let count = varints.get_count((usize::MAX, "runs"), 2)?;
    let mut blocks = BlockList::new();
    let mut end = 0u64;
    for _ in 0..count {
        let (distance, len) = (varints.get_signed()?, varints.get()?);
        let start = end.checked_add_signed(distance).and_then(|start| u32::try_from(start).ok());
        let (Some(start), Ok(len @ 1..)) = (start, u32::try_from(len)) else {
            return Err(varints.error(Problem::BadRun));
        };
        end = u64::from(start) + u64::from(len);
        if end > 1 << 32 {
            return Err(varints.error(Problem::BadRun));
        }
        blocks.push_run(BlockId(start), len);
    }
    Ok(blocks)
}
