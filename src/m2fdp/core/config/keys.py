"""The blocks of the core's configuration. The text below a key is what users read of it."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from m2fdp.core.blocks import (
    Block,
    Count,
    Decay,
    Epsilon,
    Extensible,
    FromText,
    Name,
    NonNegative,
    Number,
    Positive,
    Probability,
    extended,
    key,
    one_of,
    spelled,
)

_DOWNLOADED = ("fashion_mnist", "mnist", "emnist_letters", "cifar10", "cifar100")
OF_LABELS = ("npz", "leaf")  # whose classes are those that their records' labels have
DATASETS = ("digits", *_DOWNLOADED, *OF_LABELS, "table", "synthetic")
SCHEMES = ("labels_per_device", "dirichlet", "quantity", "iid", "table", "column")
BY_LABEL = ("labels_per_device", "dirichlet", "table")  # schemes that deal by class
_FILES = f"dataset.name: {' or '.join(_DOWNLOADED)}"
_MOMENTUM, _YOGI = "training.server.rule: momentum", "training.server.rule: yogi"
# Who reads the factor of the papers' noise.
_PAPERS_NOISE = "privacy.calibration: paper | control.gap: papers | the pipeline bound"
_A_METRIC = "package.module:NAME, a Metric of your own, or a name such as auc"
_MOST_STEPS = 10_000_000  # every step of a run is planned before the first
PIXELS: Final = "pixels"  # the map that leaves images as they are


@extended("dataset")
class DatasetConfig(Extensible):
    """Which data set, and where its files are."""

    file = "data"

    name: Annotated[str, *one_of(*DATASETS)] = "digits"
    """digits is embedded; npz is a file of arrays, table one of rows, leaf a folder of LEAF's
    JSON, synthetic random images of known classes; package.module:function is a data set of
    your own."""
    root: Name = key("data/01_raw", read_by=f"{_FILES} or npz or leaf or table", no_release=True)
    """The folder of torchvision's layout, or of LEAF's; for npz and table the file itself."""
    download: bool = key(False, read_by=_FILES, no_release=True)
    """Whether missing files may be fetched over the network."""
    scale: Literal["pixels", "unit_norm"] = key(
        "pixels", since="0.5.0", read_by="features.map: pixels"
    )
    """pixels, each from 0 to 1, or unit_norm, every image over its own length (features.map:
    pixels)."""
    confirmed: bool = key(False, since="0.20.0", no_release=True)
    """You confirm that a fixed range has scaled records which are floats. Without it ε is
    conditional. Whole numbers (uint8) are scaled by 255 here."""


def _row(value: Any) -> Any:
    """Lists in lists can't stand on a command line: `5/0` is a row of two."""
    return value.split("/") if isinstance(value, str) else value


def _with_texts(value: Any) -> Any:
    """YAML reads names such as 7 as numbers."""
    return {str(name): row for name, row in value.items()} if isinstance(value, dict) else value


_Pair = Annotated[list[Name], Field(min_length=2, max_length=2)]
Row = Annotated[list[NonNegative], BeforeValidator(_row)]


class PartitionConfig(Block):
    """How the training records are dealt to the devices (J Sec. VI-A)."""

    file = "data"

    scheme: Annotated[str, *one_of(*SCHEMES)] = "labels_per_device"
    """By the classes that a device holds (labels_per_device, dirichlet), by size (quantity), at
    random (iid), by a table of counts (table), by the client that each record names (column),
    or by a package.module:function of your own."""
    labels_per_device: Count = key(3, read_by="partition.scheme: labels_per_device")
    """Classes a device holds (labels_per_device); 3 means all where there are fewer."""
    alpha: Positive = key(0.5, read_by="partition.scheme: dirichlet or quantity")
    """Concentration of the Dirichlet law over labels (dirichlet) or over shard sizes (quantity)."""
    table: (
        Annotated[list[Row], FromText, Field(min_length=1)]
        | Annotated[dict[str, Row], BeforeValidator(_with_texts), Field(min_length=1)]
        | None
    ) = key(None, since="0.13.0", read_by="partition.scheme: table")
    """A row a device with its records of each class, 5/0|0/5 on the command line; where
    topology.edges names devices, name: row. All records of a class are dealt, in these
    proportions."""
    samples_per_device: Count | None = None
    """At most so many records a device; null = all."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the training records that the cloud keeps for choosing schedules."""
    held_out_by: Literal["cloud", "devices"] = key(
        "cloud", since="0.11.0", read_by="partition.validation_fraction"
    )
    """Who keeps that share: the cloud, in clear; or devices, which send a noised count of
    records that the model gets right."""

    @model_validator(mode="after")
    def _given(self) -> Self:
        if self.scheme == "table" and self.table is None:
            raise ValueError("scheme: table needs partition.table, a row a device")
        return self


