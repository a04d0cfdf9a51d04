// The address space in pages of 2 MiB: used, wasted and free ones, and whose they are.
//
// The driver hands out memory in such pages. One small allocation keeps its page: the rest is wasted for large ones.

const PAGE = 2 ** 21;
/// More cells are hard to see; then a cell stands for several pages.
const MOST_CELLS = 4000;
/// A gap of so many pages begins another region.
const REGION_GAP = 512;
const MOST_REGIONS = 16;

/// Kinds whose addresses are no pages of their own: several addresses of a pool may stand for one page, and the others are handles.
const WITHOUT_PAGES = ["pooled", "physical", "array"];

/// Reports name some addresses of a call site only, and none of what ended with its context: the others are 0.
function isPaged(run, i) {
  const kind = run.kinds[run.kind[i]];
  return run.bytes[i] > 0 && run.address[i] > 0 && kind?.onDevice && !WITHOUT_PAGES.includes(kind.name);
}

function isPooled(run, i) {
  return run.kinds[run.kind[i]]?.name === "pooled";
}

/// Page numbers that allocations touch, merged: a sorted list of `[first, last]`. No loop over pages: an allocation may have millions.
function pageRanges(run, allocations) {
  // A run has few pages and many allocations in them: one range for each first page is all that is sorted.
  const lasts = new Map();
  for (const i of allocations) {
    if (!isPaged(run, i)) continue;
    const first = Math.floor(run.address[i] / PAGE);
    const last = Math.floor((run.address[i] + run.bytes[i] - 1) / PAGE);
    if (!(lasts.get(first) >= last)) lasts.set(first, last);
  }
  return mergeRanges([...lasts], 0);
}

/// Ranges that are at most `gap` apart become one.
function mergeRanges(ranges, gap) {
  const merged = [];
  for (const [first, last] of ranges.sort((a, b) => a[0] - b[0])) {
    const before = merged[merged.length - 1];
    if (before && first <= before[1] + 1 + gap) before[1] = Math.max(before[1], last);
    else merged.push([first, last]);
  }
  return merged;
}

function countPages(ranges) {
  return ranges.reduce((sum, [first, last]) => sum + last - first + 1, 0);
}

/// How much of the pages in use is used.
function pageFigures(run, allocations) {
  const pages = countPages(pageRanges(run, allocations));
  let used = 0;
  for (const i of allocations) if (isPaged(run, i)) used += run.bytes[i];
  return { pages, used, wasted: Math.max(0, pages * PAGE - used) };
}

/// Every page that the run ever used. It is the same for each moment.
function everUsed(run) {
  run.everUsed ??= pageRanges(run, Array.from({ length: run.count }, (_, i) => i));
  return run.everUsed;
}

/// Parts of `whole` that are not in `part`; both sorted, `part` within `whole`.
function without(whole, part) {
  const rest = [];
  let at = 0;
  for (const [first, last] of whole) {
    let begin = first;
    while (at < part.length && part[at][1] <= last) {
      if (part[at][0] > begin) rest.push([begin, part[at][0] - 1]);
      begin = part[at][1] + 1;
      at += 1;
    }
    if (begin <= last) rest.push([begin, last]);
  }
  return rest;
}

/// Call sites by the waste in pages that they hold the most of.
function wasteBySite(run, allocations) {
  const pages = new Map();
  const add = (page, site, bytes) => {
    if (!pages.has(page)) pages.set(page, new Map());
    const sites = pages.get(page);
    sites.set(site, (sites.get(site) ?? 0) + bytes);
  };
  for (const i of allocations) {
    if (!isPaged(run, i)) continue;
    const end = run.address[i] + run.bytes[i];
    const first = Math.floor(run.address[i] / PAGE);
    const last = Math.floor((end - 1) / PAGE);
    // Pages between the first and the last are full.
    add(first, run.callSite[i], Math.min(end, (first + 1) * PAGE) - run.address[i]);
    if (last > first) add(last, run.callSite[i], end - last * PAGE);
  }
  const waste = new Map();
  for (const sites of pages.values()) {
    let used = 0;
    let holder = null;
    for (const [site, bytes] of sites) {
      used += bytes;
      if (holder === null || bytes > sites.get(holder)) holder = site;
    }
    if (used >= PAGE) continue;
    const sum = waste.get(holder) ?? { site: holder, pages: 0, wasted: 0 };
    sum.pages += 1;
    sum.wasted += PAGE - used;
    waste.set(holder, sum);
  }
  return [...waste.values()].sort((a, b) => b.wasted - a.wasted || a.site - b.site);
}

