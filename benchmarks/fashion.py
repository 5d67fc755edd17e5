"""A small residual network on all of Fashion-MNIST, through Spark with 2 workers.

    python benchmarks/fashion.py [--quick] [--json FILE] [--data DIR] [--epochs N]

`models.resnet` of three blocks, 24 filters in the first, reads an image as 14 x 14 positions of 4 pixels, which takes a
quarter of the multiply-adds that 28 x 28 do. In training, images are mirrored and moved by up to a pixel. AdamW takes
batches of 128, with a step size that rises to 0.01 and falls again (OneCycle); the cross-entropy's labels are smoothed.
Optimizer and step size were chosen by 10,000 training rows that were held out, and nothing by the test rows.

The rows are those of Fashion-MNIST in DIR, or in what the environment variable SPARKDL_DATA names; without either they
are the packaged 5,000, which are too few for the aim of 92.5 %. --quick trains on 10,000 rows for 3 epochs.

Figures: `accuracy` on the test rows, `weights` of the network, `multiply_adds` of its pass forward for one image, and
`minutes` of the whole fit.
"""

from __future__ import annotations

import time
from pathlib import Path

from mllib import frames, images
from reporting import arguments, write

from sparkdl import DeepClassifier, Network, datasets, models
from sparkdl.layers import RandomCrop, RandomFlip, Rescale, SpaceToDepth, ZeroPad
from sparkdl.losses import SoftmaxCrossEntropy
from sparkdl.network import count_weights
from sparkdl.optimizers import AdamW
from sparkdl.schedules import OneCycle
from sparkdl.spark import local_session


def residual_network() -> Network:
    """What varies images in training, and a residual network with the layer names of `models.resnet`."""
    varied = [Rescale(1 / 255), ZeroPad(((1, 1), (1, 1))), RandomCrop((28, 28)), RandomFlip()]
    body = models.resnet((14, 14, 4), 10, (1, 1, 1), filters=24)
    return Network([*varied, SpaceToDepth(2), *body.layers], input_shape=(28, 28, 1))


def main() -> None:
    """Fit, test, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="the idx files of Fashion-MNIST")
    parser.add_argument("--epochs", type=int, metavar="N", help="passes over the rows (12; 3 with --quick)")
    options = parser.parse_args()
    directory = options.data or datasets.data_directory()
    if directory is None:
        print("No --data DIR and no SPARKDL_DATA: the packaged sample, too few rows for the aim.")
    session = local_session("local[2]", **{"spark.driver.memory": "4g"})
    train, test = frames(session, images(directory, 10_000 if options.quick else 60_000), "image")
    network = residual_network()
    print(network.summary())
    classifier = DeepClassifier(
        network=network,
        loss=SoftmaxCrossEntropy(label_smoothing=0.1),
        optimizer=AdamW(weight_decay=0.05, schedule=OneCycle()),
        stepSize=0.01,
        batchSize=128,
        maxIter=options.epochs or (3 if options.quick else 12),
        numWorkers=2,
    )
    began = time.perf_counter()
    model = classifier.fit(train)
    minutes = (time.perf_counter() - began) / 60
    print(model.summary)
    figures = {
        "accuracy": model.evaluate(test).accuracy,
        "weights": count_weights(network.abstract_weights()),
        "multiply_adds": network.multiply_adds(),
        "minutes": minutes,
    }
    for name, value in figures.items():
        print(f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
