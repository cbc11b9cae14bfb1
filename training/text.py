"""The demo model's text side: vocabulary, prompt template, and packing of questions behind one picture.

Vocabulary: 0 `<unk>`, 1 `<s>`, 2 `</s>`, 3..258 bytes, 259 the space mark U+2581, 260.. printable ASCII. No piece has two
characters, so no merge rule can differ between this file and llama.cpp.
"""
from dataclasses import dataclass

import numpy as np

VOCAB = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581"] + [chr(c) for c in range(33, 127)]
UNK, BOS, EOS = 0, 1, 2
BYTES = slice(3, 259)
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] + '\\n\\n' }}"
    "{% elif m['role'] == 'user' %}{{ 'USER: ' + m['content'] + '\\n' }}"
    "{% elif m['role'] == 'assistant' %}{{ 'ASSISTANT: ' + m['content'] + '</s>\\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
_ID = {" ": 259, "\n": 3 + 10} | {chr(c): 260 + c - 33 for c in range(33, 127)}
_CHARACTER = {v: k for k, v in _ID.items()}


def encode(text):
    """Token ids of `text`, without `<s>`."""
    return [_ID[c] for c in text]


def decode(ids):
    """The text of token ids; ids that stand for no character become `?`."""
    return "".join(_CHARACTER.get(int(i), "?") for i in ids)


@dataclass(frozen=True)
class Dialect:
    """Token ids around the picture, the question and the answer."""
    prefix: list  # before the visual tokens
    before: list  # between these and the question
    after: list
    lead: list  # in front of the answer; part of what the model says
    end: int

    def prompt(self, question):
        """Token ids after the visual tokens, up to where the answer starts."""
        return self.before + encode(question) + self.after

    def answer(self, answer):
        return self.lead + encode(answer) + [self.end]


VICUNA = Dialect([BOS] + encode("USER: "), [], encode("\nASSISTANT:"), encode(" "), EOS)

COUNTS = 1 << 16  # flag among the object bits: the token says how many they are
WIDTH, ANSWERS = 256, 96  # text tokens and answer tokens of one packed row


def pack(rng, questions, dialect):
    """One training row: as many questions in random order as fit.

    Returns int arrays of shape [WIDTH]: token, segment (0 is padding, from 1 up otherwise), 1 where the token belongs to an
    answer, and the objects the answer token speaks of (bit i is owner i + 1 of `data.Sample.owner`, see also `COUNTS`).
    """
    token, segment, target = (np.zeros(WIDTH, d) for d in (np.int16, np.int8, np.int8))
    point = np.zeros(WIDTH, np.int32)
    used = answers = count = 0
    for i in rng.permutation(len(questions)):
        q = questions[i]
        head, tail = dialect.prompt(q.text), dialect.answer(q.answer)
        if used + len(head) + len(tail) > WIDTH or answers + len(tail) > ANSWERS:
            continue
        count += 1
        answers += len(tail)
        first, end = used + len(head), used + len(head) + len(tail)
        token[used:end], segment[used:end], target[first:end] = head + tail, count, 1
        said = first + len(dialect.lead)
        for start, stop, owners in q.spans:
            point[said + start : said + stop] = owners
        used = end
    return token, segment, target, point


def single(questions, dialect, width=112):
    """One question a row, for evaluation: token, segment, target of shape [len(questions), width]."""
    out = [np.zeros((len(questions), width), np.int32) for _ in range(3)]
    for i, q in enumerate(questions):
        head, tail = dialect.prompt(q.text), dialect.answer(q.answer)
        n = len(head) + len(tail)
        out[0][i, :n], out[1][i, :n], out[2][i, len(head) : n] = head + tail, 1, 1
    return out
