// Several runs side by side: the ranks of a distributed job. The one that differs most comes first.

function median(values) {
  // The lower of two in the middle, as in the text report: the value of a run that exists.
  return [...values].sort((a, b) => a - b)[(values.length - 1) >> 1];
}

/// The runs whose memory can be compared: the peak of a leak report is not known. Leak reports alone are compared by the memory that they list.
function comparable(runs) {
  const recordings = runs.filter((run) => !run.is_report);
  return recordings.length ? recordings : runs;
}

/// Runs with how far their peak is from the median, the farthest first; last those that cannot be compared, without a difference.
function byDifference(runs) {
  const compared = comparable(runs);
  const typical = median(compared.map((run) => run.peak));
  return runs.map((run, number) => ({ run, number, difference: compared.includes(run) ? run.peak - typical : null }))
    .sort((a, b) => (a.difference === null) - (b.difference === null) || Math.abs(b.difference) - Math.abs(a.difference) || a.number - b.number);
}

function differenceText(difference, typical) {
  if (difference === null) return "not known";
  if (difference === 0) return "as the median";
  const sign = difference > 0 ? "+" : "−";
  const size = formatBytes(Math.abs(Math.round(difference)));
  return typical ? `${sign}${size} (${sign}${formatPercent(Math.abs(difference), typical)})` : `${sign}${size}`;
}

function renderRanks(app) {
  const { runs } = app.common;
  const section = byId("ranks");
  section.hidden = runs.length < 2;
  if (section.hidden) return;
  const ordered = byDifference(runs);
  const compared = comparable(runs);
  const typical = median(compared.map((run) => run.peak));
  const most = Math.max(...runs.map((run) => run.peak), 1);
  const [first] = ordered;
  const isPeak = !runs.every((run) => run.is_report);
  const unknown = compared.length < runs.length ? "The peak of a leak report is not known. " : "";
  const sentence = compared.length < 2 ? "There is no other peak to compare with."
    : first.difference === 0
    ? `${isPeak ? "The peaks" : "The live memory"} of all ${compared.length} ${unknown ? "recordings" : "runs"} ${isPeak ? "are" : "is"} equal.`
    : `${runName(first.run, first.number)} differs most: its ${isPeak ? "peak" : "live memory"} is ${formatBytes(Math.abs(Math.round(first.difference)))} ${first.difference > 0 ? "above" : "below"} the median of ${formatBytes(Math.round(typical))}.`;
  section.replaceChildren(
    el("div", { class: "card-head" }, el("h2", {}, `${runs.length} runs side by side`)),
    el("p", { class: "words", id: "rank-words" }, unknown + sentence),
    el("div", { class: "scroll" }, el("table", { class: "plain ranks", id: "rank-table" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Run"), el("th", { scope: "col" }, "Device memory over time"),
        ...[isPeak ? "Peak" : "Live", "Against the median", "Not freed", "Allocations", "Out of memory"].map((title) => el("th", { scope: "col", class: "number" }, title)))),
      el("tbody", {}, ...ordered.map(({ run, number, difference }) => el("tr", {
        class: number === app.number ? "row chosen" : "row", data: { run: String(number), peak: String(run.peak) }, onclick: () => app.openRun(number),
      },
        el("td", {}, el("button", { type: "button", class: "expand" }, el("span", { class: "where" }, el("span", { class: "name" }, runName(run, number)), el("span", { class: "place" }, `pid ${run.pid}`)))),
        // One scale for all, so that heights can be compared.
        el("td", {}, sparkline(run.curve, 180, 28, most)),
        el("td", { class: "number strong" }, run.is_report && isPeak ? "not known" : formatBytes(run.peak)),
        el("td", { class: "number" }, differenceText(difference, typical)),
        el("td", { class: "number" }, run.alive ? `${formatBytes(run.alive_bytes)} (${formatCount(run.alive)})` : "–"),
        el("td", { class: "number" }, run.is_report ? "not known" : formatCount(run.allocations)),
        el("td", { class: "number" }, run.is_report ? "not known" : run.out_of_memory ? formatCount(run.out_of_memory) : "–")))))));
}
