"""Files of the repository beside its packages: a wheel has them in the folder `packaged` of this
package.
"""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
REPOSITORY = _packaged if (_packaged := _PACKAGE / "packaged").is_dir() else _PACKAGE.parent
IMAGES = REPOSITORY / "images"
CLUSTERS = Path("deployments/clusters")
CLUSTER_SCHEMA = CLUSTERS / "cluster.schema.json"  # what an editor checks a cluster file by


def example(path: Path) -> Path:
    """Return the shipped file if `path` is below deployments/clusters and not in the current
    folder; else `path`.
    """
    shipped = REPOSITORY / path
    return shipped if path.parent == CLUSTERS and not path.exists() and shipped.exists() else path
