"""Chats as tokens: what plimsoll-shard makes of a record is what transformers' apply_chat_template makes of it, and the same
tokens count in the loss."""

import json
import random

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
