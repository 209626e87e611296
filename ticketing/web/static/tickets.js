// A fan's tickets: what they are for, and the files to print and to put into a calendar.

import { Clock } from "/static/format.js";
import { Refused, fetchJson } from "/static/live.js";
import * as token from "/static/token.js";

const PAGE_SIZE = 50;
// Printing may wait for its turn at the service.
const FILE_SECONDS_MAX = 40;
// How long a saved file stays in this tab's memory: until the browser has surely taken it.
const KEPT_SECONDS = 60;
const REFUSALS = {
  token: "That token is not valid, or it has expired. Paste a fresh one.",
  forbidden: "Your token is valid, but it is not a fan’s. Sign in with the token you buy with.",
};

const element = (id) => document.getElementById(id);
let cursor = null;
let lastOrder = null;

/** Short news, read out politely. Kind is "", "warn" or "bad". */
function tell(text, kind = "") {
  element("news").className = `message ${kind}`;
  element("news").textContent = text;
}

function make(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

/** A text in any script: it takes the direction of its own first letter. */
function named(tag, className, text) {
  const made = make(tag, className, text);
  made.dir = "auto";
  return made;
}

/** A button that saves a file. What is only heard tells which of many it is. */
function fileButton(label, whose, path, quiet) {
  const button = make("button", quiet ? "button quiet" : "button", label);
  button.type = "button";
  button.append(named("span", "visually-hidden", ` for ${whose}`));
  button.addEventListener("click", () => save(button, path));
  return button;
}

function placeOf({ section, row, number }) {
  return number === null ? section : `${section} · row ${row} · seat ${number}`;
}

/** The card of an order, of which more tickets may follow on the next page. */
function cardOf({ orderId, event }) {
  const card = document.createElement("li");
  card.className = "card order";
  const path = `/v1/orders/${encodeURIComponent(orderId)}`;
  const seats = make("ul", "seats", "");
  seats.setAttribute("aria-label", `Tickets for ${event.name}`);
  const files = make("div", "files", "");
  files.append(
    fileButton("Save tickets (PDF)", event.name, `${path}/tickets.pdf`, false),
    fileButton("Save calendar entry", event.name, `${path}/calendar.ics`, true),
  );
  const facts = make("p", "soft", "");
  facts.append(
    named("span", "name", event.venueName),
    ` · ${new Clock(event.timezone).dateAndTime(event.startsAt)}`,
  );
  card.append(named("h2", "name", event.name), facts, seats, files);
  element("orders").append(card);
  return { orderId, path, seats };
}

function show(ticket) {
  if (lastOrder?.orderId !== ticket.orderId) lastOrder = cardOf(ticket);
  const place = placeOf(ticket);
  const line = document.createElement("li");
  line.append(
    named("span", "name", place),
    fileButton(
      "PDF",
      place,
      `${lastOrder.path}/tickets.pdf?ticketId=${encodeURIComponent(ticket.ticketId)}`,
      true,
    ),
  );
  lastOrder.seats.append(line);
}

async function read() {
  const bearer = token.current();
  element("more").setAttribute("aria-disabled", "true");
  try {
    const query = new URLSearchParams({ limit: PAGE_SIZE, ...(cursor && { cursor }) });
    const page = await fetchJson(`/v1/me/tickets?${query}`, bearer);
    // Somebody else has signed in meanwhile: this is not theirs to see.
    if (bearer !== token.current()) return;
    page.items.forEach(show);
    cursor = page.nextCursor;
    element("more").hidden = cursor === null;
    tell(lastOrder ? "" : "You have no tickets. An order shows here once it is paid.");
  } catch (error) {
    if (bearer !== token.current()) return;
    if (error instanceof Refused && error.kind in REFUSALS) {
      refuse(REFUSALS[error.kind]);
      return;
    }
    tell("Your tickets cannot be read at the moment. Try again.", "warn");
    element("more").hidden = false;
  } finally {
    element("more").removeAttribute("aria-disabled");
  }
}

/** The name that the service gave the file, in any script. */
function nameIn(disposition) {
  const [, encoded] = /filename\*=UTF-8''([^;]+)/.exec(disposition ?? "") ?? [];
  return encoded ? decodeURIComponent(encoded) : "";
}

/** Fetches a file with the token, which no plain link could send along, and lets the browser save it. */
async function save(button, path) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  tell("Preparing your file…");
  try {
    const response = await fetch(path, {
      headers: { Authorization: `Bearer ${token.current()}` },
      cache: "no-store",
      signal: AbortSignal.timeout(FILE_SECONDS_MAX * 1000),
    });
    if (response.status === 401) {
      refuse(REFUSALS.token);
      return;
    }
    if (response.status === 404 || response.status === 409) {
      tell("This ticket is not valid any more. Load the page again to see what is.", "bad");
      return;
    }
    if (!response.ok) throw new Error(`The service answered ${response.status}`);
    const name = nameIn(response.headers.get("Content-Disposition"));
    const address = URL.createObjectURL(await response.blob());
    const link = document.createElement("a");
    link.href = address;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), KEPT_SECONDS * 1000);
    tell(`Saved: ${name}`);
  } catch {
    tell("The file could not be made just now. Your ticket is valid all the same. Try again.", "warn");
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

function refuse(text) {
  token.forget();
  begin();
  askForToken(text);
}

function askForToken(error) {
  element("token").setAttribute("aria-invalid", String(Boolean(error)));
  element("token-error").textContent = error;
  element("token").focus();
}

function begin() {
  const bearer = token.current();
  element("forget-token").hidden = !bearer;
  element("token-form").hidden = Boolean(bearer);
  element("orders").replaceChildren();
  element("more").hidden = true;
  cursor = null;
  lastOrder = null;
  tell("");
  if (bearer) read();
}

element("token-form").addEventListener("submit", (submit) => {
  submit.preventDefault();
  const field = element("token");
  if (!token.save(field.value)) {
    askForToken("That is not a token: it has three parts with dots between them.");
    return;
  }
  field.value = "";
  field.removeAttribute("aria-invalid");
  element("token-error").textContent = "";
  begin();
  element("title").focus();
});

element("more").addEventListener("click", () => {
  if (element("more").getAttribute("aria-disabled") !== "true") read();
});

element("forget-token").addEventListener("click", () => {
  // A fresh page: nothing of what the last person saw stays behind in it.
  token.forget();
  location.reload();
});

window.addEventListener("hashchange", () => {
  if (token.takeFromAddress()) begin();
  else comeAsGuest();
});

/** A guest comes by the link of a mail, which is changed for a token. */
async function comeAsGuest() {
  const link = new URLSearchParams(location.hash.slice(1)).get("link");
  if (link === null) return;
  history.replaceState(null, "", location.pathname + location.search);
  tell("One moment…");
  try {
    const response = await fetch("/v1/guests/sessions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ link }),
      cache: "no-store",
      signal: AbortSignal.timeout(FILE_SECONDS_MAX * 1000),
    });
    if (response.ok) token.save((await response.json()).accessToken);
    else if (response.status === 410) askForToken("This link is not valid any more.");
    else throw new Error(`The service answered ${response.status}`);
  } catch {
    tell("The service could not be reached. Follow the link once more.", "warn");
    return;
  }
  begin();
}

const garbled = location.hash.startsWith("#token=") && !token.takeFromAddress();
begin();
if (garbled && !token.current()) askForToken("The token in the address is damaged. Paste it here.");
comeAsGuest();
