// The sandbox provider's page: pay or decline, and what became of it.

import { Clock, count, money } from "/static/format.js";

const REQUEST_SECONDS_MAX = 15;
const POLL_SECONDS = 1;
const RETRY_SECONDS = 3;
const WARNING_SECONDS = 60;

const paymentId = decodeURIComponent(location.pathname.split("/").at(-1));
const path = `/v1/sandbox/payments/${encodeURIComponent(paymentId)}`;
const element = (id) => document.getElementById(id);

let payment = null;
// The service's clock less this page's: `performance.now()` does not jump when somebody sets theirs.
let serverAhead = 0;
let busy = false;
let pollTimer = 0;
let warned = false;
let outage = false;
let shown = "";

function write(id, text) {
  if (element(id).textContent !== text) element(id).textContent = text;
}

/** Short news, read out politely. Kind is "", "warn" or "bad". */
function tell(text, kind = "") {
  element("news").className = `message ${kind}`;
  write("news", text);
}

async function request(method, suffix = "") {
  const response = await fetch(path + suffix, {
    method,
    headers: { Accept: "application/json" },
    cache: "no-store",
    signal: AbortSignal.timeout(REQUEST_SECONDS_MAX * 1000),
  });
  const body = await response.json().catch(() => ({}));
  return { ok: response.ok, status: response.status, body };
}

function secondsLeft() {
  const now = performance.now() + serverAhead;
  return Math.max(0, Math.ceil((Date.parse(payment.expiresAt) - now) / 1000));
}

/** What the person sees, from the two states that never blur: the order's and the money's. */
function situation() {
  const { orderStatus, paymentStatus } = payment;
  if (orderStatus === "confirmed") return "confirmed";
  if (orderStatus === "cancelled") return "cancelled";
  if (orderStatus === "expired") {
    return { succeeded: "paidTooLate", uncertain: "unclearTooLate" }[paymentStatus] ?? "expired";
  }
  if (paymentStatus === "succeeded") return "confirming";
  if (paymentStatus === "uncertain") return "unclear";
  if (secondsLeft() === 0) return "expired";
  return paymentStatus === "failed" ? "declined" : "open";
}

const SITUATIONS = {
  open: ["Pay for your seats", ""],
  declined: ["Pay for your seats", ""],
  unclear: ["Checking your payment", "It is not known yet whether your payment went through. Please do not pay again."],
  confirming: ["Payment received", "Your order is being confirmed. This takes a moment."],
  confirmed: ["Your tickets are booked", "Thank you. You may close this page."],
  expired: ["Your time ran out", "The seats are no longer kept for you and nothing was charged. Choose seats again to buy."],
  paidTooLate: ["Paid after the time ran out", "The seats were gone by then. What you paid is sent back to you."],
  unclearTooLate: ["Your time ran out", "The seats are no longer kept for you. If your payment went through, it is sent back to you."],
  cancelled: ["This order was cancelled", "Its tickets are void. What was paid is sent back."],
};

function show() {
  const now = situation();
  const payable = now === "open" || now === "declined";
  const [title, explanation] = SITUATIONS[now];
  write("title", title);
  write("explanation", explanation);
  document.title = `${title} · ${payment.eventName}`;
  element("reference-line").hidden = now !== "confirmed";
  write("reference", payment.reference);
  element("choice").hidden = !payable;
  // Not `disabled`: a button that is would lose the keyboard's focus.
  for (const button of [element("pay"), element("decline")]) {
    button.setAttribute("aria-disabled", String(busy));
  }
  showOrder();
  if (payable) showTimeLeft();
  else if (!outage) tell("");
  if (now === "declined" && !busy) {
    tell("The payment was declined and nothing was charged. You may try again.", "warn");
  }
  // The button that had the focus is gone: the heading says what came of it.
  if (shown && shown !== now && !payable) element("title").focus();
  shown = now;
  clearTimeout(pollTimer);
  if (now === "confirming" || now === "unclear" || (now === "expired" && payment.orderStatus === "pendingPayment")) {
    pollTimer = setTimeout(read, POLL_SECONDS * 1000);
  }
}

function showOrder() {
  const clock = new Clock(payment.timezone);
  write("event-name", payment.eventName);
  write("event-facts", `${payment.venueName} · ${clock.dateAndTime(payment.startsAt)}`);
  write("total", money(payment.total.amount, payment.total.currency));
  write("pay", `Pay ${money(payment.total.amount, payment.total.currency)}`);
  write("until", `(until ${clock.time(payment.expiresAt)})`);
  if (element("order").hidden) element("seats").append(...seatLines());
  element("order").hidden = false;
}

/** A line for each numbered seat; seats without a number are told by their count. */
function seatLines() {
  const lines = new Map();
  for (const { section, row, number, price } of payment.seats) {
    const name = number === null ? section : `${section} · row ${row} · seat ${number}`;
    const key = JSON.stringify([section, row, number]);
    const line = lines.get(key) ?? { name, seats: 0, amount: 0, currency: price.currency };
    line.seats += 1;
    line.amount += price.amount;
    lines.set(key, line);
  }
  return [...lines.values()].map(({ name, seats, amount, currency }) => {
    const item = document.createElement("li");
    const label = document.createElement("span");
    label.dir = "auto";
    label.textContent = seats > 1 ? `${name} × ${count(seats)}` : name;
    const price = document.createElement("span");
    price.textContent = money(amount, currency);
    item.append(label, price);
    return item;
  });
}

function showTimeLeft() {
  const seconds = secondsLeft();
  write("time-left", `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`);
  element("time-left").parentElement.classList.toggle("short", seconds <= WARNING_SECONDS);
  if (seconds <= WARNING_SECONDS && !warned && !busy) {
    warned = true;
    tell("Less than a minute is left to pay.", "warn");
  }
}

/** Reads the payment and shows it; true when that could be done. */
async function read() {
  clearTimeout(pollTimer);
  try {
    const { ok, status, body } = await request("GET");
    if (status === 404 || status === 422) {
      payment = null;
      write("title", "No such payment");
      write("explanation", "There is no payment at this address. Open the link from your order again.");
      tell("");
      return true;
    }
    if (!ok) throw new Error(`The service answered ${status}`);
    payment = body;
    serverAhead = Date.parse(body.now) - performance.now();
    if (outage) tell("");
    outage = false;
    show();
    return true;
  } catch {
    outage = true;
    tell("The service cannot be reached at the moment. Trying again…", "warn");
    pollTimer = setTimeout(read, RETRY_SECONDS * 1000);
    return false;
  }
}

async function act(suffix) {
  if (busy) return;
  busy = true;
  tell(suffix === "/pay" ? "Paying…" : "Declining…");
  show();
  let lost = false;
  let refusal = "";
  try {
    const { ok, body } = await request("POST", suffix);
    if (ok) payment = { ...payment, ...body };
    else refusal = body.detail ?? "The service could not take it just now.";
    tell("");
  } catch {
    // The answer was lost, not the payment: only the service knows what became of it.
    lost = true;
    tell("The answer was lost. Asking what became of your payment…", "warn");
  }
  busy = false;
  const known = await read();
  if (!known || !payment || !(shown === "open" || shown === "declined")) return;
  if (lost) tell("No payment has arrived so far. You may try again.", "warn");
  if (refusal) tell(`${refusal} You may try again.`, "warn");
}

element("pay").addEventListener("click", () => act("/pay"));
element("decline").addEventListener("click", () => act("/decline"));

setInterval(() => {
  if (!payment || busy || !(shown === "open" || shown === "declined")) return;
  if (situation() === "expired") read();
  else showTimeLeft();
}, 500);

read();
