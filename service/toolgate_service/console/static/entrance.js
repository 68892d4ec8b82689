// A link from a mail carries its token in the fragment, which is sent to nobody: it goes into the form from here.
"use strict";

const found = new URLSearchParams(window.location.hash.slice(1)).get("token");
if (found) {
  const field = document.querySelector("[data-token]");
  field.querySelector("input").value = found;
  field.hidden = true;
  // Not left in the address, where it would stay in the history.
  window.history.replaceState(null, "", window.location.pathname);
}
