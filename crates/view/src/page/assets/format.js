// Numbers, times and names as text.

const UNITS = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];

/// As in the text report: `17.50 MiB`, `4 KiB`, `12 B`.
function formatBytes(bytes) {
  const unit = UNITS.find(([size]) => bytes >= size);
  if (!unit) return `${bytes} B`;
  const value = bytes / unit[0];
  return `${Number.isInteger(value) ? value : value.toFixed(2)} ${unit[1]}`;
}

const integer = new Intl.NumberFormat("en-US");

function formatCount(count) {
  return integer.format(count);
}

/// `1 allocation`, `2 allocations`.
function plural(count, word) {
  return `${formatCount(count)} ${word}${count === 1 ? "" : "s"}`;
}

/// Nanoseconds: `8.23 s`, `812 ms`, `2 min 5 s`. `step` is the distance to the next value that must look different.
function formatTime(nanoseconds, step) {
  if (nanoseconds < 0) return `−${formatTime(-nanoseconds, step)}`;
  if (nanoseconds === 0) return "0 s";
  if (nanoseconds >= 120e9) {
    const seconds = nanoseconds / 1e9;
    const rest = seconds % 60;
    const digits = step && step < 1e9 ? digitsFor(step / 1e9) : 0;
    return seconds >= 7200
      ? `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`
      : `${Math.floor(seconds / 60)} min ${rest.toFixed(digits)} s`;
  }
  // The unit of the value, however small the step is: an axis has one unit.
  for (const [size, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (nanoseconds >= size) {
      const value = nanoseconds / size;
      const digits = step ? digitsFor(step / size) : value >= 100 ? 0 : value >= 10 ? 1 : 2;
      // As in the text report, a time that has not passed yet is not shown.
      if (!step) return `${trimZeros((Math.floor((nanoseconds / size) * 10 ** digits + 1e-6) / 10 ** digits).toFixed(digits))} ${name}`;
      return `${trimZeros(value.toFixed(digits))} ${name}`;
    }
  }
  return `${Math.round(nanoseconds)} ns`;
}

function digitsFor(step) {
  return Math.max(0, Math.min(9, Math.ceil(-Math.log10(step) - 1e-9)));
}

function trimZeros(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function formatPercent(part, whole) {
  if (!whole) return "–";
  const value = (100 * part) / whole;
  if (part > 0 && value < 0.1) return "< 0.1 %";
  return `${value >= 10 || part === 0 ? value.toFixed(0) : value.toFixed(1)} %`;
}

/// The name of a function without what makes it long: hashes, arguments of templates and types.
function shortFunction(name) {
  let text = name.replace(/::h[0-9a-f]{16}$/, "");
  if (text.length > 48) {
    // From the inside out; operators such as `operator<` stay, since they have no partner.
    for (let before = ""; before !== text;) {
      before = text;
      text = text.replace(/<[^<>]*>/g, "");
    }
    text = text.replaceAll("(anonymous namespace)::", "").replace(/(operator\(\))?\(.*\)( const)?$/, "$1").replace(/::::/g, "::");
  }
  return text || name;
}

/// The last parts of a path.
function shortPath(path) {
  const parts = path.split(/[\\/]/).filter(Boolean);
  return parts.length > 3 ? `…/${parts.slice(-3).join("/")}` : path;
}

function placeOf(frame) {
  if (!frame.file) return frame.library || "";
  return frame.line ? `${shortPath(frame.file)}:${frame.line}` : shortPath(frame.file);
}

/// A run's name where there are several.
function runName(run, number) {
  if (run.rank !== null && run.rank !== undefined) return run.host ? `Rank ${run.rank} · ${run.host}` : `Rank ${run.rank}`;
  return run.source ? run.source.split("/").pop() : `Run ${number + 1}`;
}
