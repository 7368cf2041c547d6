"""The command semif."""
