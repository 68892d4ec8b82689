// Copies a secret, and sends no form twice: everything else of the settings works without.
"use strict";

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => toolgate.copy(document.getElementById(button.dataset.copy), button));
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
