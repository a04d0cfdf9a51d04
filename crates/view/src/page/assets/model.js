// What is computed from a run: which allocations count, groups, what was alive at a moment, curves over time.
//
// A moment is the position of an event: what is alive after it. -1 is before the first.

/// The last position at or before a time.
function positionAt(run, time) {
  let low = 0;
  let high = run.events;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (run.time[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function timeAt(run, position) {
  return position < 0 ? 0 : run.time[position];
}

/// The frame that names a call site, as in the text report: the innermost of the program that is no allocation helper.
function mainFrame(run, site) {
  return run.sites[site]?.frames[run.named[site]] ?? null;
}

/// The library that memory is counted for, as in the text report: the first that is known, among frames of the program where it has some.
function libraryOf(run, site) {
  const frames = run.sites[site]?.frames ?? [];
  const own = frames.filter((frame) => frame.app);
  return (own.length ? own : frames).find((frame) => frame.library)?.library ?? "";
}

/// `attention.py:47`: tells call sites in functions of one name apart.
function sitePlace(run, site) {
  const frame = mainFrame(run, site);
  if (!frame?.file) return frame?.library ?? "";
  const name = frame.file.split(/[\\/]/).pop();
  return frame.line ? `${name}:${frame.line}` : name;
}

function siteName(run, site) {
  const frame = mainFrame(run, site);
  return frame ? shortFunction(frame.name) : "unknown call site";
}

/// 1 for allocations that count: of the chosen memory, and matching every word of the search.
function selection(run, scope, query) {
  const kinds = run.kinds.map((kind, index) =>
    scope === "device" ? kind.onDevice : scope === "memory" ? kind.isMemory : scope === "all" || scope === `kind:${index}`);
  const chosen = new Uint8Array(run.count);
  for (let i = 0; i < run.count; i += 1) chosen[i] = kinds[run.kind[i]] ? 1 : 0;
  for (const word of query.toLowerCase().split(/\s+/).filter(Boolean)) {
    const has = (text) => text.toLowerCase().includes(word);
    const names = Uint8Array.from(run.names, has);
    const kindNames = run.kinds.map((kind) => has(kind.name));
    const frames = new Map(run.frames.map((frame) => [frame, has(frame.name) || has(frame.file) || has(frame.library)]));
    const sites = Uint8Array.from(run.sites, (site) => has(site.type) || site.frames.some((frame) => frames.get(frame)));
    for (let i = 0; i < run.count; i += 1) {
      if (chosen[i] && !(sites[run.site[i]] || names[run.label[i]] || names[run.thread[i]] || kindNames[run.kind[i]])) chosen[i] = 0;
    }
  }
  return chosen;
}

const GROUPINGS = [
  ["site", "Call site"], ["function", "Function"], ["library", "Library"], ["label", "Label"],
  ["thread", "Thread"], ["stream", "Stream"], ["size", "Size"], ["kind", "Kind"],
];

/// A key for each allocation, and the name of each key.
function grouping(run, by) {
  run.groupings ??= new Map();
  if (!run.groupings.has(by)) run.groupings.set(by, makeGrouping(run, by));
  return run.groupings.get(by);
}

function makeGrouping(run, by) {
  const named = (name) => name || "(none)";
  switch (by) {
    case "label": return { keys: run.label, name: (key) => run.names[key] || "no label" };
    case "thread": return { keys: run.thread, name: (key) => run.names[key] || "unnamed thread" };
    case "kind": return { keys: run.kind, name: (key) => named(run.kinds[key]?.name) };
    case "stream": return { keys: run.stream, name: (key) => run.streams[key] };
    case "size": return {
      keys: Uint8Array.from(run.bytes, (bytes) => (bytes ? Math.floor(Math.log2(bytes)) + 1 : 0)),
      name: (key) => (key ? `${formatBytes(2 ** (key - 1))} to ${formatBytes(2 ** key)}` : "no bytes"),
    };
    case "function": return bySite(run, (site) => mainFrame(run, site)?.name ?? "unknown call site");
    case "library": return bySite(run, (site) => libraryOf(run, site) || "unknown library");
    default: return { keys: run.callSite, name: (key) => siteName(run, key), isSite: true };
  }
}

function bySite(run, nameOf) {
  const numbers = new Map();
  const ofSite = run.sites.map((_, site) => {
    const name = nameOf(site);
    if (!numbers.has(name)) numbers.set(name, numbers.size);
    return numbers.get(name);
  });
  const names = [...numbers.keys()];
  return { keys: Uint32Array.from(run.site, (site) => ofSite[site] ?? 0), name: (key) => names[key] ?? "" };
}

/// The largest groups: `paint[i]` is the place of allocation i among them, `others` where it is in none, 255 where it does not count.
function largestGroups(run, by, chosen, limit) {
  const { keys, name } = grouping(run, by);
  const size = keys.reduce((most, key) => Math.max(most, key), 0) + 1;
  const live = new Float64Array(size);
  const most = new Float64Array(size);
  const area = new Float64Array(size);
  const end = timeAt(run, run.events - 1);
  for (let position = 0; position < run.events; position += 1) {
    const i = run.event[position] >>> 1;
    if (!chosen[i]) continue;
    const key = keys[i];
    const rest = run.bytes[i] * (end - run.time[position]);
    if (run.event[position] & 1) {
      live[key] -= run.bytes[i];
      area[key] -= rest;
    } else {
      area[key] += rest;
      if ((live[key] += run.bytes[i]) > most[key]) most[key] = live[key];
    }
  }
  const ranked = Array.from(most.keys()).filter((key) => most[key] > 0).sort((a, b) => most[b] - most[a] || a - b);
  // One group more costs nothing where "others" would hold only that one.
  const shown = ranked.slice(0, ranked.length === limit + 1 ? limit + 1 : limit);
  // What lives long is at the bottom of the stack, where it does not move with the rest.
  shown.sort((a, b) => area[b] - area[a] || a - b);
  const groups = shown.map((key) => ({ key, name: name(key), most: most[key], place: by === "site" ? sitePlace(run, key) : "" }));
  const others = groups.length;
  if (ranked.length > shown.length) {
    groups.push({ key: -1, name: `${formatCount(ranked.length - shown.length)} others`, most: 0, isOthers: true, place: "" });
  }
  const place = new Uint8Array(size).fill(others);
  shown.forEach((key, index) => (place[key] = index));
  const paint = new Uint8Array(run.count);
  for (let i = 0; i < run.count; i += 1) paint[i] = chosen[i] && run.bytes[i] ? place[keys[i]] : 255;
  return { groups, paint, place };
}

/// Live bytes over `[from, to]` nanoseconds in `count` columns of equal time: one for each pixel, so that no spike is too thin to see.
///
/// A column shows the moment of its highest sum, with the bytes of each group at that moment: the groups add up to the sum. `lows` has the
/// lowest sum of each. What is alive when a column begins counts in it.
function columns(run, paint, groups, from, to, count) {
  const live = new Float64Array(groups);
  let total = 0;
  const step = (position) => {
    const coded = run.event[position];
    const i = coded >>> 1;
    const group = paint[i];
    if (group === 255) return false;
    const change = coded & 1 ? -run.bytes[i] : run.bytes[i];
    live[group] += change;
    total += change;
    return true;
  };
  const first = positionAt(run, from);
  const last = positionAt(run, to);
  for (let position = 0; position <= first; position += 1) step(position);

  const width = (to - from) / count;
  const made = {
    from, width, count, positions: new Int32Array(count), highs: new Float64Array(count), lows: new Float64Array(count),
    values: Array.from({ length: groups }, () => new Float64Array(count)),
    // Whether each event has a column of its own, about: then the moment moves from event to event.
    areEventsFew: last - first <= 2 * count, first, last,
  };
  const best = new Float64Array(groups);
  let position = first + 1;
  for (let column = 0; column < count; column += 1) {
    const until = column + 1 === count ? Infinity : from + width * (column + 1);
    let [highest, lowest, at] = [total, total, position - 1];
    best.set(live);
    for (; position <= last && run.time[position] < until; position += 1) {
      if (!step(position)) continue;
      if (total > highest) {
        highest = total;
        at = position;
        best.set(live);
      } else if (total < lowest) lowest = total;
    }
    made.positions[column] = at;
    made.highs[column] = highest;
    made.lows[column] = lowest;
    for (let group = 0; group < groups; group += 1) made.values[group][column] = best[group];
  }
  return made;
}

/// The position and bytes of the highest use among allocations that count.
function peakOf(run, chosen) {
  let live = 0;
  const peak = { position: -1, bytes: 0 };
  for (let position = 0; position < run.events; position += 1) {
    const coded = run.event[position];
    const i = coded >>> 1;
    if (!chosen[i]) continue;
    if (coded & 1) live -= run.bytes[i];
    else if ((live += run.bytes[i]) > peak.bytes) {
      peak.bytes = live;
      peak.position = position;
    }
  }
  return peak;
}

/// Allocations that are alive at a position.
function aliveAt(run, chosen, position) {
  const alive = [];
  for (let i = 0; i < run.count && run.start[i] <= position; i += 1) {
    if (run.stop[i] > position && (!chosen || chosen[i])) alive.push(i);
  }
  return alive;
}

function sumBytes(run, allocations) {
  let sum = 0;
  for (const i of allocations) sum += run.bytes[i];
  return sum;
}

/// Groups of allocations with their figures, largest first.
function groupAlive(run, allocations, by) {
  const { keys, name } = grouping(run, by);
  const groups = new Map();
  for (const i of allocations) {
    let group = groups.get(keys[i]);
    if (!group) {
      group = { key: keys[i], name: name(keys[i]), bytes: 0, count: 0, largest: 0, oldest: Infinity, newest: 0, allocations: [] };
      groups.set(keys[i], group);
    }
    const time = run.time[run.start[i]];
    group.bytes += run.bytes[i];
    group.count += 1;
    group.largest = Math.max(group.largest, run.bytes[i]);
    group.oldest = Math.min(group.oldest, time);
    group.newest = Math.max(group.newest, time);
    group.allocations.push(i);
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes || b.count - a.count || (a.name < b.name ? -1 : 1));
}

/// Allocations that were not freed, of every kind, in groups by call site: those that are lost, and all others.
function leaksOf(run) {
  const never = [];
  for (let i = 0; i < run.count; i += 1) if (run.stop[i] === NEVER || run.leaked[i]) never.push(i);
  const lost = never.filter((i) => run.fate[i] === LOST);
  const others = never.filter((i) => run.fate[i] !== LOST);
  return {
    allocations: never, lost, others, lostGroups: groupAlive(run, lost, "site"), groups: groupAlive(run, others, "site"),
    // Those that are not alive at the end: their context ended first.
    ended: others.filter((i) => run.leaked[i]),
    reachable: others.filter((i) => run.fate[i] === REACHABLE),
  };
}
