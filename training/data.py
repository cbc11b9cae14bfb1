"""Synthetic pictures of 224 x 224 pixels with questions, answers and per-patch labels.

A picture is drawn from a seed alone. Seeds are lists of numbers; the first number keeps the streams apart: `TRAIN` and
`SOUP` for training, `HELD_OUT` for evaluation, `SAMPLES` for the bundled pictures.
"""
import math
from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from text import COUNTS

SIDE, PATCH, GRID = 224, 16, 14
PATCHES = GRID * GRID
TASKS = ["attr", "count", "spatial", "grid", "ocr", "caption"]
TRAIN, SOUP, HELD_OUT, SAMPLES = 11, 12, 99, 20240607
SCENE, COUNTING, DIGITS, WORD, SOUPS = range(5)  # kinds of picture

COLOURS = {"red": (208, 32, 36), "orange": (242, 138, 22), "yellow": (240, 222, 44), "green": (36, 158, 58),
           "blue": (40, 76, 214), "purple": (132, 48, 172), "black": (18, 18, 18), "white": (246, 246, 246)}
COLOUR = list(COLOURS)
SHAPES = ["circle", "square", "triangle", "star", "cross", "diamond"]
FONTS = ["DejaVuSans-Bold", "DejaVuSerif-Bold", "DejaVuSansMono-Bold"]
WORDS = """BOOK TREE FISH BIRD LAMP DOOR MILK RAIN SNOW WIND FIRE ROCK SAND GOLD IRON WOOD LEAF ROSE SHIP BOAT ROAD
CITY PARK HOME ROOM WALL ROOF DESK SOFA BELL DRUM SONG GAME BALL KITE JUMP WALK SWIM COOK BAKE CAKE SOUP RICE CORN
BEAN PEAR PLUM LIME KIWI FROG TOAD BEAR WOLF LION DEER GOAT LAMB DUCK SWAN CRAB MOTH WORM STAR MOON MARS VEGA HAND
FOOT HEAD NECK NOSE BACK KNEE BABY KING TIME YEAR WEEK HOUR ZERO FOUR FIVE NINE LEFT DOWN OPEN SHUT FAST SLOW
COLD WARM DARK PINK BLUE GREY JAZZ QUIZ ONYX HAWK VASE YARN ZINC EXIT AXLE JUNK VIEW""".split()
DIRECTIONS = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}
ASK = {
    "colour": ["What colour is the {s}?", "Which colour is the {s}?", "Name the colour of the {s}."],
    "shape": ["What shape is {c}?", "Which shape is {c}?", "Name the {c} shape."],
    "count": ["How many {p} are there?", "Count the {p}.", "What is the number of {p}?"],
    "spatial": ["What is {r} the {s}?", "Which object is {r} the {s}?"],
    "grid": ["What digit is in row {r} column {c}?", "Read the digit at row {r}, column {c}.",
             "Row {r}, column {c}: which digit?"],
    "ocr": ["What word is written?", "Read the word.", "What does the text say?"],
    "letter": ["What is letter {i}?"],
    "caption": ["Describe the image.", "What is in the image?"],
}
# Per-patch targets of the tower stage, with their numbers of classes: what is here (nothing, shape, digit, letter), colour,
# row and column in a table, how many of this shape there are, whether a centre lies here, shape and colour of the
# neighbours in four directions. -1 in a label means "not asked".
CENTRE = 5
LABELS = [7 + 10 + 26, 9, 5, 5, 8, 2] + [7, 9] * 4
CENTRES = np.stack(np.meshgrid(*[np.arange(GRID) * PATCH + 8.0] * 2, indexing="xy"), -1).reshape(-1, 2).astype(np.float32)


@dataclass
class Question:
    task: str
    text: str
    answer: str
    spans: list = field(default_factory=list)  # (first, end, owners): which objects these characters speak of


