from sia.cli.main import entry

entry()
