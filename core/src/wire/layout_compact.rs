//! The compact form of a layout: an array of columns and extension.
//!
//! The columns are a byte string of varints in one of two forms: *rows*
//! ([`super::layout_rows`]) for columns of equal length, and *plain* for all else, each
//! column as it is after its length.

use super::compact::optional;
use super::layout_rows;
use super::reader::{Reader, Result};
use super::varint::{self, Varints};
use super::writer::Writer;
use super::{LayoutColumns, LayoutExtension, Limits, Problem};
use crate::fingerprint::Fingerprint;
use crate::ids::{Address, Bytes};
use crate::region::{GroupKind, MemoryRange};

/// Form of the columns: the first varint.
const PLAIN: u64 = 0;
/// As [`PLAIN`].
const ROWS: u64 = 1;
/// Elements of a layout.
const ELEMENTS: usize = 2;
/// Elements of its extension.
const EXTENSION_ELEMENTS: usize = 3;
/// Elements of a fingerprint.
const FINGERPRINT_ELEMENTS: usize = 5;

impl LayoutColumns {
    pub(super) fn write_compact(&self, writer: &mut Writer<'_>) {
        writer.array(ELEMENTS);
        writer.bin(&self.columns());
        match &self.extension {
            Some(extension) => extension.write(writer),
            None => writer.nil(),
        }
    }

    pub(super) fn read_compact(reader: &mut Reader<'_>) -> Result<Self> {
        let more = reader.array_of_at_least(ELEMENTS)?;
        let bytes = reader.bin()?;
        let mut varints = Varints::new(bytes, "layout columns", reader.offset());
        let mut layout = match varints.get()? {
            PLAIN => read_plain(&mut varints, reader.limits)?,
            ROWS => layout_rows::read(&mut varints, reader.limits)?,
            other => return Err(varints.error(Problem::Unknown(other))),
        };
        if !varints.is_done() {
            return Err(varints.error(Problem::TrailingBytes(varints.remaining())));
        }
        layout.extension = optional(reader, LayoutExtension::read)?;
        reader.skip_values(more)?;
        Ok(layout)
    }

    fn columns(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, ROWS);
        if !layout_rows::write(self, &mut out) {
            out.clear();
            varint::put(&mut out, PLAIN);
            write_plain(self, &mut out);
        }
        out
    }
}

fn write_plain(layout: &LayoutColumns, out: &mut Vec<u8>) {
    for column in [&layout.base_addrs, &layout.block_lens, &layout.kv_block_lens] {
        varint::put(out, column.len() as u64);
        column.iter().for_each(|value| varint::put(out, *value));
    }
    varint::put(out, layout.layer_names.len() as u64);
    layout.layer_names.iter().for_each(|name| varint::put_bytes(out, name.as_bytes()));
    for column in [&layout.layer_indices, &layout.group_indices, &layout.row_offsets] {
        put_signed_list(out, column);
    }
    varint::put(out, layout.shared_group_ids.len() as u64);
    layout.shared_group_ids.iter().for_each(|groups| put_signed_list(out, groups));
}

pub(super) fn put_signed_list(out: &mut Vec<u8>, values: &[i64]) {
    varint::put(out, values.len() as u64);
    values.iter().for_each(|value| varint::put_signed(out, *value));
}

fn read_plain(varints: &mut Varints<'_>, limits: &Limits) -> Result<LayoutColumns> {
    let regions = (limits.regions, "regions");
    // Fields are read in the order in which `write_plain` writes them.
    Ok(LayoutColumns {
        base_addrs: list(varints, regions, 1, Varints::get)?,
        block_lens: list(varints, regions, 1, Varints::get)?,
        kv_block_lens: list(varints, regions, 1, Varints::get)?,
        layer_names: list(varints, regions, 1, |v| {
            v.get_str(limits.string_bytes).map(String::from)
        })?,
        layer_indices: list(varints, regions, 1, Varints::get_signed)?,
        group_indices: list(varints, regions, 1, Varints::get_signed)?,
        row_offsets: list(varints, regions, 1, Varints::get_signed)?,
        shared_group_ids: list(varints, regions, 1, |v| read_shared_groups(v, limits))?,
        extension: None,
    })
}

pub(super) fn read_shared_groups(varints: &mut Varints<'_>, limits: &Limits) -> Result<Vec<i64>> {
    list(varints, (limits.groups, "groups of a region"), 1, Varints::get_signed)
}

/// Values after their number, of which each takes at least `least` bytes.
pub(super) fn list<'a, T>(
    varints: &mut Varints<'a>,
    limit: (usize, &'static str),
    least: usize,
    mut read: impl FnMut(&mut Varints<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = varints.get_count(limit, least)?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(read(varints)?);
    }
    Ok(values)
}

impl LayoutExtension {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.array(EXTENSION_ELEMENTS);
        let mut memory = Vec::new();
        let mut end = 0u64;
        for range in &self.memory {
            varint::put_signed(&mut memory, range.start.0.wrapping_sub(end) as i64);
            varint::put(&mut memory, range.len.0);
            end = range.start.0.wrapping_add(range.len.0);
        }
        writer.bin(&memory);
        writer.bin(&self.keys);
        self.fingerprint.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let more = reader.array_of_at_least(EXTENSION_ELEMENTS)?;
        let extension = Self {
            memory: read_memory(reader)?,
            keys: reader.bin()?.to_vec(),
            fingerprint: Fingerprint::read(reader)?,
        };
        reader.skip_values(more)?;
        Ok(extension)
    }
}

fn read_memory(reader: &mut Reader<'_>) -> Result<Vec<MemoryRange>> {
    let bytes = reader.bin()?;
    let mut varints = Varints::new(bytes, "memory ranges", reader.offset());
    let mut memory = Vec::new();
    let mut end = 0u64;
    while !varints.is_done() {
        if memory.len() == reader.limits.regions {
            return Err(reader.over("memory ranges", reader.limits.regions));
        }
        let start = end.wrapping_add_signed(varints.get_signed()?);
        let len = varints.get()?;
        end = start.wrapping_add(len);
        memory.push(MemoryRange { start: Address(start), len: Bytes(len) });
    }
    Ok(memory)
}

impl Fingerprint {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.array(FINGERPRINT_ELEMENTS);
        writer.str(&self.model);
        writer.str(&self.dtype);
        writer.array(self.block_size.len());
        self.block_size.iter().for_each(|tokens| writer.uint(u64::from(*tokens)));
        writer.uint(u64::from(self.total_kv_heads));
        writer.array(self.groups.len());
        for kind in &self.groups {
            writer.uint(match kind {
                GroupKind::Attention => 0,
                GroupKind::State => 1,
            });
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let groups = reader.limits.groups;
        let more = reader.array_of_at_least(FINGERPRINT_ELEMENTS)?;
        let fingerprint = Self {
            model: reader.str()?.to_owned(),
            dtype: reader.str()?.to_owned(),
            block_size: reader.list((groups, "groups"), 1, |r| r.u32())?,
            total_kv_heads: reader.u32()?,
            groups: reader.list((groups, "groups"), 1, read_kind)?,
        };
        reader.skip_values(more)?;
        Ok(fingerprint)
    }
}

fn read_kind(reader: &mut Reader<'_>) -> Result<GroupKind> {
    match reader.u64()? {
        0 => Ok(GroupKind::Attention),
        1 => Ok(GroupKind::State),
        other => Err(reader.error(Problem::Unknown(other))),
    }
}
