//! Colours, the legend, and the few lines of script.

/// Colours by the reader's scheme.
pub const CSS: &str = "
:root { color-scheme: light dark; --back: #fff; --text: #1c2024; --dim: #8b939c; --grid: #eef0f2;
 --lane: #c9ced4; --pull: #1f6feb; --reply: #1a7f37; --drop: #9a6700; --write: #8250df;
 --bad: #cf222e; --band: #ffebe9; --hold: #54aeff; --load: #4ac26b; --fault: #e16f24;
 --registered: #d0d7de; --draining: #eac54f; --asleep: #6e7781; --down: #24292f;
 --paused: #bf8700; --stopped: #fa4549; }
@media (prefers-color-scheme: dark) { :root { --back: #12161b; --text: #e3e8ee; --dim: #7d8894;
 --grid: #1e242b; --lane: #3a434d; --pull: #58a6ff; --reply: #3fb950; --drop: #d29922;
 --write: #bc8cff; --bad: #ff7b72; --band: #3d1518; --registered: #444c56; --asleep: #adbac7;
 --down: #f0f6fc; } }
body { margin: 0; background: var(--back); color: var(--text); font: 13px/1.4 system-ui, sans-serif; }
header { padding: 12px 16px; max-width: 1100px; }
h1 { font-size: 17px; margin: 0 0 6px; }
p { margin: 4px 0; } p.bad, p.bad a { color: var(--bad); } .note { color: var(--dim); }
dl { display: grid; grid-template-columns: 80px 1fr; margin: 6px 0; }
dt { color: var(--dim); } dd { margin: 0; }
pre, svg text, .heads { font-family: ui-monospace, monospace; font-size: 10.5px; }
.heads { position: sticky; top: 0; height: 22px; background: var(--back); z-index: 1;
 border-bottom: 1px solid var(--lane); }
.heads span { position: absolute; top: 3px; font-weight: 600; font-size: 12px; }
ul.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 16px; padding: 0; margin: 8px 0; }
.legend i { display: inline-block; width: 18px; height: 0; border-top: 2px solid; margin: 0 5px 3px 0; }
.legend i.box { height: 9px; width: 7px; border: 0; margin-bottom: 0; }
svg { display: block; } svg text { fill: var(--text); }
svg .time, svg .gap { fill: var(--dim); text-anchor: end; } svg .gap { font-style: italic; }
.lane { stroke: var(--lane); } .grid { stroke: var(--grid); }
.e circle { fill: var(--text); }
.e text { paint-order: stroke; stroke: var(--back); stroke-width: 3px; stroke-linejoin: round; } .e.bad circle { fill: var(--bad); r: 6px; }
.e.bad text, svg text.bad { fill: var(--bad); font-weight: 700; }
.violation { fill: var(--band); stroke: var(--bad); }
line.pull { stroke: var(--pull); marker-end: url(#arrow-pull); }
line.reply { stroke: var(--reply); marker-end: url(#arrow-reply); }
line.drop { stroke: var(--drop); marker-end: url(#arrow-drop); }
line.again { stroke: var(--dim); stroke-dasharray: 4 3; marker-end: url(#arrow-dim); }
line.under { stroke: var(--dim); stroke-dasharray: 1 3; }
line.lost { stroke: var(--bad); stroke-dasharray: 4 3; }
line.write { stroke: var(--write); stroke-width: 3.5; stroke-opacity: .65; }
line.write.unseen { stroke-dasharray: 6 4; } line.write.refused { stroke: var(--bad); }
line.told { stroke: var(--write); stroke-dasharray: 2 3; }
.cross { stroke: var(--bad); stroke-width: 2; fill: none; }
.hold { fill: var(--hold); } .load { fill: var(--load); } .writing { fill: var(--write); }
.fault { fill: var(--fault); } .registered { fill: var(--registered); }
.draining { fill: var(--draining); } .asleep { fill: var(--asleep); } .down { fill: var(--down); }
.paused { fill: var(--paused); } .stopped { fill: var(--stopped); }
.on { stroke-width: 4 !important; stroke-opacity: 1 !important; } g.on text { font-weight: 700; }
";

/// Arrow heads.
pub const MARKERS: &str = "<defs>\
<marker id=\"arrow-pull\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"var(--pull)\" /></marker>\
<marker id=\"arrow-reply\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"var(--reply)\" /></marker>\
<marker id=\"arrow-drop\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"var(--drop)\" /></marker>\
<marker id=\"arrow-dim\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"var(--dim)\" /></marker>\
</defs>\n";

/// What the colours mean.
pub const LEGEND: &str = "<ul class=\"legend\">\
<li><i style=\"color:var(--pull)\"></i>pull</li>\
<li><i style=\"color:var(--reply)\"></i>answer</li>\
<li><i style=\"color:var(--drop)\"></i>drop</li>\
<li><i style=\"color:var(--bad);border-top-style:dashed\"></i>lost</li>\
<li><i style=\"color:var(--dim);border-top-style:dashed\"></i>came twice</li>\
<li><i style=\"color:var(--write);border-top-width:4px\"></i>write, to where a piece landed</li>\
<li><i style=\"color:var(--write);border-top-style:dotted\"></i>its issuer is told</li>\
<li><i class=\"box\" style=\"background:var(--hold)\"></i>P holds blocks</li>\
<li><i class=\"box\" style=\"background:var(--load)\"></i>D loads</li>\
<li><i class=\"box\" style=\"background:var(--write)\"></i>P reads for a write</li>\
<li><i class=\"box\" style=\"background:var(--fault)\"></i>fault, operation</li>\
<li><i class=\"box\" style=\"background:var(--registered)\"></i>registered</li>\
<li><i class=\"box\" style=\"background:var(--draining)\"></i>draining</li>\
<li><i class=\"box\" style=\"background:var(--asleep)\"></i>asleep</li>\
<li><i class=\"box\" style=\"background:var(--paused)\"></i>paused</li>\
<li><i class=\"box\" style=\"background:var(--stopped)\"></i>stopped</li>\
<li><i class=\"box\" style=\"background:var(--down)\"></i>killed</li>\
<li class=\"note\">Time runs downwards, one row per event; quiet times are cut. Point at a thing \
for all of its text; pointing lights up its connection or write.</li></ul>\n";

/// Lights up what belongs together.
pub const SCRIPT: &str = "
const all = new Map();
for (const it of document.querySelectorAll('[data-k]')) {
  const key = it.dataset.k;
  if (!all.has(key)) all.set(key, []);
  all.get(key).push(it);
  const light = on => all.get(key).forEach(it => it.classList.toggle('on', on));
  it.addEventListener('mouseenter', () => light(true));
  it.addEventListener('mouseleave', () => light(false));
}
";
