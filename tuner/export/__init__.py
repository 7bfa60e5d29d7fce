"""What to deploy, from a concluded study: files to copy, and what is said of them.

exported = export_study(folder, study, default_folder(study))
print(export_text(exported))
"""

from __future__ import annotations

from tuner.export.telling import export_text
from tuner.export.writing import Exported, default_folder, export_study

__all__ = ["Exported", "default_folder", "export_study", "export_text"]
