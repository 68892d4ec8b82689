"""The console: pages at /console for the people who decide and who own. Every rule it follows is the API's."""
