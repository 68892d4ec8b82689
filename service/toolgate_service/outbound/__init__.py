"""HTTP requests to addresses that customers configure: client with limits, and protection against server-side request forgery."""
