"""The explicit model against transformers, same weights (through safetensors), random input with uneven masks, fp32.

Gates of decision 22 (fp32): loss and gradient norm 1e-5 relative; each gradient |d| <= 5e-6 |g| + 1e-7 |g|_global. K biases
are not compared: their true gradient is zero. The loss is computed from the model's logits, since transformers has other
rules of its own for averaging.
"""

import json
import os
import subprocess

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

PROBE = os.environ["PLIMSOLL_PARITY_PROBE"]


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=331, n_embd=96, n_layer=8, n_head=8, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return config, transformers.GPT2LMHeadModel


def llama():
    config = transformers.LlamaConfig(
        vocab_size=331, hidden_size=96, intermediate_size=176, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False,
    )
    return config, transformers.LlamaForCausalLM


def llama_scaled():
    config = transformers.LlamaConfig(
        vocab_size=331, hidden_size=96, intermediate_size=176, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    )
    return config, transformers.LlamaForCausalLM


def qwen2():
    config = transformers.Qwen2Config(
        vocab_size=331, hidden_size=96, intermediate_size=176, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
    )
    return config, transformers.Qwen2ForCausalLM


def qwen3():
    config = transformers.Qwen3Config(
        vocab_size=331, hidden_size=96, intermediate_size=176, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, head_dim=16, max_position_embeddings=64, tie_word_embeddings=False,
    )
    return config, transformers.Qwen3ForCausalLM


def canonical_gradients(model, family):
    """HF gradients under Plimsoll's canonical names; written from docs/checkpoint_format.md, not from the C++ mapping."""
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    out = {}
    if family == "gpt2":
        for name, grad in grads.items():
            name = name.removeprefix("transformer.")
            if name == "wte.weight":
                out["embed_tokens.weight"] = grad
            elif name == "wpe.weight":
                out["embed_positions.weight"] = grad
            elif name.startswith("ln_f."):
                out["final_norm." + name[5:]] = grad
            else:
                _, layer, rest = name.split(".", 2)
                kind = rest.rsplit(".", 1)[1]
                turned = grad.t() if kind == "weight" and grad.dim() == 2 else grad
                prefix = f"layers.{layer}."
                if rest.startswith("attn.c_attn"):
                    for which, part in zip("qkv", turned.chunk(3, 0)):
                        out[f"{prefix}attn.{which}_proj.{kind}"] = part
                else:
                    ours = {"ln_1": "input_norm", "ln_2": "mlp_norm", "attn.c_proj": "attn.o_proj",
                            "mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"}[rest.rsplit(".", 1)[0]]
                    out[f"{prefix}{ours}.{kind}"] = turned
        return out
    for name, grad in grads.items():
        name = name.removeprefix("model.").replace("self_attn.", "attn.")
        name = name.replace("input_layernorm", "input_norm").replace("post_attention_layernorm", "mlp_norm")
        if name.startswith("norm."):
            name = "final_" + name
        out[name.replace("lm_head.", "head.")] = grad
    return out


@pytest.mark.parametrize("make", [gpt2, llama, llama_scaled, qwen2, qwen3])
def test_loss_and_gradients_match_transformers(make, tmp_path):
    compare(make, tmp_path)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_document_masks_match_a_mask_and_positions_in_transformers(make, tmp_path):
    compare(make, tmp_path, borders=[0, 9, 32, 33, 66, 70, 81, 99])


def masks_of(borders, batch, length):
    """Additive masks [B, 1, S, S] and positions [B, S] of documents that begin at `borders` of the flat batch."""
    document = torch.zeros(batch * length, dtype=torch.long)
    position = torch.zeros(batch * length, dtype=torch.long)
    for number, (begin, end) in enumerate(zip(borders, borders[1:])):
        document[begin:end] = number
        position[begin:end] = torch.arange(end - begin)
    document = document.view(batch, length)
    seen = (document.unsqueeze(2) == document.unsqueeze(1)) & torch.ones(length, length).tril().bool()
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min).unsqueeze(1), position.view(batch, length)


def compare(make, tmp_path, borders=None):
    torch.manual_seed(7)
    config, cls = make()
    config._attn_implementation = "eager"
    model = cls(config)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norm weights start as 0 and 1, which would hide a missing term
            parameter.add_(0.02 * torch.randn_like(parameter))
    batch, length = 3, 33
    ids = torch.randint(config.vocab_size, (batch, length))
    labels = torch.randint(config.vocab_size, (batch, length))
    mask = (torch.rand(batch, length) < torch.tensor([[0.2], [0.6], [1.0]])).to(torch.uint8)

    given, entries = {}, {"ids": ids, "labels": labels, "mask": mask}
    if borders is not None:
        given["attention_mask"], given["position_ids"] = masks_of(borders, batch, length)
        entries["document_starts"] = torch.tensor(borders)
    logits = model(input_ids=ids, use_cache=False, **given).logits.double()
    picked = torch.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    loss_sum = -(picked * mask).sum()
    (loss_sum / mask.sum()).backward()

    weights = tmp_path / "model.safetensors"
    state = {n: p.detach().contiguous() for n, p in model.named_parameters()}
    save_file(state, weights, metadata={"format": "pt"})
    config_file = tmp_path / "config.json"
    config_file.write_text(json.dumps(config.to_dict()))
    save_file(entries, tmp_path / "batch.safetensors")
    out = tmp_path / "out.safetensors"
    done = subprocess.run([PROBE, config_file, weights, tmp_path / "batch.safetensors", out, "fp32"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

    ours = load_file(out)
    assert ours.pop("loss_sum").item() == pytest.approx(loss_sum.item(), rel=1e-5)
    theirs = canonical_gradients(model, config.model_type)
    assert set(ours) == set(theirs)
    norm = torch.sqrt(sum(g.double().pow(2).sum() for g in theirs.values())).item()
    our_norm = torch.sqrt(sum(g.double().pow(2).sum() for g in ours.values())).item()
    assert our_norm == pytest.approx(norm, rel=1e-5)
    worst = {}
    for name, grad in theirs.items():
        if "k_proj.bias" in name:
            continue
        difference = (ours[name].double() - grad.double()).norm().item()
        allowed = 5e-6 * grad.double().norm().item() + 1e-7 * norm
        worst[name] = difference / allowed
    bad = {name: round(ratio, 2) for name, ratio in worst.items() if ratio > 1}
    assert not bad, f"of the gate: {bad}"
