"""Mail: what is written, by which server it goes, and that it goes after the answer."""
