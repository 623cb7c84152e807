"""The privacy card of a run: one page for whoever must judge it, a reviewer or a data protection
officer, in Markdown."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from m2fdp.core.algorithms import get_algorithm
from m2fdp.core.config import PrivacyConfig
from m2fdp.core.formatting import counted, hardly_protects, nominal, promised_epsilon, upper_bound
from m2fdp.core.metrics import ACCURACY, leading, told
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.core.privacy.sight import KINDS
from m2fdp.experiment import Experiment
from m2fdp.reporting.tables import markdown

_NEIGHBOURS = {
    "add_remove": "is there or is not",
    "zero_out": "is there or is replaced by nothing",
    "replace_one": "is what it is or is replaced by any other",
}
_UNITS = {"record": "one record", "device": "all that one device holds"}
_GUARANTEES = {
    "verified": "Verified: computed for the noise that is really used, for each of them",
    "conditional": "Conditional: it holds only if what nothing can enforce is true",
}
# The files of a run that are pictures, and what they show.
FIGURES = {
    "accuracy_curve.png": "accuracy and ε over the rounds",
    "privacy_ledger.png": "who learns how much about whom",
    "epsilon_over_rounds.png": "ε over the rounds by observer",
    "confusion_matrix.png": "confusion matrix",
    "label_distribution.png": "records by device and label",
    "network.png": "the network",
}
_OF_OWN_CODE = "The engine bounds what some of it does. ε is conditional on all the rest."
_OPENING = 2  # sections that tell what was reached
# Sections that a page with little room does without, in this order; the files have them.
EXPENDABLE = (
    "How the noise was set",
    "What is outside the promise",
    "What was trained",
    "What this rests on",
)


@dataclass(frozen=True)
class Card:
    """What is to be known of a run, in the order in which it is read."""

    title: str
    sections: tuple[tuple[str, str], ...]  # a heading, "" = none, and Markdown

    def markdown(self, figures: Sequence[str] = ()) -> str:
        """The card, with paragraphs on figures, such as links, below what was reached."""
        return f"# {self.title}\n\n{self.body(figures)}"

    def body(self, figures: Sequence[str] = (), omitted: Collection[str] = ()) -> str:
        """The same without the title, and without the sections of some headings."""
        parts: list[str] = []
        for place, (heading, text) in enumerate(self.sections):
            if heading in omitted:
                continue
            if place == _OPENING:
                parts += figures
            parts += filter(None, (heading and f"## {heading}", text))
        return "\n\n".join(parts) + "\n"

    def shortened(self, longest: int, figures: Sequence[str] = ()) -> str:
        """The body, less the sections that it can best do without, until it is no longer than that
        many characters."""
        for count in range(len(EXPENDABLE) + 1):
            text = self.body(figures, EXPENDABLE[:count])
            if len(text) <= longest:
                break
        return text[:longest]


def subject_of(experiment: Experiment) -> dict[str, Any]:
    """What is trained on what, as texts and numbers for `privacy_card`."""
    config, network = experiment.config, experiment.plan.network
    sizes = experiment.samples.sizes
    return {
        "algorithm": get_algorithm(config.algorithm).title,
        "seed": config.seed,
        "dataset": config.dataset.name,
        "records": int(sizes.sum()),
        "evaluated": len(experiment.held_out),
        "evaluated_on": config.training.evaluate_on,
        "records_a_device": (int(sizes.min()), int(sizes.max())),
        "devices": network.tree.n_devices,
        "layers": [(len(nodes), int(nodes.sum())) for nodes in network.trust[1:]],
        "model": config.model.name,
        "parameters": experiment.model.n_parameters,
        "features": config.features.map,
        "local_steps": config.training.local_steps,
        "partition": config.partition.scheme,
    }


def privacy_card(
    subject: Mapping[str, Any],
    promised: Mapping[str, Any],
    reached: Mapping[str, Any] | None,
    ledger: pd.DataFrame | None,
    command: str,
    split: str = "",
) -> Card:
    """The card of a run.

    Args:
        subject: what `subject_of` returns.
        promised: the content of privacy_summary.json.
        reached: the content of run_summary.json; None where nothing was trained.
        ledger: rows of `m2fdp.core.privacy.ledger.ledger_table`; None where nothing
            is private.
    """
    sections = [
        ("", _lead(subject, promised, reached)),
        ("", _numbers(promised, reached)),
    ]
    if promised["guarantee"] == "none":
        nothing = f"Nothing: {promised.get('note', 'no privacy')}."
        sections.append(("What is promised", nothing))
    else:
        sections += _of_privacy(promised, ledger)
    sections.append(("What was trained", _trained(subject, promised)))
    place = f"On the split whose SHA-256 is `{split}`, in" if split else "In"
    repeat = f"{place} the project's folder:\n\n```\n{command}\n```"
    sections.append(("Repeat it", repeat))
    title = f"{subject['algorithm']} on {subject['dataset']}, seed {subject['seed']}"
    return Card(title, tuple(sections))


def _lead(
    subject: Mapping[str, Any], promised: Mapping[str, Any], reached: Mapping[str, Any] | None
) -> str:
    model = f"A {subject['model']} model of {counted(subject['parameters'], 'parameter')}"
    network = f"{counted(subject['devices'], 'device')}{_below(subject)}"
    if reached is None:
        done = f"{model} over {network} is what this run is about; it trains none"
    else:
        done = (
            f"{model} was trained over {network} for {counted(reached['rounds'], 'round')}. "
            f"It {_quality(reached)} {subject['evaluated']:,} {subject['evaluated_on']} records"
        )
        done += " rightly" * (ACCURACY.name in reached)
    answers = f" It answers **{reached['answers']}**." if reached and "answers" in reached else ""
    if promised["guarantee"] == "none":
        return f"{done}, and keeps nothing private.{answers}"
    bound = _bound(promised_epsilon(promised))
    return f"{done}, at ε = **{bound}** ({promised['guarantee']}).{answers}"


def _quality(reached: Mapping[str, Any]) -> str:
    """What is said of a model first, before `N records`."""
    if ACCURACY.name in reached:
        return f"labels **{reached[ACCURACY.name]:.1%}** of"
    measure = leading(reached)
    return f"has {measure.words} **{measure.of_run(reached[measure.name])}** on"


def _below(subject: Mapping[str, Any]) -> str:
    """` below 10 servers, 5 of them trusted,`, or nothing in a star."""
    n, trusted = (sum(layer[i] for layer in subject["layers"]) for i in (0, 1))
    return f" below {counted(n, 'server')}, {trusted:,} of them trusted," if n else ""


def _unit(promised: Mapping[str, Any]) -> str:
    of_record = {"record": promised.get("record", _UNITS["record"])}
    return (_UNITS | of_record)[promised["unit"]]


def _numbers(promised: Mapping[str, Any], reached: Mapping[str, Any] | None) -> str:
    rows = [] if reached is None else told(reached)
    if promised["guarantee"] == "none":
        rows.append(("ε", "∞ for everybody"))
    else:
        guarantee, bound = promised["guarantee"], _bound(promised_epsilon(promised))
        rows += [
            (f"ε {guarantee}", f"{bound} ({guarantee})"),
            ("ε nominal", nominal(float(promised["epsilon_nominal"]))),
            ("δ", f"{promised['delta']:g}"),
            ("unit", _unit(promised)),
        ]
    return _valued(rows)


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of texts in Markdown, all columns aligned to the left."""
    frame = pd.DataFrame(rows)
    return markdown(frame, list(frame.columns)).rstrip()