/// Cells of all regions, in order of addresses.
function makeCells(run, allocations, paint) {
  const ever = everUsed(run);
  let regions = mergeRanges(ever.map((range) => [...range]), REGION_GAP).map(([first, last]) => ({ first, last, cells: [] }));
  const left = Math.max(0, regions.length - MOST_REGIONS);
  if (left) {
    const largest = new Set([...regions].sort((a, b) => b.last - b.first - (a.last - a.first)).slice(0, MOST_REGIONS));
    regions = regions.filter((region) => largest.has(region));
  }
  const total = regions.reduce((sum, { first, last }) => sum + last - first + 1, 0);
  const per = 2 ** Math.max(0, Math.ceil(Math.log2(total / MOST_CELLS)));
  for (const region of regions) {
    const count = Math.ceil((region.last - region.first + 1) / per);
    for (let cell = 0; cell < count; cell += 1) {
      region.cells.push({ page: region.first + cell * per, pages: 0, used: 0, known: 0, owners: new Map(), allocations: [] });
    }
  }
  const regionOf = (page) => regions.find(({ first, last }) => page >= first && page <= last);
  /// Calls `visit(cell, from, to)` for the parts of an address range.
  const each = (from, to, visit) => {
    const region = regionOf(Math.floor(from / PAGE));
    if (!region) return;
    for (let index = Math.floor((from / PAGE - region.first) / per); index < region.cells.length; index += 1) {
      const cell = region.cells[index];
      const low = Math.max(from, cell.page * PAGE);
      const high = Math.min(to, (cell.page + per) * PAGE);
      if (low >= to) break;
      visit(cell, low, high);
    }
  };
  for (const [first, last] of ever) each(first * PAGE, (last + 1) * PAGE, (cell, low, high) => (cell.known += (high - low) / PAGE));
  for (const [first, last] of pageRanges(run, allocations)) each(first * PAGE, (last + 1) * PAGE, (cell, low, high) => (cell.pages += (high - low) / PAGE));
  for (const i of allocations) {
    if (!isPaged(run, i)) continue;
    each(run.address[i], run.address[i] + run.bytes[i], (cell, low, high) => {
      cell.used += high - low;
      cell.owners.set(paint[i], (cell.owners.get(paint[i]) ?? 0) + high - low);
      cell.allocations.push(i);
    });
  }
  return { regions, per, left };
}

class MemoryMap {
  constructor(app) {
    this.app = app;
    this.cursor = new MapCursor(this);
  }

