//! Scratch.
use kvbaton_transport_sim::{scenarios, world};
fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap();
    let from: u64 = args.next().unwrap().parse().unwrap();
    let to: u64 = args.next().map_or(from + 1, |it| it.parse().unwrap());
    let log = args.next().is_some();
    let t = std::time::Instant::now();
    let mut virt = 0;
    for seed in from..to {
        let plan = (scenarios::by_name(&name).unwrap().make)(seed);
        let p2 = plan.clone();
        let out = std::thread::spawn(move || world::run(&p2, &Default::default())).join().unwrap();
        virt += out.virtual_ns;
        if log || out.violation.is_some() {
            if log {
                for e in &out.events {
                    println!("{e}");
                }
            }
            println!("{plan:?}");
        }
        println!(
            "seed {seed} hash {:x} events {} virtual {:.1}s {:?}",
            out.hash,
            out.events.len(),
            out.virtual_ns as f64 / 1e9,
            out.violation
        );
    }
    let s = t.elapsed().as_secs_f64();
    println!("{:.2} seeds/s, {:.0} virtual/wall", (to - from) as f64 / s, virt as f64 / 1e9 / s);
}
