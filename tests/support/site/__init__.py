"""The documentation site: generated reference pages, the check of the navigation, the build."""
