"""`python -m rollmq`: the command, where its script is not on PATH."""

from rollmq.cli.main import main

if __name__ == "__main__":
    main(prog_name="rollmq")
