// Inbox: decisions without leaving the page, keyboard shortcuts and live updates.
"use strict";

const INERT = 500;
const inbox = document.querySelector("[data-inbox]");
const alone = "alone" in inbox.dataset;
const arrivals = document.querySelector("[data-arrivals]");
const empty = document.querySelector("[data-empty]");
const live = document.querySelector("[data-live]");
const environment = document.body.dataset.environment;
const plainTitle = document.title.replace(/^\(\d+\+?\) /, "");
let fresh = new Set();
let known = new Set(inbox.dataset.known.split(",").filter(Boolean));
let lastTold = null;

const cards = () => [...inbox.querySelectorAll(".card")];
const cardOf = (id) => document.getElementById(`card-${id}`);
const isInert = (card) => "inert" in card.dataset;
const sheetIsOpen = () => document.querySelector(".sheet:popover-open") !== null;

// A new or changed card ignores input for half a second, so that nothing is decided by accident.
function makeInert(card) {
  card.dataset.inert = "1";
  const deeds = card.querySelector(".deeds");
  if (deeds) deeds.inert = true;
  window.setTimeout(() => {
    delete card.dataset.inert;
    if (deeds) deeds.inert = false;
  }, INERT);
}

async function ask(address, options = {}) {
  const answer = await fetch(address, { ...options, headers: { "X-Toolgate-Part": alone ? "whole" : "1", ...options.headers }, redirect: "error", cache: "no-store" });
  if (answer.status === 401) signedOut();
  return answer;
}

function signedOut() {
  const notice = document.querySelector("[data-signed-out]");
  if (notice) notice.hidden = false;
  if (live) tellLive("Signed out", false);
  for (const deeds of document.querySelectorAll(".deeds")) deeds.inert = true;
}

// ---- Decisions ----

function replaceCard(card, html) {
  const next = toolgate.piece(html).querySelector(".card");
  if (!next) return null;
  const focused = card.contains(document.activeElement) || document.activeElement === document.body;
  if (alone) next.querySelector(".meta a")?.remove();
  card.replaceWith(next);
  makeInert(next);
  if (focused) next.focus({ preventScroll: true });
  return next;
}

function problem(card, words) {
  card.querySelector(".problem")?.remove();
  const told = document.createElement("p");
  told.className = "problem";
  told.setAttribute("role", "alert");
  told.textContent = words;
  card.querySelector("header").after(told);
}

async function decide(form, submitter) {
  const card = form.closest(".card");
  if (isInert(card) || "busy" in card.dataset) return;
  // Read the form before disabling it: disabled controls are not sent.
  const body = new URLSearchParams(new FormData(form, submitter));
  card.dataset.busy = "1";
  if (submitter) submitter.disabled = true;
  try {
    const answer = await ask(form.action, { method: "POST", body });
    const html = await answer.text();
    if (answer.status === 400 && form.dataset.deed !== "approve" && sheetIsOpen()) {
      tellInSheet(form, toolgate.piece(html));
    } else {
      form.closest("[popover]")?.hidePopover();
      const next = replaceCard(card, html);
      if (next) toolgate.say(next.querySelector(".problem, .outcome")?.textContent.trim() ?? "");
      else problem(card, toolgate.piece(html).textContent.trim());
    }
  } catch {
    form.closest("[popover]")?.hidePopover();
    problem(card, "The gateway did not respond, so the decision may not have been saved. Reload the page before you try again.");
  } finally {
    delete card.dataset.busy;
    if (submitter) submitter.disabled = false;
  }
}

function tellInSheet(form, piece) {
  form.querySelector(".problem")?.remove();
  const told = piece.querySelector(".problem");
  if (told) form.querySelector(".row").before(told);
}

inbox.addEventListener("submit", (event) => {
  event.preventDefault();
  decide(event.target, event.submitter);
});

inbox.addEventListener("keydown", (event) => {
  const form = event.target.closest(".sheet form");
  if (form && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    form.requestSubmit(form.querySelector(".row button:not([type])"));
  }
});

inbox.addEventListener("toggle", (event) => {
  if (event.newState === "closed" && lastTold) hear(lastTold, false);
}, true);

