// The organiser's page of one event: who may look, what is shown, and whether it is still true.

import { SalesChart } from "/static/chart.js";
import { element, showDocument, showRecentSales, write } from "/static/figures.js";
import { Clock, count } from "/static/format.js";
import { LiveDashboard, Refused, fetchJson, serverNow } from "/static/live.js";
import * as token from "/static/token.js";

const SALES_SECONDS_MIN = 1;
const SALES_RETRY_SECONDS = 3;
const EVENT_REFRESH_SECONDS = 60;
const EVENT_RETRY_SECONDS = 3;
const CHART_REFRESH_SECONDS = 15;

const REFUSALS = {
  forbidden: [
    "This dashboard is for organisers",
    "Your token is valid, but it is not an organiser’s. Sign in with the token of the event’s organiser.",
  ],
  "not-found": [
    "No such event of yours",
    "There is no event at this address that your token may watch. Check the address, or sign in with another token.",
  ],
};
const STATUS_NAMES = {
  creating: "Being set up", draft: "Draft", cancelled: "Cancelled", ended: "Ended",
};

const eventId = decodeURIComponent(location.pathname.split("/").at(-1));
const chart = new SalesChart();

/** One visit with one token, from signing in to signing out. */
class Watch {
  #token;
  #live;
  #event = null;
  #clock = new Clock("UTC");
  #current = null;
  #sales = { recentSales: [], salesByMinute: [] };
  #salesVersion = -1;
  #salesTimer = 0;
  #salesFetching = false;
  #frame = 0;
  #timers = [];

