"""Write docs/what-goes-together.md anew, in the project's root."""

from pathlib import Path

from m2fdp.core.experiment.facts import page

if __name__ == "__main__":
    Path("docs/what-goes-together.md").write_text(page(), encoding="utf-8")
