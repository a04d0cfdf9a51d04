// Live bytes over time, stacked, with marks. uPlot draws axes and areas; what is in them is computed here.

/// Groups with a colour of their own; the rest is one group. The palette has one colour more, for a single group that is left.
const TIMELINE_GROUPS = 6;
const NICE_TIMES = [
  ...Array.from({ length: 11 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat(),
  ...[60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400].map((seconds) => seconds * 1e9),
];
const NICE_BYTES = Array.from({ length: 53 }, (_, power) => 2 ** power);

class Timeline {
  constructor(app) {
    this.app = app;
    this.plot = null;
    this.focus = null;
    this.box = el("div", { class: "plot", tabindex: 0, role: "application",
      "aria-label": "Timeline. Left and right arrow keys move the moment, plus and minus zoom." });
    this.legend = el("ul", { class: "legend" });
    this.zoomOut = el("button", { type: "button", class: "quiet", id: "zoom-reset", onclick: () => this.zoom(this.begin(), this.end()) }, "Whole run");
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.box);
  }

  /// The frame of the view; `show` fills it.
  mount(section) {
    const { app } = this;
    const scopes = [["device", "Device memory"], ["memory", "All memory"],
      ...app.run.kinds.map((kind, index) => [`kind:${index}`, kind.name]).filter((_, index) => app.run.kinds[index].isMemory)];
    section.replaceChildren(
      el("div", { class: "card-head" },
        el("h2", {}, "Live memory"),
        el("div", { class: "controls" },
          segmented("Stack by", [["site", "Call site"], ["label", "Label"], ["kind", "Kind"]], app.by, (by) => app.setBy(by)),
          dropdown("Show", scopes, app.scope, (scope) => app.setScope(scope)),
          el("div", { class: "zoom", role: "group", "aria-label": "Zoom" },
            el("button", { type: "button", class: "quiet", title: "Zoom out (−)", "aria-label": "Zoom out", onclick: () => this.zoomBy(2) }, "−"),
            el("button", { type: "button", class: "quiet", title: "Zoom in (+)", "aria-label": "Zoom in", onclick: () => this.zoomBy(0.5) }, "+"),
            this.zoomOut))),
      this.box, this.legend,
      el("p", { class: "hint" }, "Click to choose a moment. Drag to zoom, double-click for the whole run. The lighter part of a column was not in use for all of its time."));
    this.from = this.begin();
    this.to = this.end();
  }

  begin() {
    return this.app.run.begin;
  }

  end() {
    const { run } = this.app;
    return Math.max(run.end, timeAt(run, run.events - 1), run.begin + 1);
  }

  /// New data: another run, grouping, memory or search.
  show() {
    this.plot?.destroy();
    this.plot = null;
    this.focus = null;
    if (!this.app.peak.bytes) {
      this.box.replaceChildren(empty(this.app.query ? "Nothing matches the search" : "No memory of this kind was allocated"));
      this.legend.replaceChildren();
      return;
    }
    this.box.replaceChildren();
    this.plot = new uPlot(this.options(), this.data(), this.box);
    this.listen(this.plot.over);
    this.showLegend();
  }

  size() {
    return { width: Math.max(240, this.box.clientWidth), height: innerWidth < 640 ? 240 : 320 };
  }

  resize() {
    if (!this.plot || this.box.clientWidth === this.plot.width) return;
    this.plot.setSize(this.size());
    this.plot.setData(this.data());
  }

  /// What uPlot is given: the window and its highest value. The areas are drawn here.
  data() {
    const { app } = this;
    this.zoomOut.disabled = this.from <= this.begin() && this.to >= this.end();
    Object.assign(this.box.dataset, { from: this.from, to: this.to });
    this.made = null;
    const [high] = columns(app.run, app.painted.paint, app.painted.groups.length, this.from, this.to, 1).highs;
    return [[this.from, this.to], [high, high]];
  }

  /// A column for each pixel of the canvas.
  columns() {
    const { run, painted } = this.app;
    const count = Math.max(1, Math.round(this.plot.bbox.width));
    if (this.made?.count !== count) this.made = columns(run, painted.paint, painted.groups.length, this.from, this.to, count);
    return this.made;
  }

  options() {
    const axis = (more) => ({
      stroke: () => css("--muted"), font: `12px ${css("--sans")}`, grid: { stroke: () => css("--grid"), width: 1 },
      ticks: { show: false }, ...more,
    });
    return {
      ...this.size(),
      // Labels of marks are above the plot; failed allocations are often near the peak, and take a second line.
      padding: [this.app.facts.ooms.length ? 42 : 26, 14, 0, 0],
      legend: { show: false },
      cursor: { points: { show: false }, y: false, drag: { x: true, y: false, setScale: false } },
      scales: {
        x: { time: false, range: () => [this.from, this.to] },
        y: { range: (_, low, high) => [0, Math.max(1, high * 1.04)] },
      },
      axes: [
        axis({ incrs: NICE_TIMES, space: 72, size: 30, values: (_, splits, __, ___, step) => splits.map((time) => formatTime(time, step)) }),
        axis({ incrs: NICE_BYTES, space: 44, size: 76, values: (_, splits) => splits.map((bytes) => formatBytes(bytes)) }),
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: {
        drawAxes: [(plot) => this.drawAreas(plot)],
        draw: [(plot) => this.drawMarks(plot)],
        setCursor: [(plot) => this.hover(plot)],
        setSelect: [(plot) => this.selected(plot)],
      },
    };
  }

  /// The rectangle of the plot in whole pixels of the canvas, and the row of an amount.
  area(plot) {
    const [left, top, width, height] = ["left", "top", "width", "height"].map((name) => Math.round(plot.bbox[name]));
    const high = plot.scales.y.max;
    return { left, top, width, height, row: (bytes) => top + height - Math.round((height * bytes) / high) };
  }

  /// Groups on top of each other, in whole pixels: an area without a smooth border is as high as its value, however thin.
  drawAreas(plot) {
    const { ctx } = plot;
    const { left, row } = this.area(plot);
    const { count, values, highs, lows } = this.columns();
    /// Columns with the same two rows are one rectangle.
    const fill = (from, to) => {
      for (let column = 0, next = 1; column < count; column = next, next += 1) {
        const [low, high] = [from(column), to(column)];
        while (next < count && from(next) === low && to(next) === high) next += 1;
        if (high < low) ctx.fillRect(left + column, high, next - column, low - high);
      }
    };
    const sum = new Float64Array(count);
    let bottom = new Int32Array(count).fill(row(0));
    values.forEach((bytes, group) => {
      const below = bottom;
      bottom = Int32Array.from(bytes, (value, column) => row((sum[column] += value)));
      const above = bottom;
      ctx.fillStyle = this.fillOf(group);
      fill((column) => below[column], (column) => above[column]);
    });
    ctx.fillStyle = css("--veil");
    fill((column) => row(lows[column]), (column) => row(highs[column]));
  }

  fillOf(group) {
    const color = groupColor(this.app.painted.groups, group);
    return this.focus === null || this.focus === group ? color : css("--faded");
  }

  listen(over) {
    let down = null;
    over.addEventListener("mousedown", (event) => (down = event.clientX));
    over.addEventListener("click", (event) => {
      // The end of a drag is a click, too.
      if (down !== null && Math.abs(event.clientX - down) > 3) return;
      this.choose(event.clientX - over.getBoundingClientRect().left);
    });
    over.addEventListener("dblclick", () => this.zoom(this.begin(), this.end()));
    over.addEventListener("mouseleave", () => tip.hide());
    over.addEventListener("wheel", (event) => {
      // Without a key the page scrolls, as it does elsewhere.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoomBy(event.deltaY > 0 ? 1.25 : 0.8, this.plot.posToVal(event.clientX - over.getBoundingClientRect().left, "x"));
    }, { passive: false });
  }

  choose(left) {
    // A mark is thinner than a pointer: near ones attract it.
    const near = this.marks().filter((mark) => mark.position !== undefined)
      .map((mark) => ({ mark, distance: Math.abs(this.plot.valToPos(mark.time, "x") - left) }))
      .filter(({ distance }) => distance <= 6).sort((a, b) => a.distance - b.distance)[0];
    const { position, time } = near ? near.mark : this.momentOf(this.columnAt(this.plot.posToVal(left, "x")));
    this.app.setMoment(position, time);
  }

  columnAt(time) {
    const { from, width, count } = this.columns();
    return Math.max(0, Math.min(count - 1, Math.floor((time - from) / width)));
  }

  /// The moment that a column shows.
  momentOf(column) {
    const { from, width, positions } = this.columns();
    const position = positions[column];
    return { position, time: Math.max(Math.floor(from + width * column), timeAt(this.app.run, position)) };
  }

  /// Moves the moment: by columns, or by events where they are few.
  move(steps) {
    if (!this.plot) return;
    const { app } = this;
    const { positions, count, areEventsFew, first, last } = this.columns();
    if (areEventsFew) {
      const to = Math.sign(steps);
      let at = Math.max(first, Math.min(last, app.position));
      for (let left = Math.abs(steps); left > 0; left -= 1) {
        let next = at + to;
        while (next > first && next <= last && app.painted.paint[app.run.event[next] >>> 1] === 255) next += to;
        if (next < first || next > last) break;
        at = next;
      }
      app.setMoment(at, Math.max(Math.ceil(this.from), timeAt(app.run, at)));
      return;
    }
    let column = this.columnAt(app.time);
    // Columns without events show the same moment.
    const moved = (other) => positions[other] !== app.position;
    for (let left = Math.abs(steps); left > 0 || !moved(column); left -= 1) {
      const next = column + Math.sign(steps);
      if (next < 0 || next >= count) break;
      column = next;
    }
    const { position, time } = this.momentOf(column);
    app.setMoment(position, time);
  }

  zoom(from, to) {
    const [begin, end] = [this.begin(), this.end()];
    const width = Math.min(end - begin, Math.max(to - from, 20));
    this.from = Math.max(begin, Math.min(from, end - width));
    this.to = this.from + width;
    tip.hide();
    this.plot?.setData(this.data());
  }

  zoomBy(factor, around) {
    const fixed = around ?? (this.app.time >= this.from && this.app.time <= this.to ? this.app.time : (this.from + this.to) / 2);
    this.zoom(fixed - (fixed - this.from) * factor, fixed + (this.to - fixed) * factor);
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  hover(plot) {
    const { left, top } = plot.cursor;
    if (left === null || left < 0 || !this.made) return tip.hide();
    const { app } = this;
    const column = this.columnAt(plot.posToVal(left, "x"));
    const { values: ofGroups, highs } = this.columns();
    const values = app.painted.groups.map((group, index) => ({ name: group.name, place: group.place, index, bytes: ofGroups[index][column] }));
    const box = plot.over.getBoundingClientRect();
    tip.show(box.left + left, box.top + top, [
      el("div", { class: "tip-head" }, el("span", {}, formatTime(this.momentOf(column).time, (this.to - this.from) / 1000)), el("strong", {}, formatBytes(highs[column]))),
      // From the top of the stack down, as in the picture.
      ...values.reverse().filter(({ bytes }) => bytes > 0).map(({ name, place, index, bytes }) =>
        el("div", { class: "tip-row" }, el("i", { class: "swatch", style: { background: groupColor(app.painted.groups, index) } }),
          el("span", { class: "tip-name" }, name, el("span", { class: "muted" }, ` ${place}`)), el("span", {}, formatBytes(bytes)))),
    ]);
  }

  showLegend() {
    const { app } = this;
    const alive = new Float64Array(app.painted.groups.length);
    for (const i of app.alive) alive[app.painted.paint[i]] += app.run.bytes[i];
    const focus = (index) => () => {
      this.focus = index;
      this.plot?.redraw(false);
    };
    this.legend.replaceChildren(...app.painted.groups.map((group, index) =>
      el("li", { onmouseenter: focus(index), onmouseleave: focus(null), title: `${group.name} ${group.place}` },
        el("i", { class: "swatch", style: { background: groupColor(app.painted.groups, index) } }),
        el("span", { class: "legend-name" }, group.name, group.place ? el("span", { class: "muted" }, ` ${group.place}`) : null),
        el("span", { class: "legend-value", data: { group: group.name, value: String(alive[index]) } }, formatBytes(alive[index])))));
  }

  /// What is marked: failed allocations, the peak, contexts. The first get their labels first.
  marks() {
    const { run, peak } = this.app;
    const marks = [];
    for (const mark of run.marks) {
      if (mark.what === "oom") marks.push({ ...mark, text: mark.bytes ? `failed: ${formatBytes(mark.bytes)}` : "failed allocation", sign: "✕" });
    }
    if (peak.position >= 0 && !run.is_report) {
      marks.push({ what: "peak", time: timeAt(run, peak.position), position: peak.position, text: `peak ${formatBytes(peak.bytes)}`, sign: "▲" });
    }
    for (const mark of run.marks) {
      if (mark.what === "created") marks.push({ ...mark, text: `context ${mark.context} on device ${mark.device}`, sign: "◇" });
      if (mark.what === "ended") marks.push({ ...mark, text: `context ${mark.context} ends`, sign: "◆" });
    }
    return marks;
  }

  drawMarks(plot) {
    const { ctx } = plot;
    const { left, top, width, height, row } = this.area(plot);
    const scale = devicePixelRatio || 1;
    const { highs, count } = this.columns();
    // Lines end where memory begins: they would cover the spike that they point at.
    const line = (x, color, dash, thickness) => {
      ctx.strokeStyle = color;
      ctx.lineWidth = thickness * scale;
      ctx.setLineDash(dash.map((part) => part * scale));
      ctx.beginPath();
      ctx.moveTo(x, top - 4 * scale);
      ctx.lineTo(x, row(highs[Math.max(0, Math.min(count - 1, Math.floor(x - left)))]));
      ctx.stroke();
    };
    ctx.save();
    ctx.font = `${12 * scale}px ${css("--sans")}`;
    // uPlot leaves the alignment of its axes behind.
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    const taken = [];
    for (const mark of this.marks()) {
      if (mark.time < this.from || mark.time > this.to) continue;
      const x = plot.valToPos(mark.time, "x", true);
      const color = css({ peak: "--text", oom: "--warn" }[mark.what] ?? "--muted");
      line(x, color, mark.what === "oom" ? [] : [3, 3], mark.what === "oom" ? 1.5 : 1);
      // A label is left out where it would cover another; then the sign alone remains, or nothing.
      const sides = [[`${mark.sign} ${mark.text}`, false], [`${mark.text} ${mark.sign}`, true]];
      const rows = this.app.facts.ooms.length ? [0, 1] : [0];
      const places = [...rows.flatMap((row) => sides.map((side) => [...side, row])), [mark.sign, false, 0]];
      for (const [text, isLeft, row] of places) {
        const wide = ctx.measureText(text).width;
        const start = isLeft ? x + 5 * scale - wide : x - 5 * scale;
        if (start < left - 60 * scale || start + wide > left + width + 12 * scale) continue;
        if (taken.some(([a, b, other]) => other === row && start < b + 8 * scale && start + wide > a - 8 * scale)) continue;
        taken.push([start, start + wide, row]);
        ctx.fillStyle = color;
        ctx.fillText(text, start, top - (14 + 15 * row) * scale);
        break;
      }
    }
    if (this.app.time >= this.from && this.app.time <= this.to) {
      const x = plot.valToPos(this.app.time, "x", true);
      line(x, css("--accent"), [], 2);
      ctx.fillStyle = css("--accent");
      ctx.beginPath();
      ctx.arc(x, top + height, 5 * scale, 0, 7);
      ctx.fill();
    }
    ctx.restore();
  }

  momentChanged() {
    this.plot?.redraw(false);
    this.showLegend();
  }
}
