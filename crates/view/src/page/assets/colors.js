// Colours. Groups have those of Okabe and Ito, which people with any colour vision tell apart, but for their red: that is for lost memory. No
// view relies on colour alone.

const GROUP_COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D1F", "#F0E442"];

function groupColor(groups, index) {
  const group = groups[index];
  return !group || group.isOthers ? css("--others") : GROUP_COLORS[index % GROUP_COLORS.length];
}

/// The value of a variable of the style sheet, which depends on the scheme.
function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const SCHEMES = ["auto", "light", "dark"];
const SCHEME_NAMES = { auto: "Colour scheme: as the system", light: "Colour scheme: light", dark: "Colour scheme: dark" };

const scheme = {
  current: "auto",

  start(changed) {
    try {
      // Pages that are opened from disk may have no storage.
      this.current = SCHEMES.includes(localStorage.getItem("cuguard-scheme")) ? localStorage.getItem("cuguard-scheme") : "auto";
    } catch { /* The choice then lasts as long as the page. */ }
    this.apply();
    this.changed = changed;
    byId("theme").addEventListener("click", () => {
      this.use(SCHEMES[(SCHEMES.indexOf(this.current) + 1) % SCHEMES.length]);
      try {
        localStorage.setItem("cuguard-scheme", this.current);
      } catch { /* As above. */ }
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  },

  use(name) {
    this.current = name;
    this.apply();
    this.changed();
  },

  apply() {
    if (this.current === "auto") document.documentElement.removeAttribute("data-scheme");
    else document.documentElement.dataset.scheme = this.current;
    const button = byId("theme");
    button.title = SCHEME_NAMES[this.current];
    button.replaceChildren(el("span", { class: "sr" }, SCHEME_NAMES[this.current]), schemeIcon(this.current));
  },
};

function schemeIcon(name) {
  const icon = svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" });
  const line = { fill: "none", stroke: "currentColor", "stroke-width": 1.5, "stroke-linecap": "round" };
  if (name === "light") {
    icon.append(svg("circle", { cx: 8, cy: 8, r: 3, ...line }),
      svg("path", { d: "M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1", ...line }));
  } else if (name === "dark") {
    icon.append(svg("path", { d: "M13.5 9.6A6 6 0 1 1 6.4 2.5 4.8 4.8 0 0 0 13.5 9.6Z", ...line }));
  } else {
    icon.append(svg("circle", { cx: 8, cy: 8, r: 6, ...line }), svg("path", { d: "M8 2a6 6 0 0 1 0 12Z", fill: "currentColor" }));
  }
  return icon;
}
