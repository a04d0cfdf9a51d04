// The memory map by the keyboard: one cell of all regions has the cursor.
//
// A canvas has no elements for its cells. It can have the focus, the cursor is drawn by an element above it, and a line of text says
// what is at the cursor, for those who see it and for those who hear it.

class MapCursor {
  constructor(map) {
    this.map = map;
    this.fields = [];
    /// The first page of the cell. It stays while the moment changes.
    this.page = null;
    this.detail = el("p", { class: "map-detail", "aria-live": "polite", id: "map-detail" });
  }

  /// Forgets the regions of the moment before.
  clear() {
    this.fields = [];
    this.detail.textContent = "";
  }

  /// Adds a region: its canvas, with the cursor above it.
  add(canvas, region, per) {
    const mark = el("i", { class: "map-cursor", hidden: true });
    const field = { canvas, region, per, mark };
    this.fields.push(field);
    setProperty(canvas, "tabindex", 0);
    setProperty(canvas, "role", "application");
    setProperty(canvas, "aria-roledescription", "memory map");
    setProperty(canvas, "aria-describedby", "map-detail");
    canvas.addEventListener("focus", () => this.show(field, this.indexIn(field) ?? this.known(field, 0, 1)));
    canvas.addEventListener("blur", () => (mark.hidden = true));
    canvas.addEventListener("keydown", (event) => this.key(field, event));
    return el("div", { class: "map-box" }, canvas, mark);
  }

  /// The cell of the region that has the cursor.
  indexIn({ region, per }) {
    const index = Math.floor((this.page - region.first) / per);
    return this.page !== null && region.cells[index]?.known ? index : null;
  }

  /// The first cell from here on that was ever in use.
  known({ region }, from, step) {
    for (let index = from; index >= 0 && index < region.cells.length; index += step) if (region.cells[index].known) return index;
    return null;
  }

  /// The first cell of the next range: cells side by side that are all free, or all in use, are one.
  nextRange(field, from, step) {
    const { cells } = field.region;
    const isUsed = (index) => Boolean(cells[index].known && cells[index].pages);
    for (let index = from + step; index >= 0 && index < cells.length; index += step) {
      if (cells[index].known && (isUsed(index) !== isUsed(index - step) || !cells[index - step].known)) return index;
    }
    return null;
  }

  show(field, index) {
    if (index === null || !field.canvas.cells) return;
    const { size, columns } = field.canvas.cells;
    const cell = field.region.cells[index];
    this.page = cell.page;
    Object.assign(field.mark.style, { left: `${(index % columns) * size - 2}px`, top: `${Math.floor(index / columns) * size - 2}px`, width: `${size + 2}px`, height: `${size + 2}px` });
    field.mark.hidden = document.activeElement !== field.canvas;
    field.mark.dataset.page = hex(cell.page * PAGE);
    field.mark.scrollIntoView({ block: "nearest" });
    this.detail.textContent = this.map.sentence(cell, field.per);
  }

  /// Where a key leads from a cell; `null` beyond the region.
  target(field, index, event) {
    const { columns } = field.canvas.cells;
    const { length } = field.region.cells;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    if (event.key === "Home") return this.known(field, 0, 1);
    if (event.key === "End") return this.known(field, length - 1, -1);
    const step = steps[event.key];
    if (event.shiftKey) return this.nextRange(field, index, Math.sign(step));
    return this.known(field, index + step, Math.sign(step));
  }

  key(field, event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !field.canvas.cells) return;
    const index = this.indexIn(field) ?? this.known(field, 0, 1);
    if (event.key === "Enter" || event.key === " ") this.map.pin(field.region.cells[index], field.per);
    else if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) this.move(field, index, event);
    else return;
    // These keys also move the moment, outside of the map.
    event.preventDefault();
    event.stopPropagation();
  }

  move(field, index, event) {
    const target = this.target(field, index, event);
    if (target !== null) return this.show(field, target);
    const isForward = ["ArrowRight", "ArrowDown"].includes(event.key);
    const next = this.fields[this.fields.indexOf(field) + (isForward ? 1 : -1)];
    if (!next) return;
    this.page = next.region.cells[this.known(next, ...(isForward ? [0, 1] : [next.region.cells.length - 1, -1]))].page;
    next.canvas.focus();
  }

  /// Another moment has other canvases: the focus stays where it was.
  focus() {
    (this.fields.find((field) => this.indexIn(field) !== null) ?? this.fields[0])?.canvas.focus({ preventScroll: true });
  }
}
