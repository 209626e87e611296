// The visitor's token: arrives in the address's fragment or a form, lives in this tab's session.

const KEY = "ticketing.token";

/** Takes the token out of `#token=…`, so that it stays in no history, bookmark or screenshot. */
export function takeFromAddress() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const token = fragment.get("token");
  if (token === null) return false;
  history.replaceState(null, "", location.pathname + location.search);
  return save(token);
}

/** Keeps a token that has the form of a JWT; false for anything else. */
export function save(text) {
  const token = text.trim().replace(/^bearer\s+/i, "");
  if (!/^[\w-]+\.[\w-]+\.[\w-]+$/.test(token)) return false;
  sessionStorage.setItem(KEY, token);
  return true;
}

export function current() {
  return sessionStorage.getItem(KEY);
}

export function forget() {
  sessionStorage.removeItem(KEY);
}
