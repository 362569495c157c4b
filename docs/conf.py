"""The site: guides from docs/, all notebooks of nbs/ with their stored outputs, and the reference of the package."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pages

project = "envgen_nb"
author = copyright = "The envgen_nb authors"
release = version = pages.version()
extensions = ["myst_nb", "pages"]
root_doc = "index"
exclude_patterns = ["_build", "extra", "gallery"]
html_extra_path = ["extra"]               # reports, which are pages by themselves

nb_execution_mode = "off"                 # the outputs are those that are stored
nb_merge_streams = True
nb_ipywidgets_js = {}                     # what is stored shows without scripts from elsewhere
nb_mime_priority_overrides = [("html", "text/html", 0), ("html", "image/svg+xml", 1)]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_dmath_double_inline = True
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]      # some outputs are neither code nor JSON

html_theme = "furo"
html_title = f"envgen_nb {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_math_renderer = "mathml"             # equations are in the page: no script, no network
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False          # read from the disk, a page cannot fetch others
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
python_use_unqualified_type_names = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 88