@extended("model")
class ModelConfig(Extensible):
    """What is trained."""

    name: str = "softmax"
    """softmax, logistic, svm, linear (for numbers), dense (one hidden layer), lenet (sigmoids,
    for attacks), cnn2 (G's), cnn12 (J's), resnet (D's), or package.module:function for a torch
    module of your own."""
    hinge: Literal["one_vs_rest", "crammer_singer"] = key("one_vs_rest", read_by="model.name: svm")
    """Which multi-class hinge (svm)."""
    channels: (
        Annotated[
            list[Annotated[int, Number, Field(ge=1, le=4096)]],
            FromText,
            Field(min_length=3, max_length=3),
        ]
        | None
    ) = key(None, read_by="model.name: cnn12")
    """Output channels of cnn12's three convolutions; null = those with M = 7840 parameters in
    all."""
    loss: str | None = key(None, since="0.2.0")
    """squared or huber, for numbers, or package.module:function of scores (B, C) and labels
    (B,) for a loss a record (B,); null = the model's."""


def _less_default(content: Any, given: str, default: str) -> Any:
    """A block's content, where a key that is given puts another one's default to null."""
    there = isinstance(content, dict) and content.get(given) is not None
    return {default: None} | content if there else content


class TrustConfig(Block):
    """Which servers are trusted: shares per layer, or the untrusted ones by name (J eq. 4)."""

    ratios: Annotated[list[Probability], FromText] | None = [0.5]
    """p_1 … p_L-1: the share of trusted servers among the children of untrusted ones, layer by
    layer."""
    untrusted: Annotated[list[Name], FromText] | None = None
    """Or the untrusted servers by name (set `ratios` to null)."""

    @model_validator(mode="before")
    @classmethod
    def _instead_of_ratios(cls, content: Any) -> Any:
        return _less_default(content, "untrusted", "ratios")

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if self.ratios is not None and self.untrusted is not None:
            raise ValueError("give ratios or untrusted, not both")
        return self


@extended("topology")
class TopologyConfig(Extensible):
    """The tree: fan-outs from the cloud down, or a file of edges; and who is trusted in it."""

    fanouts: Annotated[list[Count], FromText, Field(min_length=1)] | None = [10, 5]
    """Children of a node, from the cloud down: [10, 5] is 10 edge servers with 5 devices each.
    With `edges`, null."""
    edges: Name | Annotated[list[_Pair], Field(min_length=1)] | None = None
    """Or a file of edges: CSV with parent,child, or a YAML list of pairs; or the pairs."""
    weights: Literal["uniform", "samples"] = key("uniform", since="0.2.0")
    """rho, the weight of a node at its parent: the same for all siblings (uniform), or by
    training records (samples)."""
    trust: TrustConfig = TrustConfig()

    @model_validator(mode="before")
    @classmethod
    def _instead_of_fanouts(cls, content: Any) -> Any:
        return _less_default(content, "edges", "fanouts")

    @model_validator(mode="after")
    def _some_tree(self) -> Self:
        if self.fanouts is None and self.edges is None:
            raise ValueError("give fanouts (such as 10|5) or edges (a file)")
        return self


class ServerConfig(Block):
    """What the cloud makes of a round's aggregate w' and the model w that the round began with."""

    rule: Literal["average", "momentum", "yogi"] = "average"
    """What the next model is: w' itself (average); a step along v <- momentum v + w' - w
    (momentum, FedAvgM); or one by the moments of w' - w (yogi). It costs no epsilon and no
    message."""
    momentum: Decay = key(0.5, read_by=_MOMENTUM)
    """beta, what is left of v after a round."""
    learning_rate: Positive = key(0.01, read_by=_YOGI)
    """Step size of the server."""


