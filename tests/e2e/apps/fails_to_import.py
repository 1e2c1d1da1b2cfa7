"""A target that cannot even be imported."""

import a_module_that_is_not_there  # noqa: F401  # pyright: ignore
