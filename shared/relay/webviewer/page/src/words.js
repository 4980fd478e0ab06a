// SPDX-License-Identifier: MPL-2.0

// What the page says to a person. Text from elsewhere is cleaned by the relay; the page
// sets it as text, never as markup.

// Whether and when a stream that ended begins again.
export const Again = Object.freeze({
  soon: "soon", // at once, then slower and slower
  slowly: "slowly", // every few seconds: something has to change first
  asked: "asked", // when the person says so
  never: "never",
});

// ending says why a stream ended, by its close code (RFC 6455 section 7.4 and the
// relay's own), and whether to come back.
export function ending(code, reason) {
  switch (code) {
    case 1000:
      return { text: "You left the screen.", again: Again.asked, button: "Come back" };
    case 1003:
      return { text: `The screen closed this view: ${reason || "it was sent what it does not carry"}.`, again: Again.asked, button: "Try again" };
    case 1013:
      return { text: `The screen takes no further view for now: ${reason || "too many are open"}.`, again: Again.slowly };
    case 4000:
      return { text: "Another person took the screen over.", again: Again.asked, button: "Watch" };
    case 4001:
      return { text: sentence(reason) || "The screen is gone, or does not answer.", again: Again.slowly };
    case 4002:
      return { text: "You opened this screen in another window, which took this one’s place.", again: Again.asked, button: "Use it here" };
    case 4003:
      return { text: "Only the person in control sees the screen for now. It comes back at the hand-back.", again: Again.slowly };
    case 4401:
      return { text: "This link opens nothing: it was used before, is older than 30 seconds, or is for another screen. Ask for a new one.", again: Again.never };
    case 4403:
      return { text: "This page may not show the screen: it was opened under an address that is not the screen’s own.", again: Again.never };
    default:
      return { text: "The connection broke.", again: Again.soon };
  }
}

function sentence(reason) {
  if (!reason) {
    return "";
  }
  const text = reason[0].toUpperCase() + reason.slice(1);
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

// holder says who controls the screen.
export function holder(message) {
  const { lease, holding } = message;
  const reason = lease.reason ? ` Reason: “${lease.reason}”.` : "";
  if (holding) {
    return `You control this screen since ${clock(lease.since)}.${reason}`;
  }
  if (lease.holder === "agent") {
    return "The agent controls this screen.";
  }
  const away = lease.away_since ? ` They left at ${clock(lease.away_since)} without handing it back.` : "";
  if (!lease.viewer) {
    return `It cannot be told who controls this screen.${reason}`;
  }
  return `A person (${lease.viewer}) controls this screen since ${clock(lease.since)}.${away}${reason}`;
}

// wanted says what the agent wants a person for; nothing when that is over.
export function wanted({ wanted, reason, until }, now) {
  if (!wanted || (until && Date.parse(until) <= now)) {
    return "";
  }
  return `The agent asks for a person${until ? `, until ${clock(until)}` : ""}: “${reason}”`;
}

export function clock(time) {
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? "a time unknown" : at.toLocaleTimeString();
}

// delay is how long to wait before the attempt of that number, in milliseconds. chance
// is from 0 to 1, so that many viewers do not come back in step.
export function delay(attempt, again, chance) {
  if (again === Again.slowly) {
    return 4000 + 2000 * chance;
  }
  const whole = Math.min(15000, 500 * 2 ** attempt);
  return whole / 2 + (whole / 2) * chance;
}