  render(panel) {
    const { app } = this;
    const { run } = app;
    // Memory is in use whether or not it matches the search.
    const alive = aliveAt(run, null, app.position);
    const figures = pageFigures(run, alive);
    const free = without(everUsed(run), pageRanges(run, alive));
    const largest = free.reduce((most, [first, last]) => Math.max(most, last - first + 1), 0);
    const hadFocus = Boolean(document.activeElement?.matches?.("canvas.map"));
    this.pinned = el("div", { class: "pinned" });
    this.cursor.clear();
    if (!everUsed(run).length) {
      panel.replaceChildren(empty("No device memory was allocated outside of pools", "The map shows pages of device memory."));
      return;
    }
    const { regions, per, left } = makeCells(run, alive, app.painted.paint);
    const figure = (name, title, value, raw, note) => el("div", { class: "fact", data: { figure: name, value: String(raw) } },
      el("dt", {}, title), el("dd", {}, value, el("span", { class: "muted" }, ` ${note}`)));
    panel.replaceChildren(
      el("dl", { class: "map-facts" },
        figure("map-used", "Used", formatBytes(figures.used), figures.used, `in ${plural(figures.pages, "page")}`),
        figure("map-wasted", "Wasted", formatBytes(figures.wasted), figures.wasted, formatPercent(figures.wasted, figures.used + figures.wasted)),
        figure("map-free", "Free", formatBytes(countPages(free) * PAGE), countPages(free) * PAGE, `in ${plural(free.length, "range")}`),
        figure("map-largest", "Largest free range", formatBytes(largest * PAGE), largest * PAGE, "")),
      el("p", { class: "keys" },
        el("span", {}, el("i", { class: "cell-key used" }), "used, in the colour of the timeline"),
        el("span", {}, el("i", { class: "cell-key wasted" }), "wasted: the rest of a page in use"),
        el("span", {}, el("i", { class: "cell-key free" }), "free: was in use before"),
        el("span", { class: "muted" }, per === 1 ? "One cell is a page of 2 MiB." : `One cell is ${per} pages, ${formatBytes(per * PAGE)}.`)),
      ...regions.map((region) => this.region(region, per)),
      left ? el("p", { class: "hint" }, `${plural(left, "smaller region")} not shown.`) : "",
      alive.some((i) => isPooled(run, i)) ? el("p", { class: "hint" }, "Blocks of pools are not shown: the pages are their pool's.") : "",
      this.cursor.detail,
      this.pinned,
      this.waste(alive));
    // The cells are drawn by then.
    if (hadFocus) requestAnimationFrame(() => this.cursor.focus());
  }

  region(region, per) {
    const canvas = el("canvas", { class: "map", "aria-label": `Pages from ${hex(region.first * PAGE)}. Arrow keys move, with Shift to the next range; Enter lists the allocations` });
    const inUse = region.cells.reduce((sum, cell) => sum + cell.used, 0);
    const box = el("div", { class: "region" },
      el("p", { class: "region-head" }, el("code", {}, hex(region.first * PAGE)), el("span", { class: "muted" }, `${formatBytes((region.last - region.first + 1) * PAGE)}, ${formatBytes(inUse)} used`)), this.cursor.add(canvas, region, per));
    // The width is known once the box is on the page.
    requestAnimationFrame(() => this.draw(canvas, box.clientWidth, region, per));
    canvas.addEventListener("mousemove", (event) => {
      const cell = this.cellAt(canvas, region, event);
      if (cell) tip.show(event.clientX, event.clientY, this.describe(cell, per));
      else tip.hide();
    });
    canvas.addEventListener("mouseleave", () => tip.hide());
    canvas.addEventListener("click", (event) => {
      const cell = this.cellAt(canvas, region, event);
      this.pin(cell, per);
      // The keyboard goes on from here.
      if (cell) this.cursor.page = cell.page;
    });
    return box;
  }

  draw(canvas, width, region, per) {
    const size = region.cells.length > 1500 ? 9 : region.cells.length > 900 ? 12 : 16;
    const columns = Math.max(8, Math.floor(width / size));
    canvas.cells = { size, columns };
    const context = prepareCanvas(canvas, width, Math.ceil(region.cells.length / columns) * size);
    const [wasted, free, line] = [css("--wasted"), css("--free"), css("--free-line")];
    region.cells.forEach((cell, index) => {
      const x = (index % columns) * size;
      const y = Math.floor(index / columns) * size;
      const side = size - 2;
      if (!cell.known) return;
      context.fillStyle = cell.pages ? wasted : free;
      context.fillRect(x, y, side, side);
      if (!cell.pages) {
        context.strokeStyle = line;
        context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
        return;
      }
      // Owners from the bottom up, each as high as its share of the cell.
      let bottom = y + side;
      const capacity = per * PAGE;
      for (const [paint, bytes] of [...cell.owners].sort((a, b) => a[0] - b[0])) {
        const height = Math.min(bottom - y, Math.max(side * (bytes / capacity), 1));
        context.fillStyle = paint === 255 ? css("--others") : groupColor(this.app.painted.groups, paint);
        context.fillRect(x, bottom - height, side, height);
        bottom -= height;
      }
    });
  }

