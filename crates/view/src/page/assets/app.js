// The page as a whole: what is chosen, which views follow it, the keyboard.

const KEYS = [
  ["← →", "move the moment (with Shift: by ten)"], ["Home End", "the begin, the end"], ["p", "the peak"], ["o", "the next out-of-memory error"],
  ["+ −", "zoom in, zoom out"], ["0", "the whole run"], ["1 2 3", "flame graph, table, memory map"],
  ["Tab", "to the map; there ← → ↑ ↓ move between pages, with Shift between ranges, and Enter lists the allocations"], ["/", "search"], ["Esc", "clear the search, close"], ["?", "this list"],
];

class App {
  constructor(common) {
    this.common = common;
    this.by = "site";
    this.query = "";
    this.tab = "flame";
    this.views = { flame: new Flame(this), table: new GroupTable(this), map: new MemoryMap(this) };
    this.timeline = new Timeline(this);
    this.leaks = new Leaks(this);
  }

  async openRun(number) {
    this.number = number;
    // Another run's typed arrays are dropped first: the largest is what the browser's memory is needed for.
    this.run = null;
    const run = await readRun(number);
    // Meanwhile another one was chosen.
    if (this.number !== number) return;
    this.run = run;
    this.facts = figures(this.run);
    this.scope = this.facts.scope;
    byId("run-select").value = String(number);
    document.title = `${this.run.command || this.run.source || "Recording"} · cuguard`;
    this.select();
    const [time, position] = this.run.opens ?? [undefined, this.facts.peak.position];
    this.place(position, time);
    renderSummary(this);
    renderRanks(this);
    this.timeline.mount(byId("timeline"));
    this.mountMoment();
    this.timeline.show();
    this.leaks.mount(byId("leaks"));
  }

  /// What counts, after the memory or the search has changed.
  select() {
    this.chosen = selection(this.run, this.scope, this.query);
    this.everything = this.query ? selection(this.run, "all", this.query) : new Uint8Array(this.run.count).fill(1);
    this.peak = peakOf(this.run, this.chosen);
    this.painted = largestGroups(this.run, this.by, this.chosen, TIMELINE_GROUPS);
  }

  /// The moment, without showing it.
  place(position, time) {
    this.position = Math.max(-1, Math.min(position, this.run.events - 1));
    this.time = time ?? timeAt(this.run, this.position);
    this.alive = aliveAt(this.run, this.chosen, this.position);
  }

  refresh() {
    if (!this.run) return;
    this.select();
    this.place(this.position, this.time);
    this.timeline.show();
    this.showMoment();
    this.leaks.render();
  }

  setBy(by) {
    this.by = by;
    this.refresh();
  }

  setScope(scope) {
    this.scope = scope;
    this.refresh();
  }

  setQuery(query) {
    if (query === this.query) return;
    this.query = query;
    this.refresh();
  }

  setMoment(position, time) {
    this.place(position, time);
    this.timeline.momentChanged();
    this.showMoment();
  }

  /// A moment that is named elsewhere on the page.
  jump(position, time) {
    this.setMoment(position, time);
    if (this.time < this.timeline.from || this.time > this.timeline.to) this.timeline.zoom(this.timeline.begin(), this.timeline.end());
    byId("moment").scrollIntoView({ behavior: "smooth", block: "nearest" });
  }

  showTab(tab) {
    this.tabList.select(tab);
  }

  mountMoment() {
    this.panel = el("div", { class: "panel", role: "tabpanel", id: "panel" });
    this.heading = el("h2", { id: "moment-title" });
    this.tabList = tabs("Views of the moment", [["flame", "Flame graph"], ["table", "Table"], ["map", "Memory map"]], this.tab, (tab) => {
      this.tab = tab;
      this.showMoment();
    });
    const { peak, ooms } = this.facts;
    const quick = [
      ...(this.run.is_report ? [] : [el("button", { type: "button", class: "quiet", data: { moment: "peak" }, onclick: () => this.setMoment(this.peak.position) }, "Peak")]),
      ...ooms.slice(0, 3).map((mark, index) => el("button", { type: "button", class: "quiet", data: { moment: `oom-${index}` }, onclick: () => this.setMoment(mark.position, mark.time) },
        ooms.length === 1 ? "Out of memory" : `Out of memory ${index + 1}`)),
      el("button", { type: "button", class: "quiet", data: { moment: "end" }, onclick: () => this.setMoment(this.run.events - 1, this.timeline.end()) }, this.run.exited ? "Exit" : "End"),
    ];
    byId("moment").replaceChildren(
      el("div", { class: "card-head" }, this.heading, el("div", { class: "controls" }, peak.position >= 0 ? el("div", { class: "zoom", role: "group", "aria-label": "Moments" }, ...quick) : null, this.tabList)),
      this.failure = el("p", { class: "failure", hidden: true }), this.panel);
    this.showMoment();
  }

