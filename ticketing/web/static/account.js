// Logging in, and what the links in mails about an account lead to.

import * as token from "/static/token.js";

const REQUEST_SECONDS_MAX = 15;
const TICKETS = "/tickets";
const BEGINNING = ["log-in", "forgotten", "register"];
// The part of the address behind the `#` that each mail's link has, and the form it opens.
const FORMS_BY_LINK = new Map([
  ["register", "confirm"],
  ["reset", "reset"],
  ["changeEmail", "change-email"],
]);
const ASKED = "Look into your mail: a message is on its way to that address.";
const element = (id) => document.getElementById(id);
let link = "";

/** Short news, read out politely. Kind is "", "warn" or "bad". */
function tell(text, kind = "") {
  element("news").className = `message ${kind}`;
  element("news").textContent = text;
}

function show(...ids) {
  for (const form of document.querySelectorAll("form")) form.hidden = !ids.includes(form.id);
}

/** What the service says to a request: its JSON, or null for none. Refusals have their problem. */
async function post(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    cache: "no-store",
    signal: AbortSignal.timeout(REQUEST_SECONDS_MAX * 1000),
  });
  if (response.status === 204) return null;
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.detail), { problem: answer });
  return answer;
}

function enter({ role, accessToken }) {
  token.save(accessToken);
  if (role === "fan") location.assign(TICKETS);
  else {
    show();
    tell("You are logged in. Open your event’s page in this tab.");
    element("title").focus();
  }
}

const ACTIONS = {
  "log-in": async ({ code, ...who }) => enter(await post("/v1/sessions", code ? { ...who, code } : who)),
  forgotten: async (fields) => {
    await post("/v1/accounts/forgotten-password", fields);
    tell(ASKED);
  },
  register: async (fields) => {
    await post("/v1/accounts", fields);
    tell(ASKED);
  },
  confirm: async ({ password }) => enter(await post("/v1/accounts/confirm", { link, password })),
  reset: async ({ password }) => {
    await post("/v1/accounts/reset-password", { link, password });
    show(...BEGINNING);
    tell("Your password is changed. Log in with the new one.");
    element("log-in-email").focus();
  },
  "change-email": async () => {
    await post("/v1/accounts/confirm-email", { link });
    show(...BEGINNING);
    tell("Your address is changed. Log in with the new one.");
    element("log-in-email").focus();
  },
};

function refuse(form, { problem }) {
  if (problem?.type === "urn:ticketing:problem:second-factor-needed") {
    element("code-field").hidden = false;
    element("log-in-code").focus();
    tell("Enter the code that your authenticator app shows.");
    return;
  }
  if (problem === undefined) {
    tell("The service could not be reached. Try again.", "warn");
    return;
  }
  const [fault] = problem.errors ?? [];
  tell(fault ? `${fault.path}: ${fault.message}` : problem.detail, "bad");
  const field = (fault && form.elements[fault.path]) ?? form.querySelector("input");
  field?.focus();
}

for (const form of document.querySelectorAll("form")) {
  const button = form.querySelector("button");
  form.addEventListener("submit", async (submit) => {
    submit.preventDefault();
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    tell("One moment…");
    try {
      await ACTIONS[form.id](Object.fromEntries(new FormData(form)));
    } catch (error) {
      refuse(form, error);
    } finally {
      button.removeAttribute("aria-disabled");
    }
  });
}

/** Takes the link out of the address, so that it stays in no history, bookmark or screenshot. */
function begin() {
  const [[purpose, given] = []] = new URLSearchParams(location.hash.slice(1));
  const form = FORMS_BY_LINK.get(purpose);
  if (form === undefined) {
    show(...BEGINNING);
    return;
  }
  link = given;
  history.replaceState(null, "", location.pathname + location.search);
  show(form);
  (element(form).querySelector("input") ?? element(form).querySelector("button")).focus();
}

window.addEventListener("hashchange", begin);
begin();
