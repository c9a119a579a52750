fn main(){
  use kvbaton_model_check::{options::*,check::*};
  let a:Vec<String>=std::env::args().collect();
  let ranks=a[1].parse().unwrap(); let loads=a[2].parse().unwrap();
  let kinds:Vec<Fault>=a[3..].iter().map(|n| *Fault::ALL.iter().find(|f|f.name()==n).unwrap()).collect();
  let r=explore(Options{ranks,loads,faults:Faults::of(&kinds),..Options::default()},2,|_|());
  println!("memo {:?}", r.tables.sizes()); println!("{} states {} gen depth {} {:?} {:.0}/s", r.states,r.generated,r.depth,r.took,r.states as f64/r.took.as_secs_f64());
  for (n,c) in r.tables.seen().list(){print!("{n}={c} ");} println!();
  if let Some((rule,p))=r.violation{println!("{rule:?}");for (i,w) in p.iter().enumerate(){println!("{i}: {w}")}}
}
