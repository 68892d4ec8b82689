// Log page: filters in local time and live entries.
"use strict";

const MOST_ROWS = 200;
const rows = document.querySelector("[data-rows]");
const follow = document.querySelector("[data-follow]");
const live = document.querySelector("[data-live]");
const arrivals = document.querySelector("[data-arrivals]");
const signedOut = document.querySelector("[data-signed-out]");
let source = null;
let waiting = [];

// ---- Filters ----

const moments = [...document.querySelectorAll('[data-filters] input[type="datetime-local"]')];
const two = (number) => String(number).padStart(2, "0");

function localTime(text) {
  const moment = new Date(`${text}Z`);
  if (Number.isNaN(moment.getTime())) return text;
  const day = [String(moment.getFullYear()).padStart(4, "0"), two(moment.getMonth() + 1), two(moment.getDate())].join("-");
  const rest = moment.getMilliseconds() ? `.${String(moment.getMilliseconds()).padStart(3, "0")}` : "";
  return `${day}T${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}${rest}`;
}

for (const field of moments) if (field.value) field.value = localTime(field.value);
for (const hint of document.querySelectorAll("[data-zone]")) hint.textContent = "your time";

document.querySelector("[data-filters]").addEventListener("formdata", (event) => {
  const sent = event.formData;
  for (const [name, value] of [...sent]) if (!value) sent.delete(name);
  for (const field of moments) if (field.value) sent.set(field.name, new Date(field.value).toISOString());
});

// ---- Live ----

function tellLive(words, good) {
  live.hidden = words === "";
  live.classList.toggle("off", !good);
  live.querySelector("[data-live-words]").textContent = words;
}

// Do not move the table while the user reads further down or points at it.
function isReading() {
  const top = document.querySelector("[data-table]");
  return !top.hidden && (top.getBoundingClientRect().top < 0 || top.contains(document.activeElement) || top.matches(":hover") || !window.getSelection().isCollapsed);
}

function tellWaiting() {
  const count = waiting.filter((row) => "entry" in row.dataset).length;
  arrivals.hidden = count === 0;
  arrivals.textContent = `${count} new`;
}

function showWaiting() {
  const fresh = waiting;
  waiting = [];
  if (fresh.length) {
    for (const row of fresh) row.classList.add("fresh");
    rows.prepend(...fresh);
    toolgate.tellTimes(rows);
    document.querySelector("[data-table]").hidden = false;
    const empty = document.querySelector("[data-empty]");
    if (empty) empty.hidden = true;
    shorten();
  }
  tellWaiting();
  return fresh;
}

// Rows removed at the end are still in the log; reloading the page shows them.
function shorten() {
  const all = [...rows.children];
  if (all.length <= MOST_ROWS) return;
  for (const row of all.slice(MOST_ROWS)) row.remove();
  const pager = document.querySelector("[data-pager]");
  const again = document.createElement("a");
  again.className = "button small";
  again.href = window.location.href;
  again.textContent = "Reload the page for older entries";
  pager.replaceChildren(again);
}

function hear(told) {
  const known = new Set(waiting.map((row) => row.id));
  const came = [...toolgate.piece(told.rows).querySelectorAll("tr")].filter((row) => !row.id || !(known.has(row.id) || document.getElementById(row.id)));
  const count = came.filter((row) => row.id).length;
  if (!count) return;
  waiting = [...came, ...waiting].slice(0, MOST_ROWS);
  if (isReading()) tellWaiting();
  else showWaiting();
  toolgate.say(count === 1 ? "1 new entry" : `${count} new entries`);
}

function listen() {
  source = new EventSource(follow.dataset.follow);
  tellLive("Connecting…", false);
  source.addEventListener("open", () => tellLive("Live", true));
  source.addEventListener("entries", (event) => hear(JSON.parse(event.data)));
  source.addEventListener("ended", () => {
    stop();
    signedOut.hidden = false;
    follow.disabled = true;
  });
  source.addEventListener("error", () => {
    tellLive("Reconnecting…", false);
    if (source.readyState === EventSource.CLOSED) stop("Not live: reload the page");
  });
}

function stop(words = "") {
  source?.close();
  source = null;
  follow.setAttribute("aria-checked", "false");
  tellLive(words, false);
}

if (follow) {
  follow.hidden = false;
  follow.addEventListener("click", () => {
    if (source) return stop();
    follow.setAttribute("aria-checked", "true");
    listen();
  });
  arrivals.addEventListener("click", () => {
    const [first] = showWaiting();
    first?.querySelector("a")?.focus({ preventScroll: true });
    window.scrollTo({ top: 0 });
  });
}