// ---- Keyboard ----

function move(by) {
  const all = cards();
  if (!all.length) return;
  const at = all.indexOf(document.activeElement?.closest(".card"));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

// Former keys of "Reject" and "Approve temporarily".
const FORMER_KEYS = { d: "r", w: "t" };

function press(key) {
  const card = document.activeElement?.closest(".card") ?? (alone ? cards()[0] : null);
  if (!card || isInert(card)) return false;
  if (key === "Enter") {
    if (document.activeElement !== card) return false;
    card.querySelector(".meta a")?.click();
    return true;
  }
  const button = card.querySelector(`.deeds [data-key="${key}"]`);
  button?.click();
  return button !== null;
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.closest?.("input, textarea, select, [contenteditable]") || sheetIsOpen() || !toolgate.keysAreOn()) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  let taken = true;
  if (key === "j") move(1);
  else if (key === "k") move(-1);
  else if (key === "?") window.location.assign(document.querySelector('a[href*="/console/shortcuts"]').href);
  else if (key === "n" && arrivals && !arrivals.hidden) arrivals.click();
  else if (["a", "r", "e", "t", "d", "w", "Enter"].includes(key)) taken = press(FORMER_KEYS[key] ?? key);
  else taken = false;
  if (taken) event.preventDefault();
});

// ---- Live updates ----

async function pieces(ids) {
  const way = new URL(inbox.dataset.cards, window.location.href);
  way.searchParams.set("ids", ids.join(","));
  const answer = await ask(way);
  return answer.ok ? [...toolgate.piece(await answer.text()).querySelectorAll(".card")] : [];
}

async function showFresh() {
  const ids = [...fresh].slice(0, 20);
  const found = await pieces(ids);
  for (const id of ids) fresh.delete(id);
  for (const card of found.reverse()) {
    if (cardOf(card.dataset.id)) continue;
    card.classList.add("fresh");
    inbox.prepend(card);
    makeInert(card);
  }
  tellArrivals();
  return found;
}

async function refresh(ids) {
  for (const card of await pieces(ids)) {
    const old = cardOf(card.dataset.id);
    // A decision on this page updates the card by the form's response.
    if (!old || "busy" in old.dataset || (old.dataset.status === card.dataset.status && old.dataset.votes === card.dataset.votes)) continue;
    // A pending card with an open sheet is updated when the sheet is closed.
    if (card.classList.contains("waits") && old.querySelector(".sheet:popover-open")) continue;
    const focused = old.contains(document.activeElement);
    if (alone) card.querySelector(".meta a")?.remove();
    old.querySelectorAll("[popover]:popover-open").forEach((sheet) => sheet.hidePopover());
    old.replaceWith(card);
    makeInert(card);
    if (focused) card.focus({ preventScroll: true });
  }
}

// Replace only the line that says whether a call waits, so that the buttons stay usable.
async function refreshCalls(ids) {
  for (const card of await pieces(ids)) {
    const old = cardOf(card.dataset.id);
    const line = card.querySelector(".call");
    if (!old || !line) continue;
    old.dataset.waiting = card.dataset.waiting;
    old.querySelector(".call")?.replaceWith(line);
  }
}

function tellArrivals() {
  if (!arrivals) return;
  arrivals.hidden = fresh.size === 0;
  arrivals.textContent = `${fresh.size} new`;
}

function tellCount(count, more) {
  const words = `${count}${more ? "+" : ""}`;
  document.title = count && !alone ? `(${words}) ${plainTitle}` : plainTitle;
  for (const badge of document.querySelectorAll("[data-count]")) {
    badge.hidden = count === 0;
    badge.textContent = words;
  }
  const sentence = document.querySelector("[data-count-words]");
  if (sentence) sentence.textContent = count === 0 ? "No pending requests" : `${words} ${count === 1 && !more ? "pending request" : "pending requests"}`;
}

