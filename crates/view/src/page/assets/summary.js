// The run in words, and its figures.

/// Inline code in a sentence.
function code(text) {
  return el("code", {}, text);
}

function strong(text) {
  return el("strong", {}, text);
}

/// A call site in a sentence.
function siteWords(run, site) {
  const place = sitePlace(run, site);
  return place ? [code(siteName(run, site)), ` (${place})`] : [code(siteName(run, site))];
}

/// The first memory that a run has: that of devices, where there is some.
function defaultScope(run) {
  const has = (test) => run.kind.some((kind, i) => run.bytes[i] > 0 && test(run.kinds[kind] ?? {}));
  return has((kind) => kind.onDevice) ? "device" : has((kind) => kind.isMemory) ? "memory" : "all";
}

/// Figures of the whole run, whatever is searched for.
function figures(run) {
  const scope = defaultScope(run);
  const chosen = selection(run, scope, "");
  const peak = peakOf(run, chosen);
  const alive = aliveAt(run, chosen, peak.position);
  let allocated = 0;
  let count = 0;
  for (let i = 0; i < run.count; i += 1) {
    if (chosen[i]) {
      allocated += run.bytes[i];
      count += 1;
    }
  }
  // What the page does not have counts too, where it is of the same memory.
  const { left_out: leftOut } = run;
  allocated += scope === "device" ? leftOut.device_bytes : leftOut.bytes;
  count += scope === "device" ? leftOut.device_count : scope === "memory" ? leftOut.memory_count : leftOut.count;
  const ooms = run.marks.filter((mark) => mark.what === "oom");
  return {
    scope, peak, allocated, count, ooms,
    atPeak: groupAlive(run, alive, "site"),
    waste: worstWaste(run, ooms) ?? { ...pageFigures(run, alive), position: peak.position },
    leaks: leaksOf(run),
  };
}

/// At so many failed allocations the waste is looked for: each is a pass over all allocations.
const MOST_WASTES = 64;

function wasteAt(run, mark) {
  mark.waste ??= pageFigures(run, aliveAt(run, null, mark.position));
  return mark.waste;
}

/// The most waste that there was when an allocation failed, and when that was.
function worstWaste(run, ooms) {
  const looked = [...new Set([...ooms.slice(0, MOST_WASTES / 2), ...ooms.slice(-MOST_WASTES / 2)])];
  const wastes = looked.map((mark) => ({ ...wasteAt(run, mark), position: mark.position, failed: mark }));
  return wastes.reduce((worst, one) => (worst === null || one.wasted > worst.wasted ? one : worst), null);
}

/// `50 % of 139.29 GiB in pages`.
function wasteShare({ wasted, used, pages }) {
  return pages ? `${formatPercent(wasted, wasted + used)} of ${formatBytes(pages * PAGE)} in pages` : "no pages in use";
}

function renderSummary(app) {
  const { run, facts } = app;
  const memory = facts.scope === "device" ? "Device memory" : "Memory";
  const unknown = (name, title) => tile(name, title, "not known", "", "a leak report has no history");
  const { peak, ooms, waste } = facts;
  const peakTitle = `Peak of ${memory.toLowerCase()}`;
  byId("summary").replaceChildren(
    el("h1", {}, run.command || run.source || "Recording"),
    el("p", { class: "origin" }, originOf(run)),
    el("div", { class: "tiles" },
      run.is_report ? unknown("peak", peakTitle)
        : tile("peak", peakTitle, formatBytes(peak.bytes), peak.bytes, peak.position < 0 ? "nothing was allocated" : `after ${formatTime(timeAt(run, peak.position))}`,
          () => app.jump(peak.position)),
      notFreedTile(run, facts.leaks),
      run.is_report ? unknown("oom", "Failed allocations")
        : tile("oom", "Failed allocations", formatCount(ooms.length), ooms.length, ooms.length ? `first after ${formatTime(ooms[0].time)}` : "memory was never short",
          ooms.length ? () => app.jump(ooms[0].position, ooms[0].time) : null, ooms.length ? "warn" : ""),
      tile("wasted", waste.failed ? "Wasted at the failure" : run.is_report ? "Wasted in the report" : "Wasted at the peak", formatBytes(waste.wasted), waste.wasted, wasteShare(waste), () => {
        app.jump(waste.position, waste.failed?.time);
        app.showTab("map");
      }),
      run.is_report ? unknown("allocated", `${memory} allocated`)
        : tile("allocated", `${memory} allocated`, formatBytes(facts.allocated), facts.allocated, plural(facts.count, "allocation"))),
    el("p", { class: "words", id: "words" }, ...words(run, facts)),
    failedAllocations(app) ?? "",
    ...notices(run));
}

