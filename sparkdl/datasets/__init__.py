"""Data sets as Arrow tables: a packaged sample, and readers of the files that the others come in."""

from sparkdl.datasets.found_files import data_directory as data_directory
from sparkdl.datasets.image_sets import CIFAR10_CLASSES as CIFAR10_CLASSES
from sparkdl.datasets.image_sets import FASHION_CLASSES as FASHION_CLASSES
from sparkdl.datasets.image_sets import MNIST_CLASSES as MNIST_CLASSES
from sparkdl.datasets.image_sets import cifar10 as cifar10
from sparkdl.datasets.image_sets import fashion_mnist as fashion_mnist
from sparkdl.datasets.image_sets import mnist as mnist
from sparkdl.datasets.image_sets import read_idx as read_idx
from sparkdl.datasets.image_sets import sample as sample
from sparkdl.datasets.series_sets import CHART_CLASSES as CHART_CLASSES
from sparkdl.datasets.series_sets import ett as ett
from sparkdl.datasets.series_sets import japanese_vowels as japanese_vowels
from sparkdl.datasets.series_sets import synthetic_control as synthetic_control
from sparkdl.datasets.text_sets import sms_spam as sms_spam
from sparkdl.datasets.text_sets import tiny_shakespeare as tiny_shakespeare