async function hear(told, leads) {
  lastTold = told;
  tellLive("Live", true);
  tellCount(told.count, told.more);
  const waits = new Set(told.ids);
  // Above the counting limit a missing id does not mean that the request was decided.
  const gone = told.more ? [] : cards().filter((card) => card.classList.contains("waits") && !waits.has(card.dataset.id)).map((card) => card.dataset.id);
  const voted = cards().filter((card) => waits.has(card.dataset.id) && card.dataset.votes !== String(told.votes[card.dataset.id] ?? 0)).map((card) => card.dataset.id);
  if (gone.length || voted.length) await refresh([...gone, ...voted].slice(0, 20));
  const withCall = new Set(told.with_call);
  const calls = cards().filter((card) => waits.has(card.dataset.id) && (card.dataset.waiting === "true") !== withCall.has(card.dataset.id)).map((card) => card.dataset.id);
  if (calls.length) await refreshCalls(calls.slice(0, 20));
  if (alone) return;
  const arrived = told.ids.filter((id) => !known.has(id) && !cardOf(id));
  for (const id of arrived) known.add(id);
  for (const id of arrived) fresh.add(id);
  for (const id of [...fresh]) if (!waits.has(id)) fresh.delete(id);
  if (fresh.size && !cards().some((card) => card.classList.contains("waits"))) {
    empty.hidden = true;
    const shown = await showFresh();
    if (arrived.length) announce(arrived.length, shown, leads);
  } else {
    tellArrivals();
    if (arrived.length) announce(arrived.length, leads && wantsNotes() ? await pieces(arrived.slice(0, 3)) : [], leads);
  }
  if (!cards().length) empty.hidden = fresh.size > 0;
}

function announce(count, shown, leads) {
  const words = count === 1 ? shown[0]?.dataset.told ?? "1 new request" : `${count} new requests`;
  toolgate.say(words);
  if (leads && wantsNotes()) {
    const note = new Notification(environment === "test" ? "Test: approval required" : "Approval required", { body: words, tag: `toolgate-${environment}`, icon: document.querySelector('link[rel="icon"]').href });
    note.onclick = () => { window.focus(); note.close(); };
  }
}

function tellLive(words, good) {
  if (!live) return;
  live.hidden = false;
  live.classList.toggle("off", !good);
  live.querySelector("[data-live-words]").textContent = words;
}

// One page of a browser opens the stream and forwards events to the others: a browser has few connections to a host.
// Without the Web Locks API (plain http to another machine) each page opens its own stream.
const channel = "BroadcastChannel" in window ? new BroadcastChannel(`toolgate-${environment}`) : null;
const locks = navigator.locks && channel;

function listen() {
  const source = new EventSource(inbox.dataset.events);
  source.addEventListener("waiting", (event) => {
    const told = JSON.parse(event.data);
    channel?.postMessage({ told });
    hear(told, true);
  });
  source.addEventListener("ended", () => {
    source.close();
    channel?.postMessage({ ended: true });
    signedOut();
  });
  source.addEventListener("error", () => {
    tellLive("Reconnecting…", false);
    if (source.readyState === EventSource.CLOSED) {
      // The response is no stream: the session has ended, or there is a temporary error.
      ask(inbox.dataset.cards).catch(() => undefined);
      window.setTimeout(listen, 5000);
    }
  });
}

if (channel) {
  channel.addEventListener("message", (event) => {
    if (event.data.told) hear(event.data.told, false);
    else if (event.data.ended) signedOut();
    else if (event.data.hello && lastTold) channel.postMessage({ told: lastTold });
  });
}
if (locks) {
  channel.postMessage({ hello: true });
  navigator.locks.request(`toolgate-live-${environment}`, () => {
    listen();
    return new Promise(() => undefined);
  });
} else {
  listen();
}

arrivals?.addEventListener("click", async () => {
  const [first] = await showFresh();
  first?.focus();
  window.scrollTo({ top: 0 });
});

// ---- Notifications ----

const wantsNotes = () => "Notification" in window && Notification.permission === "granted" && document.hidden;
const notify = document.querySelector("[data-notify]");
if (notify && "Notification" in window && Notification.permission === "default") {
  notify.hidden = false;
  notify.addEventListener("click", async () => {
    await Notification.requestPermission();
    notify.hidden = Notification.permission !== "default";
  });
}

for (const card of cards()) makeInert(card);
