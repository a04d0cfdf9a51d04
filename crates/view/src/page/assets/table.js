// The table of what is alive: groups, sorted by any column, each with its stack trace.

/// Rows that are shown at first; a button shows more.
const ROWS = 100;

const COLUMNS = [
  { id: "name", title: "", value: (group) => group.name.toLowerCase(), isText: true },
  { id: "bytes", title: "Bytes", value: (group) => group.bytes },
  { id: "share", title: "Share", value: (group) => group.bytes },
  { id: "count", title: "Count", value: (group) => group.count },
  { id: "largest", title: "Largest", value: (group) => group.largest },
  { id: "age", title: "Oldest", value: (group) => -group.oldest, hint: "Age of the oldest, at this moment" },
];

/// A stack trace: frames of the program stand out, the others are read only when needed.
function stackList(run, site) {
  const { frames = [], type = "" } = run.sites[site] ?? {};
  if (!frames.length) return el("p", { class: "muted" }, "The stack trace is unknown.");
  return el("div", {},
    type ? el("p", { class: "muted" }, "elements of ", code(type)) : null,
    el("ol", { class: "stack" }, ...frames.map((frame) =>
      el("li", { class: frame.app ? "app" : "" }, el("span", { class: "function" }, frame.name),
        el("span", { class: "source", title: frame.file || frame.library }, frame.file ? (frame.line ? `${frame.file}:${frame.line}` : frame.file) : frame.library)))));
}

/// What else is known of a group: its labels, kinds, threads.
function traits(run, allocations) {
  const distinct = (column, name) => {
    const keys = new Set();
    for (const i of allocations) {
      keys.add(column[i]);
      if (keys.size > 3) return `${keys.size - 1}+`;
    }
    return [...keys].map(name).filter(Boolean).join(", ");
  };
  return {
    label: distinct(run.label, (key) => run.names[key]),
    kind: distinct(run.kind, (key) => run.kinds[key]?.name),
    thread: distinct(run.thread, (key) => run.names[key]),
  };
}

/// The head of a group's row: name, place, label, kind.
function groupTitle(run, group, by) {
  const isSite = by === "site";
  const frame = isSite ? mainFrame(run, group.key) : null;
  const { label, kind } = traits(run, group.allocations);
  return el("span", { class: "where" },
    el("span", { class: "name" }, group.name),
    el("span", { class: "place" }, frame ? el("span", {}, location(frame)) : null,
      by !== "label" && label ? el("span", { class: "tag label" }, label) : null, by !== "kind" && kind ? el("span", { class: "tag" }, kind) : null));
}

class GroupTable {
  constructor(app) {
    this.app = app;
    this.by = "site";
    this.sort = { id: "bytes", down: true };
    this.limit = ROWS;
    this.open = new Set();
    this.kind = "";
    this.least = 0;
  }

  render(panel) {
    const { run } = this.app;
    this.body = el("tbody");
    this.headers = COLUMNS.map((column) => el("th", { scope: "col", class: column.isText || column.id === "share" ? "" : "number", title: column.hint, data: { column: column.id } },
      el("button", { type: "button", onclick: () => this.sortBy(column) }, column.title || GROUPINGS.find(([id]) => id === this.by)[1])));
    const kinds = [["", "every kind"], ...run.kinds.map((kind, index) => [String(index), kind.name])];
    const sizes = [["0", "any size"], ...[2 ** 10, 2 ** 20, 2 ** 24, 2 ** 30].map((bytes) => [String(bytes), `≥ ${formatBytes(bytes)}`])];
    panel.replaceChildren(
      el("div", { class: "panel-head" },
        dropdown("Group by", GROUPINGS, this.by, (by) => {
          this.by = by;
          this.open.clear();
          this.render(panel);
        }),
        dropdown("Kind", kinds, this.kind, (kind) => {
          this.kind = kind;
          this.fill();
        }),
        dropdown("Allocation", sizes, String(this.least), (least) => {
          this.least = Number(least);
          this.fill();
        }),
        this.status = el("p", { class: "muted status", role: "status" })),
      el("div", { class: "scroll" }, el("table", { class: "groups", id: "groups" }, el("thead", {}, el("tr", {}, ...this.headers)), this.body)),
      this.more = el("button", { type: "button", class: "quiet more", onclick: () => {
        this.limit += 10 * ROWS;
        this.fill();
      } }, "Show more"));
    this.fill();
  }

