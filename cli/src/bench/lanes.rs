//! The baseline: the same blocks as plain byte streams, `writev` to `readv`, and one byte
//! back a round. Nothing is checked and nothing is named: what the kernel can do at best.

use super::cpu;
use super::data::{Case, order};
use super::target::{POOL, Target, answer_cpu, pool, say};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Blocks that one system call moves.
const VECTORS: usize = 64;
const SOCKET_BUFFER: usize = 4 << 20;

/// What is moved in one round.
#[derive(Debug, Clone, Args)]
pub struct Pattern {
    /// Bytes of a block.
    #[arg(long, default_value_t = 16 << 10)]
    block: u64,
    /// Blocks a round.
    #[arg(long, default_value_t = 1000)]
    count: u64,
}

/// The receiving side.
pub(super) fn receive(lanes: usize, pattern: &Pattern) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    socket2::SockRef::from(&listener).set_recv_buffer_size(SOCKET_BUFFER)?;
    say(&json!({"port": listener.local_addr()?.port()}))?;
    let (mut memory, _) = pool(0);
    let case = Case { name: "lanes", block: pattern.block, count: pattern.count };
    let blocks = blocks_mut(&mut memory, &case, 2);
    let share = blocks.len().div_ceil(lanes);
    let mut blocks = blocks.into_iter();
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..lanes {
            let (mut stream, _) = listener.accept()?;
            let mut mine: Vec<&mut [u8]> = blocks.by_ref().take(share).collect();
            scope.spawn(move || {
                while read_round(&mut stream, &mut mine).is_ok() {
                    if stream.write_all(&[1]).is_err() {
                        break;
                    }
                }
            });
        }
        answer_cpu()
    })
}

/// Measures the sending side.
pub(super) fn measure(case: &Case, lanes: usize, time: Duration) -> Result<Value> {
    let block = ["--block".into(), case.block.to_string()];
    let count = ["--count".into(), case.count.to_string()];
    let lanes_text = ["--lanes".into(), lanes.to_string()];
    let (mut target, hello) = Target::start(&[lanes_text, block, count].concat())?;
    let port = hello["port"].as_u64().context("no port")? as u16;
    let (mut memory, _) = pool(1);
    let blocks = blocks_mut(&mut memory, case, 1);
    let share = blocks.len().div_ceil(lanes);
    let mut streams = Vec::new();
    for _ in 0..lanes {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        socket2::SockRef::from(&stream).set_send_buffer_size(SOCKET_BUFFER)?;
        streams.push(stream);
    }
    let mut round = || -> Result<f64> {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let sending: Vec<_> = streams
                .iter_mut()
                .zip(blocks.chunks(share))
                .map(|(stream, mine)| scope.spawn(move || write_round(stream, mine)))
                .collect();
            sending.into_iter().try_for_each(|it| it.join().expect("a lane panicked"))
        })?;
        Ok(begin.elapsed().as_secs_f64())
    };
    round()?;
    let (own, theirs, begin) = (cpu::seconds(), target.cpu()?, Instant::now());
    let mut rounds = Vec::new();
    while begin.elapsed() < time || rounds.len() < 5 {
        rounds.push(round()?);
    }
    let gigabytes = (case.block * case.count * rounds.len() as u64) as f64 / 1e9;
    let (own, theirs) = (cpu::seconds() - own, target.cpu()? - theirs);
    drop(streams);
    super::data::figure(case, rounds, own / gigabytes, theirs / gigabytes)
}

fn blocks_mut<'a>(memory: &'a mut [u8], case: &Case, seed: u64) -> Vec<&'a mut [u8]> {
    let stride = (POOL / case.count) as usize;
    let mut slots: Vec<Option<&mut [u8]>> = memory
        .chunks_exact_mut(stride)
        .map(|slot| Some(&mut slot[..case.block as usize]))
        .collect();
    let take = |index: u64| slots[index as usize].take().expect("each index comes once");
    order(case.count, seed).into_iter().map(take).collect()
}

fn write_round(stream: &mut TcpStream, blocks: &[&mut [u8]]) -> Result<()> {
    for batch in blocks.chunks(VECTORS) {
        let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|it| IoSlice::new(it)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let written = stream.write_vectored(rest)?;
            ensure!(written > 0, "the receiver is gone");
            IoSlice::advance_slices(&mut rest, written);
        }
    }
    Ok(stream.read_exact(&mut [0])?)
}

fn read_round(stream: &mut TcpStream, blocks: &mut [&mut [u8]]) -> Result<()> {
    for batch in blocks.chunks_mut(VECTORS) {
        let mut slices: Vec<IoSliceMut<'_>> =
            batch.iter_mut().map(|it| IoSliceMut::new(it)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let read = stream.read_vectored(rest)?;
            ensure!(read > 0, "the sender is done");
            IoSliceMut::advance_slices(&mut rest, read);
        }
    }
    Ok(())
}
