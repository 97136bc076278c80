"""A head on cached features, trained by the `Trainer` of transformers, whose workers read the rows.

    python examples/python/hf_trainer.py ./cache
"""

import sys
import tempfile

import torch
import transformers

import tcx_cache as tcx


def backbone():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU()).eval().requires_grad_(False)


def load(numbers):
    """Stands for the decoding of files."""
    return torch.stack([torch.randn(16, generator=torch.Generator().manual_seed(number)) for number in numbers])


def batch(rows):
    """The arguments of `Head.forward`. What a dataset of features returns for a batch has all of its rows."""
    features, labels = tcx.torch.FeatureDataset.collate(rows)
    return {"features": features, "labels": labels}


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(32, 2)

    def forward(self, features, labels):
        logits = self.head(features)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def main(directory):
    ids = list(range(96))
    labels = (load(ids).sum(1) > 0).long()
    cached = tcx.cached(backbone(), directory, id="backbone_v1")
    report = cached.warm(ids, load, progress=False)
    print(f"computed {report.computed} of {report.samples}")
    dataset = tcx.torch.FeatureDataset(cached, ids, targets=labels)
    with tempfile.TemporaryDirectory() as output:
        arguments = transformers.TrainingArguments(
            output,
            num_train_epochs=8,
            per_device_train_batch_size=16,
            learning_rate=0.1,
            dataloader_num_workers=2,
            remove_unused_columns=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = transformers.Trainer(Head(), arguments, data_collator=batch, train_dataset=dataset, eval_dataset=dataset)
        trainer.train()
        return cached, ids, trainer.evaluate()["eval_loss"]


if __name__ == "__main__":
    main(sys.argv[1])
