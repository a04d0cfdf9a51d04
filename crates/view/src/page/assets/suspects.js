// Call sites whose live memory only grows.

/// How many moments are compared. Sites that allocate once a second need some of them between two allocations.
const SAMPLES = 40;

/// Live bytes and counts of each call site at equally spaced moments, up to the last allocation.
///
/// What comes after the last allocation is the program's end: there every curve falls, also that of a leak.
function samplesBySite(run) {
  const sites = run.sites.length;
  let last = 0;
  for (let i = 0; i < run.count; i += 1) last = Math.max(last, run.start[i]);
  const from = timeAt(run, 0);
  const to = timeAt(run, run.events ? last : -1);
  const bytes = new Float64Array(sites);
  const counts = new Float64Array(sites);
  const samples = [];
  let position = 0;
  for (let number = 1; number <= SAMPLES; number += 1) {
    const until = from + ((to - from) * number) / SAMPLES;
    while (position < run.events && (number === SAMPLES ? position <= last : run.time[position] <= until)) {
      const coded = run.event[position];
      const i = coded >>> 1;
      const sign = coded & 1 ? -1 : 1;
      bytes[run.callSite[i]] += sign * run.bytes[i];
      counts[run.callSite[i]] += sign;
      position += 1;
    }
    samples.push({ time: until, bytes: bytes.slice(), counts: counts.slice() });
  }
  return { samples, from, to };
}

/// Call sites that grew through the second half of the run, the fastest first.
///
/// A model that is loaded grows too, but stops. A suspect still grows late, hardly ever falls, and has allocated at least
/// five times more often than it freed in that time.
function growthSuspects(run) {
  // Asked for by the summary and by the list.
  run.suspects ??= findSuspects(run);
  return run.suspects;
}

function findSuspects(run) {
  // A leak report does not have what was freed.
  if (run.count < 10 || run.is_report) return [];
  const { samples, from, to } = samplesBySite(run);
  const middle = samples[SAMPLES / 2 - 1];
  const end = samples[SAMPLES - 1];
  const suspects = [];
  for (let site = 0; site < run.sites.length; site += 1) {
    const grown = end.bytes[site] - middle.bytes[site];
    const more = end.counts[site] - middle.counts[site];
    if (grown <= 0 || more < 5) continue;
    let rises = 0;
    let falls = 0;
    for (let number = SAMPLES / 2; number < SAMPLES; number += 1) {
      const step = samples[number].bytes[site] - samples[number - 1].bytes[site];
      if (step > 0) rises += step;
      else falls -= step;
    }
    // The number of parts in which it rose tells slow growth from one large step near the end.
    const parts = [0, 1, 2, 3].filter((part) => {
      const a = samples[SAMPLES / 2 - 1 + part * 5].bytes[site];
      return samples[SAMPLES / 2 - 1 + (part + 1) * 5].bytes[site] > a;
    }).length;
    if (falls > 0.2 * rises || parts < 3) continue;
    suspects.push({
      site, grown, more,
      bytes: end.bytes[site], count: end.counts[site],
      rate: grown / ((end.time - middle.time) / 1e9),
      curve: samples.map((sample) => sample.bytes[site]),
      from, to,
    });
  }
  return suspects.sort((a, b) => b.grown - a.grown || a.site - b.site);
}

/// Allocations that were not freed, of every kind, in groups by call site.
function leaksOf(run) {
  const never = [];
  for (let i = 0; i < run.count; i += 1) if (run.stop[i] === NEVER || run.leaked[i]) never.push(i);
  // Those that are not alive at the end: their context ended first.
  const ended = never.filter((i) => run.leaked[i]);
  return { allocations: never, ended, groups: groupAlive(run, never, "site") };
}
