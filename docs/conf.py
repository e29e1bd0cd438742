"""Settings of the documentation site; ``make docs`` builds it into docs/_build/html."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # scripts with small matrices only wait for more threads
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE / "_ext")]

import fairerclip  # noqa: E402

project = "fairerclip"
author = "the fairerclip authors"
release = version = fairerclip.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "matplotlib.sphinxext.plot_directive",
    "page_anchors",
    "docstring_links",
    "command_pages",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_ext", "_templates", "pictures"]
templates_path = ["_templates"]
nitpicky = True
smartquotes = False  # options begin with two hyphens
show_warning_types = True

# Markdown
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
suppress_warnings = [
    "config.cache",
    "myst.header",  # tables of the reproduction begin with a sentence
]

# Docstrings
autodoc_typehints = "none"  # numpydoc sections have the types
autodoc_member_order = "bysource"
autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_filename_map = {  # some file systems do not tell these from classes of the same name
    "fairerclip.data.join": "fairerclip.data.join-function",
    "fairerclip.data.preflight": "fairerclip.data.preflight-function",
}
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# Pictures: files of docs/pictures are run by the plot directive, examples by sphinx-gallery.
plot_basedir = str(HERE / "pictures")
plot_formats = [("svg", 100)]
plot_html_show_formats = False
plot_html_show_source_link = False
plot_rcparams = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "fairerclip",
}
plot_apply_rcparams = True
plot_pre_code = ""
sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "matplotlib_animations": False,
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
}

# Pages
html_theme = "pydata_sphinx_theme"
html_title = f"fairerclip {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_nav_level": 1,
}
html_sidebars = {"index": [], "quickstart": [], "glossary": [], "references": []}
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
copyright = "fairerclip, Apache-2.0"
