"""Batches of training rows, made as they are needed.

With a trainable tower every picture is new. With a frozen tower a picture's features are kept in a replay store and drawn a few
times, each time with other questions: drawing a picture and running the tower on it costs more than the store does.
"""
import numpy as np

import data
import text


def picture(rng, mix, soup=0.0):
    """A sample of a kind drawn by the weights `mix` (scene, counting, digits, word), with a random gain per colour channel."""
    kind = data.SOUPS if rng.random() < soup else int(rng.choice(4, p=np.array(mix) / sum(mix)))
    sample = data.make(rng, kind)
    sample.questions += [q for q in sample.questions if q.task == "caption"]  # the longest answers, asked more often
    gain = rng.uniform(0.9, 1.1, 3)
    sample.image = np.clip(sample.image * gain + 0.5, 0, 255).astype(np.uint8)
    return sample


def row(rng, sample, jitter):
    """Packed questions of a sample as the arrays `model.decode` and the losses take."""
    token, segment, target, point = text.pack(rng, sample.questions)
    at = np.flatnonzero(target)
    n = text.ANSWERS - len(at)
    # some questions get lower positions, as with fewer visual tokens, so that nothing depends on 196 of them
    shift = np.where(rng.random(64) < jitter, -rng.integers(0, data.PATCHES - 15, 64), 0)
    return {"token": token.astype(np.int32), "segment": segment.astype(np.int32), "shift": shift[segment].astype(np.int32),
            "rows": np.pad(at - 1, (0, n)).astype(np.int32), "want": np.pad(token[at], (0, n)).astype(np.int32),
            "valid": np.pad(np.ones(len(at), np.float32), (0, n)), "point": np.pad(point[at], (0, n))}


def stack(rows):
    return {k: np.stack([r[k] for r in rows]) for k in rows[0]}


class Feed:
    """Rows for the decoder. `features` maps uint8 pictures to tower features; None hands out the pictures themselves."""

    def __init__(self, args, first, features=None):
        self.args, self.next, self.features = args, first, features
        self.rng = np.random.default_rng([data.TRAIN, first, 1])
        self.store, self.oldest = [], 0

    def new(self, n):
        samples = [picture(np.random.default_rng([data.TRAIN, self.next + i]), self.args.mix) for i in range(n)]
        self.next += n
        return samples

    def batch(self):
        a = self.args
        if self.features is None:
            drawn = [(s.image, s) for s in self.new(a.batch)]
        else:
            self.refill(a.batch if len(self.store) < a.keep else a.fresh)
            drawn = [self.store[i] for i in self.rng.integers(0, len(self.store), a.batch)]
        rows = [{"x": x, "labels": s.labels, "owner": s.owner} | row(self.rng, s, a.jitter) for x, s in drawn]
        return stack(rows)

    def refill(self, n):
        samples = self.new(n)
        features = np.asarray(self.features(np.stack([s.image for s in samples])), np.float16)
        for x, s in zip(features, samples):
            s.image = None
            if len(self.store) < self.args.keep:
                self.store.append((x, s))
            else:
                self.store[self.oldest] = (x, s)
                self.oldest = (self.oldest + 1) % self.args.keep


class TowerFeed:
    """Pictures with per-patch labels only."""

    def __init__(self, args, first):
        self.args, self.next = args, first

    def batch(self):
        rngs = [np.random.default_rng([data.SOUP, self.next + i]) for i in range(self.args.batch)]
        self.next += self.args.batch
        samples = [picture(r, self.args.mix, self.args.soup) for r in rngs]
        return {"x": np.stack([s.image for s in samples]), "labels": np.stack([s.labels for s in samples])}
