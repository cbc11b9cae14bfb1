"""Training state on disk: nested dicts of arrays in one `.npz` file, replaced whole: a stop leaves the old one or the new one."""
import os

import numpy as np


def flatten(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", np.asarray(value)


def save(path, tree):
    temporary = f"{path}.tmp.npz"
    np.savez(temporary, **dict(flatten(tree)))
    os.replace(temporary, path)


def load(path):
    tree = {}
    with np.load(path) as file:
        for key in file.files:
            *parents, last = key.split("/")
            node = tree
            for p in parents:
                node = node.setdefault(p, {})
            node[last] = file[key]
    return tree
