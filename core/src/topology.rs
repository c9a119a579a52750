//! Placeholder.
/// x
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    /// x
    pub tp_rank: u32,
    /// x
    pub tp_size: u32,
    /// x
    pub pp_rank: u32,
    /// x
    pub pp_size: u32,
}
impl Topology {
    /// x
    pub fn paired_ranks(&self, remote: u32) -> Result<Vec<u32>, String> {
        if self.tp_size >= remote {
            if self.tp_size % remote != 0 {
                return Err("x".into());
            }
            Ok(vec![self.tp_rank / (self.tp_size / remote)])
        } else {
            if remote % self.tp_size != 0 {
                return Err("x".into());
            }
            let k = remote / self.tp_size;
            Ok((0..k).map(|i| self.tp_rank * k + i).collect())
        }
    }
}
