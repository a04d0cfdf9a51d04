// The flame graph of what is alive: callers above what they call, width is bytes.

/// Narrower frames are not drawn: percent of the width.
const NARROWEST = 0.15;

/// The tree of frames, merged by function. `keep` says which frames it has.
function flameTree(run, allocations, keep) {
  const root = { name: "all", frame: null, bytes: 0, count: 0, children: new Map(), parent: null };
  const bytes = new Map();
  for (const i of allocations) {
    if (!run.bytes[i]) continue;
    const sum = bytes.get(run.site[i]) ?? [0, 0];
    sum[0] += run.bytes[i];
    sum[1] += 1;
    bytes.set(run.site[i], sum);
  }
  for (const [site, [size, count]] of bytes) {
    let node = root;
    node.bytes += size;
    node.count += count;
    const frames = (run.sites[site]?.frames ?? []).filter(keep);
    for (let depth = frames.length - 1; depth >= -1; depth -= 1) {
      // A call site without any frame still has its bytes somewhere.
      if (depth < 0 && frames.length) break;
      const frame = frames[depth] ?? { name: "unknown call site", file: "", line: 0, library: "", app: false };
      const key = `${frame.name}\n${frame.file}`;
      if (!node.children.has(key)) node.children.set(key, { name: frame.name, frame, bytes: 0, count: 0, children: new Map(), parent: node });
      node = node.children.get(key);
      node.bytes += size;
      node.count += count;
    }
  }
  return root;
}

function frameClass(frame) {
  if (!frame) return "root";
  // A stack without a frame of the program has some of a library marked, so that it can be shown by them.
  const isMarked = !frame.file && /\.so(\.\d+)*$/.test(frame.library);
  if (frame.app && !isMarked) return "app";
  return /\.py$/.test(frame.file) ? "python" : "library";
}

/// Neighbours of one colour need a difference: a shade by name, the same every time.
function shadeOf(name) {
  let hash = 0;
  for (let i = 0; i < name.length; i += 1) hash = (hash * 31 + name.charCodeAt(i)) | 0;
  return Math.abs(hash) % 4;
}

class Flame {
  constructor(app) {
    this.app = app;
    this.appOnly = false;
    this.graph = el("div", { class: "flame", role: "tree", "aria-label": "Flame graph" });
    this.detail = el("p", { class: "flame-detail" });
    this.nodes = new Map();
    this.graph.addEventListener("click", (event) => this.focusOn(this.nodeOf(event)));
    this.graph.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.focusOn(this.nodeOf(event));
    });
    this.graph.addEventListener("mousemove", (event) => this.describe(event));
    this.graph.addEventListener("focusin", (event) => this.describe(event));
    this.graph.addEventListener("mouseleave", () => tip.hide());
  }

  render(panel) {
    const only = el("input", { type: "checkbox", id: "app-only", onchange: () => {
      this.appOnly = only.checked;
      this.build();
    } });
    only.checked = this.appOnly;
    panel.replaceChildren(
      el("div", { class: "panel-head" },
        el("p", { class: "keys" },
          el("span", {}, el("i", { class: "swatch app" }), "the program"), el("span", {}, el("i", { class: "swatch python" }), "Python libraries"),
          el("span", {}, el("i", { class: "swatch library" }), "native libraries")),
        el("label", { class: "check" }, only, "Only the program’s own frames"),
        this.back = el("button", { type: "button", class: "quiet", id: "flame-reset", onclick: () => this.focusOn(this.root) }, "All frames")),
      this.graph, this.detail);
    this.build();
  }

  build() {
    const keep = this.appOnly ? (frame) => frame.app : () => true;
    this.root = flameTree(this.app.run, this.app.alive, keep);
    this.focusOn(this.root);
  }

  nodeOf(event) {
    const element = event.target.closest(".frame");
    return element ? this.nodes.get(element) : null;
  }

  /// Draws the tree with `node` as wide as the graph; its callers stay above it.
  focusOn(node) {
    if (!node) return;
    tip.hide();
    this.nodes.clear();
    this.back.disabled = node === this.root;
    if (!this.root.bytes) {
      this.detail.textContent = "";
      this.graph.style.height = "";
      this.graph.replaceChildren(empty("Nothing is alive at this moment", "Choose another moment in the timeline, or clear the search."));
      return;
    }
    const callers = [];
    for (let at = node.parent; at; at = at.parent) callers.unshift(at);
    const elements = callers.map((caller, depth) => this.frame(caller, depth, 0, 100, true));
    let deepest = callers.length;
    const draw = (at, depth, left, width) => {
      deepest = Math.max(deepest, depth);
      elements.push(this.frame(at, depth, left, width, false));
      let x = left;
      for (const child of [...at.children.values()].sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1))) {
        const part = (width * child.bytes) / at.bytes;
        if (part >= NARROWEST) draw(child, depth + 1, x, part);
        x += part;
      }
    };
    draw(node, callers.length, 0, 100);
    this.graph.style.height = `${(deepest + 1) * 22}px`;
    this.graph.replaceChildren(...elements);
    this.detail.textContent = this.sentence(node);
  }

  frame(node, depth, left, width, isCaller) {
    const text = node.frame ? shortFunction(node.name) : `all · ${formatBytes(node.bytes)}`;
    const element = el("div", {
      class: `frame ${frameClass(node.frame)} shade${shadeOf(node.name)}${isCaller ? " caller" : ""}`, role: "treeitem",
      tabindex: width > 2 ? 0 : -1, data: { bytes: String(node.bytes), name: node.name },
      style: { left: `${left}%`, width: `${width}%`, top: `${depth * 22}px` },
    }, width > 1.2 ? text : "");
    this.nodes.set(element, node);
    return element;
  }

  sentence(node) {
    const share = formatPercent(node.bytes, this.root.bytes);
    const where = node.frame ? placeOf(node.frame) : "";
    return `${node.frame ? node.name : "Everything alive"}${where ? ` · ${where}` : ""} · ${formatBytes(node.bytes)} (${share}) in ${plural(node.count, "allocation")}`;
  }

  describe(event) {
    const node = this.nodeOf(event);
    if (!node) return tip.hide();
    this.detail.textContent = this.sentence(node);
    if (event.type !== "mousemove") return;
    tip.show(event.clientX, event.clientY, [
      el("div", { class: "tip-title" }, node.frame ? node.name : "Everything alive"),
      node.frame ? el("div", { class: "tip-muted" }, [placeOf(node.frame), node.frame.file ? node.frame.library : ""].filter(Boolean).join(" · ")) : null,
      el("div", {}, el("strong", {}, formatBytes(node.bytes)), ` · ${formatPercent(node.bytes, this.root.bytes)} · ${plural(node.count, "allocation")}`),
    ].filter(Boolean));
  }
}
