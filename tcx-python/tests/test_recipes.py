"""The programs of examples/python do what they say: rows of other libraries' models, bit for bit, found again by another process.

`cargo xtask python` installs what they need, and sets `TCX_REQUIRE=recipes`; other runs skip what is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

import tcx_cache as tcx

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/python"
MODEL = Path(os.environ.get("TCX_MODEL") or ROOT / "target/models/all-MiniLM-L6-v2")

# Nothing is downloaded: a program that tried to would fail.
os.environ["HF_HUB_OFFLINE"] = "1"


def needed(package):
    """Skips the test if the package is not installed, unless it is required."""
    if importlib.util.find_spec(package) is None:
        required = os.environ.get("TCX_REQUIRE", "").split(",")
        assert not {"recipes", "all"} & set(required), f"{package} is not installed"
        pytest.skip(f"{package} is not installed")


@pytest.fixture
def program(directory):
    """Runs a program of this name in this process; its result. Then another process has nothing to compute."""

    def run(name, needs, *arguments):
        needed(needs)
        path = EXAMPLES / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        result = module.main(str(directory), *arguments)
        again = subprocess.run([sys.executable, str(path), str(directory), *arguments], capture_output=True, text=True, timeout=300)
        assert again.returncode == 0, again.stderr
        computed = [line for line in again.stdout.splitlines() if "computed" in line]
        assert computed and all("computed 0 of" in line for line in computed), again.stdout
        return module, result

    return run


def test_timm(program, directory):
    module, features = program("timm_features", "timm")
    model = module.extractor()
    prepared = module.resolve_model_data_config(model)
    transform = module.create_transform(**prepared, is_training=False)
    inputs = torch.stack([transform(picture) for picture in module.pictures(range(24))])
    expected = torch.cat([model(inputs[at : at + 8]) for at in range(0, 24, 8)])
    assert torch.equal(features, expected)
    # Pictures that are prepared in another way are other samples.
    with pytest.raises(module.tcx.MismatchError, match="transform"):
        module.tcx.cached(model, directory, id="test_resnet_v1", config={"transform": {**prepared, "mean": (0.0, 0.0, 0.0)}}).fetch([0])


def test_sentence_transformers(program):
    module, embeddings = program("sentence_embeddings", "sentence_transformers", str(model_folder()))
    plain = module.SentenceTransformer(str(model_folder()), device="cpu").eval()
    expected = plain.encode(module.TEXTS)
    assert embeddings.dtype == numpy.float32 and numpy.array_equal(embeddings, expected)


def model_folder():
    if not MODEL.is_dir():
        pytest.skip("the model is not here: run `cargo xtask setup --model`")
    return MODEL


def test_transformers(program):
    module, (output, rows) = program("transformers_features", "transformers")
    model, tokenizer = module.network()
    texts = list(module.TEXTS.values())
    padded = tokenizer(texts, padding="max_length", max_length=16, return_tensors="pt")
    expected = model(input_ids=padded["input_ids"], attention_mask=padded["attention_mask"])
    assert type(output) is type(expected) and torch.equal(output.last_hidden_state, expected.last_hidden_state)
    assert torch.equal(output.pooler_output, expected.pooler_output)
    for text, row in zip(texts, rows["tokens"]):
        assert row.shape == (len(text.split()), 32)
        alone = model(**{name: value for name, value in tokenizer([text], return_tensors="pt").items() if name != "token_type_ids"})
        assert torch.allclose(row, alone.last_hidden_state[0], atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_lightning(program):
    module, (data, model, loss) = program("lightning_training", "lightning")
    assert loss < 0.6
    inputs = torch.stack([module.sample(id) for id in data.ids])
    assert torch.equal(data.cached.fetch(data.ids[:64]), module.backbone()(inputs[:64]))
    assert [name for name, _ in model.named_parameters()] == ["head.weight", "head.bias"]


def test_datasets(program):
    module, (dataset, rows) = program("hf_datasets", "datasets")
    inputs = torch.tensor(dataset["x"][:])
    expected = torch.cat([module.extractor()(inputs[at : at + 16]) for at in range(0, 40, 16)])
    assert torch.equal(rows, expected)


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_transformers(program):
    module, (cached, ids, loss) = program("hf_trainer", "accelerate")
    assert loss < 0.6
    assert torch.equal(cached.fetch(ids[:64]), module.backbone()(module.load(ids[:64])))


def test_adapters_of_peft_that_change_under_the_same_name_are_noticed(directory):
    needed("peft")
    import peft

    def network(scale):
        torch.manual_seed(0)
        base = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        adapted = peft.get_peft_model(base, peft.LoraConfig(r=2, lora_alpha=scale, target_modules=["0"], init_lora_weights=False))
        adapted.add_adapter("other", peft.LoraConfig(r=2, lora_alpha=scale, target_modules=["0"], init_lora_weights=False))
        return adapted.eval().requires_grad_(False)

    inputs = torch.randn(4, 8)
    for change in [
        lambda own: own.set_adapter("other"),
        lambda own: own.merge_adapter(),
        lambda own: own.base_model.disable_adapter_layers(),
        lambda own: own.delete_adapter("other"),
        lambda own: own.base_model.model[0].set_scale("default", 3.0),
    ]:
        model = network(4)
        with tcx.cached(model, directory, id="lora_v1") as cached:
            assert torch.equal(cached(inputs[:2], ids=["a", "b"]), model(inputs[:2]))
            change(model.requires_grad_(False))
            model.requires_grad_(False)
            with pytest.raises(tcx.ModuleViolationError):
                cached(inputs, ids=["a", "b", "c", "d"])
    for other in (network(8), network(4).merge_and_unload()):
        with pytest.raises(tcx.MismatchError):
            tcx.cached(other, directory, id="lora_v1")
