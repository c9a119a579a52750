//! The stock form of a pull.

use super::reader::{Reader, Result};
use super::writer::Writer;
use super::{LayoutColumns, Problem, Pull, PullRequest};
use crate::blocks::BlockList;
use crate::ids::{BlockId, LayoutId, RequestId, SessionAddress, TransferId};
use std::collections::BTreeSet;

/// The smallest request on the wire: an empty name, and an array of an empty transfer
/// id and no groups.
const LEAST_REQUEST_BYTES: usize = 4;

impl Pull {
    /// Appends the stock form: byte for byte what the reference encoder makes.
    ///
    /// Extensions, grants and end tokens are left out, and every block id is written
    /// singly. Without a layout and with [`LayoutId::NONE`] a stock P reads an empty
    /// layout: it cannot tell the two apart.
    pub fn encode_stock(&self, out: &mut Vec<u8>) {
        static EMPTY: LayoutColumns = LayoutColumns::EMPTY;
        let layout = self.layout.as_ref().unwrap_or(&EMPTY);
        let writer = &mut Writer::new(out);
        writer.map(8 + layout.optional_columns() + self.optional_fields());
        writer.str("remote_hostname");
        writer.str(&self.session.host);
        for (field, value) in [
            ("remote_port", u64::from(self.session.port)),
            ("remote_tp_size", u64::from(self.tp_size)),
            ("remote_tp_rank", u64::from(self.tp_rank)),
        ] {
            writer.str(field);
            writer.uint(value);
        }
        write_requests(writer, &self.requests);
        layout.write(writer);
        if self.pp_size != 1 {
            writer.str("remote_pp_size");
            writer.uint(u64::from(self.pp_size));
        }
        if !self.layout_id.is_none() {
            writer.str("layout_id");
            writer.uint(self.layout_id.0);
        }
    }

    fn optional_fields(&self) -> usize {
        usize::from(!self.layout_id.is_none()) + usize::from(self.pp_size != 1)
    }
}

fn write_requests(writer: &mut Writer<'_>, requests: &[PullRequest]) {
    writer.str("req_blocks");
    writer.map(requests.len());
    for request in requests {
        writer.str(request.request_id.as_str());
        writer.array(2);
        writer.str(request.transfer_id.as_str());
        writer.array(request.groups.len());
        for blocks in &request.groups {
            writer.array(usize::try_from(blocks.len()).unwrap_or(usize::MAX));
            for block in blocks.iter() {
                writer.uint(u64::from(block.0));
            }
        }
    }
}

impl LayoutColumns {
    const EMPTY: Self = Self {
        base_addrs: Vec::new(),
        block_lens: Vec::new(),
        kv_block_lens: Vec::new(),
        layer_names: Vec::new(),
        layer_indices: Vec::new(),
        group_indices: Vec::new(),
        shared_group_ids: Vec::new(),
        row_offsets: Vec::new(),
        extension: None,
    };

    /// How many of the columns that may be left out are there.
    fn optional_columns(&self) -> usize {
        [
            self.layer_names.is_empty(),
            self.layer_indices.is_empty(),
            self.group_indices.is_empty(),
            self.shared_group_ids.is_empty(),
            self.row_offsets.is_empty(),
        ]
        .into_iter()
        .filter(|empty| !empty)
        .count()
    }

    fn write(&self, writer: &mut Writer<'_>) {
        write_column(writer, "kv_caches_base_addr", &self.base_addrs, |w, v| w.uint(*v));
        write_column(writer, "block_lens", &self.block_lens, |w, v| w.uint(*v));
        write_column(writer, "kv_block_lens", &self.kv_block_lens, |w, v| w.uint(*v));
        write_optional(writer, "registered_layer_names", &self.layer_names, |w, v| w.str(v));
        write_optional(writer, "registered_layer_indices", &self.layer_indices, |w, v| w.int(*v));
        write_optional(writer, "registered_group_indices", &self.group_indices, |w, v| w.int(*v));
        write_optional(writer, "registered_shared_group_ids", &self.shared_group_ids, |w, v| {
            w.array(v.len());
            v.iter().for_each(|id| w.int(*id));
        });
        write_optional(writer, "registered_row_offsets", &self.row_offsets, |w, v| w.int(*v));
    }
}