@dataclass
class Sample:
    image: np.ndarray  # uint8 [224, 224, 3]
    labels: np.ndarray  # int8 [196, len(LABELS)]
    owner: np.ndarray  # int8 [196]: 0, or 1 + the object, table cell or letter that covers the patch
    questions: list


def snap(v):
    """Centres lie on an 8-pixel lattice: four alignments to the patches to learn, not 256."""
    return int(round(v / 8)) * 8


_fonts, _noise = {}, []


def font(name, size):
    if (name, size) not in _fonts:
        _fonts[name, size] = ImageFont.truetype(f"{name}.ttf", size)
    return _fonts[name, size]


def background(rng):
    """A flat, graded or blotchy ground of middle brightness."""
    tint = rng.uniform(80, 176) + rng.uniform(-16, 16, 3)
    kind = rng.integers(4)
    if kind == 0:
        return Image.fromarray(np.broadcast_to(tint, (SIDE, SIDE, 3)).astype(np.uint8))
    if kind == 1:
        other = np.clip(tint + rng.uniform(-30, 30, 3), 70, 186)
        ramp = np.linspace(0, 1, SIDE)
        ramp = ramp[:, None, None] if rng.random() < 0.5 else ramp[None, :, None]
        return Image.fromarray(np.broadcast_to(tint + (other - tint) * ramp, (SIDE, SIDE, 3)).astype(np.uint8))
    n = int(rng.integers(3, 12))
    blotches = np.clip(tint + rng.uniform(-18, 18, (n, n, 3)), 66, 190).astype(np.uint8)
    return Image.fromarray(blotches).resize((SIDE, SIDE), Image.BILINEAR)


def finish(rng, image):
    """Noise and brightness."""
    if not _noise:
        _noise.append(np.random.default_rng(7).normal(0, 1, (512, 512, 3)).astype(np.float32))
    y, x = rng.integers(0, 288, 2)
    a = np.asarray(image, np.float32) + _noise[0][y : y + SIDE, x : x + SIDE] * rng.uniform(0, 5)
    return np.clip(a * rng.uniform(0.92, 1.06) + 0.5, 0, 255).astype(np.uint8)


def ink(rng):
    return tuple(int(v) for v in (rng.integers(0, 34, 3) if rng.random() < 0.5 else rng.integers(228, 256, 3)))


def blank_labels():
    labels = np.zeros((PATCHES, len(LABELS)), np.int8)
    labels[:, 6:] = -1
    return labels


def draw_shape(rng, draw, o):
    """`o`: dict of shape `s`, colour `c`, centre `x`, `y` and radius `r` in pixels."""
    x, y, r, turn = o["x"], o["y"], o["r"], rng.uniform(-0.1, 0.1)
    fill = tuple(int(v) for v in np.clip(np.array(COLOURS[o["c"]]) + rng.integers(-14, 15, 3), 0, 255))
    if o["s"] == "circle":
        draw.ellipse((x - r * 0.92, y - r * 0.92, x + r * 0.92, y + r * 0.92), fill=fill)
        return

    def ring(n, radii, start=0.0):
        angles = [start + 2 * math.pi * i / n for i in range(n)]
        return [(radii[i % len(radii)] * math.sin(a), -radii[i % len(radii)] * math.cos(a)) for i, a in enumerate(angles)]

    w = 0.34
    corners = {
        "square": lambda: ring(4, [1.12], math.pi / 4),
        "triangle": lambda: ring(3, [1.1]),
        "star": lambda: ring(10, [1.1, 0.44]),
        "diamond": lambda: [(0, -1.1), (0.68, 0), (0, 1.1), (-0.68, 0)],
        "cross": lambda: [(-w, -1), (w, -1), (w, -w), (1, -w), (1, w), (w, w), (w, 1), (-w, 1), (-w, w), (-1, w),
                          (-1, -w), (-w, -w)],
    }[o["s"]]()
    cos, sin = math.cos(turn), math.sin(turn)
    draw.polygon([(x + r * (a * cos - b * sin), y + r * (a * sin + b * cos)) for a, b in corners], fill=fill)


