"""specdyno's reports: stored results turned into pages; reads results/, never a live server."""
