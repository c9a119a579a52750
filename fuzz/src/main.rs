//! scratch
use kvbaton_fuzz::{CAMPAIGNS, Trace, shrink};
use rand::{Rng, RngCore, SeedableRng};
fn main() {
    let which = std::env::args().nth(1).unwrap_or_else(|| "sender".into());
    let secs: u64 = std::env::args().nth(2).unwrap_or_else(|| "2".into()).parse().unwrap();
    let seed: u64 = std::env::args().nth(3).unwrap_or_else(|| "1".into()).parse().unwrap();
    let campaign = CAMPAIGNS.iter().find(|c| c.name == which).unwrap();
    let mut rng = rand::rngs::SmallRng::seed_from_u64(seed);
    let begin = std::time::Instant::now();
    let (mut steps, mut cases) = (0u64, 0u64);
    while begin.elapsed().as_secs() < secs {
        let len = rng.random_range(campaign.bytes.clone());
        let mut input = vec![0; len];
        rng.fill_bytes(&mut input);
        let mut trace = Trace::default();
        let r = campaign.attempt(&input, &mut trace);
        steps += trace.steps;
        cases += 1;
        if let Err(v) = r {
            println!("after {cases} cases {steps} steps: {v}");
            let small = shrink(campaign, &input);
            println!("{}", campaign.explain(&small).unwrap());
            return;
        }
    }
    println!(
        "{cases} cases {steps} steps {} steps/s",
        steps as f64 / begin.elapsed().as_secs_f64()
    );
}