def covered(o):
    """Patches an object covers, at least the nearest ones."""
    return np.hypot(CENTRES[:, 0] - o["x"], CENTRES[:, 1] - o["y"]) <= max(o["r"] * 0.9, 11.4)


def place(rng, objects, smallest, largest, line):
    """Gives the objects radii (units of 4 pixels) and places that do not overlap; `line` is "h", "v" or None."""
    n = len(objects)
    for _ in range(200):
        for i, o in enumerate(objects):
            o["r"] = float(rng.integers(smallest, largest + 1) * 4)
            margin = o["r"] + 4
            o["x"], o["y"] = rng.uniform(margin, SIDE - margin, 2)
            if line:
                along = (i + 0.5 + rng.uniform(-0.16, 0.16)) * SIDE / n
                across = SIDE / 2 + rng.uniform(-70, 70) if i == 0 else objects[0]["across"] + rng.uniform(-16, 16)
                o["across"] = across
                o["x"], o["y"] = np.clip((along, across) if line == "h" else (across, along), margin, SIDE - margin)
            o["x"], o["y"] = snap(o["x"]), snap(o["y"])
        p = np.array([(o["x"], o["y"], o["r"]) for o in objects])
        gap = np.hypot(p[:, None, 0] - p[None, :, 0], p[:, None, 1] - p[None, :, 1]) - p[:, None, 2] - p[None, :, 2]
        if (gap + np.eye(n) * 99 > 5).all():
            return True
    return False


def neighbour(objects, o, d):
    """The only object in direction `d` of `o`; None: nothing there; -1: not clear enough to ask."""
    hits, unclear = [], False
    for p in objects:
        if p is o:
            continue
        dx, dy = p["x"] - o["x"], p["y"] - o["y"]
        ahead, aside = dx * d[0] + dy * d[1], abs(dx * d[1]) + abs(dy * d[0])
        if ahead > 0 and aside <= 0.6 * ahead:
            hits.append(p)
        elif ahead > 0 and aside <= 1.05 * ahead:
            unclear = True
    return -1 if unclear or len(hits) > 1 else (hits[0] if hits else None)


def scene_objects(rng, counting):
    while True:
        if counting:
            shapes = list(rng.permutation(SHAPES))
            objects = [{"s": shapes[0]} for _ in range(int(rng.integers(1, 7)))]
            objects += [{"s": shapes[1 + int(rng.integers(2))]} for _ in range(int(rng.integers(0, 4)))]
            sizes = (3, 4) if len(objects) > 5 else (3, 5)
        else:
            n = int(rng.choice([1, 2, 3], p=[0.15, 0.5, 0.35]))
            shapes = None
            objects = [{"s": s} for s in rng.permutation(SHAPES)[:n]]
            sizes = (4, 7)
        for o in objects:
            o["c"] = COLOUR[rng.integers(len(COLOUR))]
        line = None if counting or rng.random() < 0.45 else ("h" if rng.random() < 0.5 else "v")
        if place(rng, objects, *sizes, line):
            for i, o in enumerate(objects):
                o["bit"] = 1 << i
            return objects, shapes


def caption(objects):
    """From left to right, with the spans of the objects' names."""
    text, spans = "", []
    objects = sorted(objects, key=lambda o: o["x"])
    for i, o in enumerate(objects):
        joint = "" if i == 0 else (" and " if i == len(objects) - 1 else ", ")
        name = f"a{'n' if o['c'][0] == 'o' else ''} {o['c']} {o['s']}"
        # the article depends on the colour, and so on the object
        spans.append((len(text) + len(joint), len(text) + len(joint) + len(name), o["bit"]))
        text += joint + name
    return [Question("caption", t, text, spans) for t in ASK["caption"]]


