"""HTTP requests to URLs that customers configure: client with limits, and protection against SSRF."""
