"""What a study's file says: what varies, in which versions, how schedules are chosen, what is
shown and claimed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from m2fdp.claims.declared import Claim, Layout
from m2fdp.core.blocks import Block, spelled
from m2fdp.core.config import flatten
from m2fdp.core.errors import InputError, among
from m2fdp.given.loading import overlaid, refusal
from m2fdp.given.yaml_files import read_block

BASE_ENV = "base"
SWEEP = "sweep"  # a study that has no file
# `kedro study report` summarises finished studies, so no study can have the name.
RESERVED_NAMES = ("report", "paper", SWEEP)

Name = Annotated[
    str, spelled(r"\w[\w.-]*", "a name of letters, digits, _, . and - (no . or - first)")
]


def _each_once(parameters: dict[str, Any]) -> dict[str, Any]:
    """A dotted key beside its block may set one thing twice, where the later would win unseen."""
    keys = [key for name, value in parameters.items() for key in flatten({name: value})]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"sets {key} twice; keep one")
    return parameters


Parameters = Annotated[dict[str, Any], AfterValidator(_each_once)]
Share = Annotated[float, Field(gt=0, lt=1)]
# For dotted keys of parameters the values of each: the product of them.
Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]


class Arm(Block):
    """Parameters that vary together; in the file they stand beside the keys below."""

    parameters: Parameters
    label: str | None = None  # what figures call it; None = its name
    over: Grid = Field(default_factory=dict)  # a grid of its own, crossed with the study's
    # Of the search that chooses its schedule; it has none in versions without that space.
    space: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _beside(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        fields = {key: content[key] for key in ("label", "over", "space") if key in content}
        return {"parameters": {k: v for k, v in content.items() if k not in fields}} | fields


class Space(Block):
    """The schedules that a search looks at: the union of some grids."""

    grids: Annotated[list[Grid], Field(min_length=1)]
    # An arm whose chosen schedule the grids only change; None = they change the study's. That arm
    # follows no other.
    schedule_of: Name | None = None


# What runs of a counted search, and what they try, may differ in.
_OF_SCHEDULES = ("training.", "features.", "model.", "privacy.clipping_norm")


class Search(Block):
    """How schedules are chosen: on records held out of the training records, the study's own or
    others'. A counted search keeps to epsilon together with the run whose schedule it chooses.
    """

    # The highest accuracy, or what gets to the study's target with the least energy or delay.
    by: Literal["accuracy", "energy_to_target", "delay_to_target"] = "accuracy"
    # What is to be reached on the held-out records, with a margin; None = the study's target.
    target_accuracy: Share | None = None
    spaces: dict[Name, Space]
    seeds: Annotated[list[int], Field(min_length=1)] | None = None  # of searches not counted
    validation_fraction: Share
    counted: bool = False
    # Of the squared shift that epsilon affords, what the runs of a counted search have together.
    share: Share = 0.25
    # Values of varied keys at which one schedule is chosen for all values of these keys.
    at: dict[str, Any] = Field(default_factory=dict)
    # What the search's runs of private arms set, whatever else sets it: other, public records, say.
    parameters: Parameters = Field(default_factory=dict)
    # Such parameters of which every candidate of them is tried with all values.
    over: Grid = Field(default_factory=dict)

    @model_validator(mode="after")
    def _counted(self) -> Search:
        if not self.counted and self.seeds is None:
            raise ValueError("give seeds")
        grids = [grid for space in self.spaces.values() for grid in space.grids]
        keys = [*self.parameters, *(key for grid in grids for key in grid)]
        moved = [key for key in keys if not key.startswith(_OF_SCHEDULES)]
        may_set = ", ".join(f"{each}*" for each in _OF_SCHEDULES)
        stays = "records must stay where they are in all runs of a counted search"
        own_seed = "a counted search has the seed of the released run; leave them out"
        for wrong, text in (
            (self.seeds, f"seeds: {own_seed}"),
            (self.by != "accuracy", f"by: {self.by} is known without noise only; use accuracy"),
            (self.over, "over: a counted search tries a schedule once; leave it out"),
            (moved, f"{''.join(moved[:1])}: {stays}; it may set {may_set}"),
        ):
            if self.counted and wrong:
                raise ValueError(text)
        return self


class Version(Block):
    """A way to make the study's figure, such as the paper's settings or verified ones."""

    parameters: Parameters = Field(default_factory=dict)
    arms: list[Name] | None = None  # None = all
    search: Search | None = None


class Scale(Block):
    """A smaller copy of the study, to try it out; what it sets overrides everything."""

    env: str | None = None
    parameters: Parameters = Field(default_factory=dict)
    grid: Grid = Field(default_factory=dict)  # replaces the same keys of the study's
    search_seeds: Annotated[list[int], Field(min_length=1)] | None = None
    search_values: Annotated[int, Field(ge=1)] | None = None  # so many of each key of a space
    # Over a search's own, where it has any.
    search_parameters: Parameters = Field(default_factory=dict)


class Board(Block):
    """A figure of what attacks have reconstructed: a row an arm, of one run each."""

    title: str
    # For each column its value or a list of values, so that one run an arm is left.
    where: dict[str, Any] = Field(default_factory=dict)


class Study(Block):
    """The file `conf/base/studies/<name>.yml`: versions x arms x grid. A version's value overrides
    the shared one, an arm's the version's, a chosen schedule's all of them.
    """

    title: Annotated[str, Field(min_length=1)]
    env: str | None = None  # the Kedro environment that the cells run in
    # What each cell runs, as `kedro run --pipelines` names it; none = what trains and evaluates.
    pipelines: list[Literal["attack"]] = Field(default_factory=list)
    parameters: Parameters = Field(default_factory=dict)  # shared by all cells
    arms: dict[Name, Arm] = Field(default_factory=dict)
    grid: Grid = Field(default_factory=dict)
    versions: dict[Name, Version] = Field(default_factory=dict)
    # The version that decides the claims, named before its runs; None = the first one.
    decides: Name | None = None
    scales: dict[Name, Scale] = Field(default_factory=dict)
    # What measures such as `energy_to_target` wait for.
    target_accuracy: Share | None = None
    figure: Layout | None = None
    board: Board | None = None  # of cells that run the pipeline attack
    # Measures that the report tabulates beside accuracies.
    table: list[str] = Field(default_factory=list)
    claims: list[Claim] = Field(default_factory=list)

    @property
    def searches(self) -> list[Search]:
        """Those of all versions."""
        return [block.search for block in self.versions.values() if block.search is not None]

    @field_validator("arms", "versions", mode="before")
    @classmethod
    def _null_clears(cls, value: Any) -> Any:
        """An environment's file can only overwrite a key, so null means none."""
        if not isinstance(value, dict):
            return value
        return {name: content for name, content in value.items() if content is not None}

    @model_validator(mode="after")
    def _attacks(self) -> Study:
        if not self.pipelines:
            if self.board is not None:
                raise ValueError("board: shows what attacks find; give pipelines: [attack]")
            return self
        if self.searches:
            raise ValueError("a search needs runs that train; leave out pipelines")
        if self.figure is None:
            raise ValueError("give a figure: attacks have no accuracy over the rounds")
        return self

    @model_validator(mode="after")
    def _names(self) -> Study:
        if self.decides is not None:
            self._known("version", self.decides, self.versions, "decides")
        for version, block in self.versions.items():
            for arm in block.arms or ():
                self._known("arm", arm, self.arms, f"versions.{version}.arms")
            if block.search is None:
                continue
            key, by, spaces = f"versions.{version}.search", block.search.by, block.search.spaces
            if by != "accuracy" and self.target_accuracy is None:
                raise ValueError(f"{key}.by: {by} needs target_accuracy")
            leading = {name for name, space in spaces.items() if space.schedule_of is None}
            for name, space in spaces.items():
                if (followed := space.schedule_of) is not None:
                    at, names = f"{key}.spaces.{name}.schedule_of", ", ".join(leading) or "(none)"
                    self._known("arm", followed, self.arms, at)
                    if self.arms[followed].space not in leading:
                        wrong = f"{followed} is in no space of {names}, which follow no arm"
                        raise ValueError(f"{at}: {wrong}")
        every = {name: space for search in self.searches for name, space in search.spaces.items()}
        for arm, content in self.arms.items():
            if content.space is not None:
                self._known("space", content.space, every, f"arms.{arm}.space")
        return self

    @staticmethod
    def _known(kind: str, name: str, blocks: dict[str, Any], key: str) -> None:
        if name not in blocks:
            raise ValueError(f"{key}: no {kind} {name!r}; there are {among(name, blocks)}")


