# SPDX-License-Identifier: Apache-2.0
"""Where we differ from ms-swift on purpose: (template, flags, shape) with None for any, and why. docs/ms-swift.md argues each."""

ON_PURPOSE = [
]


def allowed(template, flags, shape):
    return any(t in (None, template) and f in (None, flags) and s in (None, shape) for t, f, s, _ in ON_PURPOSE)