  sortBy(column) {
    // Numbers start with the largest, names with A.
    this.sort = { id: column.id, down: this.sort.id === column.id ? !this.sort.down : !column.isText };
    this.fill();
  }

  fill() {
    const { run, alive } = this.app;
    const shown = alive.filter((i) => (this.kind === "" || run.kind[i] === Number(this.kind)) && run.bytes[i] >= this.least);
    const groups = groupAlive(run, shown, this.by);
    const total = sumBytes(run, shown);
    const column = COLUMNS.find(({ id }) => id === this.sort.id);
    const sign = this.sort.down ? -1 : 1;
    groups.sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      return sign * (x < y ? -1 : x > y ? 1 : 0) || b.bytes - a.bytes || (a.name < b.name ? -1 : 1);
    });
    for (const header of this.headers) {
      const isSorted = header.dataset.column === this.sort.id;
      header.setAttribute("aria-sort", isSorted ? (this.sort.down ? "descending" : "ascending") : "none");
    }
    this.status.textContent = `${plural(groups.length, "group")}, ${formatBytes(total)}`;
    this.more.hidden = groups.length <= this.limit;
    this.body.replaceChildren(...groups.slice(0, this.limit).flatMap((group) => this.rows(group, total)));
    if (!groups.length) {
      this.body.append(el("tr", {}, el("td", { colspan: COLUMNS.length }, empty("Nothing is alive at this moment", "Choose another moment in the timeline, or clear search and filters."))));
    }
  }

  rows(group, total) {
    const { run, painted, time } = this.app;
    const isOpen = this.open.has(group.key);
    const paint = painted.paint[group.allocations[0]];
    // A swatch where the row is one of the timeline's groups.
    const color = this.by === this.app.by && paint !== 255 ? groupColor(painted.groups, paint) : "transparent";
    const toggle = () => {
      if (!this.open.delete(group.key)) this.open.add(group.key);
      this.fill();
    };
    const row = el("tr", { class: isOpen ? "row open" : "row", data: { key: String(group.key), bytes: String(group.bytes), count: String(group.count) }, onclick: toggle },
      el("td", {}, el("button", { type: "button", class: "expand", "aria-expanded": String(isOpen) }, el("i", { class: "swatch", style: { background: color } }), groupTitle(run, group, this.by))),
      el("td", { class: "number strong" }, formatBytes(group.bytes)),
      el("td", { class: "share" }, el("span", { class: "track" }, el("span", { style: { width: `${total ? (100 * group.bytes) / total : 0}%` } })), el("span", {}, formatPercent(group.bytes, total))),
      el("td", { class: "number" }, formatCount(group.count)),
      el("td", { class: "number" }, formatBytes(group.largest)),
      el("td", { class: "number" }, formatTime(Math.max(0, time - group.oldest))));
    return isOpen ? [row, el("tr", { class: "detail" }, el("td", { colspan: COLUMNS.length }, this.details(group)))] : [row];
  }

  details(group) {
    const { run } = this.app;
    if (this.by === "site") {
      const { label, kind, thread } = traits(run, group.allocations);
      const facts = [["label", label], ["kind", kind], ["thread", thread]].filter(([, value]) => value);
      return el("div", {}, el("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])), stackList(run, group.key));
    }
    const sites = groupAlive(run, group.allocations, "site");
    return el("ul", { class: "sites" }, ...sites.slice(0, 12).map((site) =>
      el("li", {}, el("details", {}, el("summary", {}, el("strong", {}, formatBytes(site.bytes)), " ", site.name), stackList(run, site.key)))),
      sites.length > 12 ? el("li", { class: "muted" }, `and ${plural(sites.length - 12, "more call site")}`) : null);
  }
}