def load_study(conf: Path, name: str, env: str | None = None) -> Study:
    """Read `<conf>/base/studies/<name>.yml` and, over it, the environment's file of that name,
    which holds what differs: blocks are merged, lists replaced, arms and versions of null gone.

    Raises:
        InputError: no such study, a file that is not YAML, or keys that a study has not.
    """
    if name in RESERVED_NAMES:
        raise InputError("study", name, "the name is reserved; call the study something else")
    folders = [conf / layer / "studies" for layer in (BASE_ENV, env) if layer]
    studies = sorted({path.stem for folder in folders for path in folder.glob("*.yml")})
    if name not in studies:
        names = among(name, studies, f"(none in {folders[0]})")
        raise InputError("study", name, f"no such study; the studies are {names}")
    files = dict.fromkeys(folder / f"{name}.yml" for folder in folders)
    content: dict[str, Any] = {}
    for file in filter(Path.is_file, files):
        content = overlaid(content, read_block(file))
    try:
        return Study.model_validate(content)
    except ValidationError as error:
        raise refusal(error, f"study.{name}", _keys) from None


def scaled(name: str, study: Study, scale: str) -> Study:
    """The study at one of its scales."""
    if scale not in study.scales:
        names = among(scale, study.scales)
        raise InputError("--scale", scale, f"{name} has no such scale; there are {names}")
    small = study.scales[scale]
    versions = {
        version: block.model_copy(update={"search": block.search and _smaller(block.search, small)})
        for version, block in study.versions.items()
    }
    title, env = f"{study.title} ({scale} scale)", small.env or study.env
    changed = {"title": title, "env": env, "grid": study.grid | small.grid, "versions": versions}
    return study.model_copy(update=changed)