@extended("training")
class TrainingConfig(Extensible):
    """The schedule of J Algorithm 1."""

    rounds: Count = 30
    """T, global rounds."""
    local_steps: Count = 4
    """K, local steps of a round."""
    local_aggregation: dict[int, Count] = {1: 2}
    """By layer l: a local aggregation up to it every so many local steps; null = none."""
    participants: Count | None = None
    """s_c, devices of each lowest server that take part in a round, drawn uniformly; null = all."""
    participation: Annotated[float, Number, Field(gt=0, le=1)] | None = key(None, since="0.3.0")
    """q: every device takes part in a round with this chance, by itself; null = all, or
    `participants`."""
    estimator: Literal["mean", "fixed", "clipped"] = key(
        "mean", since="0.3.0", read_by="privacy.unit: device"
    )
    """How updates are averaged: over the expected number (mean), over q times the weight of all
    (fixed), or over the larger of q least_weight and the weight of those who came (clipped)."""
    least_weight: Positive | None = key(None, since="0.3.0", read_by="training.estimator: clipped")
    """W_min of `estimator: clipped`."""
    batch_size: Positive | None = None
    """B, expected size of a device's Poisson-sampled minibatch; null = its whole shard."""
    learning_rate: Positive = 0.5
    """gamma, the (first) step size."""
    accumulated_noise: Positive | None = key(None, since="0.16.0")
    """The standard deviation that noise may give a parameter by the last round. All steps are
    shortened by one factor to keep it; null = steps as they are."""
    step_size: Literal["constant", "inverse_sqrt"] = "constant"
    """eta^t = gamma (constant), or gamma / sqrt(t + 1) (inverse_sqrt, J Thm 1)."""
    proximal: NonNegative = key(0.0, since="0.5.0")
    """mu: every local step also goes -eta mu (w - centre), without clipping and noise
    (FedProx); at most 1/eta."""
    proximal_center: Literal["received", "global"] = key("received", since="0.5.0")
    """The centre: the model that the device last received, or the one that the round began
    with."""
    server: ServerConfig = key(ServerConfig(), since="0.10.0")
    evaluate_every: Count = key(1, no_release=True)
    """Rounds between two evaluations."""
    metrics: Annotated[
        list[Annotated[str, spelled(r"[\w.]+:\w+|[a-z]\w*", _A_METRIC)]], FromText
    ] = key([], since="0.21.0", no_release=True)
    """What is measured beside accuracy and loss: balanced_accuracy, auc, average_precision, f1,
    log_loss, brier; of numbers mae, rmse, r2; or package.module:NAME for one of your own
    (docs/metrics.md)."""
    evaluate_on: Literal["test", "validation"] = key("test", no_release=True)
    """The records that the model is evaluated on; validation needs
    `partition.validation_fraction`."""
    checkpoint_every: Count | None = key(10, no_result=True)
    """Rounds between two checkpoints, which `resume` goes on from; null = none."""
    backend: Literal["auto", "reference", "sequential", "stacked"] = "auto"
    """How gradients are computed: record by record (reference), learner by learner
    (sequential), many in one product (stacked), or the fastest way (auto)."""

    @model_validator(mode="after")
    def _plannable(self) -> Self:
        if (steps := self.rounds * self.local_steps) > _MOST_STEPS:
            raise ValueError(f"rounds x local_steps = {steps:,} is more than {_MOST_STEPS:,}")
        return self

    @field_validator("local_aggregation", mode="before")
    @classmethod
    def _null_clears(cls, value: Any) -> Any:
        """Overlays and `--params` can only overwrite a key, so null means none."""
        if value is None:
            return {}
        if isinstance(value, dict):
            # The command line's keys are texts, a file's are numbers: the later one counts.
            by_layer = {str(layer): every for layer, every in value.items()}
            return {layer: every for layer, every in by_layer.items() if every is not None}
        return value


@extended("privacy")
class PrivacyConfig(Extensible):
    """The mechanism, its calibration and the target (J Sec. III-C).

    Which of them go together is a mechanism's affair: `m2fdp.core.privacy.mechanisms`.
    """

    mechanism: Annotated[str, *one_of("gradient", "upload", "weights")] = "gradient"
    """Where noise is added: at every local step (gradient), to uploaded models (upload, the
    papers'), to models that are clipped themselves (weights, G's), or by a
    package.module:function."""
    calibration: Literal["accountant", "paper", "multiplier"] = "accountant"
    """accountant: the least noise that meets epsilon. paper: J Prop. 1 (upload) or G's rule
    (weights). multiplier: noise_multiplier times the sensitivity."""
    noise_multiplier: Positive | None = key(
        None, since="0.3.0", read_by="privacy.calibration: multiplier"
    )
    """z, noise over sensitivity (calibration: multiplier, H Alg. 1)."""
    alpha: Positive = key(1.0, read_by=_PAPERS_NOISE)
    """alpha_l of J Prop. 1, a factor of the papers' noise (calibration: paper)."""
    epsilon: Epsilon = 4.0
    """The target that every distrusted observer stays within."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """The target's delta, below one over the records of the largest shard."""
    clipping_norm: Positive = 1.0
    """C of a record's gradient (gradient), G of a minibatch gradient (upload), S of a device's
    (unit: device), or C of a model (weights)."""
    clip: Literal["flat", "per_layer"] = key("flat", since="0.3.0", read_by="privacy.unit: device")
    """How a device's update is clipped (unit: device): as a whole, or each of n layers to
    clipping_norm / sqrt(n)."""
    adjacency: Literal["add_remove", "zero_out", "replace_one"] = "add_remove"
    """How two neighbouring data sets differ; replace_one is for mechanism: gradient and unit:
    record, or mechanism: weights."""
    unit: Literal["record", "device"] = "record"
    """Whose presence is hidden: a record's, or a device's as a whole."""
    budget: Epsilon | None = None
    """Training ends before the round that would pass this verified epsilon; null = no such end."""


class ThreatConfig(Block):
    """Who must not learn more than the target; everybody else is only reported."""

    file = "privacy"

    distrusted: Annotated[
        list[
            Literal[
                "servers", "cloud", "siblings", "cousins", "far_devices", "public", "super_nodes"
            ]
        ],
        FromText,
        Field(min_length=1),
    ] = ["servers", "cloud"]
    """Whom the promise protects you from. The default binds those of servers and cloud that are
    not trusted; no list may name a trusted cloud. far_devices are cousins, too."""
    open_links: Annotated[list[Literal["uplinks", "downlinks"]], FromText] = []
    """Links on which somebody listens."""
    colluding: Annotated[int, Number, Field(ge=0, le=10_000)] = key(0, since="0.3.0")
    """zeta: so many of those whose noise protects a device tell the observers what they drew; the
    worst ones."""
