// Onboarding: poll for the first call, and copy the commands.
"use strict";

const AGAIN = 1000;
const place = document.querySelector("[data-arrived]");
const isHere = () => place.querySelector("[data-here]") !== null;

async function look() {
  if (document.hidden) return;
  const answer = await fetch(place.dataset.arrived, { headers: { "X-Toolgate-Part": "1" }, redirect: "error", cache: "no-store" });
  if (answer.status === 401) window.location.reload();
  if (!answer.ok) return;
  const found = toolgate.piece(await answer.text()).querySelector("[data-here]");
  if (!found) return;
  place.replaceChildren(found);
  place.closest(".stage").classList.add("done");
  document.querySelector("[data-next]").hidden = false;
}

async function keepLooking() {
  try {
    await look();
  } catch {
    // The gateway may be restarting; the next poll tries again.
  }
  if (!isHere()) window.setTimeout(keepLooking, AGAIN);
}

if (place && !isHere()) window.setTimeout(keepLooking, AGAIN);

// The key is fetched by the form that shows it, so that the audit log records copying too.
async function revealKey(form) {
  const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { "X-Toolgate-Part": "1" }, redirect: "error", cache: "no-store" });
  const page = toolgate.piece(await answer.text());
  if (!answer.ok) throw new Error(page.textContent.trim() || "The key cannot be shown now");
  if (page.querySelector("form[data-reveal]")) throw new Error("The key cannot be shown");
  document.getElementById("snippet").textContent = page.getElementById("snippet").textContent;
  form.remove();
}

const copy = document.querySelector("[data-copy]");

async function copyLines() {
  const form = document.querySelector("form[data-reveal]");
  copy.disabled = true;
  try {
    if (form) await revealKey(form);
    await toolgate.copy(document.getElementById("snippet"), copy);
  } catch (error) {
    toolgate.say(error.message);
    copy.after(problem(error.message));
  } finally {
    copy.disabled = false;
  }
}

function problem(words) {
  document.querySelector("[data-problem]")?.remove();
  const line = document.createElement("p");
  line.className = "problem";
  line.dataset.problem = "";
  line.textContent = words;
  return line;
}

if (copy) {
  copy.hidden = false;
  copy.addEventListener("click", copyLines);
}