def _valued(rows: Sequence[tuple[str, str]]) -> str:
    return _table([{"": name, "value": value} for name, value in rows])


def _listed(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _of_privacy(promised: Mapping[str, Any], ledger: pd.DataFrame | None) -> list[tuple[str, str]]:
    epsilon = promised_epsilon(promised)
    distrusted = " and ".join(map(_who, promised["distrusted"])) or "nobody"
    factor = upper_bound(math.exp(epsilon)) if epsilon < 100 else "e^ε"
    says = (
        f"This run hides whether {_unit(promised)} {_NEIGHBOURS[promised['adjacency']]}, from "
        f"those whom it protects against ({distrusted}). Whatever they see is at most {factor} "
        "times as likely in the one case as in the other, but for a chance of "
        f"{promised['delta']:g}. {_GUARANTEES[promised['guarantee']]}."
    )
    says += "".join(f" It holds if {condition}." for condition in promised.get("conditions", ()))
    if weak := hardly_protects(epsilon):
        says += f" **{weak}.**"
    nominal_epsilon = float(promised["epsilon_nominal"])
    if epsilon > nominal_epsilon * (1 + 1e-6):
        says += (
            f" **The formula that set the noise promises ε = {nominal(nominal_epsilon)}; it does "
            "not keep that.**"
        )
    planned = promised.get("rounds_planned", promised["rounds"])  # older files lack it
    how = [
        ("noise on", _noised(promised["mechanism"])),
        ("amount set by", promised["calibration"]),
        ("clipping norm", f"{promised['clipping_norm']:g}"),
        ("neighbours", promised["adjacency"]),
        ("accountant", promised["accountant"]),
        ("rounds", f"{promised['rounds']:,} of {planned:,} planned"),
    ]
    sections = [
        ("What is promised", says),
        ("Who learns how much", f"{_more(promised)}\n\n{_observers(promised, ledger)}"),
        ("What this rests on", _listed(promised["assumptions"])),
    ]
    if own_code := promised.get("own_code"):
        sections.insert(1, ("Code of your own", f"{_OF_OWN_CODE}\n\n{_own_code(own_code)}"))
    if exclusions := promised.get("outside_the_promise"):
        sections.append(("What is outside the promise", _listed(exclusions)))
    return [*sections, ("How the noise was set", _valued(how))]


def _noised(name: str) -> str:
    mechanism = get_mechanism(name)
    if mechanism.noises_every_step:
        return "every local step's gradient"
    of_models = mechanism.clipping(PrivacyConfig()).of_models
    what = "clipped weights that leave" if of_models else "every model that leaves"
    return f"{what} the device and trusted servers"


def _own_code(parts: Sequence[Mapping[str, Any]]) -> str:
    """A row a piece of the user's own code that took part."""
    return _table(
        [
            {
                "code": f"`{part['key']}={part['name']}`",
                "trusted in that": f"the {part['part']} {part['trusted']}",
                "the engine bounds it": "yes" if part["enforced"] else "**no**",
            }
            for part in parts
        ]
    )


def _more(promised: Mapping[str, Any]) -> str:
    bound = promised_epsilon(promised)
    greater = [
        f"{_who(kind)} (ε {_bound(value)})"
        for kind, value in promised["epsilon_by_observer"].items()
        if float(value) > bound * (1 + 1e-6)
    ]
    if not greater:
        return "Nobody learns more than those whom the run protects against."
    return f"It does not protect against these, who could learn more: **{', '.join(greater)}**."


def _observers(promised: Mapping[str, Any], ledger: pd.DataFrame | None) -> str:
    """A row a kind of observer: the largest epsilon of any device, and of how many."""
    rows = []
    for kind, value in promised["epsilon_by_observer"].items():
        row = {
            "who could read": _who(kind),
            "protected against": "yes" if kind in promised["distrusted"] else "",
            "ε at most": _bound(value),
        }
        if ledger is not None:
            lines = ledger[ledger["kind"] == kind]
            worst = lines[lines["epsilon"] >= float(value) * 0.99]  # nearly as much
            row["devices concerned"] = f"{worst['devices'].sum():,}"
            row["sees"] = worst["sees"].iloc[0] if len(worst) else ""
        rows.append(row)
    return _table(rows)


def _trained(subject: Mapping[str, Any], promised: Mapping[str, Any]) -> str:
    smallest, largest = subject["records_a_device"]
    model = f"{subject['model']}, {counted(subject['parameters'], 'parameter')}"
    servers = ", ".join(f"{trusted:,} of {n:,}" for n, trusted in subject["layers"])
    servers = servers and f"; trusted servers by layer: {servers}"
    data = (
        f"{subject['dataset']}: {subject['records']:,} training records, dealt "
        f"{subject['partition']}, {smallest:,} to {largest:,} a device"
    )
    rows = [
        ("algorithm", f"{subject['algorithm']}, seed {subject['seed']}"),
        ("data", data),
        ("model", f"{model}, on {subject['features']}"),
        ("network", f"{counted(subject['devices'], 'device')}{servers}"),
        ("local steps a round", f"{subject['local_steps']:,}"),
    ]
    if fitted := promised.get("features_fitted_on"):
        rows.append(("features fitted on", ", ".join(fitted)))
    return _valued(rows)


def _who(kind: str) -> str:
    """A kind of observer in words; one that only older files know by its name."""
    return KINDS[kind].words if kind in KINDS else kind


def _bound(value: float | str) -> str:
    return upper_bound(float(value))
