"""``python -m dlprim.bench``: how fast this machine runs dlprim, beside its roofs and its peers.

Every subcommand verifies its rows first and then times all sides in turns; `command_line` says what
there is. Reports are text, JSON (`report`) and pictures; `compare` tells two of them apart.
"""
