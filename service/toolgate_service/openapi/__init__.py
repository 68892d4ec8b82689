"""The gateway's description of itself: `/openapi.json` for programs, `/docs` for people."""