  showMoment() {
    const bytes = sumBytes(this.run, this.alive);
    const failed = this.facts.ooms.find((mark) => mark.position === this.position && mark.time === this.time);
    const name = failed ? " · out of memory"
      : this.position === this.peak.position && this.position >= 0 && !this.run.is_report ? " · the peak"
      : this.position === this.run.events - 1 && this.time >= this.run.end ? (this.run.exited ? " · exit" : " · the end") : "";
    this.heading.replaceChildren(`At ${formatTime(this.time, this.run.end / 1e4)}${name}`,
      el("span", { class: "moment-figure", data: { figure: "moment", value: String(bytes), count: String(this.alive.length), position: String(this.position), time: String(this.time) } },
        `${formatBytes(bytes)} in ${plural(this.alive.length, "allocation")}${this.query ? " that match" : ""}`));
    this.failure.hidden = !failed;
    if (failed) this.failure.replaceChildren(`An allocation${failed.bytes ? ` of ${formatBytes(failed.bytes)}` : ""} failed here, in `, ...siteWords(this.run, failed.site), ".");
    this.views[this.tab].render(this.panel);
  }
}

/// One key, one action. Keys with a modifier belong to the browser.
function handleKey(app, event) {
  const search = byId("search");
  const typing = event.target.closest?.("input, select, textarea");
  // The browser closes the list by itself. While a run is read there is none.
  if (byId("help").open || !app.run) return;
  if (event.key === "Escape") {
    if (search.value) {
      search.value = "";
      app.setQuery("");
    }
    search.blur();
    tip.hide();
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const { timeline } = app;
  const steps = event.shiftKey ? 10 : 1;
  const nextOom = () => app.facts.ooms.find((mark) => mark.time > app.time) ?? app.facts.ooms[0];
  const actions = {
    ArrowLeft: () => timeline.move(-steps),
    ArrowRight: () => timeline.move(steps),
    Home: () => app.setMoment(-1, timeline.begin()),
    End: () => app.setMoment(app.run.events - 1, timeline.end()),
    p: () => app.setMoment(app.peak.position),
    o: () => nextOom() && app.setMoment(nextOom().position, nextOom().time),
    "+": () => timeline.zoomBy(0.5),
    "=": () => timeline.zoomBy(0.5),
    "-": () => timeline.zoomBy(2),
    0: () => timeline.zoom(timeline.begin(), timeline.end()),
    1: () => app.showTab("flame"),
    2: () => app.showTab("table"),
    3: () => app.showTab("map"),
    "/": () => search.focus(),
    "?": () => byId("help").showModal(),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

function fillHelp() {
  const help = byId("help");
  help.replaceChildren(
    el("h2", {}, "Keyboard"),
    el("dl", { class: "help-keys" }, ...KEYS.flatMap(([keys, text]) => [el("dt", {}, ...keys.split(" ").flatMap((key) => [el("kbd", {}, key), " "])), el("dd", {}, text)])),
    el("form", { method: "dialog" }, el("button", { class: "quiet" }, "Close")));
  // A click beside the list closes it.
  help.addEventListener("click", (event) => event.target === help && help.close());
  byId("help-open").addEventListener("click", () => help.showModal());
}

/// What a link asks for behind `#`: `view=map&at=oom&by=label&scheme=dark&only=moment`. Unknown words are ignored. As in the command,
/// `oom` is the last failed allocation, and `oom:2` the second.
function applyAddress(app) {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const [word, number] = (wanted.get("at") ?? "").split(":");
  const failed = app.facts.ooms.at(Number(number ?? 0) - 1);
  if (SCHEMES.includes(wanted.get("scheme"))) scheme.use(wanted.get("scheme"));
  if (["site", "label", "kind"].includes(wanted.get("by"))) document.querySelector(`#timeline [data-value=${wanted.get("by")}]`).click();
  if (word === "peak") app.setMoment(app.peak.position);
  if (word === "oom" && failed) app.setMoment(failed.position, failed.time);
  if (word === "end") app.setMoment(app.run.events - 1, app.timeline.end());
  if (Object.hasOwn(app.views, wanted.get("view") ?? "")) app.showTab(wanted.get("view"));
  // One part alone, for pictures and slides.
  if (["timeline", "moment", "leaks"].includes(wanted.get("only"))) {
    for (const section of document.querySelectorAll("#content > *")) section.hidden ||= section.id !== wanted.get("only");
  }
}

async function main() {
  try {
    const app = new App(await readCommon());
    const { runs } = app.common;
    const select = byId("run-select");
    select.append(...runs.map((run, number) => el("option", { value: number }, runName(run, number))));
    select.addEventListener("change", () => app.openRun(Number(select.value)));
    select.parentElement.hidden = runs.length < 2;
    fillHelp();
    byId("content").hidden = false;
    byId("footer").textContent = `Made by cuguard ${app.common.version}. This page holds all of its data and loads nothing.`;
    // The one that differs most is what is looked for.
    await app.openRun(byDifference(runs)[0].number);
    scheme.start(() => app.refresh());
    byId("search").addEventListener("input", debounce(150, () => app.setQuery(byId("search").value.trim())));
    document.addEventListener("keydown", (event) => handleKey(app, event));
    addEventListener("resize", debounce(150, () => app.tab === "map" && app.showMoment()));
    applyAddress(app);
    byId("loading").hidden = true;
    // How long the page took to be usable, for those who measure it.
    document.documentElement.dataset.ready = performance.now().toFixed(0);
  } catch (error) {
    byId("loading").textContent = `The recording in this page cannot be read: ${error.message}`;
    throw error;
  }
}

main();