fn write_column<T>(
    writer: &mut Writer<'_>,
    field: &str,
    column: &[T],
    write: impl Fn(&mut Writer<'_>, &T),
) {
    writer.str(field);
    writer.array(column.len());
    column.iter().for_each(|value| write(writer, value));
}

fn write_optional<T>(
    writer: &mut Writer<'_>,
    field: &str,
    column: &[T],
    write: impl Fn(&mut Writer<'_>, &T),
) {
    if !column.is_empty() {
        write_column(writer, field, column, write);
    }
}

/// The fields of a stock pull as they come in.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a str>,
    port: Option<u16>,
    tp_size: Option<u32>,
    tp_rank: Option<u32>,
    requests: Option<Vec<PullRequest>>,
    base_addrs: Option<Vec<u64>>,
    block_lens: Option<Vec<u64>>,
    kv_block_lens: Option<Vec<u64>>,
    layer_names: Option<Vec<String>>,
    layer_indices: Option<Vec<i64>>,
    group_indices: Option<Vec<i64>>,
    shared_group_ids: Option<Vec<Vec<i64>>>,
    row_offsets: Option<Vec<i64>>,
    pp_size: Option<u32>,
    layout_id: Option<u64>,
}

/// Reads the `pairs` fields of a stock pull.
pub(super) fn decode(reader: &mut Reader<'_>, pairs: usize) -> Result<Pull> {
    let mut fields = Fields::default();
    for _ in 0..pairs {
        fields.read_one(reader)?;
    }
    fields.into_pull(reader)
}

impl<'a> Fields<'a> {
    fn read_one(&mut self, reader: &mut Reader<'a>) -> Result<()> {
        let Some(key) = reader.key()? else {
            return reader.skip_values(2);
        };
        match key {
            b"remote_hostname" => reader.once("remote_hostname", &mut self.host, Reader::str),
            b"remote_port" => reader.once("remote_port", &mut self.port, Reader::u16),
            b"remote_tp_size" => reader.once("remote_tp_size", &mut self.tp_size, Reader::u32),
            b"remote_tp_rank" => reader.once("remote_tp_rank", &mut self.tp_rank, Reader::u32),
            b"remote_pp_size" => reader.once("remote_pp_size", &mut self.pp_size, Reader::u32),
            b"layout_id" => reader.once("layout_id", &mut self.layout_id, Reader::u64),
            b"req_blocks" => reader.once("req_blocks", &mut self.requests, read_requests),
            _ => self.read_column(reader, key),
        }
    }

    fn read_column(&mut self, reader: &mut Reader<'a>, key: &[u8]) -> Result<()> {
        match key {
            b"kv_caches_base_addr" => {
                reader.once("kv_caches_base_addr", &mut self.base_addrs, unsigned_column)
            }
            b"block_lens" => reader.once("block_lens", &mut self.block_lens, unsigned_column),
            b"kv_block_lens" => {
                reader.once("kv_block_lens", &mut self.kv_block_lens, unsigned_column)
            }
            b"registered_layer_names" => {
                reader.once("registered_layer_names", &mut self.layer_names, |r| {
                    column(r, |r| r.str().map(String::from))
                })
            }
            b"registered_layer_indices" => {
                reader.once("registered_layer_indices", &mut self.layer_indices, signed_column)
            }
            b"registered_group_indices" => {
                reader.once("registered_group_indices", &mut self.group_indices, signed_column)
            }
            b"registered_shared_group_ids" => {
                reader.once("registered_shared_group_ids", &mut self.shared_group_ids, |r| {
                    column(r, |r| r.list((r.limits.groups, "groups of a region"), 1, Reader::i64))
                })
            }
            b"registered_row_offsets" => {
                reader.once("registered_row_offsets", &mut self.row_offsets, signed_column)
            }
            _ => reader.skip_values(1),
        }
    }

    fn into_pull(self, reader: &Reader<'_>) -> Result<Pull> {
        let host = reader.required("remote_hostname", self.host)?;
        let port = reader.required("remote_port", self.port)?;
        let layout_id = LayoutId(self.layout_id.unwrap_or(0));
        let columns = LayoutColumns {
            base_addrs: reader.required("kv_caches_base_addr", self.base_addrs)?,
            block_lens: reader.required("block_lens", self.block_lens)?,
            kv_block_lens: reader.required("kv_block_lens", self.kv_block_lens)?,
            layer_names: self.layer_names.unwrap_or_default(),
            layer_indices: self.layer_indices.unwrap_or_default(),
            group_indices: self.group_indices.unwrap_or_default(),
            shared_group_ids: self.shared_group_ids.unwrap_or_default(),
            row_offsets: self.row_offsets.unwrap_or_default(),
            extension: None,
        };
        // Only a peer that names its layout can rely on our cache `[L06]`.
        let relies_on_cache = columns.base_addrs.is_empty() && !layout_id.is_none();
        Ok(Pull {
            session: SessionAddress { host: host.into(), port },
            tp_size: reader.required("remote_tp_size", self.tp_size)?,
            tp_rank: reader.required("remote_tp_rank", self.tp_rank)?,
            pp_size: self.pp_size.unwrap_or(1),
            layout_id,
            layout: (!relies_on_cache).then_some(columns),
            requests: reader.required("req_blocks", self.requests)?,
            extension: None,
        })
    }
}

fn column<T>(
    reader: &mut Reader<'_>,
    read: impl FnMut(&mut Reader<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    reader.list((reader.limits.regions, "regions"), 1, read)
}

fn unsigned_column(reader: &mut Reader<'_>) -> Result<Vec<u64>> {
    column(reader, |r| r.u64())
}

fn signed_column(reader: &mut Reader<'_>) -> Result<Vec<i64>> {
    column(reader, |r| r.i64())
}

fn read_requests(reader: &mut Reader<'_>) -> Result<Vec<PullRequest>> {
    let count = reader.map()?;
    if count > reader.limits.requests {
        return Err(reader.over("requests", reader.limits.requests));
    }
    let mut requests = Vec::with_capacity(reader.reserve(count, LEAST_REQUEST_BYTES));
    for _ in 0..count {
        requests.push(read_request(reader)?);
    }
    refuse_repeated_requests(reader, &requests)?;
    Ok(requests)
}

fn read_request(reader: &mut Reader<'_>) -> Result<PullRequest> {
    let request_id = RequestId::from(reader.str()?);
    let more = reader.array_of_at_least(2)?;
    let transfer_id = TransferId::from(reader.str()?);
    let groups = reader.list((reader.limits.groups, "groups"), 1, read_block_ids)?;
    reader.skip_values(more)?;
    Ok(PullRequest { request_id, transfer_id, groups, grant: None, end_token: None })
}

/// Reads block ids straight into runs: nothing is kept per block.
fn read_block_ids(reader: &mut Reader<'_>) -> Result<BlockList> {
    let count = reader.array()?;
    let mut list = BlockList::new();
    let (mut start, mut len) = (0, 0);
    for _ in 0..count {
        let id = reader.u32()?;
        // `len` counts ids that are there, so it is far below 2^32.
        if u64::from(id) == u64::from(start) + u64::from(len) && len > 0 {
            len += 1;
        } else {
            list.push_run(BlockId(start), len);
            (start, len) = (id, 1);
        }
    }
    list.push_run(BlockId(start), len);
    if list.len() > reader.limits.blocks_per_request {
        let limit = reader.limits.blocks_per_request;
        return Err(reader.error(Problem::OverLimit { what: "blocks of a request", limit }));
    }
    Ok(list)
}

/// P answers by request name, so a pull may not use a name twice.
pub(super) fn refuse_repeated_requests(
    reader: &Reader<'_>,
    requests: &[PullRequest],
) -> Result<()> {
    if requests.len() < 2 {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    match requests.iter().all(|request| seen.insert(request.request_id.as_str())) {
        true => Ok(()),
        false => Err(reader.error(Problem::Twice)),
    }
}
