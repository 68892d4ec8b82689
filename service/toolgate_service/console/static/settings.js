// Copies a secret, and sends no form twice: everything else of the settings works without.
"use strict";

async function copy(button) {
  const secret = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(secret.textContent);
    button.textContent = "Copied";
    toolgate.say("Copied");
  } catch {
    // Browsers give the clipboard to https and to this machine alone.
    window.getSelection().selectAllChildren(secret);
    secret.focus();
    button.textContent = "Selected";
    toolgate.say("The clipboard cannot be reached; the text is selected: press Ctrl and C");
  }
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}

for (const form of document.querySelectorAll("form[data-once]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "1";
    // Whoever stopped it may try again.
    window.setTimeout(() => delete form.dataset.sent, 5000);
  });
}

// Come back to by the history, a page may send its forms again.
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});
