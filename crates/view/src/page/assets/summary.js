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
  return {
    scope, peak, allocated, count,
    atPeak: groupAlive(run, alive, "site"),
    pages: pageFigures(run, alive),
    leaks: leaksOf(run),
    ooms: run.marks.filter((mark) => mark.what === "oom"),
  };
}

function renderSummary(app) {
  const { run, facts } = app;
  const memory = facts.scope === "device" ? "Device memory" : "Memory";
  byId("summary").replaceChildren(
    el("h1", {}, run.command || run.source || "Recording"),
    el("p", { class: "origin" }, originOf(run)),
    el("div", { class: "tiles" },
      run.is_report ? tile("peak", `Peak of ${memory.toLowerCase()}`, "not known", "", "a leak report has no history") : tile("peak", `Peak of ${memory.toLowerCase()}`, formatBytes(facts.peak.bytes), facts.peak.bytes,
        facts.peak.position < 0 ? "nothing was allocated" : `at ${formatTime(timeAt(run, facts.peak.position))}`, () => app.jump(facts.peak.position)),
      tile("leaked", run.exited ? (facts.leaks.ended.length ? "Not freed" : "Not freed at exit") : (facts.leaks.ended.length ? "Not freed or alive at the end" : "Alive at the end"), formatBytes(sumBytes(run, facts.leaks.allocations)),
        sumBytes(run, facts.leaks.allocations), plural(facts.leaks.allocations.length, "resource"), () => byId("leaks").scrollIntoView(),
        (run.exited ? facts.leaks.allocations : facts.leaks.ended).length > 0),
      run.is_report ? tile("allocated", `${memory} allocated`, "not known", "", "a leak report has no history")
        : tile("allocated", `${memory} allocated`, formatBytes(facts.allocated), facts.allocated, plural(facts.count, "allocation")),
      tile("wasted", run.is_report ? "Wasted in the report" : "Wasted at the peak", formatPercent(facts.pages.wasted, facts.pages.wasted + facts.pages.used), facts.pages.wasted,
        facts.pages.pages ? `${formatBytes(facts.pages.wasted)} in ${plural(facts.pages.pages, "page")}` : "no pages", () => {
          app.jump(facts.peak.position);
          app.showTab("map");
        }),
      run.is_report ? tile("oom", "Out of memory", "not known", "", "a leak report has no history") : tile("oom", "Out of memory", formatCount(facts.ooms.length), facts.ooms.length,
        facts.ooms.length ? `first at ${formatTime(facts.ooms[0].time)}` : "no allocation failed",
        facts.ooms.length ? () => app.jump(facts.ooms[0].position, facts.ooms[0].time) : null, facts.ooms.length > 0)),
    el("p", { class: "words", id: "words" }, ...words(run, facts)),
    ...notices(run));
}

function originOf(run) {
  const parts = [`pid ${run.pid}`];
  if (run.host) parts.push(`on ${run.host}`);
  if (run.rank !== null) parts.push(`rank ${run.rank}`);
  if (run.started) parts.push(`started ${new Date(run.started).toISOString().slice(0, 19).replace("T", " ")} UTC`);
  parts.push(`ran ${formatTime(run.end)}`);
  if (!run.exited) parts.push("did not exit: killed, or still running");
  return parts.join(" · ");
}

function tile(name, title, value, raw, note, action, isBad) {
  const content = [el("span", { class: "tile-title" }, title), el("span", { class: "tile-value" }, value), el("span", { class: "tile-note" }, note)];
  const properties = { class: isBad ? "tile bad" : "tile", data: { figure: name, value: String(raw) } };
  return action ? el("button", { type: "button", ...properties, onclick: action }, ...content) : el("div", properties, ...content);
}

/// Sentences that say what a reader would look for first.
function words(run, facts) {
  if (!run.count) return ["Nothing was allocated while the program was recorded."];
  const memory = facts.scope === "device" ? "Device memory" : "Memory";
  const text = [];
  if (facts.peak.position >= 0 && !run.is_report) {
    const top = facts.atPeak[0];
    text.push(`${memory} peaked at `, strong(formatBytes(facts.peak.bytes)), ` after ${formatTime(timeAt(run, facts.peak.position))}; `,
      `${formatPercent(top.bytes, facts.peak.bytes)} of it was allocated by `, ...siteWords(run, top.key), ". ");
  }
  const { leaks, ooms, pages } = facts;
  const verb = run.exited || leaks.ended.length === leaks.allocations.length ? (leaks.allocations.length === 1 ? "was not freed" : "were not freed") : (leaks.ended.length ? "were not freed or alive at the end" : leaks.allocations.length === 1 ? "was alive at the end" : "were alive at the end");
  if (!leaks.allocations.length) text.push(run.exited ? "Everything was freed. " : "Nothing was alive at the end. ");
  else {
    text.push(strong(plural(leaks.allocations.length, "resource")), ` (${formatBytes(sumBytes(run, leaks.allocations))}) ${verb}, `,
      leaks.groups.length === 1 ? "all from " : `from ${plural(leaks.groups.length, "call site")}, most of it from `, ...siteWords(run, leaks.groups[0].key), ". ");
  }
  if (ooms.length) {
    const [first] = ooms;
    text.push(...(ooms.length === 1
      ? [strong(`An allocation of ${formatBytes(first.bytes)} failed`), " for lack of memory"]
      : [strong(`${formatCount(ooms.length)} allocations failed`), ` for lack of memory, the first of ${formatBytes(first.bytes)}`]),
      ` at ${formatTime(first.time)} in `, ...siteWords(run, first.site), ". ");
  }
  if (pages.wasted > 0.25 * (pages.used + pages.wasted)) {
    text.push(`${run.is_report ? "In the report" : "At the peak"} ${formatPercent(pages.wasted, pages.used + pages.wasted)} of the 2 MiB pages in use was wasted: memory is fragmented. `);
  }
  const [growing] = run.growth;
  if (growing) {
    text.push(...siteWords(run, growing.site), ` grows: by ${formatBytes(growing.grown)} in ${plural(growing.blocks, "allocation")} over ${formatTime(growing.end - growing.begin)}`,
      run.growth.length > 1 ? `, and ${plural(run.growth.length - 1, "other call site")} too. ` : ". ");
  }
  return text;
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
