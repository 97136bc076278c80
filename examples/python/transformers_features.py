"""Features of a model of transformers: its whole output, or one vector for each token without the padding.

    python examples/python/transformers_features.py ./cache
"""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import tcx_cache as tcx

TEXTS = {
    "first": "a cache keeps rows",
    "second": "rows",
    "third": "each sample is computed once and read later",
}


def network():
    """Stands for `AutoModel.from_pretrained(…)` and `AutoTokenizer.from_pretrained(…)`, which download files."""
    torch.manual_seed(0)
    words = sorted({word for text in TEXTS.values() for word in text.split()})
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=32
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    return BertModel(config).eval().requires_grad_(False), fast


class TokenVectors(torch.nn.Module):
    """One vector for each token, and their mean: what the padding of a batch adds is cut off."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1)
        tokens = [row[: int(length)] for row, length in zip(states, attention_mask.sum(1))]
        return {"tokens": tokens, "mean": (states * mask).sum(1) / mask.sum(1)}


def main(directory):
    model, tokenizer = network()
    ids = list(TEXTS)
    with tcx.Cache(directory) as cache:
        # The output as the model returns it. All texts have one length, so that no row depends on the others of its batch.
        whole = cache.module(model, "bert_v1", config={"length": 16})
        tokens = tokenizer([TEXTS[id] for id in ids], padding="max_length", max_length=16, return_tensors="pt")
        output = whole(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"], ids=ids)
        print(f"{type(output).__name__}: computed {whole.stats()['rows_computed']} of {len(ids)}")

        # The vectors of the tokens, as many as the text has: padded to the longest text of the batch, and stored without.
        outputs = {"tokens": tcx.f32[None, 32], "mean": tcx.f32[32]}
        # The path of a class is part of the identity: one name, for the program that defines it and those that import it.
        vectors = cache.module(TokenVectors(model).eval(), "bert_tokens_v1", outputs=outputs, type_name="TokenVectors")

        def load(missing):
            found = tokenizer([TEXTS[id] for id in missing], padding=True, return_tensors="pt")
            return {"input_ids": found["input_ids"], "attention_mask": found["attention_mask"]}

        rows = vectors.fetch(ids, load)
        print(f"{[len(row) for row in rows['tokens']]} tokens: computed {vectors.stats()['rows_computed']} of {len(ids)}")
        return output, rows


if __name__ == "__main__":
    main(sys.argv[1])
