#!/usr/bin/env python3
"""Generates reduce_tables.h: what numpy and ml_dtypes say that the reductions of src/reduce give.

Run it where numpy and ml_dtypes are installed (python3 -m venv v && v/bin/pip install numpy ml_dtypes):
    v/bin/python tests/unit/gen_reduce_tables.py > tests/unit/reduce_tables.h
The results of a (type, op) pair are kept as 64-bit hashes, one for each kind of input; test_reduce_tables.c makes the
same inputs (by the same small generator, mix) and compares. Nothing here is taken from src/reduce but its contract:
accumulation in input order in fp32 (narrow formats) or the element itself, one rounding, and one NaN per format.
"""
import sys

import ml_dtypes
import numpy as np

np.seterr(all="ignore")
U64 = np.uint64

# name: numpy dtype, dtype of the bits, mantissa bits, code of 0.5's exponent less 3 (for "near" inputs), the one NaN
FLOATS = {
    "FLOAT16": (np.float16, np.uint16, 10, 11, 0x7E00),
    "BFLOAT16": (ml_dtypes.bfloat16, np.uint16, 7, 123, 0x7FC0),
    "FLOAT32": (np.float32, np.uint32, 23, 123, 0x7FC00000),
    "FLOAT64": (np.float64, np.uint64, 52, 1019, 0x7FF8000000000000),
    "E4M3": (ml_dtypes.float8_e4m3fn, np.uint8, 3, 3, 0x7F),
    "E5M2": (ml_dtypes.float8_e5m2, np.uint8, 2, 11, 0x7E),
    "E4M3_FNUZ": (ml_dtypes.float8_e4m3fnuz, np.uint8, 3, 4, 0x80),
    "E5M2_FNUZ": (ml_dtypes.float8_e5m2fnuz, np.uint8, 2, 12, 0x80),
}
NARROW = ["FLOAT16", "BFLOAT16", "E4M3", "E5M2", "E4M3_FNUZ", "E5M2_FNUZ"]
COMPLEX = {"COMPLEX64": "FLOAT32", "COMPLEX128": "FLOAT64"}
INTS = {"INT8": np.int8, "UINT8": np.uint8, "INT16": np.int16, "UINT16": np.uint16, "INT32": np.int32,
        "UINT32": np.uint32, "INT64": np.int64, "UINT64": np.uint64}
BITS_ONLY = {"BOOL": np.uint8, "BYTE": np.uint8}

COUNT = 4099         # of random inputs: no multiple of a vector's length
NEAR_EXPONENTS = 8


def mix(z):
    """splitmix64 of each element of an array of uint64."""
    z = z + U64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    return z ^ (z >> U64(31))


def hash_words(words):
    """Order matters: every word is mixed together with its place."""
    words = words.astype(U64)
    place = np.arange(len(words), dtype=U64) * U64(0x9E3779B97F4A7C15)
    return np.add.reduce(mix(words ^ mix(place)), dtype=U64)


def fold(hashes):
    total = np.zeros(1, dtype=U64)
    for h in hashes:
        total = mix(total ^ np.array([h], dtype=U64))
    return int(total[0])


class Bits:
    """How an element stands in memory: `parts` words (2 in a complex number) of the dtype `word`."""

    def __init__(self, word, parts=1):
        self.word, self.parts = word, parts

    def random(self, count, k):
        return mix(np.arange(count * self.parts, dtype=U64) + (U64(k) << U64(32))).astype(self.word)


def special_values(name):
    """Bit patterns of a type's remarkable values, in a fixed order."""
    if name in FLOATS:
        _, word, mantissa, _, _ = FLOATS[name]
        width = np.dtype(word).itemsize * 8
        ones = (1 << (width - 1 - mantissa)) - 1
        exponents = {0, 1, 2, ones // 2 - 1, ones // 2, ones // 2 + 1, ones - 1, ones}
        if name == "FLOAT16":
            exponents |= set(range(ones + 1))
        mantissas = {0, 1, 1 << (mantissa - 1), (1 << (mantissa - 1)) + 1, (1 << mantissa) - 1}
        return [(s << (width - 1)) | (e << mantissa) | m
                for s in (0, 1) for e in sorted(exponents) for m in sorted(mantissas)]
    width = np.dtype(INTS[name]).itemsize * 8
    top = 1 << (width - 1)
    return [0, 1, 2, 3, 7, 10, 127, 128, 129, 255, top - 2, top - 1, top, top + 1, top + 3,
            2 * top - 7, 2 * top - 3, 2 * top - 2, 2 * top - 1] + [(0x0123456789ABCDEF >> s) & (2 * top - 1)
                                                                  for s in (0, 5, 11, 17)]


# Arithmetic on arrays. A value is a list of arrays: one, or real and imaginary part.

def least(a, b, sign):
    """MIN (sign 1) and MAX (sign -1): NaN wins, and -0 is below +0."""
    pick_a = (a < b) if sign > 0 else (a > b)
    pick_a = np.where(a == b, np.signbit(a) if sign > 0 else ~np.signbit(a), pick_a)
    result = np.where(pick_a, a, b)
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), result)