  constructor(bearer) {
    this.#token = bearer;
    this.#live = new LiveDashboard(eventId, bearer, {
      onDocument: (current) => this.#take(current),
      onState: (state) => this.#becomes(state),
      onRefused: (kind) => refuse(kind),
    });
  }

  start() {
    say("connecting", "Connecting…");
    this.#live.start();
    this.#readEvent();
    this.#timers = [
      setInterval(() => this.#readEvent(), EVENT_REFRESH_SECONDS * 1000),
      setInterval(() => this.#drawSales(), CHART_REFRESH_SECONDS * 1000),
    ];
  }

  stop() {
    this.#live.stop();
    // Ends intervals as well.
    this.#timers.forEach(clearTimeout);
    clearTimeout(this.#salesTimer);
    cancelAnimationFrame(this.#frame);
    this.#token = null;
  }

  async #readEvent() {
    let event;
    try {
      event = await fetchJson(`/v1/events/${encodeURIComponent(eventId)}`, this.#token);
    } catch (error) {
      // The live connection finds the same fault and shows it.
      const again = !(error instanceof Refused) && this.#token && !this.#event;
      if (again) this.#timers.push(setTimeout(() => this.#readEvent(), EVENT_RETRY_SECONDS * 1000));
      return;
    }
    if (!this.#token) return;
    if (event.timezone !== this.#event?.timezone) {
      this.#clock = new Clock(event.timezone);
      // Written by another clock, if the sales came before the event.
      element("recent-list").replaceChildren();
    }
    this.#event = event;
    this.#showEvent();
    this.#showNow();
    this.#drawSales();
  }

  #showEvent() {
    const { name, venueName, startsAt } = this.#event;
    write(element("event-name"), name);
    write(element("event-facts"), `${venueName} · ${this.#clock.dateAndTime(startsAt)}`);
    write(element("event-status"), this.#saleState());
    element("event-status").hidden = false;
    write(element("footer"), `Times are ${this.#clock.timeZone} time, the event’s own.`);
  }

  #saleState() {
    const { status, saleStartsAt, saleEndsAt } = this.#event;
    if (status !== "published") return STATUS_NAMES[status] ?? status;
    const now = serverNow();
    if (now < Date.parse(saleStartsAt)) return `Sale opens ${this.#clock.dayAndMinute(saleStartsAt)}`;
    return now < Date.parse(saleEndsAt) ? "On sale" : "Sale closed";
  }

  #take(current) {
    this.#current = current;
    cancelAnimationFrame(this.#frame);
    // A hidden tab gets no frames; it is brought up to date by the newest when it is looked at.
    this.#frame = requestAnimationFrame(() => this.#showNow());
    this.#wantSales();
  }

  #showNow() {
    if (!this.#current) return;
    element("figures").hidden = false;
    showDocument(this.#current);
    const { seats, updatedAt } = this.#current;
    write(element("updated"), `Figures of ${this.#clock.time(updatedAt)}`);
    const name = this.#event?.name ?? "Live dashboard";
    document.title = `${count(seats.sold)}/${count(seats.total)} sold · ${name}`;
  }

  #becomes(state) {
    if (state === "live") {
      say("live", "Live: the figures move by themselves.");
    } else if (this.#current) {
      say("lost", `Connection lost. The figures are those of ${this.#clock.time(this.#current.updatedAt)}. Trying to reconnect…`);
    } else {
      say("lost", "The service cannot be reached. Trying again…");
    }
  }

  /** Asks for the sales of the newest version: at once if it can be, else when a second is over. */
  #wantSales(afterSeconds = 0) {
    if (this.#salesTimer || this.#salesFetching || this.#salesVersion === this.#current.version) return;
    this.#salesTimer = setTimeout(() => this.#readSales(), afterSeconds * 1000);
  }

  async #readSales() {
    this.#salesTimer = 0;
    this.#salesFetching = true;
    let again = SALES_SECONDS_MIN;
    try {
      const path = `/v1/events/${encodeURIComponent(eventId)}/dashboard/sales`;
      const sales = await fetchJson(path, this.#token);
      if (!this.#token) return;
      this.#sales = sales;
      this.#salesVersion = sales.version;
      this.#drawSales();
    } catch (error) {
      if (error instanceof Refused) return;
      again = SALES_RETRY_SECONDS;
    } finally {
      this.#salesFetching = false;
    }
    if (!this.#token) return;
    this.#salesTimer = setTimeout(() => {
      this.#salesTimer = 0;
      this.#wantSales();
    }, again * 1000);
  }

  #drawSales() {
    // Before the first answer nobody knows whether there are sales.
    if (!this.#current || this.#salesVersion < 0) return;
    write(element("recent-none"), "Nobody has bought yet.");
    const { currency } = this.#current.revenue;
    showRecentSales(this.#sales.recentSales, currency, this.#clock);
    chart.show(this.#sales.salesByMinute, serverNow(), currency, this.#clock);
  }
}

let watch = null;

/** The state of the connection: read out once when it changes, never with the figures. */
function say(state, text) {
  document.body.dataset.connection = state;
  write(element("connection"), text);
}

function begin() {
  watch?.stop();
  watch = null;
  const bearer = token.current();
  element("forget-token").hidden = !bearer;
  element("token-form").hidden = Boolean(bearer);
  element("refusal").hidden = true;
  if (!bearer) {
    say("signed-out", "");
    return;
  }
  write(element("token-error"), "");
  watch = new Watch(bearer);
  watch.start();
}

function refuse(kind) {
  watch?.stop();
  watch = null;
  element("figures").hidden = true;
  write(element("updated"), "Not connected");
  say("signed-out", "");
  if (kind === "token") {
    token.forget();
    askForToken("That token is not valid, or it has expired. Paste a fresh one.");
    return;
  }
  const [title, text] = REFUSALS[kind];
  write(element("refusal-title"), title);
  write(element("refusal-text"), text);
  element("refusal").hidden = false;
  element("token-form").hidden = false;
  element("refusal-title").focus();
}

function askForToken(error) {
  element("forget-token").hidden = true;
  element("token-form").hidden = false;
  element("token").setAttribute("aria-invalid", String(Boolean(error)));
  write(element("token-error"), error);
  element("token").focus();
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
  begin();
  element("event-name").focus();
});

element("forget-token").addEventListener("click", () => {
  // A fresh page: nothing of what the last person saw stays behind in it.
  token.forget();
  location.reload();
});

window.addEventListener("hashchange", () => {
  if (token.takeFromAddress()) begin();
});

const garbled = location.hash.startsWith("#token=") && !token.takeFromAddress();
begin();
if (garbled && !token.current()) askForToken("The token in the address is damaged. Paste it here.");