def scene(rng, counting):
    objects, shapes = scene_objects(rng, counting)
    draw = ImageDraw.Draw(image := background(rng))
    for o in objects:
        draw_shape(rng, draw, o)
    labels, owner, questions = blank_labels(), np.zeros(PATCHES, np.int8), []
    for i, o in enumerate(objects):
        here = covered(o)
        owner[here] = 1 + i
        same = sum(p["s"] == o["s"] for p in objects)
        labels[here, 0], labels[here, 1], labels[here, 4] = 1 + SHAPES.index(o["s"]), 1 + COLOUR.index(o["c"]), same
        labels[int(o["y"] // PATCH) * GRID + int(o["x"] // PATCH), CENTRE] = 1
        if counting:
            continue
        of = [(0, len(o["c"]), o["bit"])]
        questions += [Question("attr", t.format(s=o["s"]), o["c"], of) for t in ASK["colour"]]
        if sum(p["c"] == o["c"] for p in objects) == 1:
            of = [(0, len(o["s"]), o["bit"])]
            questions += [Question("attr", t.format(c=o["c"]), o["s"], of) for t in ASK["shape"]]
        for j, (relation, d) in enumerate(DIRECTIONS.items()):
            p = neighbour(objects, o, d)
            if p == -1:
                continue
            labels[here, 6 + 2 * j] = 0 if p is None else 1 + SHAPES.index(p["s"])
            labels[here, 7 + 2 * j] = 0 if p is None else 1 + COLOUR.index(p["c"])
            if p is not None:
                answer = f"{p['c']} {p['s']}"
                of = [(0, len(answer), p["bit"])]
                questions += [Question("spatial", t.format(r=relation, s=o["s"]), answer, of) for t in ASK["spatial"]]
    if counting:
        others = [s for s in shapes[1:3] if any(o["s"] == s for o in objects)]
        others += [shapes[5]] if rng.random() < 0.25 else []
        for s in [shapes[0]] + others:  # the first three questions are about the main shape
            mine = [o for o in objects if o["s"] == s]
            of = [(0, 1, COUNTS | sum(o["bit"] for o in mine))]
            many = s + ("es" if s == "cross" else "s")
            questions += [Question("count", t.format(p=many), str(len(mine)), of) for t in ASK["count"]]
    else:
        xs = sorted(o["x"] for o in objects)
        if all(b - a > 12 for a, b in zip(xs, xs[1:])):
            questions += caption(objects) * 2
    return Sample(finish(rng, image), labels, owner, questions)


def glyph(draw, face, fill, character, x, y, labels, reach, row=0, column=0):
    """Draws one centred character, labels its patches and returns which they are; `reach` in pixels, x and y."""
    draw.text((x, y), character, font=face, fill=fill, anchor="mm")
    here = (abs(CENTRES[:, 0] - x) <= reach[0]) & (abs(CENTRES[:, 1] - y) <= reach[1])
    labels[here, 0] = 7 + int(character) if character.isdigit() else 17 + ord(character) - 65
    labels[here, 2], labels[here, 3] = row, column
    labels[min(y // PATCH, GRID - 1) * GRID + min(x // PATCH, GRID - 1), CENTRE] = 1
    return here


def digits(rng):
    """A table of four by four digits."""
    draw = ImageDraw.Draw(image := background(rng))
    c = int(rng.choice([32, 40, 48]))
    x0, y0 = (snap(v + c / 2) - c // 2 for v in rng.uniform(0, SIDE - 4 * c, 2))
    face = font(FONTS[rng.integers(len(FONTS))], int(rng.choice([24, 24 if c < 40 else 32])))
    fill = ink(rng)
    if rng.random() < 0.6:
        for i in range(5):
            draw.line((x0 + i * c, y0, x0 + i * c, y0 + 4 * c), fill=fill)
            draw.line((x0, y0 + i * c, x0 + 4 * c, y0 + i * c), fill=fill)
    labels, owner, questions = blank_labels(), np.zeros(PATCHES, np.int8), []
    for r in range(4):
        for k in range(4):
            v = str(int(rng.integers(10)))
            centre = x0 + k * c + c // 2, y0 + r * c + c // 2
            here = glyph(draw, face, fill, v, *centre, labels, (c * 0.4, c * 0.4), r + 1, k + 1)
            owner[here] = 1 + 4 * r + k
            of = [(0, 1, 1 << (4 * r + k))]
            questions += [Question("grid", t.format(r=r + 1, c=k + 1), v, of) for t in ASK["grid"]]
    return Sample(finish(rng, image), labels, owner, questions)


def word(rng):
    """Four letters: a word of the list, or any letters."""
    draw = ImageDraw.Draw(image := background(rng))
    listed = rng.random() < 0.5
    text = WORDS[rng.integers(len(WORDS))] if listed else "".join(chr(65 + i) for i in rng.integers(0, 26, 4))
    c = int(rng.choice([32, 40, 48]))
    face, fill = font(FONTS[rng.integers(len(FONTS))], int(rng.choice([24, 32]))), ink(rng)
    x0, y0 = snap(rng.uniform(0, SIDE - 4 * c) + c / 2) - c // 2, snap(rng.uniform(20, SIDE - 20))
    labels, owner = blank_labels(), np.zeros(PATCHES, np.int8)
    for i in range(4):
        here = glyph(draw, face, fill, text[i], x0 + i * c + c // 2, y0, labels, (c * 0.4, c * 0.45), 0, i + 1)
        owner[here] = 1 + i
    of = [(i, i + 1, 1 << i) for i in range(4)]
    questions = [Question("ocr", t, text, of) for t in ASK["ocr"]]
    questions += [Question("letter", ASK["letter"][0].format(i=i + 1), text[i], [(0, 1, 1 << i)]) for i in range(4)]
    return Sample(finish(rng, image), labels, owner, questions)


def soup(rng):
    """As many characters or shapes as fit: much to learn per picture for the tower. Has no questions."""
    draw = ImageDraw.Draw(image := background(rng))
    labels = blank_labels()
    labels[:, 2:5] = -1
    mode = int(rng.choice(3, p=[0.4, 0.35, 0.25]))  # letters, digits, shapes
    c = int(rng.choice([32, 40] if mode < 2 else [32, 40, 48, 64]))
    face = font(FONTS[rng.integers(len(FONTS))], int(rng.choice([24, 32])))
    fill, (ox, oy) = ink(rng), rng.integers(0, 4, 2) * 8
    for y in range(oy + c // 2, SIDE - c // 3, c):
        for x in range(ox + c // 2, SIDE - c // 3, c):
            if mode < 2:
                character = str(rng.integers(10)) if mode == 1 else chr(65 + int(rng.integers(26)))
                glyph(draw, face, fill, character, snap(x), snap(y), labels, (c * 0.4, c * 0.42), -1, -1)
            elif rng.random() < 0.85:
                o = {"s": SHAPES[rng.integers(6)], "c": COLOUR[rng.integers(8)], "r": 4.0 * rng.integers(3, c // 8)}
                o |= {"x": x, "y": y}
                draw_shape(rng, draw, o)
                here = covered(o)
                labels[here, 0], labels[here, 1] = 1 + SHAPES.index(o["s"]), 1 + COLOUR.index(o["c"])
    if mode == 2:
        labels[:, 5] = -1
    return Sample(finish(rng, image), labels, np.zeros(PATCHES, np.int8), [])


def make(rng, kind):
    if kind in (SCENE, COUNTING):
        return scene(rng, kind == COUNTING)
    return {DIGITS: digits, WORD: word, SOUPS: soup}[kind](rng)


def held_out(task, i, stream=HELD_OUT):
    """The i-th picture of a task in a stream that training never uses, with one question."""
    rng = np.random.default_rng([stream, TASKS.index(task), i])
    kind = {"count": COUNTING, "grid": DIGITS, "ocr": WORD}.get(task, SCENE)
    while True:
        sample = make(rng, kind)
        asked = [q for q in sample.questions if q.task == task][: 3 if task == "count" else None]
        if asked:
            return sample.image, asked[rng.integers(len(asked))]
