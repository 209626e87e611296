// How numbers, money and instants are written. The page's language decides, not the visitor's, so
// that words and numbers agree; the event's own time zone decides what o'clock it is.

const LANGUAGE = "en-GB";

// ISO 4217's minor units where they are not 2. The browser's own table follows cash usage for some
// currencies (no decimals for IQD), and would show their amounts a thousandfold.
const DIGITS = new Map();
for (const code of "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split(" ")) {
  DIGITS.set(code, 0);
}
for (const code of "BHD IQD JOD KWD LYD OMR TND".split(" ")) {
  DIGITS.set(code, 3);
}

const countFormat = new Intl.NumberFormat(LANGUAGE);
const moneyFormats = new Map();

export function count(number) {
  return countFormat.format(number);
}

export function seatCount(number) {
  return number === 1 ? "1 seat" : `${count(number)} seats`;
}

/** `amount` whole minor units of `currency`, as people write it. */
export function money(amount, currency) {
  const digits = DIGITS.get(currency) ?? 2;
  if (!moneyFormats.has(currency)) {
    moneyFormats.set(currency, new Intl.NumberFormat(LANGUAGE, {
      style: "currency",
      currency,
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    }));
  }
  return moneyFormats.get(currency).format(amount / 10 ** digits);
}

/** A share in whole per cent that says 0 or 100 only when it is exactly that. */
export function share(part, whole) {
  if (whole === 0 || part === 0) return "0%";
  if (part === whole) return "100%";
  const percent = (100 * part) / whole;
  if (percent < 1) return "under 1%";
  return `${Math.min(99, Math.round(percent))}%`;
}

/** Writes instants in one time zone; in UTC, saying so, where the browser does not know the zone. */
export class Clock {
  constructor(timeZone) {
    this.timeZone = isKnown(timeZone) ? timeZone : "UTC";
    const format = (options) => new Intl.DateTimeFormat(LANGUAGE, { timeZone: this.timeZone, ...options });
    this.seconds = format({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
    this.minutes = format({ hour: "2-digit", minute: "2-digit" });
    this.days = format({ day: "numeric", month: "short" });
    this.whole = format({
      weekday: "short", day: "numeric", month: "short", year: "numeric",
      hour: "2-digit", minute: "2-digit", timeZoneName: "short",
    });
    this.short = format({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
  }

  time(instant) {
    return this.seconds.format(new Date(instant));
  }

  minute(instant) {
    return this.minutes.format(new Date(instant));
  }

  day(instant) {
    return this.days.format(new Date(instant));
  }

  dayAndMinute(instant) {
    return this.short.format(new Date(instant));
  }

  dateAndTime(instant) {
    return this.whole.format(new Date(instant));
  }

  /** Local time less UTC at `instant`, in milliseconds. */
  offset(instant) {
    const parts = new Intl.DateTimeFormat("en-US", {
      timeZone: this.timeZone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric",
      hour: "numeric", minute: "numeric", second: "numeric",
    }).formatToParts(instant);
    const part = (type) => Number(parts.find((each) => each.type === type).value);
    const local = Date.UTC(
      part("year"), part("month") - 1, part("day"), part("hour"), part("minute"), part("second"));
    return local - Math.floor(instant / 1000) * 1000;
  }
}

function isKnown(timeZone) {
  try {
    new Intl.DateTimeFormat(LANGUAGE, { timeZone });
    return Boolean(timeZone);
  } catch {
    return false;
  }
}
