//! Which devices are near which memory, as the kernel tells in sysfs.

use std::fs;

/// The NUMA node of an RDMA device; `None` where the machine has one, or does not say.
pub(crate) fn numa_node_of_device(device: &str) -> Option<u32> {
    let path = format!("/sys/class/infiniband/{device}/device/numa_node");
    // -1 means that the firmware does not say.
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The devices on a node; all of them when none is, or none says.
pub(crate) fn nearest(
    names: Vec<String>,
    node: u32,
    node_of: impl Fn(&str) -> Option<u32>,
) -> Vec<String> {
    let near: Vec<String> =
        names.iter().filter(|name| node_of(name) == Some(node)).cloned().collect();
    if near.is_empty() { names } else { near }
}

/// The NUMA node of a PCI device, such as a GPU, by its bus id.
#[must_use]
pub fn numa_node_of_pci(bus_id: &str) -> Option<u32> {
    let known = bus_id.len() <= 32
        && bus_id.bytes().all(|it| it.is_ascii_hexdigit() || it == b':' || it == b'.');
    let path = format!("/sys/bus/pci/devices/{}/numa_node", bus_id.to_ascii_lowercase());
    if !known {
        return None;
    }
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_the_memorys_node_are_taken_and_all_where_none_is_known() {
        let names = || vec!["a".to_owned(), "b".into(), "c".into()];
        let node = |name: &str| match name {
            "a" => Some(0),
            "b" => Some(1),
            _ => None,
        };
        assert_eq!(nearest(names(), 1, node), ["b"]);
        assert_eq!(nearest(names(), 2, node), names());
        assert_eq!(nearest(names(), 0, |_| None), names());
        assert_eq!(numa_node_of_pci("../../etc"), None);
    }
}
