// Links in e-mails have their token in the fragment, which browsers do not send; copy it into the form.
"use strict";

const found = new URLSearchParams(window.location.hash.slice(1)).get("token");
if (found) {
  const field = document.querySelector("[data-token]");
  field.querySelector("input").value = found;
  field.hidden = true;
  // Remove the token from the address, so that it does not stay in the history.
  window.history.replaceState(null, "", window.location.pathname);
}