def apply(op, a, b):
    if len(a) == 2 and op == "PROD":
        return [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
    return [apply_part(op, x, y) for x, y in zip(a, b)]


def apply_part(op, a, b):
    if op in ("SUM", "AVG"):
        return a + b
    if op == "PROD":
        return a * b
    if op in ("MIN", "MAX"):
        if a.dtype.kind == "f":
            return least(a, b, 1 if op == "MIN" else -1)
        return np.minimum(a, b) if op == "MIN" else np.maximum(a, b)
    if op == "BAND":
        return a & b
    if op == "BOR":
        return a | b
    if op == "BXOR":
        return a ^ b
    truth = {"LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor}[op](a != 0, b != 0)
    return truth.astype(a.dtype)


def divide(values, d):
    return [divide_part(v, d) for v in values]


def divide_part(v, d):
    if v.dtype.kind == "f":
        return v / v.dtype.type(d)
    if v.dtype.kind == "u":
        return (v.astype(U64) // U64(d)).astype(v.dtype)
    wide = v.astype(np.int64)
    floor = wide // np.int64(d)
    return (floor + ((wide < 0) & (floor * np.int64(d) != wide))).astype(v.dtype)


class Type:
    def __init__(self, name):
        self.name = name
        self.narrow = name in NARROW
        part = COMPLEX.get(name, name)
        self.part = part
        if part in FLOATS:
            self.dtype, word, self.mantissa, self.near_exponent, self.nan = FLOATS[part]
            self.bits = Bits(word, 2 if name in COMPLEX else 1)
            self.ops = ["SUM", "PROD", "AVG"] + ([] if name in COMPLEX else ["MIN", "MAX"])
        elif name in BITS_ONLY:
            self.dtype, self.bits = np.uint8, Bits(np.uint8)
            self.ops = ["LAND", "LOR", "LXOR"] if name == "BOOL" else ["BAND", "BOR", "BXOR"]
        else:
            self.dtype = INTS[name]
            self.bits = Bits(np.dtype(INTS[name].__name__.replace("uint", "int").replace("int", "uint")).type)
            self.ops = ["SUM", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "AVG"]
        self.is_float = part in FLOATS

    def load(self, words, wide):
        """Words in memory -> parts in the accumulator's format."""
        if self.narrow:
            return [words.view(np.float32) if wide else words.view(self.dtype).astype(np.float32)]
        values = words.view(self.dtype)
        return [values] if self.bits.parts == 1 else [values[0::2], values[1::2]]

    def store(self, parts, wide):
        """Parts in the accumulator's format -> words in memory, NaN made the one NaN."""
        out = []
        for v in parts:
            if self.narrow and wide:
                words = v.view(np.uint32).copy()
                words[np.isnan(v)] = FLOATS["FLOAT32"][4]
            elif self.is_float:
                v = v.astype(self.dtype)
                words = v.view(self.bits.word).copy()
                words[np.isnan(v)] = self.nan
            else:
                words = v.view(self.bits.word)
            out.append(words)
        if len(out) == 1:
            return out[0]
        both = np.empty(2 * len(out[0]), dtype=out[0].dtype)
        both[0::2], both[1::2] = out
        return both

    def near(self, count, k, wide):
        """Random numbers of similar size, so that their bits meet in sums."""
        _, word, mantissa, exponent, _ = FLOATS["FLOAT32" if wide else self.part]
        width = np.dtype(word).itemsize * 8
        r = mix(np.arange(count * self.bits.parts, dtype=U64) + (U64(k) << U64(32)))
        sign = (r >> U64(63)) << U64(width - 1)
        e = (U64(exponent) + (r >> U64(55)) % U64(NEAR_EXPONENTS)) << U64(mantissa)
        return (sign | e | (r & U64((1 << mantissa) - 1))).astype(word)

    def reduce(self, op, inputs, divisor=1, src_wide=False, dst_wide=False):
        acc = self.load(inputs[0], src_wide)
        for words in inputs[1:]:
            acc = apply(op, acc, self.load(words, src_wide))
        if divisor > 1:
            acc = divide(acc, divisor)
        return hash_words(self.store(acc, dst_wide))

    def pairs(self, op):
        """All pairs of codes (8 bits), or all pairs of special values; AVG over 2 and 3."""
        if self.bits.word == np.uint8:
            values = np.arange(256, dtype=np.uint8)
        else:
            values = np.array(special_values(self.part), dtype=self.bits.word)
        n = len(values)
        a, b = np.tile(values, n), np.repeat(values, n)
        if self.bits.parts == 2:   # (first, second) times (second, first)
            a, b = np.stack([a, b], 1).ravel(), np.stack([b, a], 1).ravel()
        return fold([self.reduce(op, [a, b], d) for d in ((2, 3) if op == "AVG" else (1,))])

    def random(self, op):
        hashes = []
        for n in (2, 3, 8):
            inputs = [self.bits.random(COUNT, k) for k in range(n)]
            hashes += [self.reduce(op, inputs, d) for d in ((n, 300) if op == "AVG" else (1,))]
        return fold(hashes)

    def near_random(self, op):
        if not self.is_float:
            return 0
        hashes = []
        for n in (2, 3, 8):
            inputs = [self.near(COUNT, k, False) for k in range(n)]
            hashes += [self.reduce(op, inputs, d) for d in ((n, 300) if op == "AVG" else (1,))]
        return fold(hashes)

    def wide(self, op):
        """The forms of narrow types with fp32 at one end or both."""
        if not self.narrow:
            return 0
        hashes = []
        for src_wide, dst_wide in ((False, True), (True, False), (True, True)):
            for n in (2, 3):
                for inputs in ([self.near(COUNT, k, src_wide) for k in range(n)],
                               [(Bits(np.uint32) if src_wide else self.bits).random(COUNT, k) for k in range(n)]):
                    hashes.append(self.reduce(op, inputs, n if op == "AVG" else 1, src_wide, dst_wide))
        return fold(hashes)


def sweep():
    """fp32 patterns around every place where a narrower format rounds: all upper halves with 48 lower halves."""
    low = np.array([(m * 0x1000 + d) & 0xFFFF for m in range(16) for d in (-1, 0, 1)], dtype=np.uint32)
    high = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    return (high[:, None] | low[None, :]).ravel()


def main():
    out = sys.stdout.write
    out("/* Made by gen_reduce_tables.py with numpy %s and ml_dtypes %s: do not edit. */\n"
        % (np.__version__, ml_dtypes.__version__))
    out("/* clang-format off */\n")
    out("enum { TABLE_COUNT = %d, TABLE_NEAR_EXPONENTS = %d };\n\n" % (COUNT, NEAR_EXPONENTS))

    out("/* Hashes of results: pairs, random bits, numbers of similar size, wide ends. */\n")
    out("static const struct { enum red_type type; enum red_op op; uint64_t hash[4]; } table_pairs[] = {\n")
    for name in list(INTS) + list(FLOATS) + list(COMPLEX) + list(BITS_ONLY):
        t = Type(name)
        for op in t.ops:
            out("    { RED_%s, RED_%s, { %s } },\n" % (name, op, ", ".join(
                "0x%016x" % h for h in (t.pairs(op), t.random(op), t.near_random(op), t.wide(op)))))
    out("};\n\n")

    out("/* Formats: mantissa bits, lowest exponent code of near numbers; hashes of all codes made fp32, and of the\n"
        " * sweep over fp32 made the format (narrow formats). */\n")
    out("static const struct { enum red_type type; int mantissa, near_exponent; uint64_t decode, encode; }"
        " table_formats[] = {\n")
    patterns = sweep()
    for name, (_, word, mantissa, exponent, _) in FLOATS.items():
        decode = encode = 0
        if name in NARROW:
            t = Type(name)
            codes = np.arange(1 << (8 * np.dtype(word).itemsize), dtype=np.uint32).astype(word)
            decode = int(hash_words(t.store(t.load(codes, False), True)))
            encode = int(hash_words(t.store(t.load(patterns, True), False)))
        out("    { RED_%s, %d, %d, 0x%016x, 0x%016x },\n" % (name, mantissa, exponent, decode, encode))
    out("};\n\n")

    out("/* The values of the 8-bit formats, as fp32. */\n")
    for name in NARROW[2:]:
        t = Type(name)
        words = t.store(t.load(np.arange(256, dtype=np.uint32).astype(np.uint8), False), True)
        out("static const uint32_t table_%s[256] = {\n" % name.lower())
        for i in range(0, 256, 8):
            out("    %s,\n" % ", ".join("0x%08x" % w for w in words[i:i + 8]))
        out("};\n")
    out("\n/* Remarkable values of the types of more than 8 bits. */\n")
    wider = [n for n in list(INTS) + list(FLOATS) if Type(n).bits.word != np.uint8]
    for name in wider:
        values = special_values(name)
        out("static const uint64_t special_%s[] = {\n" % name.lower())
        for i in range(0, len(values), 6):
            out("    %s,\n" % ", ".join("0x%x" % v for v in values[i:i + 6]))
        out("};\n")
    out("static const struct { enum red_type type; size_t n; const uint64_t *values; } table_special[] = {\n")
    for name in wider + list(COMPLEX):
        array = "special_%s" % COMPLEX.get(name, name).lower()
        out("    { RED_%s, sizeof(%s) / sizeof(%s[0]), %s },\n" % (name, array, array, array))
    out("};\n")


main()
