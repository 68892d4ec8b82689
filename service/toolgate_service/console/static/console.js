// Script of every page: local times, menus, announcements for screen readers.
"use strict";

const toolgate = {
  // Only parts of pages from the server become HTML; the server escapes them.
  policy: window.trustedTypes ? window.trustedTypes.createPolicy("toolgate", { createHTML: (html) => html }) : { createHTML: (html) => html },

  piece(html) {
    const template = document.createElement("template");
    template.innerHTML = toolgate.policy.createHTML(html);
    toolgate.tellTimes(template.content);
    return template.content;
  },

  say(words) {
    document.getElementById("said").textContent = words;
  },

  // Browsers offer the clipboard only over https and on this machine; elsewhere the text is selected.
  async copy(element, button) {
    try {
      await navigator.clipboard.writeText(element.textContent);
      button.textContent = "Copied";
      toolgate.say("Copied");
    } catch {
      window.getSelection().selectAllChildren(element);
      element.focus();
      button.textContent = "Selected";
      toolgate.say("The clipboard is not available. The text is selected: press Ctrl+C");
    }
  },

  keysAreOn() {
    return window.localStorage.getItem("toolgate.keys") !== "off";
  },

  tellTimes(root) {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(element.dateTime);
      const words = told(moment, element.dataset.kind);
      if (element.textContent !== words) element.textContent = words;
      if (!element.dataset.told) {
        element.dataset.told = "1";
        element.title = `${exact.format(moment)}\n${element.title}`;
      }
    }
  },
};

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const near = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const far = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const nearExact = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const farExact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function told(moment, kind) {
  const seconds = Math.round((moment - Date.now()) / 1000);
  if (kind === "left") return seconds <= 0 ? "expired" : `${span(seconds)} left`;
  if (kind === "past" && Math.abs(seconds) < 45) return "just now";
  if (kind === "past" && seconds < 0 && seconds > -86400) return `${span(-seconds)} ago`;
  const isToday = moment.toDateString() === new Date().toDateString();
  if (kind === "exact") return isToday ? nearExact.format(moment) : farExact.format(moment);
  return isToday ? near.format(moment) : far.format(moment);
}

function span(seconds) {
  if (seconds < 60) return "under a minute";
  const [unit, size] = units.find(([, length]) => seconds >= length);
  return `${Math.floor(seconds / size)} ${unit}`;
}

function closeMenus(event) {
  for (const menu of document.querySelectorAll("details.me[open]")) {
    if (event.type === "keydown" ? event.key === "Escape" : !menu.contains(event.target)) menu.open = false;
  }
}

toolgate.tellTimes(document);
window.setInterval(() => toolgate.tellTimes(document), 15000);
// On narrow screens the current link may be outside the visible part.
const presentWay = document.querySelector(".nav [aria-current]");
if (presentWay) presentWay.closest("nav").scrollLeft = presentWay.offsetLeft - 20;
const ways = document.querySelector(".side > nav");
function tellMore() {
  ways.toggleAttribute("data-more", ways.scrollLeft + ways.clientWidth < ways.scrollWidth - 1);
}
if (ways) {
  ways.addEventListener("scroll", tellMore, { passive: true });
  window.addEventListener("resize", tellMore);
  tellMore();
}
document.addEventListener("click", closeMenus);
document.addEventListener("keydown", closeMenus);

const keysSwitch = document.querySelector("[data-keys]");
if (keysSwitch) {
  keysSwitch.closest("[data-keys-switch]").hidden = false;
  keysSwitch.checked = toolgate.keysAreOn();
  keysSwitch.addEventListener("change", () => window.localStorage.setItem("toolgate.keys", keysSwitch.checked ? "on" : "off"));
}
