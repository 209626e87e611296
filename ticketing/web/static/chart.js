// The line of sales over time, drawn as SVG, and the same numbers as a table.

import { count, money, seatCount } from "/static/format.js";
import { element, make, write } from "/static/figures.js";

const MINUTE = 60_000;
const SPAN_MINUTES_MIN = 15;
const POINTS_MAX = 120;
const STEPS_MINUTES = [1, 5, 15, 60, 240, 1440];
const STEP_NAMES = new Map([
  [1, "minute"], [5, "5 minutes"], [15, "15 minutes"], [60, "hour"], [240, "4 hours"], [1440, "day"],
]);
const LABEL_STEPS_MINUTES = [
  1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 20160, 43200, 129600, 525600,
];
const MARGIN = { top: 14, right: 12, bottom: 26, left: 40 };
const SVG = "http://www.w3.org/2000/svg";

/**
 * Sales at even steps up to `now`, nothing left out: a step without sales is a zero. The step grows
 * with the span, and lies on whole hours and days of the event's own clock.
 */
export function evenSteps(salesByMinute, now, clock) {
  if (salesByMinute.length === 0) return { step: 1, points: [] };
  const first = Date.parse(salesByMinute[0].minute);
  const last = Date.parse(salesByMinute.at(-1).minute);
  const end = Math.max(last, now);
  const start = Math.min(first, end - SPAN_MINUTES_MIN * MINUTE);
  const step = STEPS_MINUTES.find((each) => (end - start) / (each * MINUTE) < POINTS_MAX)
    ?? STEPS_MINUTES.at(-1);
  const offset = clock.offset(end);
  const floor = (instant) => Math.floor((instant + offset) / (step * MINUTE)) * step * MINUTE - offset;
  const points = [];
  for (let at = floor(start); at <= end; at += step * MINUTE) {
    points.push({ at, orders: 0, seats: 0, amount: 0 });
  }
  for (const sale of salesByMinute) {
    const point = points[(floor(Date.parse(sale.minute)) - points[0].at) / (step * MINUTE)];
    point.orders += sale.orders;
    point.seats += sale.seats;
    point.amount += sale.amount;
  }
  return { step, points };
}

export class SalesChart {
  #holder = element("sales-chart");
  #points = [];
  #step = 1;
  #clock = null;
  #currency = "";

