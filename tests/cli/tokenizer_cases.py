"""Cases of the tokenizer oracles: pattern families as HF pre-tokenizers, vocabularies trained here, strings that hurt, the probe."""

import base64
import json
import random
import struct
import subprocess
import unicodedata

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
U, L = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
NUMBERS, BLANK = r"\p{N}{1,3}", r"\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = [rf"[^\r\n\p{{L}}\p{{N}}]?{U}*{L}+", rf"[^\r\n\p{{L}}\p{{N}}]?{U}+{L}*"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT2_POSSESSIVE = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
          r"\s+(?!\S)|\s")
DEEPSEEK = [NUMBERS, "[一-龥\u3040-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
            "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
PATTERNS = {
    "gpt2": GPT2,
    "gpt2-possessive": GPT2_POSSESSIVE,
    "cl100k": CL100K,
    "o200k": "|".join([f"{CASED[0]}{CONTRACTIONS}?", f"{CASED[1]}{CONTRACTIONS}?", NUMBERS, r" ?[^\s\p{L}\p{N}]+[\r\n/]*", BLANK]),
    "llama3": "|".join([CONTRACTIONS, r"[^\r\n\p{L}\p{N}]?\p{L}+", NUMBERS, r" ?[^\s\p{L}\p{N}]+[\r\n]*", BLANK]),
    "qwen2": "|".join([CONTRACTIONS, r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", BLANK]),
    "qwen3.5": "|".join([CONTRACTIONS, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", BLANK]),
    "tekken": "|".join([*CASED, r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", BLANK]),
    "megatron-v1": r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    # No family: PCRE2 does these.
    "own": r"\p{Lu}?\p{Ll}+|\p{N}{2}|\s+|[^\s\p{L}\p{N}]{1,4}",
    "own-empty": r"\p{L}*|\d+?",
    "own-lines": r"^\p{L}+|\p{L}+$|\d+(?=\s|$)|\s+\z|\s+(?!\S)|\A.|(?<=\n)[^\n]{3}",
}

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

TEXT = """The quick brown fox doesn't jump over 12 lazy dogs; they'll've gone, I'M SURE. It's 1234567 o'clock — naïve café.
Straße, Größe, über Äpfel und Öl. L'été où l'âme s'élève. Быстрая коричневая лиса прыгает через ленивую собаку. Η γρήγορη αλεπού.
素早い茶色の狐がのろまな犬を飛び越える。日本語のテキストです。カタカナも。快速的棕色狐狸跳过懒狗。中文文本一二三。다람쥐 헌 쳇바퀴에 타고파. 한국어.
तेज भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ الثعلب البني السريع يقفز فوق الكلب الكسول
for (int i = 0; i < n; ++i)\r\n{\r\n\tsum += a[i] * b[i];  // fooBar HTTPServer getURLForID\n    if x_y == "a\\n": return -1\n}\n\n\n
https://example.org/path/to/file.html?id=42&x=%20 <div class="a">text</div> user@mail.com 3.14159 2024-01-31 10:20:30 $1,234.56 50%
"""

ATOMS = ["'s", "'S", "'ſ", "'t", "'re", "'RE", "'ve", "'VE", "'m", "'ll", "'LL", "'lL", "'d", "'D", "'", "''", "'x", "’s",
         " ", "  ", "   ", "\t", "\n", "\n\n", "\r", "\r\n", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u2003", "\u2028", "\u2029",
         "\u202f", "\u3000", "\u180e", "\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\x00", "\x1c", "\x1f", "\x7f", "\ufffd",
         "0", "1", "12", "123", "1234", "½", "Ⅷ", "٣", "〇", "๓", "𝟘", "a", "b", "the", "The", "THE", "fooBar", "FOOBar", "Z", "é",
         "e\u0301", "\u0301", "\u0308", "ß", "ẞ", "Å", "Å", "ﬁ", "Ǆ", "ǅ", "ǆ", "ʰ", "ª", "º", "İ", "ı", "K", "中", "中文字", "一二三四",
         "あ", "アイ", "ー", "々", "〆", "⺀", "豈", "𠀀", "각", "\u1100\u1161\u11a8", "한국", "अ", "ि", "ा", "न्", "ก", "ำ", "ี", "А", "я", "лиса",
         "Ω", "ς", "ا", "ّ", "ب", "א", "ָ", "😀", "👨\u200d👩", "🏽", "🇩🇪", "\ufe0f", "!", "?", "...", "/", "//", "\\", "_", "-", "--", "—", "…", "«",
         "$", "€", "^", "`", "+", "=", "(", ")", "[", "]", "{", "}", "<", ">", "|", "~", ".", ",", ":", ";", "\"", "#", "%", "&", "*", "@",
         "\ua7cb", "\U00010d50", "\ue000", "\U000f0000", "\U0010ffff", "<|", "|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>",
         " <|endoftext|> ", "\u0c3c\u0323", "\u1df6\u0301", "\u0345\u0301", "ο\u0345\u0301", "\u0958", "\u2126", "\u212b", "\uf900"]

# data.md's traps that single strings can show.
TRAPS = ["", " ", "\n", "a   b", "abc  \n  ", "a\n\n\nb", "abc\n  ", "b\u180e\u180ec", "it'ſ", "IT'S", "12345", "Ⅷ½", "a\u0000b", "\ufeffabc",
         "e\u0301 \u212b", "\u1112\u1161\u11ab", "x\u2028y\u0085z", "'s's't", "don't'll", "((foo", "(foo", " (foo", "  (foo", "\t(foo", "'there", "foo.\n\nbar",
         "foo.\n/bar", "../\n/x", "a\r\n\r\n  b", "\r\n", " \r\n ", "1\u06602", "  123", "\n123", "HTTPServer", "FOOb", "fOO", "あAb", "あAB", "Aあb", "ʰAʰb",
         "\u0301a", "!\u0301a", "!!\u0301a", " \u0301", "<|endoftext|>", "x<|im_start|>y<|im_end|>", "<|endoftext", "a" * 70, "中" * 70, " " * 70 + "x",
         "\n" * 70, "ab" * 200, "aab" * 100, "'" * 70 + "s", "=" * 200, "\u0301" * 80, "Việt Nam", " Việt", "ȺȾ", "\u200d", "\u0600a", "\U0001f1e9", "\u00adx"]


def random_text(rng):
    kind = rng.random()
    if kind < 0.1:
        return "".join(random_char(rng) for _ in range(rng.randint(1, 40)))
    if kind < 0.2:
        return "".join(rng.choice(ATOMS) * rng.randint(1, 40) for _ in range(rng.randint(1, 6)))
    if kind < 0.5:
        # A few atoms only: what matters is how they follow each other.
        few = rng.sample(ATOMS, 5)
        return "".join(rng.choice(few) for _ in range(rng.randint(1, 40)))
    if kind < 0.7:
        begin = rng.randrange(len(TEXT) - 1)
        text = TEXT[begin:begin + rng.randint(1, 200)]
        at = rng.randrange(len(text) + 1)
        return text[:at] + rng.choice(ATOMS) + text[at:]
    return "".join(rng.choice(ATOMS) for _ in range(rng.randint(1, 60)))


def random_char(rng):
    while True:
        c = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x20000), rng.randrange(0x110000)])
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def newer_than_pcre2(text):
    """Whether PCRE2's tables (Unicode 14 in Debian 12, as this Python's) may not know a character, or know it as another kind."""
    return any(c == "\u180e" or unicodedata.category(c) == "Cn" for c in text)


def adversarial(num, seed):
    rng = random.Random(seed)
    return [*TRAPS, *(random_text(rng) for _ in range(num - len(TRAPS)))]


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(tokenizers.Regex(pattern), behavior, invert)


def pre_tokenizer(family):
    mapped = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if family == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if family == "gpt2-prefix":
        return pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    if family == "whole":
        return mapped
    if family == "deepseek":
        return pre_tokenizers.Sequence([*(split(p) for p in DEEPSEEK), mapped])
    if family == "digits":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    if family == "cl100k-removed":
        return pre_tokenizers.Sequence([split(PATTERNS["llama3"], "removed", True), mapped])
    return pre_tokenizers.Sequence([split(PATTERNS[family]), mapped])


def train(family, corpus, vocab_size, normalizer=None, ignore_merges=False, specials=SPECIALS, alphabet=True):
    """A vocabulary of the family, learned by HF's trainer."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer(family)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=list(specials), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [])
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


BYTE_OF = {}
for _byte in range(256):
    _own = 0x21 <= _byte <= 0x7E or 0xA1 <= _byte <= 0xAC or _byte >= 0xAE
    BYTE_OF[chr(_byte) if _own else chr(0x100 + sum(1 for v in BYTE_OF.values() if not (0x21 <= v <= 0x7E or 0xA1 <= v <= 0xAC or v >= 0xAE)))] = _byte


def ranks_of(tokenizer):
    """bytes -> rank of a trained vocabulary, without its special tokens."""
    vocab = json.loads(tokenizer.to_str())["model"]["vocab"]
    tokens = sorted((i, t) for t, i in vocab.items() if t not in SPECIALS)
    return {bytes(BYTE_OF[c] for c in token): rank for rank, (_, token) in enumerate(tokens)}


def rank_text(ranks):
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())


def probe(tools, arguments, documents, unit="I"):
    """The probe's answers to byte strings (or, for --decode, lists of ids)."""
    blocks = []
    for document in documents:
        data = document if isinstance(document, bytes) else struct.pack(f"<{len(document)}I", *document)
        blocks.append(struct.pack("<I", len(document)) + data)
    done = subprocess.run([str(tools / "plimsoll-encode-probe"), *map(str, arguments)], input=b"".join(blocks), capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stderr.decode()
    answers, at = [], 0
    size = 4 if unit == "I" else 1
    while at < len(done.stdout):
        (num,) = struct.unpack_from("<I", done.stdout, at)
        at += 4
        data = done.stdout[at:at + num * size]
        answers.append(list(struct.unpack(f"<{num}I", data)) if unit == "I" else data)
        at += num * size
    return answers
