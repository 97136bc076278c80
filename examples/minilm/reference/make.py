"""Computes `embeddings.json`: what the reference implementation makes of a dozen sentences.

    pip install sentence-transformers
    python make.py MODEL_DIR > embeddings.json

The reference is the package that the model was published for, sentence-transformers (on transformers' own BERT
and tokenizer), on a CPU, in float32, each sentence alone in its batch, so that no padding takes part.
MODEL_DIR is the folder that `cargo xtask setup --model` fills: target/models/all-MiniLM-L6-v2.
"""

import json
import sys

import sentence_transformers
import torch
import transformers

SENTENCES = [
    "hello",
    "A man is eating a piece of bread.",
    "How do I parse command line arguments?",
    "The quick brown fox jumps over the lazy dog; 1,234.56 times, it says!",
    "UPPER CASE AND lower case ARE THE SAME to this model",
    "crème brûlée, naïve façade, Ångström, Straße",
    "数据库缓存把结果保存在磁盘上",
    "emoji 🦀🔥 and symbols ∑ ≠ → are unknown words, mostly",
    "fn main() -> Result<(), Box<dyn std::error::Error>> { println!(\"{:?}\", x?); Ok(()) }",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "Atomically reference counted pointers let several threads own one value. The value is dropped with its "
    "last owner, wherever that may be, and the counter is the only thing that the threads ever write to.",
    # Beyond 256 tokens: the rest is cut off.
    " ".join(f"Sentence number {i} of a long text about frozen feature extractors." for i in range(60)),
]


def main():
    model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
    torch.set_num_threads(1)
    rows = [
        {
            "text": text,
            "tokens": int(model.preprocess([text])["input_ids"].shape[1]),
            "embedding": [float(f"{x:.7g}") for x in model.encode(text, batch_size=1)],
        }
        for text in SENTENCES
    ]
    made_with = {
        "sentence-transformers": sentence_transformers.__version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    print(f'{{"made_with": {json.dumps(made_with)}, "rows": [\n{lines}\n]}}')


main()
