"""Batches of training rows, made as they are needed.

With a trainable tower every picture is new. With a frozen tower a picture's features are kept in a replay store and drawn a few
times, each time with other questions: drawing a picture and running the tower on it costs more than the store does.
"""
import numpy as np

import data
import text


WIDE = 20  # patches on the longer side of a widened canvas


def picture(rng, mix, soup=0.0):
    """A sample of a kind drawn by the weights `mix` (scene, counting, digits, word), with a random gain per colour channel."""
    kind = data.SOUPS if rng.random() < soup else int(rng.choice(4, p=np.array(mix) / sum(mix)))
    sample = data.make(rng, kind)
    sample.questions += [q for q in sample.questions if q.task == "caption"]  # the longest answers, asked more often
    gain = rng.uniform(0.9, 1.1, 3)
    sample.image = np.clip(sample.image * gain + 0.5, 0, 255).astype(np.uint8)
    return sample


def widen(rng, sample, rows, columns):
    """The sample on a larger canvas of `rows` x `columns` patches, at a random place; what is around it holds nothing."""
    grid, more = data.GRID, (rows - data.GRID, columns - data.GRID)
    y, x = (int(rng.integers(0, m + 1)) for m in more)
    around = [(y, more[0] - y), (x, more[1] - x), (0, 0)]
    image = np.empty((rows * data.PATCH, columns * data.PATCH, 3), np.uint8)
    image[:] = np.median(sample.image, (0, 1))
    image[y * data.PATCH :, x * data.PATCH :][: data.SIDE, : data.SIDE] = sample.image
    part = lambda a, empty: np.pad(a.reshape(grid, grid, -1), around, constant_values=empty).reshape(rows * columns, -1)
    labels = np.concatenate([part(sample.labels[:, :6], 0), part(sample.labels[:, 6:], -1)], 1)
    return data.Sample(image, labels, part(sample.owner, 0)[:, 0], sample.questions)


def canvases(rng, samples, share):
    """A batch as it is, or with probability `share` all of it wide or all of it tall: one step has pictures of one size."""
    if rng.random() >= share:
        return samples
    rows, columns = ((data.GRID, WIDE), (WIDE, data.GRID))[rng.integers(2)]
    return [widen(rng, s, rows, columns) for s in samples]


def row(rng, sample, jitter, dialect):
    """Packed questions of a sample as the arrays `model.decode` and the losses take."""
    token, segment, target, point = text.pack(rng, sample.questions, dialect)
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

    def __init__(self, args, first, dialect, features=None):
        self.args, self.next, self.dialect, self.features = args, first, dialect, features
        self.rng = np.random.default_rng([data.TRAIN, first, 1])
        self.store, self.oldest = [], 0

    def new(self, n):
        samples = [picture(np.random.default_rng([data.TRAIN, self.next + i]), self.args.mix) for i in range(n)]
        self.next += n
        return samples

    def batch(self):
        a = self.args
        if self.features is None:
            samples = canvases(self.rng, self.new(a.batch), a.widen)
            drawn = [(s.image, s) for s in samples]
        else:
            self.refill(a.batch if len(self.store) < a.keep else a.fresh)
            drawn = [self.store[i] for i in self.rng.integers(0, len(self.store), a.batch)]
        rows = [{"x": x, "labels": s.labels, "owner": s.owner} | row(self.rng, s, a.jitter, self.dialect) for x, s in drawn]
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
        samples = canvases(rngs[0], [picture(r, self.args.mix, self.args.soup) for r in rngs], self.args.widen)
        return {"x": np.stack([s.image for s in samples]), "labels": np.stack([s.labels for s in samples])}
