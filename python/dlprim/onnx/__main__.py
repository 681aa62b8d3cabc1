"""Lets `python -m dlprim.onnx` run the command line; everything testable is in `command_line`."""

from dlprim.onnx.command_line import main

raise SystemExit(main())
