// Read a policy file into the text field. Without scripts, users paste the text.
"use strict";

const chooser = document.getElementById("policy-file");

if (chooser) {
  chooser.closest(".field").hidden = false;
  chooser.addEventListener("change", async () => {
    const [file] = chooser.files;
    if (file) document.getElementById("policy").value = await file.text();
  });
}
