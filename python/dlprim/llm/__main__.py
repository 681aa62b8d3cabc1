"""``python -m dlprim.llm``."""

import sys

from dlprim.llm.command_line import main

sys.exit(main())
