// The recorded allocations: base64, inflated, then columns of varints. `encode.rs` writes them and describes the order.

const NEVER = 0xffffffff;
const LOST = 1;
const REACHABLE = 2;

/// The bytes of an embedded blob.
async function unpack(id) {
  const holder = byId(id);
  const text = holder.textContent;
  const bytes = fromBase64(text);
  // The text is several megabytes and is not read again, but for a second look at the same run.
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function readCommon() {
  return JSON.parse(new TextDecoder().decode(await unpack("common")));
}

/// Reads columns one after the other.
class ColumnReader {
  constructor(bytes, offset) {
    this.bytes = bytes;
    this.offset = offset;
  }

  next() {
    const { bytes } = this;
    let byte = bytes[this.offset++];
    if (byte < 0x80) return byte;
    // Shifts work on 32 bits; four groups fit, the rest is multiplied.
    let value = byte & 0x7f;
    let shift = 7;
    while (shift < 28) {
      byte = bytes[this.offset++];
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
      shift += 7;
    }
    let scale = 2 ** 28;
    do {
      byte = bytes[this.offset++];
      value += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte >= 0x80);
    return value;
  }

  fill(column) {
    const { bytes } = this;
    for (let i = 0; i < column.length; i += 1) {
      // Most values have one byte or two. Millions are read: a call for each is what opening the page would wait for.
      const low = bytes[this.offset];
      const high = bytes[this.offset + 1];
      if (low < 0x80) {
        column[i] = low;
        this.offset += 1;
      } else if (high < 0x80) {
        column[i] = (low & 0x7f) | (high << 7);
        this.offset += 2;
      } else column[i] = this.next();
    }
    return column;
  }

  /// Differences to the value before, with the sign in the last bit.
  fillDeltas(column, scale = 1) {
    const coded = this.fill(new Float64Array(column.length));
    let value = 0;
    for (let i = 0; i < column.length; i += 1) {
      const code = coded[i];
      const half = Math.floor(code / 2);
      value += code === 2 * half ? half : -half - 1;
      column[i] = value * scale;
    }
    return column;
  }
}

/// A run with typed arrays, one for each property of allocations.
async function readRun(number) {
  const bytes = await unpack(`run-${number}`);
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const reader = new ColumnReader(bytes, 4 + length);
  const n = head.allocations;
  const run = {
    ...head,
    count: n,
    frames: head.frames.map(([name, file, line, library, app]) => ({ name, file, line, library, app })),
    kinds: head.kinds.map(([name, onDevice, isMemory]) => ({ name, onDevice, isMemory })),
  };
  const indices = head.types.map(() => Array.from({ length: reader.next() }, () => reader.next()));
  run.sites = head.types.map((type, site) => ({ type, frames: indices[site].map((index) => run.frames[index]) }));
  run.time = reader.fillDeltas(new Float64Array(head.events), head.tick);
  run.start = reader.fillDeltas(new Uint32Array(n));
  run.stop = reader.fill(new Uint32Array(n));
  run.address = reader.fillDeltas(new Float64Array(n), 2 ** head.shift);
  run.bytes = reader.fill(new Float64Array(n));
  run.site = reader.fill(new Uint32Array(n));
  run.thread = reader.fill(new Uint32Array(n));
  run.label = reader.fill(new Uint32Array(n));
  run.context = reader.fill(new Uint32Array(n));
  run.kind = reader.fill(new Uint8Array(n));
  run.stream = reader.fill(new Uint32Array(n));
  run.leaked = new Uint8Array(n);
  for (const i of reader.fillDeltas(new Uint32Array(head.leaked))) run.leaked[i] = 1;
  // What a search at the end found of an allocation; 0 where there was none.
  run.fate = new Uint8Array(n);
  for (const i of reader.fillDeltas(new Uint32Array(head.lost))) run.fate[i] = LOST;
  for (const i of reader.fillDeltas(new Uint32Array(head.reachable))) run.fate[i] = REACHABLE;
  mergeNames(run);
  mergeSites(run, indices);
  linkEvents(run);
  return run;
}

/// `run.callSite[i]`: the first call site with the same frames of the program as that of allocation i. Those that differ inside of
/// libraries alone are one call site for a reader; the flame graph has all frames.
function mergeSites(run, indices) {
  const first = new Map();
  const merged = run.sites.map(({ type }, site) => {
    const own = indices[site].filter((index) => run.frames[index].app);
    const key = JSON.stringify([type, own.length ? own : indices[site]]);
    if (!first.has(key)) first.set(key, site);
    return first.get(key);
  });
  run.callSite = run.site.map((site) => merged[site] ?? 0);
}

/// Equal names are one group, although a recording may have them twice.
function mergeNames(run) {
  const first = new Map();
  const merged = run.names.map((name, index) => {
    if (!first.has(name)) first.set(name, index);
    return first.get(name);
  });
  if (first.size === run.names.length) return;
  for (const column of [run.label, run.thread]) {
    for (let i = 0; i < run.count; i += 1) column[i] = merged[column[i]] ?? column[i];
  }
}

/// `event[position]` is twice the allocation, plus one where it ends there.
function linkEvents(run) {
  run.event = new Uint32Array(run.events);
  for (let i = 0; i < run.count; i += 1) {
    run.event[run.start[i]] = 2 * i;
    // The column has how many events an allocation lives, and 0 for ever.
    run.stop[i] = run.stop[i] ? run.start[i] + run.stop[i] : NEVER;
    if (run.stop[i] !== NEVER) run.event[run.stop[i]] = 2 * i + 1;
  }
}
