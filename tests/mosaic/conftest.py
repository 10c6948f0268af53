"""Scripts of clients import a package that is not here."""

collect_ignore_glob = ["clients/*"]
