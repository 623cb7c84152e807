"""Blocks of what is learnt: the records, who holds them, and the model."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from m2fdp.core.blocks import (
    NO_RELEASE,
    READ_BY,
    SINCE,
    Block,
    Count,
    FromText,
    Name,
    NonNegative,
    Number,
    Positive,
    one_of,
)
from m2fdp.core.own_code import FORM

DATASETS = (
    "digits",
    "fashion_mnist",
    "mnist",
    "emnist_letters",
    "cifar10",
    "cifar100",
    "npz",
    "synthetic",
)
SCHEMES = ("labels_per_device", "dirichlet", "quantity", "iid", "table")
DOWNLOADED = " or ".join(name for name in DATASETS if name not in ("digits", "npz", "synthetic"))
PIXELS: Final = "pixels"  # the map that leaves images as they are


def _grey_or_coloured(shape: list[int]) -> list[int]:
    if shape[2] not in (1, 3):
        raise ValueError("the third number, of channels, must be 1 or 3")
    return shape


class DatasetConfig(Block):
    """Which data set, and where its files are."""

    file = "data"

    name: Annotated[str, *one_of(*DATASETS)] = Field(
        default="digits",
        description="digits is embedded, npz a file of arrays, synthetic random images whose "
        "class is what generates them; "
        f"{FORM} makes a data set of your own.",
    )
    root: Name = Field(
        default="data/01_raw",
        description="The folder of torchvision's layout; for npz the file itself.",
        json_schema_extra={READ_BY: f"dataset.name: {DOWNLOADED} or npz", NO_RELEASE: True},
    )
    download: bool = Field(
        default=False,
        description="Whether missing files may be fetched over the network.",
        json_schema_extra={READ_BY: f"dataset.name: {DOWNLOADED}", NO_RELEASE: True},
    )
    scale: Literal["pixels", "unit_norm"] = Field(
        default="pixels",
        description="pixels, each from 0 to 1, or unit_norm: every image over its own length, so "
        "that none is longer than one (features.map: pixels).",
        json_schema_extra={SINCE: "0.5.0", READ_BY: "features.map: pixels"},
    )
    confirmed: bool = Field(
        default=False,
        description="You confirm that constants known beforehand have scaled records which are "
        "floats, and not what the records hold. Without it ε is conditional; whole numbers (uint8) "
        "are scaled by 255 here.",
        json_schema_extra={SINCE: "0.20.0", NO_RELEASE: True},
    )
    shape: Annotated[
        list[Annotated[int, Number, Field(ge=1, le=128)]],
        FromText,
        Field(min_length=3, max_length=3),
        AfterValidator(_grey_or_coloured),
    ] = Field(
        default=[28, 28, 1],
        description="Height, width and channels (1 or 3) of synthetic images.",
        json_schema_extra={SINCE: "0.11.0", READ_BY: "dataset.name: synthetic"},
    )
    classes: Annotated[int, Number, Field(ge=2, le=1000)] = Field(
        default=10,
        description="Classes of synthetic records.",
        json_schema_extra={SINCE: "0.11.0", READ_BY: "dataset.name: synthetic"},
    )
    records: Annotated[int, Number, Field(ge=1, le=10**6)] = Field(
        default=60_000,
        description="Synthetic training records; there are a sixth as many test records.",
        json_schema_extra={SINCE: "0.11.0", READ_BY: "dataset.name: synthetic"},
    )


def _row(value: Any) -> Any:
    """Lists in lists can't stand on a command line: `5/0` is a row of two."""
    return value.split("/") if isinstance(value, str) else value


def _with_texts(value: Any) -> Any:
    """YAML reads names such as 7 as numbers."""
    return {str(name): row for name, row in value.items()} if isinstance(value, dict) else value


Row = Annotated[list[NonNegative], BeforeValidator(_row)]


