"""Fine-tunes a language model by low-rank adapters (LoRA, arXiv 2106.09685), and generates with it.

    python lora.py FOLDER texts.txt

FOLDER is a model in the format of transformers with a tokenizer, texts.txt what it is to write
like. Only the adapters are trained: some small matrices beside the linear layers. The tuned model
is saved in FOLDER-tuned, with the adapters merged into the weights.
"""

import shutil
import sys
from pathlib import Path

import numpy as np

from dlprim import llm, nn
from dlprim.optim import AdamW


def tune(folder: Path, text: str, steps: int = 100, length: int = 64, batch: int = 4) -> Path:
    model = llm.load(folder, trainable=True)
    adapters = llm.adapt(model, rank=8, parts=("qkv", "out", "up", "down"))
    tokenizer = llm.Tokenizer.of(folder)
    tokens = np.array(tokenizer.encode(text))
    rng = np.random.default_rng(0)

    step = nn.Step(model, nn.CrossEntropyLoss(), AdamW(adapters, 2e-3), clip_norm=1.0)
    for number in range(steps):
        begins = rng.integers(0, len(tokens) - length, batch)
        rows = tokens[begins[:, None] + np.arange(length + 1)]
        loss = step(rows[:, :-1], rows[:, 1:])
        if number % 10 == 0 or number == steps - 1:
            print(f"step {number}: loss {loss:.3f}", flush=True)

    to = folder.with_name(folder.name + "-tuned")
    model.save(to)
    for it in folder.glob("*token*"):
        shutil.copy(it, to)
    return to


if __name__ == "__main__":
    tuned = tune(Path(sys.argv[1]), Path(sys.argv[2]).read_text())
    for piece in llm.load(tuned, dtype="bfloat16").generate("The", max_new=60):
        print(piece, end="", flush=True)
    print()
