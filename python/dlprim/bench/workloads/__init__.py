"""What is measured: each module makes the rows of a subcommand."""