class PartitionConfig(Block):
    """How the training records are dealt to the devices (J Sec. VI-A)."""

    file = "data"

    scheme: Annotated[str, *one_of(*SCHEMES)] = Field(
        default="labels_per_device",
        description="By the classes that a device holds (labels_per_device, dirichlet), with "
        f"skewed sizes (quantity), at random (iid), as a table says, or by a {FORM} of your own.",
    )
    labels_per_device: Count = Field(
        default=3,
        description="Classes a device holds (labels_per_device); 3 means all where there are "
        "fewer.",
        json_schema_extra={READ_BY: "partition.scheme: labels_per_device"},
    )
    alpha: Positive = Field(
        default=0.5,
        description="Concentration of the Dirichlet law over labels (dirichlet) or over shard "
        "sizes (quantity).",
        json_schema_extra={READ_BY: "partition.scheme: dirichlet or quantity"},
    )
    table: (
        Annotated[list[Row], FromText, Field(min_length=1)]
        | Annotated[dict[str, Row], BeforeValidator(_with_texts), Field(min_length=1)]
        | None
    ) = Field(
        default=None,
        description="A row a device with its records of each class, 5/0|0/5 on the command line, "
        "or, where topology.edges names devices, name: row; all records of a class are dealt, in "
        "these proportions.",
        json_schema_extra={SINCE: "0.13.0", READ_BY: "partition.scheme: table"},
    )
    level: Literal["device", "edge"] = Field(
        default="device",
        description="device, or edge: all devices of one edge server share the skew, or the row.",
        json_schema_extra={
            READ_BY: "partition.scheme: labels_per_device or dirichlet or quantity or table"
        },
    )
    samples_per_device: Count | None = Field(
        default=None, description="At most so many records a device; null = all."
    )
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="Share of the training records that the cloud keeps for choosing schedules.",
    )
    held_out_by: Literal["cloud", "devices"] = Field(
        default="cloud",
        description="Who keeps that share: the cloud, in clear; or devices, each of its own "
        "records, who send a noised count of those that the model gets right.",
        json_schema_extra={SINCE: "0.11.0", READ_BY: "partition.validation_fraction"},
    )

    @model_validator(mode="after")
    def _given(self) -> PartitionConfig:
        if self.scheme == "table" and self.table is None:
            raise ValueError("scheme: table needs partition.table, a row a device")
        return self


def _depth(depth: int) -> int:
    if depth % 18 != 2:
        raise ValueError("valid: 18 b + 2 layers, such as 20, 38, 56 and 110")
    return depth


class ModelConfig(Block):
    """What is trained."""

    name: str = Field(
        default="softmax",
        description="softmax, logistic, svm, dense (one hidden layer, H's), lenet (with sigmoids, "
        f"for attacks), cnn2 (G's), cnn12 (J's), resnet (D's), or {FORM} for a torch module of "
        "your own.",
    )
    hinge: Literal["one_vs_rest", "crammer_singer"] = Field(
        default="one_vs_rest",
        description="Which multi-class hinge (svm).",
        json_schema_extra={READ_BY: "model.name: svm"},
    )
    channels: (
        Annotated[
            list[Annotated[int, Number, Field(ge=1, le=4096)]],
            FromText,
            Field(min_length=3, max_length=3),
        ]
        | None
    ) = Field(
        default=None,
        description="Output channels of cnn12's three convolutions; null = those with M = 7840 "
        "parameters in all.",
        json_schema_extra={READ_BY: "model.name: cnn12"},
    )
    loss: str | None = Field(
        default=None,
        description=f"{FORM} for a loss of your own, scores (B, C) and labels (B,) to a loss a "
        "record (B,); null = the model's.",
        json_schema_extra={SINCE: "0.2.0"},
    )
    depth: Annotated[int, Number, Field(ge=20, le=1010), AfterValidator(_depth)] = Field(
        default=20,
        description="Layers of resnet: 18 b + 2, such as D's 56 and 110.",
        json_schema_extra={SINCE: "0.5.0", READ_BY: "model.name: resnet"},
    )
    width: Annotated[int, Number, Field(ge=1, le=1024)] = Field(
        default=16,
        description="Channels of resnet's first module; D's is 16.",
        json_schema_extra={SINCE: "0.5.0", READ_BY: "model.name: resnet"},
    )
    norm: Literal["batch", "group"] = Field(
        default="batch",
        description="How resnet normalises: over the batch (D; no privacy, and algorithms that "
        "train in tiers only), or over groups of a record's own channels.",
        json_schema_extra={SINCE: "0.5.0", READ_BY: "model.name: resnet"},
    )
    stem_stride: Annotated[int, Number, Field(ge=1, le=2)] = Field(
        default=1,
        description="Of resnet's first convolution: 1 (D), or 2, which quarters all maps.",
        json_schema_extra={SINCE: "0.5.0", READ_BY: "model.name: resnet"},
    )
