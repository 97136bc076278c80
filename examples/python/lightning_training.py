"""A head on cached features, trained by Lightning: a callback computes what is missing, workers read it.

    python examples/python/lightning_training.py ./cache
"""

import sys

import lightning
import torch
from torch.utils.data import DataLoader

import tcx_cache as tcx


def backbone():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU()).eval().requires_grad_(False)


def sample(number):
    """Stands for the decoding of a file."""
    return torch.randn(16, generator=torch.Generator().manual_seed(number))


class FillCache(lightning.Callback):
    """Fills the cache before the first epoch: each process of the training computes its part of what is missing."""

    def setup(self, trainer, module, stage):
        data = trainer.datamodule
        rank = tcx.Rank(trainer.global_rank, trainer.world_size)
        report = data.cached.warm_sharded(data.ids, lambda missing: torch.stack([sample(id) for id in missing]), rank=rank, progress=False)
        trainer.strategy.barrier()
        print(f"computed {report.computed} of {report.asked}")


class Features(lightning.LightningDataModule):
    """Features of some samples with labels."""

    def __init__(self, directory, ids, labels):
        super().__init__()
        self.cached = tcx.cached(backbone(), directory, id="backbone_v1")
        self.ids, self.labels = ids, labels

    def train_dataloader(self):
        dataset = tcx.torch.FeatureDataset(self.cached, self.ids, targets=self.labels)
        return DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2)


class Head(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(32, 2)

    def training_step(self, batch, _):
        features, labels = batch
        loss = torch.nn.functional.cross_entropy(self.head(features), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.head.parameters(), lr=0.1)


def main(directory):
    lightning.seed_everything(0, verbose=False)
    ids = list(range(96))
    labels = torch.tensor([int(sample(id).sum() > 0) for id in ids])
    data, model = Features(directory, ids, labels), Head()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=8, accelerator="cpu", log_every_n_steps=1, callbacks=[FillCache()], **quiet)
    trainer.fit(model, datamodule=data)
    return data, model, float(trainer.callback_metrics["loss"])


if __name__ == "__main__":
    main(sys.argv[1])