  constructor() {
    new ResizeObserver(() => this.#draw()).observe(this.#holder);
  }

  show(salesByMinute, now, currency, clock) {
    ({ points: this.#points, step: this.#step } = evenSteps(salesByMinute, now, clock));
    this.#clock = clock;
    this.#currency = currency;
    write(element("sales-caption"), this.#caption(salesByMinute.length));
    this.#draw();
    this.#fillTable();
  }

  #caption(minutes) {
    if (this.#points.length === 0) return "No sale yet.";
    const best = this.#points.reduce((most, point) => (point.seats > most.seats ? point : most));
    const cut = minutes >= POINTS_MAX ? ` Goes back ${POINTS_MAX} minutes with sales.` : "";
    const step = STEP_NAMES.get(this.#step);
    return `Seats sold per ${step}. Most: ${count(best.seats)} at ${this.#label(best.at)}.${cut}`;
  }

  #label(instant) {
    if (this.#step === 1440) return this.#clock.day(instant);
    const days = new Set([this.#points[0], this.#points.at(-1)].map((point) => this.#clock.day(point.at)));
    return days.size > 1 ? this.#clock.dayAndMinute(instant) : this.#clock.minute(instant);
  }

  #fillTable() {
    const rows = this.#points.filter((point) => point.orders > 0).reverse().map((point) => {
      const row = make("tr");
      row.append(
        make("th", { scope: "row" }, this.#label(point.at)),
        make("td", {}, count(point.seats)),
        make("td", {}, count(point.orders)),
        make("td", {}, money(point.amount, this.#currency)));
      return row;
    });
    element("sales-rows").replaceChildren(...rows);
    element("sales-details").hidden = rows.length === 0;
  }

  #draw() {
    const width = this.#holder.clientWidth;
    const height = this.#holder.clientHeight;
    if (width === 0 || this.#points.length === 0) {
      this.#holder.replaceChildren();
      return;
    }
    const ticks = wholeTicks(Math.max(...this.#points.map((point) => point.seats)));
    const x = (index) => MARGIN.left
      + (index / (this.#points.length - 1)) * (width - MARGIN.left - MARGIN.right);
    const y = (seats) => height - MARGIN.bottom
      - (seats / ticks.at(-1)) * (height - MARGIN.top - MARGIN.bottom);

    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    for (const tick of ticks) {
      svg.append(
        draw("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) }),
        label(count(tick), { x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end" }));
    }
    this.#labelTimes(svg, x, width, height);
    const line = this.#points
      .map((point, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(point.seats).toFixed(1)}`)
      .join("");
    const base = y(0);
    const last = this.#points.length - 1;
    svg.append(
      draw("path", { class: "area", d: `${line}L${x(last)} ${base}L${x(0)} ${base}Z` }),
      draw("path", { class: "line", d: line }),
      draw("circle", { class: "now", cx: x(last), cy: y(this.#points[last].seats), r: 4 }));
    this.#pointAt(svg, x, y, width);
    this.#holder.replaceChildren(svg);
  }

  #labelTimes(svg, x, width, height) {
    const room = this.#label(this.#points[0].at).length * 7 + 24;
    const pixelsPerMinute = (x(1) - x(0)) / this.#step;
    const distance = LABEL_STEPS_MINUTES.find(
      (each) => each >= this.#step && each * pixelsPerMinute >= room) ?? LABEL_STEPS_MINUTES.at(-1);
    const offset = this.#clock.offset(this.#points.at(-1).at);
    this.#points.forEach((point, index) => {
      if ((point.at + offset) % (distance * MINUTE) !== 0) return;
      const middle = Math.min(Math.max(x(index), room / 2 - 8), width - room / 2 + 8);
      svg.append(label(this.#label(point.at), { x: middle, y: height - 6, "text-anchor": "middle" }));
    });
  }

  /** What the pointer is over, in words. The table below says the same to everybody else. */
  #pointAt(svg, x, y, width) {
    const mark = draw("g", { class: "mark", visibility: "hidden" });
    const stem = draw("line", { y1: y(0), y2: MARGIN.top });
    const dot = draw("circle", { r: 4 });
    const text = label("", { y: MARGIN.top - 3 });
    mark.append(stem, dot, text);
    svg.append(mark);
    svg.addEventListener("pointermove", (move) => {
      const share = (move.offsetX - x(0)) / (x(this.#points.length - 1) - x(0));
      const index = Math.round(Math.min(1, Math.max(0, share)) * (this.#points.length - 1));
      const point = this.#points[index];
      stem.setAttribute("x1", x(index));
      stem.setAttribute("x2", x(index));
      dot.setAttribute("cx", x(index));
      dot.setAttribute("cy", y(point.seats));
      text.setAttribute("x", x(index));
      text.setAttribute("text-anchor", x(index) < width / 3 ? "start" : x(index) > width / 1.5 ? "end" : "middle");
      text.textContent = `${this.#label(point.at)} · ${seatCount(point.seats)} · ${money(point.amount, this.#currency)}`;
      mark.setAttribute("visibility", "visible");
    });
    svg.addEventListener("pointerleave", () => mark.setAttribute("visibility", "hidden"));
  }
}

/** Three to five whole numbers from zero to at least `most`, at round distances. */
function wholeTicks(most) {
  const rough = Math.max(1, most / 4);
  const power = 10 ** Math.floor(Math.log10(rough));
  const distance = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const ticks = [0];
  while (ticks.at(-1) < Math.max(1, most)) ticks.push(ticks.at(-1) + distance);
  return ticks;
}

function draw(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function label(text, attributes) {
  const node = draw("text", attributes);
  node.textContent = text;
  return node;
}
