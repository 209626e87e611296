// Puts the dashboard's document on the page. Text goes in as text only: names may contain markup.

import { count, money, seatCount, share } from "/static/format.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");

export function element(id) {
  return document.getElementById(id);
}

/** Writes the text if it differs; a number that moves lights up for a moment. */
export function write(node, text, { lightUp = false } = {}) {
  if (node.textContent === text) return;
  const moved = lightUp && node.dataset.written === "true";
  node.textContent = text;
  node.dataset.written = "true";
  if (moved && !calm.matches) {
    node.animate(
      [{ backgroundColor: "var(--accent-wash)" }, { backgroundColor: "transparent" }],
      { duration: 1200, easing: "ease-out" });
  }
}

function writeCount(id, number) {
  write(element(id), count(number), { lightUp: true });
}

function drawBar(bar, seats) {
  const drawn = [seats.sold, seats.held, seats.blocked, seats.total].join();
  if (bar.dataset.drawn === drawn) return;
  bar.dataset.drawn = drawn;
  const width = (number) => `${seats.total ? (100 * number) / seats.total : 0}%`;
  bar.children[0].style.width = width(seats.sold);
  bar.children[1].style.width = width(seats.held);
  bar.children[2].style.width = width(seats.blocked);
  bar.setAttribute("aria-valuemax", seats.total);
  bar.setAttribute("aria-valuenow", seats.sold);
  bar.setAttribute(
    "aria-valuetext",
    `${count(seats.sold)} of ${count(seats.total)} seats sold, ${share(seats.sold, seats.total)}`);
}

export function showDocument(current) {
  const { seats, orders, holds, revenue, refunds } = current;
  writeCount("seats-sold", seats.sold);
  writeCount("seats-total", seats.total);
  writeCount("legend-sold", seats.sold);
  write(element("seats-share"), share(seats.sold, seats.total));
  writeCount("seats-held", seats.held);
  writeCount("seats-available", seats.available);
  writeCount("seats-blocked", seats.blocked);
  element("blocked-item").hidden = seats.blocked === 0;
  drawBar(element("seats-bar"), seats);
  write(element("revenue"), money(revenue.amount, revenue.currency), { lightUp: true });
  write(element("refunds"), money(refunds.amount, refunds.currency), { lightUp: true });
  for (const status of ["confirmed", "pendingPayment", "expired", "cancelled"]) {
    writeCount(`orders-${status}`, orders[status]);
  }
  for (const outcome of ["created", "released", "expired"]) {
    writeCount(`holds-${outcome}`, holds[outcome]);
  }
  showSections(current.sections, seats.blocked > 0);
}

function showSections(sections, someBlocked) {
  const body = element("sections-rows");
  while (body.children.length > sections.length) body.lastElementChild.remove();
  while (body.children.length < sections.length) body.append(newSectionRow());
  sections.forEach((section, index) => {
    const row = body.children[index];
    const [name, progress, sold, held, free, blocked, revenue] = row.children;
    write(name, section.name);
    const [bar, percent] = progress.children;
    bar.setAttribute("aria-label", section.name);
    drawBar(bar, section);
    write(percent, share(section.sold, section.total));
    write(sold, count(section.sold), { lightUp: true });
    write(held, count(section.held), { lightUp: true });
    write(free, count(section.available), { lightUp: true });
    write(blocked, count(section.blocked), { lightUp: true });
    write(revenue, money(section.revenue.amount, section.revenue.currency), { lightUp: true });
  });
  for (const cell of document.querySelectorAll(".blocked-column")) cell.hidden = !someBlocked;
}

// The roles repeat what the elements mean by themselves, because a phone lays the rows out as cards
// and browsers drop a table's meaning with its layout.
function newSectionRow() {
  const row = make("tr", { role: "row" });
  const name = make("th", { role: "rowheader", scope: "row", dir: "auto", class: "name" });
  const progress = make("td", { role: "cell", class: "wide" });
  const bar = make("div", { class: "bar", role: "progressbar", "aria-valuemin": 0 });
  for (const state of ["sold", "held", "blocked"]) bar.append(make("span", { class: `part ${state}` }));
  progress.append(bar, make("span", { class: "percent", "aria-hidden": "true" }));
  row.append(name, progress);
  for (const [label, extra] of [
    ["Sold", ""], ["Held", ""], ["Free", ""], ["Blocked", " blocked-column"], ["Revenue", ""],
  ]) {
    row.append(make("td", { role: "cell", class: `number${extra}`, "data-label": label }));
  }
  return row;
}

export function make(tag, attributes = {}, text = "") {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
}

/** The newest orders, newest first. Only new ones are added, so that a reader's place is kept. */
export function showRecentSales(sales, currency, clock) {
  const list = element("recent-list");
  const first = list.children.length === 0;
  const wanted = new Set(sales.map((sale) => sale.reference));
  for (const item of [...list.children]) {
    if (!wanted.has(item.dataset.reference)) item.remove();
  }
  const known = new Map([...list.children].map((item) => [item.dataset.reference, item]));
  sales.forEach((sale, index) => {
    const item = known.get(sale.reference) ?? newSale(sale, currency, clock, !first);
    if (list.children[index] !== item) list.insertBefore(item, list.children[index] ?? null);
  });
  element("recent-none").hidden = sales.length > 0;
}

function newSale(sale, currency, clock, isNew) {
  const item = make("li", { "data-reference": sale.reference });
  item.append(
    make("span", { class: "reference" }, sale.reference),
    make("span", { class: "sale-seats soft" }, seatCount(sale.seats)),
    make("span", { class: "sale-amount" }, money(sale.amount, currency)),
    make("time", { class: "soft", datetime: sale.at }, clock.time(sale.at)));
  if (isNew && !calm.matches) {
    item.animate(
      [{ opacity: 0, transform: "translateY(-8px)" }, { opacity: 1, transform: "none" }],
      { duration: 350, easing: "ease-out" });
  }
  return item;
}