function originOf(run) {
  const parts = [`pid ${run.pid}`];
  if (run.host) parts.push(`on ${run.host}`);
  if (run.rank !== null) parts.push(`rank ${run.rank}`);
  if (run.started) parts.push(`started ${new Date(run.started).toISOString().slice(0, 19).replace("T", " ")} UTC`);
  parts.push(`ran ${formatTime(run.end)}`);
  if (!run.exited) parts.push("did not exit: killed, or still running");
  parts.push(`times count from ${run.origin}`);
  return parts.join(" · ");
}

/// What was not freed: red where it is lost. What is reachable, or was not searched for, may be as it should.
function notFreedTile(run, leaks) {
  const show = () => byId("leaks").scrollIntoView();
  const bytes = (list) => formatBytes(sumBytes(run, list));
  if (leaks.lost.length) {
    return tile("lost", "Lost", bytes(leaks.lost), sumBytes(run, leaks.lost),
      plural(leaks.lost.length, "resource"), show, "lost");
  }
  const { ended, reachable, others } = leaks;
  const title = reachable.length && reachable.length === others.length ? (run.exited ? "Reachable at exit" : "Reachable at the end")
    : run.exited ? (ended.length ? "Not freed" : "Not freed at exit") : ended.length ? "Not freed or alive at the end" : "Alive at the end";
  return tile("leaked", title, bytes(others), sumBytes(run, others), `${plural(others.length, "resource")}${reachable.length ? ", nothing lost" : ""}`, show);
}

function tile(name, title, value, raw, note, action, tone) {
  const content = [el("span", { class: "tile-title" }, title), el("span", { class: "tile-value" }, value), el("span", { class: "tile-note" }, note)];
  const properties = { class: tone ? `tile ${tone}` : "tile", data: { figure: name, value: String(raw) } };
  return action ? el("button", { type: "button", ...properties, onclick: action }, ...content) : el("div", properties, ...content);
}

/// Sentences that say what a reader would look for first.
function words(run, facts) {
  if (!run.count) return [run.marks.some((mark) => mark.what === "oom") ? "No allocation succeeded while the program was recorded." : "Nothing was allocated while the program was recorded."];
  const memory = facts.scope === "device" ? "Device memory" : "Memory";
  const text = [];
  if (facts.peak.position >= 0 && !run.is_report) {
    const top = facts.atPeak[0];
    text.push(`${memory} peaked at `, strong(formatBytes(facts.peak.bytes)), ` after ${formatTime(timeAt(run, facts.peak.position))}; `,
      `${formatPercent(top.bytes, facts.peak.bytes)} of it was allocated by `, ...siteWords(run, top.key), ". ");
  }
  text.push(...notFreedWords(run, facts.leaks));
  const { waste } = facts;
  if (waste.wasted > 0.25 * (waste.used + waste.wasted)) {
    const when = waste.failed ? `When an allocation failed after ${formatTime(waste.failed.time)}, ` : run.is_report ? "In the report, " : "At the peak, ";
    text.push(when, strong(formatBytes(waste.wasted)), ` (${wasteShare(waste)} of 2 MiB) was wasted: memory is fragmented. `);
  }
  const [growing] = run.growth;
  if (growing) {
    text.push(...siteWords(run, growing.shown), ` grows: by ${formatBytes(growing.grown)} in ${plural(growing.blocks, "allocation")} over ${formatTime(growing.end - growing.begin)}`,
      run.growth.length > 1 ? `, and ${plural(run.growth.length - 1, "other call site")} too. ` : ". ");
  }
  return text;
}

