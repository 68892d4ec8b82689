"""What others wrote, made ready to be read by people: in Slack and in the console alike."""