def _smaller(search: Search, scale: Scale) -> Search:
    """A search at a scale: with its seeds, and in spaces with the first values of each key."""

    def first(grid: Grid) -> Grid:
        return {key: values[: scale.search_values] for key, values in grid.items()}

    spaces = {
        name: space.model_copy(update={"grids": [*map(first, space.grids)]})
        for name, space in search.spaces.items()
    }
    parameters = search.parameters and search.parameters | scale.search_parameters
    changed = {"spaces": spaces, "parameters": parameters, "over": first(search.over)}
    seeds = search.seeds and (scale.search_seeds or search.seeds)
    return search.model_copy(update=changed | {"seeds": seeds})


def _keys(location: Sequence[int | str]) -> list[str]:
    """The keys of the block at a place in the file; of all blocks that may be there."""
    blocks: list[type[Block]] = [Study]
    for part in location:  # names of arms, places in lists and branches of unions are no fields
        fields = [block.model_fields[part] for block in blocks if part in block.model_fields]
        blocks = [block for each in fields for block in _blocks(each.annotation)] or blocks
    items = (item for block in blocks for item in block.model_fields.items())
    return sorted({field.alias or name for name, field in items})


def _blocks(kind: Any) -> list[type[Block]]:
    """The blocks that a type consists of."""
    if isinstance(kind, type) and issubclass(kind, Block):
        return [kind]
    return [block for part in get_args(kind) for block in _blocks(part)]
