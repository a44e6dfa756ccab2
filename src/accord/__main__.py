"""`python -m accord` is the command line."""

from accord.cli import main

main()
