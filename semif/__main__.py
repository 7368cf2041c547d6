"""`python -m semif`, which launchers such as `accelerate launch -m semif` need."""

from semif.cli.main import entry

if __name__ == "__main__":
    entry()
