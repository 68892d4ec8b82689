// Settings: copy a secret, and send each form once. Everything else works without scripts.
"use strict";

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => toolgate.copy(document.getElementById(button.dataset.copy), button));
}

for (const form of document.querySelectorAll("form[data-once]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "1";
    // The user cancelled the form and may send it again.
    window.setTimeout(() => delete form.dataset.sent, 5000);
  });
}

// A page restored from the history may send its forms again.
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});
