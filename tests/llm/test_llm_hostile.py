"""A thousand damaged models are refused in a sentence, in bounded memory and time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

for package in ("safetensors", "tokenizers", "jinja2", "gguf"):
    pytest.importorskip(package, reason='models are read with it: pip install "dlprim[llm]"')

from gguf_models import write_gguf  # noqa: E402
from test_llm_gguf import ENTRIES  # noqa: E402
from test_llm_text import bytes_tokenizer  # noqa: E402
from tiny_models import llama_folder  # noqa: E402

from dlprim import llm  # noqa: E402

COUNTS = {
    "safetensors": 350,
    "config": 300,
    "gguf": 300,
    "tokenizer.json": 60,
    "tokenizer_config.json": 40,
}


@pytest.mark.parametrize("kind", COUNTS)
def test_damaged_models_are_sentences(kind: str, tmp_path: Path) -> None:
    import json

    folder = tmp_path / "given"
    arrays = llama_folder(folder, num_hidden_layers=2, intermediate_size=96)
    bytes_tokenizer(folder)
    tokens = list(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])

    def more(writer: Any) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(tokens)
        writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
        writer.add_bos_token_id(0)

    write_gguf(folder / "x.gguf", "llama", {**ENTRIES, "num_hidden_layers": 2}, arrays, more=more)
    assert llm.load(folder / "x.gguf").tokenizer is not None
    worker = Path(__file__).parent / "hostile_loads.py"
    command = [sys.executable, str(worker), str(folder), kind, "0", str(COUNTS[kind])]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stdout[-3000:] + run.stderr[-2000:]
