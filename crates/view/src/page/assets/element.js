// Elements. Text reaches the page only as text nodes: names of functions, labels and paths are never parsed as HTML.

/// Makes an element: `el("td", { class: "number", onclick: f }, "text", child)`.
function el(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) setProperty(element, name, value);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function setProperty(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "style") Object.assign(element.style, value);
  else if (name === "data") Object.assign(element.dataset, value);
  else element.setAttribute(name, value === true ? "" : value);
}

/// The same for SVG, which has a namespace of its own.
function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

/// A row of buttons of which one is chosen.
function segmented(label, choices, current, choose) {
  const buttons = choices.map(([value, text, hint]) =>
    el("button", {
      type: "button", title: hint, "aria-pressed": String(value === current), data: { value },
      onclick: () => {
        for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === value));
        choose(value);
      },
    }, text));
  return el("div", { class: "segmented", role: "group", "aria-label": label }, ...buttons);
}

/// Tabs with one panel: `render(value)` fills it.
function tabs(label, choices, current, choose) {
  const select = (value) => {
    for (const button of buttons) {
      const chosen = button.dataset.value === value;
      button.setAttribute("aria-selected", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    }
    choose(value);
  };
  const buttons = choices.map(([value, text]) =>
    el("button", {
      type: "button", role: "tab", "aria-selected": String(value === current), tabindex: value === current ? 0 : -1,
      data: { value }, onclick: () => select(value),
    }, text));
  const list = el("div", { class: "tabs", role: "tablist", "aria-label": label }, ...buttons);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    // Otherwise the arrow would move the moment, too.
    event.stopPropagation();
    event.preventDefault();
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    select(next.dataset.value);
  });
  list.select = select;
  return list;
}

/// A drop-down list.
function dropdown(label, choices, current, choose) {
  const select = el("select", { "aria-label": label, onchange: () => choose(select.value) },
    ...choices.map(([value, text]) => el("option", { value, selected: value === current }, text)));
  return el("label", { class: "dropdown" }, el("span", {}, label), select);
}

/// What a view shows where it has nothing to show.
function empty(title, text) {
  return el("div", { class: "empty" }, el("p", { class: "empty-title" }, title), text ? el("p", {}, text) : null);
}

/// The one tooltip. `content` is a list of nodes.
const tip = {
  show(x, y, content) {
    const box = byId("tip");
    box.replaceChildren(...content);
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = x + 16 + width > innerWidth - 8 ? x - 16 - width : x + 16;
    box.style.left = `${Math.max(8, left)}px`;
    box.style.top = `${Math.max(8, Math.min(y + 16, innerHeight - height - 8))}px`;
  },
  hide() {
    byId("tip").hidden = true;
  },
};

/// A canvas that is sharp on every screen, and its context in CSS pixels.
function prepareCanvas(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

/// Runs `work` once, `milliseconds` after the last call.
function debounce(milliseconds, work) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
}
