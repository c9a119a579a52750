//! Messages as a person reads them, for `kvbaton inspect`.

use super::names;
use super::{DropTransfers, LayoutColumns, Pull, PullExtension, PullRequest, Reply, ToPrefill};
use crate::ids::WeightVersion;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Runs of a group that are listed before the rest is only counted.
const RUNS_LISTED: usize = 8;

/// Text of a peer with its control characters escaped, so that it cannot steer the
/// terminal that shows it.
struct Shown<T>(T);

impl<T: fmt::Display> fmt::Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.to_string().chars() {
            match char.is_control() {
                true => write!(f, "{}", char.escape_default())?,
                false => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

/// A message to P, line by line.
#[must_use]
pub fn describe(message: &ToPrefill) -> String {
    let mut out = String::new();
    match message {
        ToPrefill::Pull(pull) => describe_pull(&mut out, pull),
        ToPrefill::Drop(drop) => describe_drop(&mut out, drop),
    }
    .expect("a string takes any text");
    out
}

/// An answer of P, line by line.
#[must_use]
pub fn describe_reply(reply: &Reply) -> String {
    let mut out = String::new();
    write_reply(&mut out, reply).expect("a string takes any text");
    out
}

fn describe_pull(out: &mut String, pull: &Pull) -> fmt::Result {
    let requests = pull.requests.len();
    writeln!(out, "pull from {}, {requests} request{}", Shown(&pull.session), plural(requests))?;
    match &pull.extension {
        Some(extension) => describe_extension(out, extension)?,
        None => writeln!(out, "  peer: stock, no extension")?,
    }
    writeln!(out, "  D rank: TP {} of {}, PP size {}", pull.tp_rank, pull.tp_size, pull.pp_size)?;
    let id = match pull.layout_id.is_none() {
        true => "no layout id (the peer predates it: the layout rides with every pull)".to_owned(),
        false => format!("layout id {}", pull.layout_id),
    };
    match &pull.layout {
        None => writeln!(out, "  {id}, no layout: relies on the cache of P")?,
        Some(layout) => {
            writeln!(out, "  {id}, with the layout:")?;
            describe_layout(out, layout)?;
        }
    }
    for request in &pull.requests {
        describe_request(out, request, pull.layout.as_ref())?;
    }
    Ok(())
}

fn describe_extension(out: &mut String, extension: &PullExtension) -> fmt::Result {
    writeln!(
        out,
        "  peer: ours, revision {}, features {:#x}, generation {}, waits {:?}",
        extension.revision, extension.features, extension.generation, extension.timeout
    )?;
    if extension.weights != WeightVersion::default() {
        writeln!(out, "  runs weights {}", extension.weights)?;
    }
    match extension.incarnation.0 {
        0 => writeln!(out, "  meant for any run of P"),
        _ => writeln!(out, "  meant for the run of P {}", extension.incarnation),
    }
}

fn describe_layout(out: &mut String, layout: &LayoutColumns) -> fmt::Result {
    let regions = layout.base_addrs.len();
    writeln!(out, "    {regions} region{}", plural(regions))?;
    let lacking = layout.lacking_columns();
    if regions > 0 && !lacking.is_empty() {
        writeln!(out, "    the peer is old, it lacks {}", lacking.join(", "))?;
    }
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for row in 0..regions {
        *kinds.entry(describe_kind(layout, row)).or_default() += 1;
    }
    for (kind, count) in kinds {
        writeln!(out, "    {count:>6} × {}", Shown(kind))?;
    }
    if let Some(extension) = &layout.extension {
        let bytes: u128 = extension.memory.iter().map(|range| u128::from(range.len.0)).sum();
        let (ranges, keys) = (extension.memory.len(), extension.keys.len());
        writeln!(
            out,
            "    memory: {bytes} bytes in {ranges} range{}, {keys} bytes of keys",
            plural(ranges)
        )?;
        writeln!(out, "    fingerprint: {}", Shown(&extension.fingerprint))?;
    }
    Ok(())
}

/// What the region has in common with others; `?` where a column is too short.
fn describe_kind(layout: &LayoutColumns, row: usize) -> String {
    let number = |column: &[u64]| column.get(row).map_or("?".to_owned(), u64::to_string);
    let name = layout.layer_names.get(row).map_or("(no name)".to_owned(), |name| {
        let parts = names::split(name);
        let number = if parts.number.is_some() { "{n}" } else { "" };
        format!("{}{number}{}", parts.prefix, parts.suffix)
    });
    let group = match layout.group_indices.get(row) {
        None => "?".to_owned(),
        Some(-1) => "shared by".to_owned(),
        Some(group) => group.to_string(),
    };
    let shared = match (layout.group_indices.get(row), layout.shared_group_ids.get(row)) {
        (Some(-1), Some(groups)) => format!(" {groups:?}"),
        _ => String::new(),
    };
    let offset = match layout.row_offsets.get(row) {
        Some(offset) if *offset >= 0 => format!(", offset {offset} in its row"),
        _ => String::new(),
    };
    format!(
        "{name}: group {group}{shared}, stride {}, payload {}{offset}",
        number(&layout.block_lens),
        number(&layout.kv_block_lens)
    )
}

impl LayoutColumns {
    /// The columns, as named on the wire, that the peer did not send.
    fn lacking_columns(&self) -> Vec<&'static str> {
        [
            (self.layer_names.is_empty(), "registered_layer_names"),
            (self.layer_indices.is_empty(), "registered_layer_indices"),
            (self.group_indices.is_empty(), "registered_group_indices"),
            (self.shared_group_ids.is_empty(), "registered_shared_group_ids"),
            (self.row_offsets.is_empty(), "registered_row_offsets"),
        ]
        .into_iter()
        .filter_map(|(lacks, column)| lacks.then_some(column))
        .collect()
    }

    /// Payload bytes of one kernel block of that group, over its regions.
    fn block_bytes(&self, group: usize) -> u128 {
        let shares = |row: usize| match self.group_indices.get(row) {
            Some(-1) => self
                .shared_group_ids
                .get(row)
                .is_some_and(|groups| groups.iter().any(|id| usize::try_from(*id) == Ok(group))),
            Some(index) => usize::try_from(*index) == Ok(group),
            // A peer that names no groups has one.
            None => group == 0,
        };
        let rows = self.kv_block_lens.iter().enumerate();
        rows.filter(|(row, _)| shares(*row)).map(|(_, bytes)| u128::from(*bytes)).sum()
    }
}

fn describe_request(
    out: &mut String,
    request: &PullRequest,
    layout: Option<&LayoutColumns>,
) -> fmt::Result {
    write!(
        out,
        "  request {}, transfer {}",
        Shown(&request.request_id),
        Shown(&request.transfer_id)
    )?;
    if let Some(grant) = request.grant {
        write!(out, ", grant {grant}")?;
    }
    if let Some(token) = request.end_token {
        write!(out, ", up to token {token}")?;
    }
    if request.groups.iter().all(|blocks| blocks.is_empty()) {
        return writeln!(out, ": no blocks, asks for a release");
    }
    writeln!(out)?;
    for (group, blocks) in request.groups.iter().enumerate() {
        let (count, runs) = (blocks.len(), blocks.runs());
        write!(
            out,
            "    group {group}: {count} blocks in {} run{}",
            runs.len(),
            plural(runs.len())
        )?;
        if let Some(layout) = layout {
            let bytes = layout.block_bytes(group) * u128::from(count);
            write!(out, ", {bytes} bytes per kernel block of a block")?;
        }
        for (index, run) in runs.iter().take(RUNS_LISTED).enumerate() {
            let separator = if index == 0 { ": " } else { ", " };
            match run.len {
                1 => write!(out, "{separator}{}", run.start)?,
                _ => write!(out, "{separator}{}..{}", run.start, run.end())?,
            }
        }
        match runs.len().saturating_sub(RUNS_LISTED) {
            0 => writeln!(out)?,
            rest => writeln!(out, ", and {rest} more")?,
        }
    }
    Ok(())
}

fn describe_drop(out: &mut String, drop: &DropTransfers) -> fmt::Result {
    let count = drop.transfers.len();
    writeln!(
        out,
        "drop of {count} transfer{} by TP rank {}, meant for the run of P {}",
        plural(count),
        drop.tp_rank,
        drop.incarnation
    )?;
    for (request, transfer, grant) in &drop.transfers {
        writeln!(out, "  request {}, transfer {}, grant {grant}", Shown(request), Shown(transfer))?;
    }
    Ok(())
}

fn write_reply(out: &mut String, reply: &Reply) -> fmt::Result {
    writeln!(out, "answer: {:?}", reply.status)?;
    match reply.layout_id.is_none() {
        true => writeln!(out, "  no layout id: P does not say that it holds the layout")?,
        false => writeln!(out, "  P holds layout {}", reply.layout_id)?,
    }
    for (what, requests) in [("landed", &reply.ok), ("failed", &reply.failed)] {
        for request in requests.iter().flatten() {
            writeln!(out, "  {what}: {}", Shown(request))?;
        }
    }
    if let Some(message) = &reply.message {
        writeln!(out, "  message: {}", Shown(message))?;
    }
    let Some(extension) = &reply.extension else {
        return writeln!(out, "  peer: stock, no extension");
    };
    writeln!(
        out,
        "  peer: ours, revision {}, features {:#x}, run {}",
        extension.revision, extension.features, extension.incarnation
    )?;
    for (request, reason, settled) in &extension.outcomes {
        let settled = if *settled { "settled" } else { "not settled" };
        writeln!(out, "  outcome of {}: {reason:?}, {settled}", Shown(request))?;
    }
    Ok(())
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
