//! A node in a process of its own, driven by lines of JSON.

fn main() {
    kvbaton_tests::node::serve();
}
