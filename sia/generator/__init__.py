"""Who writes: a local model, a server, a person, or a script of replies in tests."""
