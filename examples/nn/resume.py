"""A training loop that continues exactly where it was stopped.

Four things decide how a run goes on: the weights, the optimiser's state, the generator that draws
batches, and the number of the epoch. They are in one file, which is replaced as a whole, so that a
run that is killed at any time leaves a complete one.
"""

import os
import pickle

import numpy as np

import dlprim
from dlprim import nn
from dlprim.optim import SGD

rng = np.random.default_rng(0)
x = rng.standard_normal((256, 16)).astype(np.float32)
labels = (x[:, 0] > 0).astype(np.int64)

nn.seed(0)
model = nn.Sequential(nn.Linear(16, 32, activation="relu"), nn.Linear(32, 2))
optimizer, epoch = SGD(model.parameters(), 0.1, momentum=0.9), 0
if os.path.exists("run.pickle"):
    with open("run.pickle", "rb") as file:  # unpickling runs code: load only your own files
        kept = pickle.load(file)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    rng.bit_generator.state, epoch = kept["rng"], kept["epoch"]

while epoch < 6:
    for batch in np.split(rng.permutation(len(x)), 8):
        loss, diff = dlprim.softmax_cross_entropy(model(x[batch]), labels[batch])
        model.backward(diff)
        optimizer.step()
    epoch += 1
    kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    kept |= {"rng": rng.bit_generator.state, "epoch": epoch}
    with open("run.pickle.new", "wb") as file:
        pickle.dump(kept, file)
    os.replace("run.pickle.new", "run.pickle")
print(f"epoch {epoch}")
