"""`python -m m2fdp.deployment`: the command `m2fdp`."""

from m2fdp.deployment.commands import main

if __name__ == "__main__":
    main(prog_name="m2fdp")
