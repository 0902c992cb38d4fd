"""Chats as tokens: what plimsoll-shard makes of a record is what transformers' apply_chat_template makes of it, and the same
tokens count in the loss."""

import json
import random

import h5py
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

# The usual templates, with the stretch that an assistant is trained on between {% generation %} and {% endgeneration %}.
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
          "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
          "{{ '\\n' }}{% else %}{{ message['content'] + '<|im_end|>' + '\\n' }}{% endif %}{% endfor %}")
LLAMA3 = ("{% for message in messages %}{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}"
          "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
          "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim + '<|eot_id|>' }}"
          "{% endgeneration %}{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}")
# Without the marks: text for text what model cards carry.
PLAIN_CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
                "'\\n'}}{% endfor %}")
PLAIN_LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
                "message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 "
                "%}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}")
TEMPLATES = {"chatml": (CHATML, PLAIN_CHATML), "llama3": (LLAMA3, PLAIN_LLAMA3)}
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
            "<|eot_id|>"]

PIECES = ["hello", "Hi there", " ", "\n", "\n\n", "\t", "the answer is 42.", "été", "日本語", "def f(x):\n    return x", "!",
          "\r\n", "\u00a0", "\u2003", "a", "  b", "1234567", "assistant", "user", "<|im_sta", "\u0085"]