function notFreedWords(run, { allocations, lost, others, ended, reachable, lostGroups, groups }) {
  if (!allocations.length) return [run.exited ? "Everything was freed. " : "Nothing was alive at the end. "];
  const where = (list) => [list.length === 1 ? "all from " : `from ${plural(list.length, "call site")}, most of it from `, ...siteWords(run, list[0].key)];
  const one = (list, single, many) => (list.length === 1 ? single : many);
  const text = [];
  if (lost.length) {
    text.push(strong(plural(lost.length, "resource")), ` (${formatBytes(sumBytes(run, lost))}) ${one(lost, "is", "are")} lost, `, ...where(lostGroups), `: the program has no address of ${one(lost, "it", "them")} any more. `);
  }
  if (!others.length) return text;
  const size = [strong(plural(others.length, "resource")), ` (${formatBytes(sumBytes(run, others))}) `];
  if (reachable.length === others.length) {
    return [...text, ...size, `${one(others, "was", "were")} still reachable ${run.exited ? "at exit" : "at the end"}${lost.length ? "" : ", and nothing is lost"}. `];
  }
  const verb = run.exited || ended.length === others.length ? one(others, "was not freed", "were not freed")
    : ended.length ? "were not freed or alive at the end" : one(others, "was alive at the end", "were alive at the end");
  return [...text, ...size, `${verb}, `, ...where(groups), ". "];
}

/// Failed allocations that are shown at first.
const FAILED = 5;

/// Each failed allocation: how much, when, where, and why.
function failedAllocations(app) {
  const { run, facts } = app;
  if (!facts.ooms.length) return null;
  const list = el("div", { class: "failed", id: "failed" }, ...facts.ooms.slice(0, FAILED).map((mark) => failedAllocation(app, mark)));
  const rest = facts.ooms.slice(FAILED);
  if (rest.length) {
    const more = el("button", { type: "button", class: "quiet", onclick: () => more.replaceWith(...rest.map((mark) => failedAllocation(app, mark))) },
      `Show ${plural(rest.length, "more failed allocation")}`);
    list.append(more);
  }
  return list;
}

function failedAllocation(app, mark) {
  const { run } = app;
  const causes = (mark.why ?? "").split("\n").filter((line) => /^(why|and): /.test(line)).map((line) => line.replace(/^\w+: */, ""));
  const waste = wasteAt(run, mark);
  const details = el("details", { class: "failed-one", data: { time: String(mark.time), wasted: String(waste.wasted) }, ontoggle: () => {
    if (!details.open || details.children.length > 1) return;
    const earlier = app.facts.ooms.find((other) => other.diagnosis && other.site === mark.site && other.time < mark.time);
    details.append(el("div", { class: "failed-body" },
      mark.diagnosis ? el("pre", { class: "diagnosis" }, mark.diagnosis)
        : el("p", { class: "muted" }, earlier ? `The diagnosis of this call site is that of the failure after ${formatTime(earlier.time)}.` : "Its diagnosis is not in the recording."),
      stackList(run, mark.site),
      el("button", { type: "button", class: "quiet", onclick: () => {
        app.jump(mark.position, mark.time);
        app.showTab("map");
      } }, "Show memory at this moment")));
  } },
    el("summary", {},
      el("span", {}, strong(`${mark.bytes ? `${formatBytes(mark.bytes)} ` : "An allocation "}failed`), ` after ${formatTime(mark.time)} in `, ...siteWords(run, mark.site),
        mark.thread ? `, thread ${mark.thread}` : "", waste.wasted ? `; ${formatBytes(waste.wasted)} wasted then, ${wasteShare(waste)}` : ""),
      causes.length ? el("span", { class: "failed-why" }, causes.join("; ")) : null));
  return details;
}

/// What the page does not have: the reader must know before drawing conclusions.
function notices(run) {
  const list = run.caveats.map((caveat) => el("p", { class: "notice", data: { notice: "caveat" } }, `Note: ${caveat}.`));
  if (run.left_out.count) {
    list.push(el("p", { class: "notice", data: { notice: "left-out" } },
      `${plural(run.left_out.count, "short-lived small allocation")} (${formatBytes(run.left_out.bytes)} in total, alive for at most ${formatTime(run.left_out.longest)}) `,
      `are summed up here and not shown one by one. At no moment were more than ${formatBytes(run.left_out.at_once)} of them alive: the timeline is too low by no more than that.`));
  }
  if (run.problems.length) {
    list.push(el("details", { class: "notice", data: { notice: "problems" } },
      el("summary", {}, `What this page does not know: ${plural(run.problems.length, "note")}`),
      el("ul", {}, ...run.problems.slice(0, 50).map((problem) => el("li", {}, problem)))));
  }
  return list;
}
