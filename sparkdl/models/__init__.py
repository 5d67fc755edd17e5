"""Ready-made networks: functions of shapes and classes that return a Network or a Graph.

All but `tabular` and `embedded` also take `weights`, `frozen_until` and more; see `pretrained.pretrainable`.
"""

from sparkdl.models.categories import dlrm as dlrm
from sparkdl.models.categories import embedded as embedded
from sparkdl.models.categories import two_tower as two_tower
from sparkdl.models.categories import wide_and_deep as wide_and_deep
from sparkdl.models.characters import char_rnn as char_rnn
from sparkdl.models.darknet import darknet19 as darknet19
from sparkdl.models.darknet import tiny_yolo as tiny_yolo
from sparkdl.models.darknet import yolo2 as yolo2
from sparkdl.models.faces import inception_resnet_v1 as inception_resnet_v1
from sparkdl.models.faces import nn4_small2 as nn4_small2
from sparkdl.models.feature_tokens import ft_transformer as ft_transformer
from sparkdl.models.forecasting import forecaster as forecaster
from sparkdl.models.mobile import mobilenet_v2 as mobilenet_v2
from sparkdl.models.perceptrons import autoencoder as autoencoder
from sparkdl.models.perceptrons import mlp as mlp
from sparkdl.models.perceptrons import tabular_resnet as tabular_resnet
from sparkdl.models.plain import alexnet as alexnet
from sparkdl.models.plain import cifar10_tutorial as cifar10_tutorial
from sparkdl.models.plain import lenet as lenet
from sparkdl.models.plain import vgg16 as vgg16
from sparkdl.models.plain import vgg19 as vgg19
from sparkdl.models.residual import resnet as resnet
from sparkdl.models.residual import resnet18 as resnet18
from sparkdl.models.residual import resnet34 as resnet34
from sparkdl.models.residual import resnet50 as resnet50
from sparkdl.models.schema import normalization as normalization
from sparkdl.models.schema import tabular as tabular
from sparkdl.models.segmentation import unet as unet
from sparkdl.models.sequences import lstm_classifier as lstm_classifier
from sparkdl.models.sequences import tcn as tcn
from sparkdl.models.sequences import text_cnn as text_cnn
from sparkdl.models.squeeze import squeezenet as squeezenet
from sparkdl.models.text import bert as bert
from sparkdl.models.text import distilbert as distilbert
from sparkdl.models.text import gpt2 as gpt2
from sparkdl.models.text import minilm as minilm
from sparkdl.models.text import transformer_classifier as transformer_classifier
from sparkdl.models.vision import vit as vit
from sparkdl.models.vision import vit_b16 as vit_b16
from sparkdl.models.vision import vit_s16 as vit_s16
from sparkdl.models.vocabularies import vocabulary as vocabulary
