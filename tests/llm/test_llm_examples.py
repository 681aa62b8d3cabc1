"""examples/llm: a model is fine-tuned by adapters, and what it learned is in the saved weights."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("safetensors", reason='models are read with it: pip install "dlprim[llm]"')
pytest.importorskip("tokenizers", reason='texts are read with it: pip install "dlprim[llm]"')

from test_llm_text import bytes_tokenizer
from tiny_models import llama_folder

from dlprim import llm, nn

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "llm" / "lora.py"
if not EXAMPLE.exists():
    pytest.skip(f"{EXAMPLE} is not there", allow_module_level=True)


def test_adapters_learn_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nn.seed(0)
    folder = tmp_path / "model"
    llama_folder(folder, num_hidden_layers=2)
    bytes_tokenizer(folder)
    text = "abcdefgh" * 20
    tuned = runpy.run_path(str(EXAMPLE))["tune"](folder, text, steps=30, length=16)
    lines = capsys.readouterr().out.splitlines()
    first, last = (float(lines[it].rpartition(" ")[2]) for it in (0, -1))
    assert last < 0.5 * first
    assert "".join(llm.load(tuned).generate("abcdefghabc", max_new=5)) == "defgh"
