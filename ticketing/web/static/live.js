// Keeps one dashboard's document up to date, through lost connections and restarts of the service.

const REQUEST_SECONDS_MAX = 8;
const BACKOFF_SECONDS_FIRST = 0.5;
const BACKOFF_SECONDS_MAX = 10;
// A quiet sale sends nothing, and so does a dead line: after this long we ask.
const SILENCE_SECONDS_MAX = 15;
const CATCH_UP_SECONDS_MAX = 3;

/** The service answered, and trying again with the same token would not help. */
export class Refused extends Error {
  constructor(kind) {
    super(kind);
    this.kind = kind;
  }
}

// A visitor's clock may be wrong by hours; what o'clock it is the service says with each answer.
let serverAhead = 0;

/** The service's time, to a second or so. */
export function serverNow() {
  return Date.now() + serverAhead;
}

/** GET JSON as the token's owner. Raises Refused, or any other error for what may pass. */
export async function fetchJson(path, token) {
  const response = await fetch(path, {
    headers: { Authorization: `Bearer ${token}`, Accept: "application/json" },
    cache: "no-store",
    signal: AbortSignal.timeout(REQUEST_SECONDS_MAX * 1000),
  });
  const date = Date.parse(response.headers.get("Date"));
  if (date) serverAhead = date - Date.now();
  if (response.status === 401) throw new Refused("token");
  if (response.status === 403) throw new Refused("forbidden");
  if (response.status === 404 || response.status === 422) throw new Refused("not-found");
  if (!response.ok) throw new Error(`The service answered ${response.status}`);
  return response.json();
}

const REFUSALS_BY_CLOSE_CODE = new Map([
  [4401, "token"],
  [4403, "forbidden"],
  [4404, "not-found"],
]);

/**
 * Calls `onDocument(document)` with the newest document, `onState("live" | "lost")` when that
 * changes, and `onRefused(kind)` once, after which it has stopped by itself.
 */
export class LiveDashboard {
  #path;
  #token;
  #handlers;
  #stopped = false;
  #state = "connecting";
  #failures = 0;
  #wake = () => {};
  #drop = () => {};
  #probe = () => {};

  constructor(eventId, token, handlers) {
    this.#path = `/v1/events/${encodeURIComponent(eventId)}/dashboard`;
    this.#token = token;
    this.#handlers = handlers;
  }

  start() {
    window.addEventListener("offline", this.#whenOffline);
    window.addEventListener("online", this.#whenOnline);
    document.addEventListener("visibilitychange", this.#whenVisible);
    this.#run();
  }

  stop() {
    this.#stopped = true;
    window.removeEventListener("offline", this.#whenOffline);
    window.removeEventListener("online", this.#whenOnline);
    document.removeEventListener("visibilitychange", this.#whenVisible);
    this.#drop();
    this.#wake();
  }

  #whenOffline = () => this.#drop();
  #whenOnline = () => this.#wake();
  // A laptop that slept has timers that did not run and a socket that may be dead without knowing.
  #whenVisible = () => {
    if (document.visibilityState !== "visible") return;
    this.#probe();
    this.#wake();
  };

  async #run() {
    while (!this.#stopped) {
      try {
        await this.#connectOnce();
      } catch (error) {
        if (this.#stopped) return;
        if (error instanceof Refused) {
          this.stop();
          this.#handlers.onRefused(error.kind);
          return;
        }
      }
      if (this.#stopped) return;
      this.#become("lost");
      await this.#pause();
    }
  }

  /** Returns or raises when the connection is no more. */
  async #connectOnce() {
    // A browser does not tell why a WebSocket's handshake was refused; this request does.
    this.#show(await fetchJson(this.#path, this.#token));
    if (!this.#stopped) await this.#listen();
  }

  #listen() {
    return new Promise((resolve, reject) => {
      const scheme = location.protocol === "https:" ? "wss:" : "ws:";
      const socket = new WebSocket(
        `${scheme}//${location.host}${this.#path}/live`, ["bearer", this.#token]);
      let heardAt = performance.now();
      let version = -1;
      let probing = false;

      let ended = false;
      const end = (settle, reason) => {
        if (ended) return;
        ended = true;
        clearInterval(watch);
        this.#drop = () => {};
        this.#probe = () => {};
        socket.onmessage = socket.onclose = null;
        socket.close();
        settle(reason);
      };

      this.#drop = () => end(resolve);
      this.#probe = async () => {
        if (probing) return;
        probing = true;
        const askedAt = performance.now();
        const silent = () => heardAt < askedAt;
        try {
          const current = await fetchJson(this.#path, this.#token);
          if (current.version !== version) {
            // The socket may be about to bring it. One that does not is dead without knowing.
            await new Promise((wait) => setTimeout(wait, CATCH_UP_SECONDS_MAX * 1000));
            if (silent()) end(resolve);
          } else if (silent()) {
            heardAt = askedAt;
          }
        } catch (error) {
          end(reject, error);
        } finally {
          probing = false;
        }
      };
      const watch = setInterval(() => {
        if (performance.now() - heardAt > SILENCE_SECONDS_MAX * 1000) this.#probe();
      }, 1000);

      socket.onmessage = (message) => {
        const current = JSON.parse(message.data);
        heardAt = performance.now();
        version = current.version;
        this.#failures = 0;
        this.#show(current);
        this.#become("live");
      };
      socket.onclose = (closing) => {
        const kind = REFUSALS_BY_CLOSE_CODE.get(closing.code);
        if (kind) end(reject, new Refused(kind));
        else end(resolve);
      };
    });
  }

  #show(current) {
    if (!this.#stopped) this.#handlers.onDocument(current);
  }

  #become(state) {
    if (this.#stopped || this.#state === state) return;
    this.#state = state;
    this.#handlers.onState(state);
  }

  /** Back-off with jitter: when the service restarts, its watchers come back spread out. */
  #pause() {
    const ceiling = Math.min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2 ** this.#failures);
    this.#failures += 1;
    const seconds = ceiling / 2 + (Math.random() * ceiling) / 2;
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, seconds * 1000);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
