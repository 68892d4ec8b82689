"""The busiest road on an SQLite file: a reader on the event loop's thread, a writer on its own."""
