"""Lets `python -m dlprim.train` run the command line; everything testable is in `command_line`."""

from dlprim.train.command_line import main

raise SystemExit(main())