@pytest.fixture(scope="module")
def tokenizer():
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    text = ["".join(random.Random(i).choices(PIECES, k=12)) for i in range(300)]
    trained.train_from_iterator(text + ["assistant\nuser\nsystem\n"] * 20, trainers.BpeTrainer(
        vocab_size=600, special_tokens=SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return PreTrainedTokenizerFast(tokenizer_object=trained, bos_token="<|begin_of_text|>", eos_token="<|endoftext|>")


def some_chats(seed, count):
    draw = random.Random(seed)
    chats = []
    for _ in range(count):
        roles = [role for role in ("system",) if draw.random() < 0.4]
        roles += [("user", "assistant")[i % 2] for i in range(draw.randint(1, 5))]
        chats.append([{"role": role, "content": "".join(draw.choices(PIECES, k=draw.randint(0, 6)))} for role in roles])
    return chats


def parts_of(run, chats, template):
    done = run("record-probe", "chat", template, stdin="".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    assert done.rc == 0
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def encoded(tokenizer, parts):
    """Ids of the parts as docs/token_shards.md says: neighbouring texts are one text, special tokens their id."""
    ids, text = [], ""
    for kind, content, _ in [*parts, ("special", None, False)]:
        if kind == "text":
            text += content
            continue
        ids += tokenizer.encode(text, add_special_tokens=False) if text else []
        text = ""
        if content is not None:
            ids.append(tokenizer.convert_tokens_to_ids(content))
    return ids


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_has_the_ids_of_apply_chat_template(run, tokenizer, template):
    chats = some_chats(7, 400)
    marked, plain = TEMPLATES[template]
    for chat, found in zip(chats, parts_of(run, chats, template)):
        assert found["reason"] == ""
        expected = tokenizer.apply_chat_template(chat, chat_template=plain, tokenize=True, return_dict=False)
        assert encoded(tokenizer, found["parts"]) == expected
        both = tokenizer.apply_chat_template(chat, chat_template=marked, tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True)
        assert both["input_ids"] == expected
        # What counts. Where ChatML's line feed and white space of the content meet in one token, that token counts too.
        said = [message["content"] for message in chat if message["role"] == "assistant"]
        if template == "chatml" and any(content[:1].isspace() for content in said):
            continue
        counted = [i for i, mask in zip(expected, both["assistant_masks"]) if mask]
        assert tokenizer.decode(counted) == "".join(content for _, content, trainable in found["parts"] if trainable)


def test_only_the_assistant_counts_and_its_end_token(run):
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
            {"role": "user", "content": "q2"}, {"role": "assistant", "content": "a2"}]
    for template, end in (("chatml", "<|im_end|>"), ("llama3", "<|eot_id|>")):
        (found,) = parts_of(run, [chat], template)
        assert [content for _, content, trainable in found["parts"] if trainable] == ["a", end, "a2", end]


def shard_of(tmp_path, name="out"):
    with h5py.File(tmp_path / name / "shard_00000.h5") as shard:
        tokens, mask, ends = shard["tokens"][:], shard["loss_mask"][:], shard["documents/ends"][:]
    return [(tokens[a:b].tolist(), mask[a:b].tolist()) for a, b in zip([0, *ends[:-1]], ends)]


def write_records(tmp_path, records, name="in.jsonl"):
    (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return name


@pytest.mark.parametrize("template", TEMPLATES)
def test_shards_of_chats_have_the_ids_and_the_mask(run, tmp_path, tokenizer, template):
    tokenizer.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    chats = [chat for chat in some_chats(11, 150) if any(message["role"] == "assistant" for message in chat)]
    write_records(tmp_path, [{"messages": chat} for chat in chats])
    done = run("shard", "--input", "in.jsonl", "--format", "chat", "--template", template, "--tokenizer", "tokenizer.json",
               "--out", "out")
    assert done.rc == 0, done.stderr
    marked, _ = TEMPLATES[template]
    eod = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    for chat, (ids, mask) in zip(chats, shard_of(tmp_path), strict=True):
        both = tokenizer.apply_chat_template(chat, chat_template=marked, tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True)
        assert ids == [*both["input_ids"], eod]
        assert mask[:-1] == both["assistant_masks"]
        assert mask[-1] == mask[-2]
    assert run("shard", "verify", "out").rc == 0


def test_prompt_and_completion_in_a_shard(run, tmp_path):
    write_records(tmp_path, [{"prompt": "ab", "completion": "cd"}, {"prompt": "only", "completion": ""},
                             {"prompt": "", "completion": "x"}, {"prompt": "", "completion": ""}])
    done = run("shard", "--input", "in.jsonl", "--format", "prompt-completion", "--out", "out")
    assert done.rc == 0, done.stderr
    assert done.stdout.splitlines()[0] == "documents  4   empty 1   bad 0   without a trained token 1"
    assert shard_of(tmp_path) == [([97, 98, 99, 100, 256], [0, 0, 1, 1, 1]), ([120, 256], [1, 1])]
    assert run("shard", "inspect", "out", "--document", 0).stdout == "[[ab]]cd\n"
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["required_features"] == ["loss_mask"] and manifest["input"]["unlabelled"] == 1
    assert manifest["options"]["records"] == "prompt-completion"


def test_ready_ids_in_a_shard(run, tmp_path):
    write_records(tmp_path, [{"input_ids": [72, 105, 33], "labels": [-100, 105, 33]}, {"input_ids": [1, 256]},
                             {"input_ids": [5], "labels": [-100]}])
    done = run("shard", "--input", "in.jsonl", "--format", "tokens", "--out", "out")
    assert done.rc == 0, done.stderr
    assert shard_of(tmp_path) == [([72, 105, 33, 256], [0, 1, 1, 1]), ([1, 256], [1, 1])]


@pytest.mark.parametrize("record, args, message", [
    ({"messages": []}, ["--format", "chat"],
     "template chatml needs the special token '<|im_start|>', which tokenizer 'bytes' does not have. choose another --template "
     "or a tokenizer made for it"),
    ({"prompt": "x"}, ["--format", "prompt-completion"],
     "in.jsonl:1: no field 'completion'. mend it or use --on-bad-record skip"),
    ({"q": "x", "a": 1}, ["--format", "prompt-completion", "--prompt-field", "q", "--completion-field", "a"],
     "in.jsonl:1: field 'a' is not a string. mend it or use --on-bad-record skip"),
    ({"input_ids": [1, 2], "labels": [2, -100]}, ["--format", "tokens"],
     "in.jsonl:1: label 2 at position 0 is neither -100 nor the id 1 there (labels are not shifted). mend it or use "
     "--on-bad-record skip"),
])
def test_bad_records_and_wrong_tokenizers_are_named(run, tmp_path, record, args, message):
    write_records(tmp_path, [record])
    done = run("shard", "--input", "in.jsonl", "--out", "out", *args)
    assert done.rc == 2 and done.stderr.splitlines()[-1] == f"plimsoll-shard: {message}"
