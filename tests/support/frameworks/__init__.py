"""One harness a framework: its real agent loop, its own fake model, and the plugin."""
