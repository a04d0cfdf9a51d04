// What was not freed, and what grows.

/// Entries that are shown at first.
const ENTRIES = 30;

/// A small curve without axes: the shape of growth.
function sparkline(values, width, height, most = Math.max(...values, 1)) {
  const x = (index) => (index / (values.length - 1)) * width;
  const y = (value) => height - 1 - (value / most) * (height - 2);
  const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("polygon", { points: `0,${height} ${points} ${width},${height}` }), svg("polyline", { points }));
}

/// What the list of what was not freed has, in words.
function leakWords(run, { others, ended, reachable, lost }) {
  const alive = others.length - ended.length;
  const text = [];
  if (ended.length) text.push(`${plural(ended.length, "resource")} ended with a context and had not been freed.`);
  if (alive && alive === reachable.length) {
    text.push(`${ended.length ? `${formatCount(alive)} more were alive` : "Alive"} ${run.exited ? "when the process exited" : "at the end"}. The program still had the addresses: this is not lost.`);
  } else if (alive && run.exited) {
    text.push(ended.length ? `${formatCount(alive)} more ${alive === 1 ? "was" : "were"} alive when the process exited.` : "Alive when the process exited, by call site, the largest first.");
    if (!reachable.length && !lost.length) text.push("What of it is lost is not known: cuguard run searches for it.");
  } else if (alive) text.push(`The recording ends without an exit: ${ended.length ? `${formatCount(alive)} more` : "these"} were alive, and need not be leaks.`);
  return text.join(" ");
}

class Leaks {
  constructor(app) {
    this.app = app;
    this.tab = "leaks";
  }

  mount(section) {
    const { run, facts } = this.app;
    const { leaks } = facts;
    this.panel = el("div", { class: "panel", role: "tabpanel" });
    const title = leaks.reachable.length && leaks.reachable.length === leaks.others.length ? "Reachable" : run.exited || leaks.ended.length ? "Not freed" : "Alive at the end";
    const choices = [["leaks", `${title} (${formatCount(leaks.groups.length)})`], ["growth", `Growing (${formatCount(run.growth.length)})`]];
    if (leaks.lost.length) choices.unshift(["lost", `Lost (${formatCount(leaks.lostGroups.length)})`]);
    [[this.tab]] = choices;
    section.replaceChildren(
      el("div", { class: "card-head" }, el("h2", {}, leaks.lost.length ? "Leaks and growth" : "Not freed and growing"),
        tabs("Leaks and growth", choices, this.tab, (tab) => {
          this.tab = tab;
          this.render();
        })),
      this.panel);
    this.render();
  }

  render() {
    this.panel.replaceChildren(...(this.tab === "growth" ? this.growth() : this.leaks(this.tab === "lost")));
  }

  leaks(areLost) {
    const { run, facts, everything } = this.app;
    const all = areLost ? facts.leaks.lostGroups : facts.leaks.groups;
    // Search is about what is shown: here, call sites of every kind of resource.
    const groups = all.filter((group) => group.allocations.some((i) => everything[i]));
    if (!all.length) {
      return [facts.leaks.lost.length ? empty("Nothing else was alive", "All that was not freed is lost.")
        : empty(run.exited ? "Everything was freed" : "Nothing was alive at the end", "Every allocation that was recorded has a free.")];
    }
    if (!groups.length) return [empty("Nothing matches the search")];
    return [
      el("p", { class: "muted" }, areLost ? "The program had the addresses of these nowhere when it exited: it could not free them any more." : leakWords(run, facts.leaks)),
      this.list(groups, (group) => this.entry({
        site: group.key, bytes: group.bytes, figure: formatBytes(group.bytes), note: `${plural(group.count, "resource")} · ${traits(run, group.allocations).kind}`,
        label: traits(run, group.allocations).label, areLost,
        more: group.count === 1 ? `allocated after ${formatTime(group.oldest)}` : `allocated after ${formatTime(group.oldest)} to ${formatTime(group.newest)}`,
      })),
    ];
  }

  growth() {
    const { run, everything } = this.app;
    const matching = new Set(run.site.filter((site, i) => everything[i]));
    const shown = run.growth.filter(({ sites }) => sites.some((site) => matching.has(site)));
    if (!run.growth.length) return [empty("No call site grows", "Nothing stays round after round: what is allocated is freed again, or was loaded once.")];
    if (!shown.length) return [empty("Nothing matches the search")];
    return [
      el("p", { class: "muted" }, "Call sites whose blocks stay, round after round, until the end; by how much they grew."),
      this.list(shown, (growing) => this.entry({
        site: growing.shown, bytes: growing.grown, figure: `+${formatBytes(growing.grown)}`, note: `in ${plural(growing.blocks, "allocation")} over ${formatTime(growing.end - growing.begin)}`,
        more: `${formatBytes(growing.bytes)} at the end; the first allocation that stayed is of ${formatTime(growing.begin)}`,
        curve: growing.curve,
      })),
    ];
  }

  list(items, make) {
    const list = el("div", { class: "entries" }, ...items.slice(0, ENTRIES).map(make));
    if (items.length > ENTRIES) {
      const more = el("button", { type: "button", class: "quiet more", onclick: () => {
        more.remove();
        list.append(...items.slice(ENTRIES).map(make));
      } }, `Show ${formatCount(items.length - ENTRIES)} more`);
      list.append(more);
    }
    return list;
  }

  /// One call site. The stack trace is made when it is opened: there may be thousands.
  entry({ site, bytes, figure, note, label, more, curve, areLost }) {
    const { run } = this.app;
    const frame = mainFrame(run, site);
    const details = el("details", { class: areLost ? "entry lost" : "entry", data: { site: String(site), bytes: String(bytes) }, ontoggle: () => {
      if (details.open && details.children.length === 1) details.append(el("div", { class: "entry-body" }, el("p", { class: "muted" }, more), stackList(run, site)));
    } },
      el("summary", {},
        el("span", { class: "entry-figure" }, el("strong", {}, figure), el("span", { class: "muted" }, note)),
        el("span", { class: "where" }, el("span", { class: "name" }, siteName(run, site)),
          el("span", { class: "place" }, frame ? el("span", {}, placeOf(frame)) : null, label ? el("span", { class: "tag label" }, label) : null)),
        curve ? sparkline(curve, 120, 32) : null));
    return details;
  }
}
