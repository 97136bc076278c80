"""Features of a timm model: the first epoch computes them, every later one reads them.

    python examples/python/timm_features.py ./cache
"""

import sys

import timm
import torch
from timm.data import create_transform, resolve_model_data_config

import tcx_cache as tcx


def extractor():
    torch.manual_seed(0)
    # With `pretrained=True`, timm downloads the weights. They are part of the identity, whatever they are.
    return timm.create_model("test_resnet", pretrained=False, num_classes=0).eval().requires_grad_(False)


def pictures(ids):
    """Stands for the decoding of image files."""
    for number in ids:
        yield torch.rand(3, 200, 240, generator=torch.Generator().manual_seed(number))


def main(directory):
    model = extractor()
    prepared = resolve_model_data_config(model)
    transform = create_transform(**prepared, is_training=False)
    # What prepares the pictures decides the features: as configuration, another size or mean is another identity.
    cached = tcx.cached(model, directory, id="test_resnet_v1", config={"transform": prepared})

    def load(missing):
        return torch.stack([transform(picture) for picture in pictures(missing)])

    ids = list(range(24))
    report = cached.warm(ids, load, batch_size=8)
    cached.flush()
    print(f"computed {report.computed} of {report.samples}")
    # Of each batch of an epoch, only missing pictures would be decoded.
    return torch.cat([cached.fetch(ids[at : at + 8], load) for at in range(0, len(ids), 8)])


if __name__ == "__main__":
    main(sys.argv[1])