  cellAt(canvas, region, event) {
    const box = canvas.getBoundingClientRect();
    const { size, columns } = canvas.cells ?? {};
    const column = Math.floor((event.clientX - box.left) / size);
    if (!(column < columns)) return null;
    const cell = region.cells[Math.floor((event.clientY - box.top) / size) * columns + column];
    return cell?.known ? cell : null;
  }

  use(cell) {
    if (!cell.pages) return "free";
    const wasted = formatBytes(Math.max(0, cell.pages * PAGE - cell.used));
    return `${formatBytes(cell.used)} used, ${wasted} wasted, ${plural(cell.allocations.length, "allocation")}`;
  }

  /// The same in one line.
  sentence(cell, per) {
    const { painted } = this.app;
    const owners = [...cell.owners].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([paint, bytes]) => `${painted.groups[paint]?.name ?? "not in the timeline"} ${formatBytes(bytes)}`);
    return [hex(cell.page * PAGE), formatBytes(per * PAGE), this.use(cell), ...owners].join(" · ");
  }

  describe(cell, per) {
    const { painted } = this.app;
    return [
      el("div", { class: "tip-head" }, el("code", {}, hex(cell.page * PAGE)), el("strong", {}, formatBytes(per * PAGE))),
      el("div", {}, this.use(cell)),
      ...[...cell.owners].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([paint, bytes]) =>
        el("div", { class: "tip-row" }, el("i", { class: "swatch", style: { background: groupColor(painted.groups, paint) } }),
          el("span", { class: "tip-name" }, painted.groups[paint]?.name ?? "not in the timeline"), el("span", {}, formatBytes(bytes)))),
    ];
  }

  /// The allocations of a cell stay below the map until another is clicked.
  pin(cell, per) {
    if (!cell) return;
    const { run } = this.app;
    const list = [...cell.allocations].sort((a, b) => run.address[a] - run.address[b]);
    this.pinned.replaceChildren(
      el("h3", {}, `${hex(cell.page * PAGE)} to ${hex((cell.page + per) * PAGE)}`),
      list.length ? el("div", { class: "scroll" }, el("table", { class: "plain" },
        el("thead", {}, el("tr", {}, ...["Address", "Bytes", "Call site", "Label"].map((title) => el("th", { scope: "col", class: title === "Bytes" ? "number" : "" }, title)))),
        el("tbody", {}, ...list.slice(0, 100).map((i) => el("tr", {}, el("td", {}, el("code", {}, hex(run.address[i]))), el("td", { class: "number" }, formatBytes(run.bytes[i])),
          el("td", {}, siteName(run, run.site[i])), el("td", {}, run.names[run.label[i]] ?? "")))))) : el("p", { class: "muted" }, "Free at this moment."),
      list.length > 100 ? el("p", { class: "hint" }, `and ${formatCount(list.length - 100)} more`) : "");
  }

  waste(alive) {
    const { run } = this.app;
    const sites = wasteBySite(run, alive).filter(({ wasted }) => wasted > 0).slice(0, 8);
    if (!sites.length) return "";
    return el("div", { class: "waste" }, el("h3", {}, "Who holds partly used pages"), el("div", { class: "scroll" }, el("table", { class: "plain", id: "waste" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Call site"), el("th", { scope: "col", class: "number" }, "Pages"), el("th", { scope: "col", class: "number" }, "Wasted"))),
      el("tbody", {}, ...sites.map(({ site, pages, wasted }) => el("tr", { data: { site: String(site), wasted: String(wasted), pages: String(pages) } },
        el("td", {}, el("span", { class: "where" }, el("span", { class: "name" }, siteName(run, site)), el("span", { class: "place" }, mainFrame(run, site) ? placeOf(mainFrame(run, site)) : ""))),
        el("td", { class: "number" }, formatCount(pages)), el("td", { class: "number strong" }, formatBytes(wasted))))))));
  }
}

function hex(address) {
  return `0x${address.toString(16)}`;
}
