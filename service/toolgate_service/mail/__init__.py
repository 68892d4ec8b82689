"""E-mail: the texts, the SMTP client, and the queue that sends e-mails in the background."""
