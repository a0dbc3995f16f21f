"""What mkdocs does for this site beside the pages in docs/: pages that lie elsewhere, and folders
in the nav.
"""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts import api

ROOT = Path(__file__).parents[1]
ELSEWHERE = {  # where a page is on the site, and in the repository
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "images/README.md": "images/README.md",
    "deployments/helm/testbed/README.md": "deployments/helm/testbed/README.md",
}
_URIS = {path: uri for uri, path in ELSEWHERE.items()}
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>(?![a-z]+:|#)[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """Expand a folder in the nav to its pages, in the order of their names."""
    for entry in config.nav or ():
        for title, target in entry.items():
            if isinstance(target, str) and target.endswith("/"):
                entry[title] = [
                    f"{target}{path.name}"
                    for path in sorted(Path(config.docs_dir, target).glob("*.md"))
                ]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that lie beside what they are about, and the one that is made from
    docstrings.
    """
    for uri, path in ELSEWHERE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, "api.md", content=api.page()))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the repository's links into links of the site, and links to files outside it into their
    names.
    """
    uri = page.file.src_uri
    here = ELSEWHERE.get(uri, f"docs/{uri}")
    return LINK.sub(lambda link: _site_link(link, here, posixpath.dirname(uri), files), markdown)


def _site_link(link: re.Match[str], here: str, folder: str, files: Files) -> str:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), link["target"]))
    uri = _URIS.get(path, path.removeprefix("docs/"))
    if files.get_file_from_path(uri):
        return f"[{link['text']}]({os.path.relpath(uri, folder or '.')}{link['anchor'] or ''})"
    return link[0] if not (ROOT / path).exists() else link["text"]
