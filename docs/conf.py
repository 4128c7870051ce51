"""How the site is built: `make docs`, into build/docs."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import gromap  # noqa: E402

project, author = "gromap", "The gromap developers"
copyright = "the gromap developers, MIT licence"
version = release = gromap.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "sphinx_gromap",
]
exclude_patterns = ["gallery"]  # of which sphinx_gallery makes auto_gallery
templates_path = ["_templates"]
default_role = "py:obj"  # names of the package are links, all else is code
highlight_language = "none"  # formulas in the pages; what is code says so
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["ref.python"]  # names that several classes have stay plain code

autosummary_generate = True
autodoc_default_options = {
    "no-value": True,  # which the signature of the class has
    "exclude-members": "set_fit_request",  # of scikit-learn
}
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say what is accepted, in more words
python_maximum_signature_line_length = 88

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "subsection_order": ["gallery/shapes", "gallery/data", "gallery/learning"],
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("sphinx_gromap.figures", "matplotlib"),
    "image_srcset": ["2x"],
    "thumbnail_size": (400, 280),
    "backreferences_dir": "auto_gallery/uses",
    "doc_module": ("gromap",),
    "capture_repr": (),
    "download_all_examples": False,
    "min_reported_time": 1,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "gromap"
html_static_path = ["_static"]
html_css_files = ["gromap.css"]
html_show_sourcelink = False
html_sidebars = {"index": [], "mathematics": [], "coming_from": []}
html_theme_options = {
    "logo": {"text": "gromap"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
